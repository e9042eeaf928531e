"""Exports that tests only read are written once for all files and processes of a test run."""

import pytest

from tests import exports_for_tests


@pytest.fixture(scope="session", autouse=True)
def _shared_exports(tmp_path_factory):
    exports_for_tests.share(tmp_path_factory)
