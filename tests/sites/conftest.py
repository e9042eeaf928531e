"""Lets all parties in this process share their built computations."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _built_once():
    from tests.upper_floors import builder
    from tff_re.runs import experiment, setup
    from tff_re.sites import experiments

    shared = builder()._computations
    original_init = experiments.SitesBuilder.__init__

    def init(self, prepared):
        original_init(self, prepared)
        self._computations = shared

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(experiments.SitesBuilder, "__init__", init)
        original_builder = experiment.ExperimentBuilder
        patched.setattr(
            setup, "ExperimentBuilder", lambda data_paths: original_builder(data_paths, _computations=shared)
        )
        yield
