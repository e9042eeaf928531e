"""Every trick of a coordinator about masked sums. They do not depend on the algorithm: masks are on any sums."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.federations import begin_masked
from tests.sites.adversaries.masks import AboutMaskedClients, AboutMasks, MaskedSites
from tests.sites.adversaries.tricks import Trick, tricks_of

OF_CLIENTS = [trick for trick in tricks_of(AboutMaskedClients) if trick not in tricks_of(AboutMasks)]


def play(adversary: AboutMasks, trick: Trick) -> None:
    for sent in trick.play(adversary) or ():
        (site, question), line = sent if isinstance(sent[0], tuple) else (sent, trick.holds)
        adversary.sites.require_refusal(site, question, line)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return begin_masked(tmp_path_factory.mktemp("masked"))


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutMasks)])
def test_a_trick_about_masks(begun, tmp_path, trick):
    sites = MaskedSites(begun, tmp_path)
    play(AboutMasks(sites), trick)
    sites.close()


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in OF_CLIENTS])
def test_a_trick_about_masked_sums_of_several_clients(tmp_path, trick):
    keys = ("training.clients_per_round=15", "training.min_clients=1", "algorithm.local_epochs=1")
    begun = begin_masked(tmp_path / "begun", *keys, clients={"rule": "documents"})
    sites = MaskedSites(begun, tmp_path)
    play(AboutMaskedClients(sites), trick)
    sites.close()
