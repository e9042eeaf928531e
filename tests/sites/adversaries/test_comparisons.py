"""Every trick with own models: a coordinator learns what the policy says, and a site's lie costs only its own row."""

from __future__ import annotations

import collections

import pytest

from tests.sites.adversaries.comparisons import AboutComparisons, AboutOwnModels, begun_to_compare
from tests.sites.adversaries.federations import SITES, VICTIM
from tests.sites.adversaries.site import OTHER_SITE
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.adversaries.victims import Victim
from tff_re.sites import protocol
from tff_re.sites.asking import Patience, Sites
from tff_re.sites.comparison_messages import AloneAnswer, CompareAnswer
from tff_re.sites.comparisons import compare_at_sites
from tff_re.sites.transport import InMemory

pytestmark = pytest.mark.xdist_group("adversaries")  # one process trains the runs

RUN = "5" * 32
ROUNDS = 5


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutComparisons)])
def test_a_trick_of_a_coordinator_with_own_models(tmp_path, trick):
    begun, copies = begun_to_compare(), []

    def fresh():
        copies.append(Victim.copied(begun, tmp_path / str(len(copies))))
        return copies[-1]

    for site, question, *line in trick.play(AboutComparisons(begun, fresh)) or ():
        site.require_refusal(question, *(line or [trick.holds]))
    for copy in copies:
        copy.service.close()


def rows(kind=None, lie=None):
    """(rows of both sites, lines for the user) of a comparison in which one site answers a kind with a lie."""
    asked, lines = collections.Counter(), []

    def call(site):
        def answered(message):
            question = protocol.question_of(message)
            if site == VICTIM and question.kind == kind:
                asked[kind] += 1
                assert asked[kind] <= 2 * ROUNDS, "it is asked without an end"
                return lie(asked[kind] - 1)
            if question.kind == "alone":
                return protocol.to_bytes(AloneAnswer(site=site, rounds=2, finished=True))
            return protocol.to_bytes(CompareAnswer(site=site, disclosed="direction", verdict="open"))

        return answered

    patience = Patience(stage_seconds=5, retry_seconds=0.01)
    sites = Sites(InMemory({site: call(site) for site in SITES}), patience, on_line=lines.append)
    return compare_at_sites(sites, RUN, SITES, "alone", (), ROUNDS), lines


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutOwnModels)])
def test_a_trick_of_a_site_with_own_models(trick):
    honest = {"site": OTHER_SITE, "disclosed": "direction", "verdict": "open"}
    assert rows() == ([honest, {**honest, "site": VICTIM}], [])
    for kind, lie, line in trick.play(AboutOwnModels()):
        told, lines = rows(kind, lie)
        assert told == [honest, {"site": VICTIM, "disclosed": "no answer"}]
        (said,) = [line for line in lines if "its comparison is missing" in line]
        assert said.startswith(f"site {VICTIM}: ") and line in said and said.isprintable(), (said, line)
