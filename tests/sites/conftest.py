"""All parties of this process build their computations once."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _built_once():
    from tests.upper_floors import builder
    from tff_re.runs import at_sites, experiment
    from tff_re.runs import run as runs

    shared = builder()._computations
    given = at_sites.SitesBuilder.__init__

    def init(self, prepared):
        given(self, prepared)
        self._computations = shared

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_sites.SitesBuilder, "__init__", init)
        usual = experiment.ExperimentBuilder
        patched.setattr(runs, "ExperimentBuilder", lambda data_paths: usual(data_paths, _computations=shared))
        yield
