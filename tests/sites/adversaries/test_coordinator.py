"""Every trick of a coordinator, with sites in memory: a refusal by name, nothing written, honest answers repeated."""

from __future__ import annotations

import pytest

from tests.sites.adversaries import coordinator
from tests.sites.adversaries.federations import ONE, RECIPES, begun, speed_of
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.adversaries.victims import Victim

pytestmark = pytest.mark.xdist_group("adversaries")  # one process trains the runs

ADVERSARIES = (coordinator.AboutStages, coordinator.AboutTheSetUp)
TRICKS = [(adversary, trick) for adversary in ADVERSARIES for trick in tricks_of(adversary)]


@pytest.fixture(scope="module")
def site_of():
    """Algorithm -> the attacked site, made when it is first asked for."""
    made = {}

    def site(algorithm):
        if algorithm not in made:
            made[algorithm] = Victim(begun(algorithm), begun(algorithm).folder / "bonn")
        return made[algorithm]

    yield site
    for site in made.values():
        site.service.close()


@pytest.mark.parametrize(
    ("algorithm", "adversary", "trick"),
    [
        pytest.param(*(algorithm, adversary, trick), id=f"{algorithm}-{trick.name}", marks=speed_of(algorithm))
        for algorithm in RECIPES
        for adversary, trick in TRICKS
        if trick.every or algorithm == ONE
    ],
)
def test_a_trick_of_a_coordinator(site_of, tmp_path, algorithm, adversary, trick):
    site, copies = site_of(algorithm), []

    def fresh():
        copies.append(Victim.copied(site.begun, tmp_path / str(len(copies))))
        return copies[-1]

    for sent in trick.play(adversary(site, fresh)) or ():
        site.require_refusal(*(sent if isinstance(sent, tuple) else (sent, trick.holds)))
    site.require_as_before()
    for copy in copies:
        copy.service.close()
