"""Answers and sums of a site that lies: a line that names it, or a round without it; never a traceback.

Its tricks are in `tests/sites/adversaries`: here are any changes of an answer, the bounds of sums one by one, and runs.
"""

from __future__ import annotations

import contextlib
import copy
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computations.client_work import LocalTraining
from tests.computations.built import NAMES as ALGORITHMS
from tests.sites.adversaries.wire import repacked
from tests.sites.sites_for_tests import NAMES, Federation, recipe_of, write_sites
from tests.sites.test_stages import build
from tests.upper_floors import assert_same_weights
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.folder import RunFolder
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.sites.agreement import agreement_from_json
from tff_re.sites.asking import Patience, Sites
from tff_re.sites.messages import unpack
from tff_re.sites.program import Program
from tff_re.sites.run import train_at_sites
from tff_re.sites.set_up import _agree
from tff_re.sites.sums import MAX_SUM, BadSums, Limits, checked
from tff_re.sites.transport import InMemory, NoAnswer
from tff_re.tasks.data_paths import DataPaths

RUN = "7" * 32
QUICK = Patience(stage_seconds=5, retry_seconds=0.05)


# Set-up


class Recorded:
    """The honest answers of a set-up, to be played again with some of bonn's changed."""

    def __init__(self, folder):
        self.recipe: Recipe = recipe_of("fedpap")
        federation = Federation(write_sites(folder))
        self.honest = _agree(Sites(federation.engine, QUICK), self.recipe, DataPaths(), RUN)[0]
        federation.close()
        self.answers = {(site, unpack(m)[0]["kind"]): answer for site, m, answer in federation.sent}

    def agree(self, change, kind="hello"):
        """What all agree upon where `change(table, arrays)` gives the bytes of bonn's answer."""

        def call(site):
            def answered(message):
                asked = unpack(message)[0]["kind"]
                answer = self.answers[site, asked]
                return change(*unpack(answer)) if (site, asked) == ("bonn", kind) else answer

            return answered

        return _agree(Sites(InMemory({n: call(n) for n in NAMES}), QUICK), self.recipe, DataPaths(), RUN)[0]


def require_line(error: BaseException) -> None:
    """What a command shows as one line, without what a terminal acts on."""
    from tff_re.runtime.errors import RuntimeProblem

    assert isinstance(error, (UserError, RuntimeProblem)), repr(error)
    assert len(str(error)) < 1000 and str(error).isprintable(), str(error)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("honest"))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["<b>x</b>", "x" * 9999, "\x00", "../../etc", "[UNK]", "bonn", "class"]),
    st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
ARRAYS = st.sampled_from(
    [
        lambda a: a[:-1],
        lambda a: a[..., None],
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.int8),
        lambda a: np.zeros_like(a),
        lambda a: np.full_like(a, np.iinfo(a.dtype).max),
        lambda a: np.concatenate([a, a]),
        lambda a: a[:0],
        lambda a: np.asarray(7, a.dtype),
    ]
)


def paths_of(value, path=()):
    """The paths of all values within a table."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from paths_of(part, (*path, key))


@st.composite
def mutations(draw, table, arrays):
    """(table, arrays) with one to three values changed, left out, or added."""
    table, arrays = copy.deepcopy(table), list(arrays)
    for _ in range(draw(st.integers(1, 3))):
        if arrays and draw(st.booleans()):
            number = draw(st.integers(0, len(arrays) - 1))
            if arrays[number].ndim:
                arrays[number] = draw(ARRAYS)(arrays[number])
            continue
        *path, last = draw(st.sampled_from([path for path in paths_of(table) if path] or [("site",)]))
        inner = table
        for key in path:
            inner = inner[key]
        how = draw(st.sampled_from(["change", "drop", "add"]))
        if how == "change":
            inner[last] = draw(VALUES)
        elif how == "drop" and last in (inner if isinstance(inner, dict) else range(len(inner))):
            del inner[last]
        elif isinstance(inner, dict):
            inner[draw(st.text(max_size=3))] = draw(VALUES)
        else:
            inner.append(draw(VALUES))
    return table, arrays


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(["hello", "words", "reveal"]))
def test_any_change_of_an_answer_is_a_line_or_a_set_up_of_exact_types(recorded, data, kind):
    table, arrays = data.draw(mutations(*unpack(recorded.answers["bonn", kind])))
    try:
        agreement = recorded.agree(lambda *_: repacked(table, arrays), kind)
    except Exception as error:
        require_line(error)
        return
    assert agreement_from_json(agreement.to_json()) == agreement
    for client in agreement.clients:
        assert type(client.client_id) is str and {type(client.train), type(client.test)} == {int}
    assert all(type(name) is str and name.isprintable() and "<" not in name for name in agreement.label_names)


# Sums


@pytest.fixture(scope="module")
def programs():
    made = {}

    def program(name):
        if name not in made:
            made[name] = Program(build(name).next)
        return made[name]

    yield program
    for running_program in made.values():
        running_program.close()


TRAINING = LocalTraining(local_epochs=2, batch_size=4, weighting="examples")
SIZES = (6, 15)


def bounds(**changed):
    return Limits(**{"training": TRAINING, **changed}).bounds(SIZES, (3, 4), 3)


def check(program, number, arrays, limits):
    """`checked` of a stage with these arrays; neutral elements are constants of the server."""
    scope = Scope({CANCELLATION: Cancellation()})
    for step in program.steps:
        if isinstance(step, Step) and not step.is_argument:
            with contextlib.suppress(KeyError):  # needs what is given, or a sum
                scope[step.name] = program.compute(step, scope)
    return checked(scope, program.stages[number], arrays, limits)


METRICS = [np.float32(x) for x in (31.5, 42, 12, 2, 0)]
"""loss, seen, steps, counted, non_finite: two passes over 21 examples in batches of 4."""

UPDATE = [np.full((3, 3), 2.0, np.float32), np.zeros(3, np.float32)]


def mean(*, metrics=None, update=None, weight=21.0):
    """The answer to FedAvg's stage, changed."""
    metrics = {**dict(zip(("loss", "seen", "steps", "counted", "non_finite"), METRICS, strict=True)), **(metrics or {})}
    return [*map(np.float32, metrics.values()), *(UPDATE if update is None else update), np.float32(weight)]


def filled(value):
    return [np.full((3, 3), value, np.float32), np.zeros(3, np.float32)]


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        (mean(update=filled(np.inf)), "hold inf for 'sums', beyond the bound 1.15e.18"),
        (mean(update=filled(-np.inf)), "hold -inf for 'sums', beyond the bound"),
        (mean(update=filled(np.nan)), "hold NaN"),
        (mean(update=filled(1e20)), "hold 1e.20 for 'sums', beyond the bound"),
        (mean(weight=-1000), "hold -1000 for 'weight', and 0 to 21 are possible"),
        (mean(weight=0), "numbers for 'sums' of a weight of 0"),
        (mean(weight=22), "hold 22 for 'weight', and 0 to 21 are possible"),
        (mean(weight=np.inf), "hold inf for 'weight'"),
        (mean(metrics={"counted": 3}), "hold 3 for 'counted', and 0 to 2 are possible"),
        (mean(metrics={"counted": -1}), "hold -1 for 'counted', and 0 to 2 are possible"),
        (mean(metrics={"non_finite": 2.5}), "hold 2.5 for 'non_finite'"),
        (mean(metrics={"seen": 43}), "hold 43 for 'seen', and 0 to 42 are possible"),
        (mean(metrics={"steps": 13}), "hold 13 for 'steps', and 0 to 12 are possible"),
        (mean(metrics={"loss": np.inf}), "hold inf for 'loss', beyond the bound"),
        (mean()[:-1], "not of their type"),
        ([*mean(), np.float32(1)], "more arrays than sums"),
        ([a.astype(np.float64) for a in mean()], "not of their type"),
        (mean(update=[np.zeros((3, 4), np.float32), UPDATE[1]]), "not of their type"),
    ],
    ids=range(18),
)
def test_sums_of_a_mean(programs, arrays, line):
    assert len(check(programs("fedavg"), 0, mean(), bounds())) == 2
    assert check(programs("fedavg"), 0, mean(update=filled(0), weight=0), bounds())
    with pytest.raises(BadSums, match=line) as refused:
        check(programs("fedavg"), 0, arrays, bounds())
    assert str(refused.value).isprintable()


def test_norms_within_what_the_clip_and_the_weights_allow(programs):
    norm = 2.0 * 3 / 21  # of the mean update
    program = programs("fedavg")
    assert check(program, 0, mean(), bounds(norm=norm))
    for arrays in (mean(update=filled(2.1)), mean(weight=19)):
        with pytest.raises(BadSums, match=r"updates of a norm of 6(\.3)? for 'sums', and [56][.0-9]* is possible"):
            check(program, 0, arrays, bounds(norm=norm))


def test_sums_of_attention(programs):
    program, clipped = programs("fedpap"), bounds(norm=0.5)
    scores = [*METRICS, np.array([0.4, 0.5], np.float32)]
    assert check(program, 0, scores, clipped)
    nobody = np.full(2, -np.inf, np.float32)
    lowest = np.full(2, np.finfo(np.float32).min)
    assert check(program, 0, [*METRICS, lowest], clipped), "the greatest of no numbers"
    for wrong, line in (
        (np.array([0.4, 0.6]), "hold 0.600000024 for 'norms', and 0 to 0.5 are possible"),
        (np.array([-0.4, 0.5]), "hold -0.400000006 for 'norms'"),
        (np.array([np.inf, 0.5]), "hold inf for 'norms'"),
        (np.array([1e20, 0.5]), "hold 1e.20 for 'norms'"),
        (np.array([np.nan, 0.5]), "hold NaN"),
        (nobody, "hold -inf for 'norms'"),
    ):
        with pytest.raises(BadSums, match=line):
            check(program, 0, [*METRICS, wrong.astype(np.float32)], clipped)
    shares = np.array([1.5, 2.0], np.float32)
    attended = [np.full((3, 3), 0.3, np.float32), np.zeros(3, np.float32)]
    assert check(program, 1, [*attended, shares, shares], clipped)
    for arrays, line in (
        ([*attended, shares + 1, shares], "hold 3 for 'total', and 0 to 2 are possible"),
        ([*attended, shares, -shares], "hold -2 for 'squares'"),
        ([a + 1 for a in attended] + [shares, shares], "updates of a norm of 4.27 for 'attended', and 1 is possible"),
    ):
        with pytest.raises(BadSums, match=line):
            check(program, 1, arrays, clipped)


def test_indices_and_scores_of_lazy_mil(programs):
    program, limits = programs("lazy_mil"), bounds()
    nobody = np.iinfo(np.int32).max
    claims = np.full(48, nobody, np.int32)
    claims[5:7] = 3, 4
    assert check(program, 1, [claims], limits)
    for index in (0, 5, -1, 48, nobody - 1):
        with pytest.raises(BadSums, match="a number for 'platforms' that is not one of its clients"):
            check(program, 1, [np.where(claims == 4, np.int32(index), claims)], limits)
    scores = np.full(48, np.finfo(np.float32).min)
    scores[5] = 0.7
    assert check(program, 0, [scores], limits)
    with pytest.raises(BadSums, match="hold inf for 'scores'"):
        check(program, 0, [np.where(scores > 0, np.float32(np.inf), scores)], limits)
    with pytest.raises(BadSums, match="hold 20 for 'all', and 21 is possible"):
        check(program, 2, [np.float32(4), np.float32(20), *mean(weight=4)], limits)


def test_vectors_and_holders_of_fedcmc(programs):
    program, limits = programs("fedcmc"), bounds()
    vectors, holders = np.ones((3, 3), np.float32), np.array([0, 1, 2], np.float32)
    assert check(program, 1, [vectors, holders], limits)
    with pytest.raises(BadSums, match="hold 3 for 'holders', and 0 to 2 are possible"):
        check(program, 1, [vectors, holders + 1], limits)
    with pytest.raises(BadSums, match="beyond the bound"):
        check(program, 1, [vectors * 1e20, holders], limits)


def test_updates_side_by_side_are_no_more_than_the_clients(programs):
    from computations.aggregation_rules import aggregation_options
    from computations.algorithms.aggregation import with_aggregation

    program = Program(with_aggregation(build("fedavg"), aggregation_options()(rule="median"), clients=2).next)
    (stage,) = program.stages
    assert program.collects and not programs("fedavg").collects
    rows = [np.zeros((2, 3, 3), np.float32), np.zeros((2, 3), np.float32)]
    order = ["?" in str(site_sum.type) for site_sum in stage.sums].index(True)
    others = [[*METRICS] if "loss" in str(site_sum.type) else [np.float32(0)] for site_sum in stage.sums]

    def answer(collected):
        return [a for index, other in enumerate(others) for a in (collected if index == order else other)]

    assert check(program, 0, answer(rows), bounds())
    with pytest.raises(BadSums, match="3 updates of 2 clients"):
        check(program, 0, answer([np.concatenate([a, a[:1]]) for a in rows]), bounds())
    program.close()


def test_no_answer_within_the_bounds_overflows_where_it_is_merged():
    assert np.isfinite(np.float32(MAX_SUM) * np.float32(2**60)) and np.isfinite(np.square(np.float32(MAX_SUM)))


@pytest.mark.parametrize("name", ["fedavg", "fedpap", "scaffold", "lazy_mil", "fedcmc", "feded", "fednova"])
def test_any_numbers_of_the_right_types_are_taken_or_a_line(programs, name):
    assert name in ALGORITHMS
    random, extremes = np.random.default_rng(0), [0, 1, -1, 1e6, -1e6, 1e17, 1e20, 3e38, np.inf, -np.inf, np.nan]
    program, limits, taken = programs(name), bounds(), 0
    for number, stage in enumerate(program.stages):
        types = [leaf for site_sum in stage.sums for leaf in flat_types(site_sum.type)]
        for turn in range(100):  # at first zeros, which a site sends whose clients do not count
            arrays = []
            for leaf in types:
                value = random.choice(
                    extremes[: random.integers(2, len(extremes)) if turn else 1], size=tuple(leaf.shape)
                )
                with np.errstate(invalid="ignore"):
                    arrays.append(np.asarray(value).astype(np.dtype(leaf.dtype)))
            try:
                check(program, number, arrays, limits)
            except BadSums as error:
                assert str(error).isprintable()
                continue
            taken += 1
            assert all((np.abs(array) <= MAX_SUM).all() for array in arrays if array.dtype.kind == "f")
    assert taken


def flat_types(type_signature):
    children = getattr(type_signature, "children", None)
    inner = list(children()) if children is not None else []
    return [leaf for part in inner for leaf in flat_types(part)] if inner else [type_signature]


class Lying(Federation):
    """`lie(table, arrays)` gives other sums of bonn in training; it changes the list. None: bonn does not answer."""

    def __init__(self, folder, lie, purpose="train"):
        super().__init__(write_sites(folder))
        honest = self.engine

        def call(site):
            def answered(message):
                table = unpack(message)[0]
                if (site, table["kind"], table.get("purpose")) != ("bonn", "stage", purpose):
                    return honest.call(site, message, 5)
                if lie is None:
                    raise NoAnswer("site bonn does not answer")
                answer_table, arrays = unpack(honest.call(site, message, 5))
                changed = [array.copy() for array in arrays]
                return lie(table, changed) or repacked(answer_table, changed)

            return answered

        self.engine = InMemory({name: call(name) for name in NAMES})


def trained(folder, lie, purpose="train", **options):
    federation = Lying(folder / "sites", lie, purpose)
    recipe = recipe_of("fedpap", "training.rounds=1", "evaluation.train_split=false")
    patience = Patience(stage_seconds=5, retry_seconds=0.05, quorum=0.6)
    try:
        return train_at_sites(recipe, folder / "run", federation.engine, patience=patience, details=False, **options)[1]
    finally:
        federation.close()


@pytest.fixture(scope="module")
def without_bonn(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("without"), None)


LIES = {
    "scores": (lambda table, a: table["stage"] == 0 and a[5].fill(np.inf), "inf for 'norms', beyond the bound"),
    "overflow": (lambda table, a: table["stage"] == 0 and a[5].fill(3e38), r"3e\+38 for 'norms', beyond the bound"),
    "update": (lambda table, a: table["stage"] == 1 and a[0].fill(1e20), r"1e\+20 for 'attended', beyond the bound"),
    "count": (lambda table, a: table["stage"] == 0 and a[3].fill(9), "9 for 'counted', and 0 to 1 are possible"),
    "malformed": (lambda table, a: repacked({"site": "bonn", "more": 1}, a), "unknown key 'more'"),
    "another": (lambda table, a: repacked({"site": "celle"}, a), "another site answers in its place"),
}


@pytest.mark.parametrize(
    "what", ["scores", "update", *(pytest.param(w, marks=pytest.mark.slow) for w in list(LIES)[1:])]
)
def test_a_site_whose_sums_cannot_be_leaves_the_round_and_is_named(tmp_path, without_bonn, what):
    lie, line = LIES[what]
    result = trained(tmp_path, lie)
    assert_same_weights(result.weights, without_bonn.weights)
    assert (tmp_path / "run" / "took_part.csv").read_text().splitlines()[1:] == ["1,aachen celle"]
    log = RunFolder(tmp_path / "run").log.read_text("utf-8")
    (message,) = [row for row in log.splitlines() if "goes on without" in row]
    assert "site bonn: " in message and re.search(line, message), message
    assert "site aachen" not in message and "site celle" not in message


def test_counts_of_an_evaluation_are_those_that_were_agreed_upon(tmp_path):
    def lie(table, arrays):
        arrays[2][0, 0] += 1  # of the confusion

    result = trained(tmp_path, lie, "evaluate")
    log = RunFolder(tmp_path / "run").log.read_text("utf-8")
    assert "site bonn: its sums hold 10 examples in 'confusion', and 9 is possible" in log
    assert result.test.confusion.sum() < 30
