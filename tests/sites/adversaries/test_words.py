"""Every trick of a coordinator about words. They do not depend on the algorithm."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.tricks import tricks_of
from tests.sites.adversaries.words import AboutWords, AskedForWords


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutWords)])
def test_a_trick_about_words(tmp_path, trick):
    sites = AskedForWords(tmp_path)
    for site, question, *line in trick.play(AboutWords(sites)) or ():
        sites.require_refusal(site, question, *(line or [trick.holds]))
    sites.federation.close()
