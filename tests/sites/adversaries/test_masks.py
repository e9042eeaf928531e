"""Every trick of a coordinator about masked sums. They do not depend on the algorithm: masks are on any sums."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.federations import begun_masked
from tests.sites.adversaries.masks import AboutMasks, MaskedSites
from tests.sites.adversaries.tricks import tricks_of

pytestmark = pytest.mark.xdist_group("adversaries")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    opened = MaskedSites(begun_masked(), tmp_path_factory.mktemp("masked"))
    yield opened
    opened.close()


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutMasks)])
def test_a_trick_about_masks(sites, trick):
    sites.reset()
    for sent in trick.play(AboutMasks(sites)) or ():
        (site, question), line = sent if isinstance(sent[0], tuple) else (sent, trick.holds)
        sites.require_refusal(site, question, line)
