"""All parties of this process build their computations once."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _built_once():
    from tests.upper_floors import builder
    from tff_re.runs import experiment, setup
    from tff_re.sites import experiments

    shared = builder()._computations
    usual_init = experiments.SitesBuilder.__init__

    def init(self, prepared):
        usual_init(self, prepared)
        self._computations = shared

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(experiments.SitesBuilder, "__init__", init)
        usual = experiment.ExperimentBuilder
        patched.setattr(setup, "ExperimentBuilder", lambda data_paths: usual(data_paths, _computations=shared))
        yield
