"""Every trick of a coordinator about masked sums. They do not depend on the algorithm: masks are on any sums."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.masks import AboutMasks
from tests.sites.adversaries.tricks import tricks_of

pytestmark = pytest.mark.xdist_group("adversaries")


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutMasks)])
def test_a_trick_about_masks(masked, trick):
    masked.reset()
    for sent in trick.play(AboutMasks(masked)) or ():
        (site, question), line = sent if isinstance(sent[0], tuple) else (sent, trick.holds)
        masked.require_refusal(site, question, line)
