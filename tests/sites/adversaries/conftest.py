"""Sites that several files of tests attack."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.federations import begun_masked
from tests.sites.adversaries.masks import MaskedSites


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Sites that have agreed to a masked run."""
    sites = MaskedSites(begun_masked(), tmp_path_factory.mktemp("masked"))
    yield sites
    sites.close()
