"""Every trick of a site: a line that names it, and a round as if it had not answered; never a traceback."""

from __future__ import annotations

import pytest

from tests.computations import toolbox
from tests.sites.adversaries.federations import ONE, RECIPES, SITES, VICTIM, begun, speed_of
from tests.sites.adversaries.site import OTHER_SITE, AboutFacts, AboutMaskedSums, AboutSums, AboutTheSetUp
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.sites_for_tests import NAMES
from tff_re.errors import UserError
from tff_re.runtime.errors import RuntimeProblem
from tff_re.sites import protocol
from tff_re.sites.asking import BadAnswer, Patience, Sites
from tff_re.sites.calls import Call
from tff_re.sites.messages import pack, unpack
from tff_re.sites.opening import Opening
from tff_re.sites.requests import TRAIN
from tff_re.sites.set_up import _agree
from tff_re.sites.transport import InMemory, NoAnswer
from tff_re.tasks.data_paths import DataPaths

pytestmark = pytest.mark.xdist_group("adversaries")  # one process trains the runs

QUICK = Patience(stage_seconds=5, retry_seconds=0.01, quorum=0.1)


# Sums, of every algorithm


class Replayed:
    """The coordinator's call of a round with the answers that sites gave, but for those of one stage of bonn."""

    def __init__(self, begun):
        self.agreement, self.limits, self.program, self.argument, self.round = begun.calls[TRAIN]
        self.answers = {
            (site, question.stage): answer
            for site in SITES
            for message, answer in begun.asked[site]
            if isinstance(question := protocol.question_of(message), protocol.Stage) and question.purpose == TRAIN
        }

    def play(self, stage: int | None = None, answer: bytes | None = None):
        """(the new state to the bit, the call, lines for the user); without an answer, bonn gives none."""
        lines = []

        def call(site):
            def answered(message):
                asked = protocol.question_of(message)
                if site != VICTIM or asked.stage != stage:
                    return self.answers[site, asked.stage]
                if answer is None:
                    raise NoAnswer(f"site {VICTIM} does not answer")
                return answer

            return answered

        sites = Sites(InMemory({site: call(site) for site in SITES}), QUICK, on_line=lines.append)
        played = Call(
            sites, self.agreement, self.limits, self.program, self.argument, purpose=TRAIN, round_num=self.round
        )
        return toolbox.bits(played.run()["state"]), played, lines

    def adversary(self, begun, stage: int) -> AboutSums:
        arrays = unpack(self.answers[VICTIM, stage])[1]
        clients = list(enumerate(self.agreement.clients))
        here = [(number, client.train) for number, client in clients if client.site == VICTIM]
        bounds = self.limits.bounds([size for _, size in here], [number for number, _ in here], len(SITES))
        others = {number for number, client in clients if client.site != VICTIM}
        return AboutSums(begun, self.program, stage, arrays, bounds, others)


@pytest.mark.parametrize("algorithm", [pytest.param(name, marks=speed_of(name)) for name in RECIPES])
def test_sums_that_a_site_cannot_have(algorithm):
    run = begun(algorithm)
    replayed = Replayed(run)
    honest, call, lines = replayed.play()
    assert call.took_part == list(SITES) and not lines
    without, call, lines = replayed.play(0)
    assert call.took_part == [OTHER_SITE] and without != honest
    played = {}
    for stage in range(len(replayed.program.stages)):
        for trick in tricks_of(AboutSums):
            for arrays in trick.play(replayed.adversary(run, stage)):
                state, call, lines = replayed.play(stage, pack({"site": VICTIM}, arrays))
                said = [line for line in lines if "goes on without" in line]
                assert len(said) == 1 and said[0].startswith(f"site {VICTIM}: "), (trick.name, lines)
                assert trick.holds in said[0] and f"site {OTHER_SITE}" not in said[0], (trick.name, said)
                assert call.took_part == [OTHER_SITE] and state == without, trick.name
                played[trick.name] = True
    wanted = {trick.name for trick in tricks_of(AboutSums)} - {"the_best_of_another_site", "updates_without_a_weight"}
    assert wanted <= played.keys()
    if algorithm == "lazy_mil":
        assert "the_best_of_another_site" in played
    if algorithm == "fedavgs":
        assert "updates_without_a_weight" in played


# The set-up, which does not depend on the algorithm


def play_set_up(run, adversary, trick):
    honest = {(site, unpack(m)[0]["kind"]): answer for site in SITES for m, answer in run.asked[site]}
    name = run.questions("hello")[0].run

    def agree(kind, lie):
        def call(site):
            def answered(message):
                asked = unpack(message)[0]["kind"]
                return lie if (site, asked) == (VICTIM, kind) else honest[site, asked]

            return answered

        sites = Sites(InMemory({site: call(site) for site in SITES}), QUICK)
        agreement, _ = _agree(sites, run.recipe, DataPaths(), name)
        question = protocol.Agree(agreement=agreement.to_json(), programs={}, run=name)
        sites.ask_every(dict.fromkeys(SITES, question))

    agree(None, None)
    for lie, line, *kinds in trick.play(adversary):
        with pytest.raises((UserError, RuntimeProblem)) as refused:
            agree(*(kinds or trick.kinds), lie)
        assert line in str(refused.value), (refused.value, line)
        assert len(str(refused.value)) < 1000 and str(refused.value).isprintable()


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutTheSetUp)])
def test_a_trick_of_a_site_in_the_set_up(trick):
    run = begun(ONE)
    play_set_up(run, AboutTheSetUp(run, VICTIM), trick)


@pytest.mark.slow  # a run on bags
@pytest.mark.parametrize(
    "trick", [pytest.param(t, id=t.name) for t in tricks_of(AboutFacts) if t not in tricks_of(AboutTheSetUp)]
)
def test_a_trick_of_a_site_about_facts(trick):
    run = begun("lazy_mil")
    play_set_up(run, AboutFacts(run, VICTIM), trick)


# Masked sums


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutMaskedSums)])
def test_a_trick_of_a_site_about_masked_sums(masked, trick):
    agreement, limits, program, argument, round_num = masked.begun.calls[TRAIN]
    masked.reset()
    old = masked.answer(VICTIM, masked.asked[VICTIM])
    for kind, lie in trick.play(AboutMaskedSums(old)):

        def call(site, kind=kind, lie=lie):
            def answered(message):
                question, answer = protocol.question_of(message), masked.service(site).answer(message)
                if (site, question.kind) != (VICTIM, kind):
                    return answer
                return lie(protocol.answer_of(type(question), answer))

            return answered

        patience = Patience(stage_seconds=5, retry_seconds=0.01)
        sites = Sites(InMemory({name: call(name) for name in NAMES}), patience)
        ways = {"purpose": TRAIN, "round_num": round_num, "opening": Opening(sites, masked.run)}
        if kind in ("finish", "ping"):
            outcome = sites.ask_all({VICTIM: protocol.QUESTIONS[kind](run=masked.run)})[VICTIM]
            assert type(outcome) is BadAnswer and f"{trick.holds} '{kind}'" in str(outcome)
            continue
        with pytest.raises((UserError, RuntimeProblem)) as refused:
            Call(sites, agreement, limits, program, argument, **ways).run()
        assert trick.holds in str(refused.value) and str(refused.value).isprintable(), refused.value
