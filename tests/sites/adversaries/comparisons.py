"""A coordinator and a site that lie about training alone and comparisons, which do not depend on the algorithm."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator

import attrs
import numpy as np

from tests.built_once import temporary_folder
from tests.sites.adversaries.coordinator import OTHER_RUN
from tests.sites.adversaries.federations import VICTIM, Begun, begin
from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.victims import Victim, shifted
from tests.sites.adversaries.wire import repacked
from tff_re.sites import protocol
from tff_re.sites.comparison_messages import Alone, AloneAnswer, Compare, CompareAnswer
from tff_re.sites.requests import TRAIN

KEYS = ("baseline={kind = 'local'}", "personalise={epochs = 1}")
WHAT = ("alone", "tuned")


@functools.cache
def begun_to_compare() -> Begun:
    """Return a run with both tables whose first round is over, and whose site has trained alone."""
    run = begin("fedavgs", temporary_folder("adversaries") / "comparisons", *KEYS)
    site = Victim(run, run.folder / VICTIM)
    answer = site.answer(Alone(run=run.questions("hello")[0].run))
    assert isinstance(answer, AloneAnswer) and answer.finished, answer
    site.service.close()
    return run


class AboutComparisons:
    """Tricks after the rounds: (site, question, line).

    Attributes:
      begun: see `begun_to_compare`.
      fresh: gives a copy of the site that may be changed.
      run: the run's id.
      weights: of the model, as the first round got them.
    """

    def __init__(self, begun: Begun, fresh: Callable[[], Victim]):
        self.begun, self.fresh = begun, fresh
        self.run = begun.questions("hello")[0].run
        *self.weights, _ = begun.questions("stage", purpose=TRAIN)[0].arrays  # the last array is no weight
        self.weights = tuple(self.weights)

    def compare(self, what: str = "alone", **changes) -> Compare:
        return Compare(**{"run": self.run, "what": what, "arrays": self.weights, **changes})

    @trick("alone", "compare", holds="it does not know the run")
    def own_models_of_a_run_that_was_not_agreed(self):
        """It asks for training and comparisons in a run that there is not, or that the site has not agreed to."""
        site = self.fresh().restarted(recipes=["any"], runs=9)
        for question in (Alone(run=OTHER_RUN), self.compare(run=OTHER_RUN), self.compare("tuned", run=OTHER_RUN)):
            yield site, question
        hello = attrs.evolve(self.begun.questions("hello")[0], run=OTHER_RUN)
        assert isinstance(site.answer(hello), protocol.HelloAnswer)
        for question in (Alone(run=OTHER_RUN), self.compare(run=OTHER_RUN), self.compare("tuned", run=OTHER_RUN)):
            yield site, question, "it has not agreed to the run yet"

    @trick("alone", holds="the model stays as it is, and two numbers leave")
    def training_alone_again(self):
        """It lets the site train alone again and again, to learn of its data or to keep it busy."""
        site = self.fresh()
        before = site.disk()
        for _ in range(3):
            message = site.service.answer(protocol.to_bytes(Alone(run=self.run)))
            assert message == protocol.to_bytes(AloneAnswer(site=VICTIM, rounds=2, finished=True))
        assert site.disk() == before

    @trick("compare", holds="it has not trained alone yet")
    def a_comparison_with_no_model(self):
        """It compares its weights with the model of a site that has none yet."""
        site = self.fresh()
        shutil.rmtree(site.folder / "state" / "runs" / self.run / "alone")
        yield site, self.compare()

    @trick("compare", "finish", holds="the comparison was asked for with other weights before")
    def an_oracle_of_the_test_examples(self):
        """It compares weights of its own choosing, one set after the other, also after the run's end."""
        for what in WHAT:
            site = self.fresh().restarted(comparison="direction")
            first = site.answer(self.compare(what))
            assert first.disclosed == "direction" and first.verdict is not None and first.numbers is None
            for by in (1.0, 1e-3, np.nan):
                yield site, self.compare(what, arrays=shifted(self.weights, by))
            site = site.restarted()
            yield site, self.compare(what, arrays=shifted(self.weights))
            assert isinstance(site.answer(protocol.Finish(run=self.run)), protocol.FinishAnswer)
            yield site, self.compare(what, arrays=shifted(self.weights))
            assert protocol.to_bytes(site.answer(self.compare(what))) == protocol.to_bytes(first)
            site.service.close()

    @trick("compare", holds="what the policy said when models were compared")
    def a_policy_that_tells_nothing(self):
        """It compares any weights where the policy tells nothing, and asks again after the policy was widened."""
        nothing = protocol.to_bytes(CompareAnswer(site=VICTIM, disclosed="nothing"))
        for what in WHAT:
            for by in (0.0, 1.0):
                site, question = self.fresh(), self.compare(what, arrays=shifted(self.weights, by))
                assert site.service.answer(protocol.to_bytes(question)) == nothing
                site = site.restarted(comparison="interval")
                assert site.service.answer(protocol.to_bytes(question)) == nothing
                site.service.close()

    @trick("compare", holds="the message is not as this version of tff-re makes it")
    def weights_of_another_model(self):
        """It sends weights of other types, shapes and numbers than the model has."""
        site, weights = self.fresh(), self.weights
        for what in WHAT:
            for arrays in (
                (),
                weights[:-1],
                (*weights, weights[0]),
                tuple(a[None] for a in weights),
                tuple(a.astype(np.float64) for a in weights),
                tuple(np.zeros([*a.shape, 0], a.dtype) for a in weights),
            ):
                yield site, self.compare(what, arrays=arrays)


Lie = Callable[[int], bytes]


class AboutOwnModels:
    """What a site sends in place of its answers: (kind, lie, line).

    A lie is given how many questions of the kind it has answered.
    """

    @trick("alone", holds="its own training makes no progress")
    def training_without_an_end(self) -> Iterator[tuple[str, Lie, str]]:
        """It says again and again that it has not finished, so that the run never ends."""
        for rounds in (lambda n: 0, lambda n: 1, lambda n: n, lambda n: 9 - n, lambda n: 1 << 31):
            answer = lambda n, of=rounds: AloneAnswer(site=VICTIM, rounds=of(n), finished=False)  # noqa: E731
            yield "alone", lambda n, of=answer: protocol.to_bytes(of(n)), "its own training makes no progress"

    @trick("alone", holds="malformed answer to 'alone'")
    def rounds_that_are_none(self):
        """It counts rounds below zero, in fractions or beyond any, or sends more than their number."""
        honest = {"site": VICTIM, "rounds": 2, "finished": True}
        for values, line in (
            ({"rounds": -1}, "'rounds' must be from 0"),
            ({"rounds": 1.5}, "'rounds' must be a whole number"),
            ({"rounds": True}, "'rounds' must be a whole number"),
            ({"rounds": 1 << 40}, "'rounds' must be from 0"),
            ({"finished": 1}, "'finished' must be true or false"),
            ({"finished": "\x1b[31m"}, "'finished' must be true or false"),
            ({"accuracy": 0.5}, "unknown key 'accuracy'"),
        ):
            yield "alone", lambda n, v=values: repacked({**honest, **v}, []), f"malformed answer to 'alone': {line}"
        yield "alone", lambda n: repacked(honest, [np.zeros(3)]), "more arrays than the message has"

    @trick("compare", holds="malformed answer to 'compare'")
    def numbers_that_cannot_be(self):
        """It tells shares that are NaN, infinite or no shares, and intervals and differences that do not fit them."""
        for number in (np.nan, np.inf, -1.5, 1.5):
            yield (
                "compare",
                self.told(np.array([number, 0.5, 0.25, 0.125, 0.375])),
                "'numbers' must be shares from 0 to 1",
            )
            yield "compare", self.told(np.array([0.25, 0.5, 0.25, number, 0.375])), "'numbers' must"
        yield "compare", self.told(np.array([0.25, 0.5, np.nan, 0.125, 0.375])), "'numbers' must have the difference"
        yield "compare", self.told(np.array([0.25, 0.5, 0.75, 0.125, 0.375])), "'numbers' must have the difference"
        yield "compare", self.told(np.array([0.25, 0.5, 0.25, 0.375, 0.125])), "'numbers' must be shares"
        yield "compare", self.told(np.array([0.25, 0.5, 0.25, -0.125, 0.375])), "'verdict' must be that of the interval"
        for numbers in (np.zeros(4), np.zeros(6), np.zeros(5, np.float32), np.zeros([1, 5])):
            yield "compare", self.told(numbers), "'numbers' must be float64 [5]"

    @trick("compare", holds="malformed answer to 'compare'")
    def more_or_less_than_it_discloses(self):
        """It tells more than it says that it discloses, or less."""
        line = "'disclosed' must say what the answer has"
        numbers = np.array([0.25, 0.5, 0.25, 0.125, 0.375])
        yield "compare", self.told(numbers, disclosed="direction"), line
        yield "compare", self.told(numbers, disclosed="nothing"), line
        yield "compare", self.told(None, disclosed="interval"), line
        yield "compare", self.told(None, disclosed="nothing"), line
        yield "compare", self.told(None, disclosed="all"), "'disclosed' must be 'interval' or"
        yield "compare", self.told(None, disclosed="direction", verdict="<b>gain</b>"), "'verdict' must be 'gain' or"
        yield "compare", self.told(None, disclosed="direction", examples=7), "unknown key 'examples'"

    def told(self, numbers: np.ndarray | None, **values) -> Lie:
        """An answer to a comparison."""
        table = {"site": VICTIM, "disclosed": "interval", "verdict": "gain", **values}
        told = repacked(table, []) if numbers is None else repacked({**table, "numbers": 0}, [numbers])
        return lambda n: told
