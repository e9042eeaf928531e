"""Clients that do not answer, that fail, or that are lost on the way: what a round is then, and what a run says."""

from __future__ import annotations

import csv
import json
from collections import Counter
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregation_rules.rfa import GeometricMedianFactory
from computations.federated_algorithm import recompose
from computations.privacy.accounting import client_accounting
from tests.computations import toolbox
from tests.computations.built import DATA, begin, build, initial_client_states
from tests.computations.toolbox import client, examples
from tests.runs.resuming import assert_same_files, resumed_after
from tests.stacks import computing_on
from tests.upper_floors import assert_same_weights, builder, command, refusal, share_computations, tiny, write_recipe
from tff_re.errors import UserError
from tff_re.exporting.export_run import _privacy, _training
from tff_re.recipes.reading import resolve
from tff_re.runs import training
from tff_re.runs.checkpoints import Records
from tff_re.runs.evaluation import Evaluator, metric_names
from tff_re.runs.features.failures import Answers, Attempt, Failures, Participation, by_client
from tff_re.runs.features.privacy import accounting_in
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_answers, read_history
from tff_re.runs.results import write_results
from tff_re.runs.run import train_run
from tff_re.runs.sampling import participation, sample_clients
from tff_re.runs.training import train
from tff_re.runtime import ComputationFailed, WorkerDied
from tff_re.runtime.in_process import one_call
from tff_re.runtime.in_process.stages import ClientPass

ALL = ("failures.dropout=0.2", "failures.late=0.1", "failures.crash_after_update=0.1")
FAIR = ("training.rounds=4", "training.checkpoint_every=1", "evaluation.train_split=false", "evaluation.every=4")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


def run(folder, runtime, *overrides, **options):
    options = {"details": False, "builder": builder(), **options}
    tff.framework.set_default_context(runtime.context)
    return train_run(tiny(*overrides), folder, runtime=runtime, **options)


def taking_part(*overrides, clients=40, per_round=10, seed=7):
    ids = [f"c{k}" for k in range(clients)]
    experiment = SimpleNamespace(recipe=tiny(*overrides), clients_per_round=per_round)
    return participation(experiment, seed, ids)


def tries(part, round_num):
    return list(part.attempts(round_num))


# Who answers


def test_without_failures_the_clients_are_those_that_are_sampled():
    part = taking_part()
    for number in range(1, 20):
        (attempt,) = tries(part, number)
        assert attempt.answered == sample_clients(7, number, 40, 10).tolist() == part.counted(number)
        assert part.asked(number) == [f"c{k}" for k in attempt.answered]
    assert not Failures.is_in(tiny())


def test_shares_are_met_and_a_client_lost_at_a_small_share_is_lost_at_a_larger_one():
    shares = {0.1: set(), 0.3: set(), 0.5: set()}
    for share, lost in shares.items():
        part = taking_part(f"failures.dropout={share}")
        for number in range(1, 401):
            (attempt,) = tries(part, number)
            lost.update((number, index) for index, what in attempt.outcomes.items() if what == "dropout")
        # Binomial(4000, share): five standard deviations.
        assert abs(len(lost) - 4000 * share) < 5 * np.sqrt(4000 * share * (1 - share))
    assert shares[0.1] < shares[0.3] < shares[0.5]
    counts = Counter()
    for number in range(1, 401):
        counts.update(tries(taking_part(*ALL), number)[0].outcomes.values())
    assert counts["dropout"] > 1.5 * counts["late"] and abs(counts["late"] - counts["crash_after_update"]) < 100
    assert counts["counted"] == pytest.approx(0.6 * 4000, abs=160)


def test_what_becomes_of_a_client_depends_on_seed_round_and_client_alone():
    def fates(ids, seed=7):
        recipe = tiny("failures.dropout=0.5")
        part = Participation(recipe, seed, ids, len(ids), lambda number: np.arange(len(ids)))
        return [{ids[k]: what for k, what in tries(part, number)[0].outcomes.items()} for number in range(1, 9)]

    ids = [f"c{k}" for k in range(12)]
    assert fates(ids) == fates(ids[::-1]) and fates(ids) != fates(ids, seed=8)
    fewer = [{k: v for k, v in outcomes.items() if k in ids[:5]} for outcomes in fates(ids)]
    assert fates(ids[:5]) == fewer and len({tuple(outcomes.values()) for outcomes in fewer}) > 3


def test_of_more_clients_than_needed_the_first_to_answer_count():
    part = taking_part("training.over_sampling=1.25", "failures.late=0.2")
    seen, surplus = Counter(), Counter()
    for number in range(1, 301):
        (attempt,) = tries(part, number)
        counts = Counter(attempt.outcomes.values())
        assert len(attempt.outcomes) == 13 and len(attempt.answered) == min(10, 13 - counts["late"])
        assert counts["surplus"] == max(0, 3 - counts["late"])
        seen.update(attempt.answered)
        surplus.update(index for index, what in attempt.outcomes.items() if what == "surplus")
    assert len(seen) == 40 and min(surplus.values()) >= 1, "who is fast differs from round to round"


def test_a_round_below_the_quorum_is_tried_again_with_other_clients():
    part = taking_part("failures.dropout=0.6", "training.min_clients=5", "training.attempts=6")
    several = 0
    for number in range(1, 60):
        asked, attempts = [], tries(part, number)
        for attempt in attempts[:4]:
            assert not set(asked) & set(attempt.outcomes), "40 clients are enough for four attempts"
            asked += attempt.outcomes
        assert len(attempts) == 6 and len(set(attempts[4].outcomes)) == 10
        enough = next((a for a in attempts if len(a.answered) >= 5), None)
        if enough is None:
            with pytest.raises(UserError, match=rf"^round {number}: too few clients answered in each of 6 attempts"):
                part.counted(number)
        else:
            assert part.counted(number) == enough.answered
            assert len(part.asked(number)) == 10 * enough.number
            several += enough.number > 1
    assert several > 10


def test_poisson_rounds_are_drawn_anew():
    part = taking_part("training.sampling=poisson", "training.min_clients=9", "training.attempts=4")
    sizes = [len(attempt.outcomes) for number in range(1, 200) for attempt in tries(part, number)]
    assert np.mean(sizes) == pytest.approx(10, abs=0.5) and min(sizes) < 5 and max(sizes) > 15
    assert len({tuple(attempt.outcomes) for attempt in tries(part, 1)}) == 4


# Computations that fail


def computing(fails, named, calls=None):
    """A computation of a round that fails for certain clients (place -> error's code, or None for a worker's death)."""

    def compute(places):
        if calls is not None:
            calls.append(list(places))
        for at, index in enumerate(places):
            if index in fails and fails[index] is None:
                raise WorkerDied("the worker was killed", pid=1, log_path="x")
            if index in fails:
                raise ComputationFailed("bad", code=fails[index], client=at if named else None)
        return {"metrics": {"work": {"clients/non_finite": 0.0}}, "of": list(places)}

    return compute


def nobody_asks(places):
    raise AssertionError("no update was not finite")


@pytest.mark.parametrize("named", [True, False], ids=["named", "found by halves"])
def test_failing_clients_are_left_out_and_the_others_are_computed_anew(named):
    part = taking_part("training.tolerated_failures=3")
    drawn = sample_clients(7, 1, 40, 10).tolist()
    fails = {drawn[1]: "INVALID_ARGUMENT", drawn[2]: "RESOURCE_EXHAUSTED", drawn[8]: None}
    answers = part.of_round(1, computing(fails, named), nobody_asks)
    others = [index for index in drawn if index not in fails]
    assert answers.places == others == answers.output["of"]
    (attempt,) = answers.attempts
    lost = {index: what for index, what in attempt.outcomes.items() if what != "counted"}
    assert lost == {drawn[1]: "error", drawn[2]: "out_of_memory", drawn[8]: "worker_died"}
    assert answers.metrics == {"clients/asked": 10.0, "clients/lost": 3.0, "clients/attempts": 1.0}


def test_more_failures_than_are_tolerated_end_the_run():
    drawn = sample_clients(7, 1, 40, 10).tolist()
    fails = {drawn[1]: "INVALID_ARGUMENT", drawn[5]: "INVALID_ARGUMENT"}
    with pytest.raises(UserError) as caught:
        taking_part("training.tolerated_failures=1").of_round(1, computing(fails, False), nobody_asks)
    assert str(caught.value) == (
        f"round 1: the computations of 2 clients failed: c{drawn[1]} (error), c{drawn[5]} (error); "
        "training.tolerated_failures is 1"
    )
    for plan in ((), ("training.tolerated_failures=0",)):
        calls = []
        with pytest.raises(ComputationFailed):
            taking_part(*plan).of_round(1, computing(fails, True, calls), nobody_asks)
        assert len(calls) == 1
    everybody = dict.fromkeys(drawn, "INVALID_ARGUMENT")  # then it is no client's fault
    for named in (True, False):
        with pytest.raises(ComputationFailed):
            taking_part("training.tolerated_failures=20").of_round(1, computing(everybody, named), nobody_asks)

    def together(places):
        if len(places) == 10:
            raise ComputationFailed("too much at once", code="INTERNAL")

    with pytest.raises(ComputationFailed, match="too much at once"):
        taking_part("training.tolerated_failures=9").of_round(1, together, nobody_asks)


def test_updates_that_are_not_finite_are_named_and_count_for_the_quorum():
    drawn = sample_clients(7, 1, 40, 10).tolist()

    def compute(places):
        return {"metrics": {"work": {"clients/non_finite": float(drawn[3] in places)}}}

    def not_finite(places):
        return [float(index == drawn[3]) for index in places]

    answers = taking_part("training.tolerated_failures=1").of_round(1, compute, not_finite)
    assert answers.places == drawn and answers.attempts[0].outcomes[drawn[3]] == "not_finite"
    with pytest.raises(UserError, match=rf"failed: c{drawn[3]} \(not_finite\); training.tolerated_failures is 0"):
        taking_part("training.tolerated_failures=0").of_round(1, compute, not_finite)
    plan = ("training.tolerated_failures=1", "training.min_clients=10")
    again = taking_part(*plan).of_round(1, compute, not_finite)
    first, second = again.attempts
    assert Counter(first.outcomes.values()) == {"repeated": 9, "not_finite": 1}
    assert set(second.outcomes.values()) == {"counted"} and again.places == second.answered
    assert again.metrics == {"clients/asked": 20.0, "clients/lost": 1.0, "clients/attempts": 2.0}
    # Without the key, as ever: nobody asks who it was.
    assert taking_part().of_round(1, compute, nobody_asks).places == drawn


def test_the_columns_of_clients_csv():
    rows = [["1", "1", "a", "counted"], ["1", "1", "b", "late"], ["2", "1", "b", "repeated"]]
    rows += [["2", "2", "b", "counted"], ["10", "1", "b", "late"]]
    assert by_client(rows) == {"a": (1, 1, ""), "b": (4, 1, "late: 1, 10; repeated: 2")}
    assert Answers([0], None, [Attempt(1, {0: "counted", 1: "surplus"})]).metrics["clients/lost"] == 0


# A client that is lost between two stages


def rfa():
    return recompose(build("fedavg"), aggregator=GeometricMedianFactory())


@pytest.mark.parametrize(
    "make",
    [lambda: build("fedpap"), pytest.param(rfa, marks=pytest.mark.slow), lambda: build("lazy_mil")],
    ids=["att", "rfa", "mil"],
)
def test_a_round_that_loses_a_client_between_two_stages_is_that_of_the_others(make, here, monkeypatch):
    """The client takes part in a stage and is gone in the next one; every place and every stage."""
    tff.framework.set_default_context(here.context)
    algorithm = make()
    clients = [client(x, y, seed=(1, k)) for k, (x, y) in enumerate([*DATA, examples(9, seed=9)])]
    if "triple" in algorithm.model.input_spec:
        clients = [toolbox.in_bags(arrays, platform) for platform, arrays in enumerate(clients)]
    states, state = initial_client_states(algorithm, clients), begin(algorithm)

    def compute(places):
        rest = [] if states is None else [[states[k] for k in places]]
        return algorithm.next(state, [clients[k] for k in places], *rest)

    recipe = tiny("training.tolerated_failures=1", "training.clients_per_round=3")
    part = Participation(recipe, 0, ["a", "b", "c"], 3, lambda number: np.arange(3))
    whole, real, reached = compute([0, 1, 2]), ClientPass._one_client, []

    def one_client(run, index, scope):
        if run.num_clients == 3 and index == lost and run.stage is run.plan.stages[stage]:
            reached.append(len(run.plan.stages))
            raise ComputationFailed("gone", code="UNAVAILABLE", client=index)
        real(run, index, scope)

    monkeypatch.setattr(ClientPass, "_one_client", one_client)
    monkeypatch.setattr(one_call, "MAX_BYTES", -1)
    stage, stages, mattered = 1, 2, 0
    while stage < stages:
        for lost in range(3):
            others = [k for k in range(3) if k != lost]
            without = compute(others)
            answers = part.of_round(1, compute, nobody_asks)
            assert answers.places == others and answers.attempts[0].outcomes[lost] == "error"
            for ours, theirs in zip(tf.nest.flatten(answers.output), tf.nest.flatten(without), strict=True):
                np.testing.assert_array_equal(ours, theirs)
            pairs = zip(without["state"]["weights"].trainable, whole["state"]["weights"].trainable, strict=True)
            mattered += any(not np.array_equal(a, b) for a, b in pairs)
        stage, stages = stage + 1, reached[-1]
    assert len(reached) == 3 * (stages - 1) >= 3 and mattered


def test_between_stages_is_refused_where_a_round_has_one_stage():
    with pytest.raises(
        UserError, match=r"between_stages needs rounds with several stages, but a round of fedavg has one"
    ):
        builder().build(tiny("failures.between_stages=0.1", "algorithm={name='fedavg'}"))


# Runs


def test_however_a_client_is_lost_the_round_is_that_of_the_others(here, tmp_path):
    plan, results = (*FAIR, "training.checkpoint_every=4", "training.clients_per_round=3"), {}
    for kind in ("between_stages", "dropout", "crash_after_update"):
        _, results[kind] = run(tmp_path / kind, here, *plan, f"failures.{kind}=0.4")
        assert_same_weights(results[kind].weights, results["between_stages"].weights)
        assert_same_files(tmp_path / kind, tmp_path / "between_stages", "metrics.csv")
        outcomes = Counter(row[3] for row in read_answers(RunFolder(tmp_path / kind)))
        assert outcomes[kind] >= 2 and outcomes["counted"] >= 2 and len(outcomes) == 2
    _, plain = run(tmp_path / "plain", here, *plan)
    assert not np.array_equal(plain.weights.trainable[0], results["dropout"].weights.trainable[0])


STATEFUL = {
    "scaffold": ("algorithm={name='scaffold', learning_rate=0.05}",),
    "moon": ("algorithm={name='moon', learning_rate=0.05}",),
    "residuals": ("algorithm={name='fedavg'}", 'aggregation.compression="top_k"', "aggregation.top_share=0.3"),
}


@pytest.mark.parametrize(
    "name", ["scaffold", *(pytest.param(name, marks=pytest.mark.slow) for name in ("residuals", "moon"))]
)
def test_what_a_client_keeps_changes_only_where_its_answer_counts(name, here, tmp_path, monkeypatch):
    saved, real = [], Records.save

    def save(records, number, state):
        saved.append((number, [tf.nest.flatten(client_state) for client_state in state["memory"]], state["server"]))
        real(records, number, state)

    monkeypatch.setattr(Records, "save", save)
    plan = (*FAIR, *STATEFUL[name], "failures.dropout=0.25", "failures.crash_after_update=0.25")
    experiment, _ = run(tmp_path / "run", here, *plan, "training.clients_per_round=4", "training.rounds=5")
    order = [c.client_id for c in experiment.prepared.examples.clients]
    initial = experiment.algorithm.client_work.initial_client_state
    before = [tf.nest.flatten(initial(c.train, 0)) for c in experiment.prepared.examples.clients]
    rows, changed = read_answers(RunFolder(tmp_path / "run")), Counter()
    for number, after, server in saved:
        outcomes = {who: what for n, _, who, what in rows if int(n) == number}
        for who, old, new in zip(order, before, after, strict=True):
            same = all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
            if name == "moon" and outcomes[who] == "counted":  # without an encoder the representations are the inputs
                assert new[1] and (same or not old[1])
            else:
                assert same == (outcomes[who] != "counted"), (number, who)
            changed[outcomes[who]] += 1
        before = after
        if name == "scaffold":  # line 17 of Algorithm 1: c stays the mean of all c_i
            for index, c in enumerate(server["client_work"]["shared"]):
                np.testing.assert_allclose(c, np.mean([c_i[index] for c_i in after], axis=0), rtol=1e-4, atol=1e-6)
    assert changed["dropout"] and changed["crash_after_update"] and changed["counted"]


def test_a_resumed_run_loses_the_same_clients(here, tmp_path):
    plan = ("training.rounds=6", "training.checkpoint_every=2", *ALL, "training.over_sampling=1.5")
    plan += ("failures.dropout=0.4", "training.min_clients=2", "training.attempts=5", "training.tolerated_failures=1")
    _, whole = run(tmp_path / "whole", here, *plan)
    _, result = resumed_after(lambda **options: run(tmp_path / "broken", here, *plan, **options), 3)
    names = ("metrics.csv", "answers.csv", "clients.csv", "summary.json")
    assert_same_files(tmp_path / "broken", tmp_path / "whole", *names)
    assert_same_weights(result.weights, whole.weights)
    history = read_history(RunFolder(tmp_path / "whole"))
    assert max(row["clients/attempts"] for row in history) > 1 and sum(row["clients/lost"] for row in history) > 2
    assert {row["clients/counted"] for row in history} == {2.0}
    assert "answers.csv" in json.loads((tmp_path / "whole" / "digests.json").read_text("utf-8"))


def spoil(monkeypatch, index, **values):
    """Lets one client train on other arrays than those that were checked."""
    real = training.arranged

    def arranged(experiment, split):
        ids, examples = real(experiment, split)
        examples = examples[:]
        if split == "train":
            changed = {k: np.full_like(examples[index][k], v) for k, v in values.items()}
            examples[index] = type(examples[index])({**examples[index], **changed})
        return ids, examples

    monkeypatch.setattr(training, "arranged", arranged)


@pytest.mark.parametrize(("values", "outcome"), [({"x": np.nan}, "not_finite"), ({"y": 99}, "error")])
def test_a_client_that_fails_costs_its_update_on_both_runtimes(values, outcome, here, worker, tmp_path, monkeypatch):
    spoil(monkeypatch, 2, **values)
    plan = (*FAIR, "training.clients_per_round=4", "training.rounds=2", "training.tolerated_failures=1")
    results = {}
    for name, opened in (("here", here), ("local", worker)):
        experiment = builder().build(tiny(*plan))
        folder = begun(tmp_path / name, experiment)
        with computing_on(opened):
            results[name] = train(experiment, folder, opened)
        write_results(experiment, folder, results[name], read_history(folder))
        with open(folder.clients, newline="", encoding="utf-8") as file:
            rows = {row["client"]: row for row in csv.DictReader(file)}
        bad = experiment.prepared.examples.clients[2].client_id
        assert rows.pop(bad)["lost"] == f"{outcome}: 1, 2"
        assert [(row["asked"], row["counted"], row["lost"]) for row in rows.values()] == [("2", "2", "")] * 3
    assert_same_files(tmp_path / "here", tmp_path / "local", "answers.csv")
    for ours, theirs in zip(results["here"].weights.trainable, results["local"].weights.trainable, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=5e-7)
        assert np.isfinite(ours).all()
    tff.framework.set_default_context(here.context)
    strict = builder().build(tiny(*plan, "training.tolerated_failures=0"))
    with pytest.raises((UserError, ComputationFailed), match=r"client 3 of 4|client-2 \(not_finite\)") as caught:
        train(strict, begun(tmp_path / "strict", strict), here)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("values", "outcome"), [({"x": np.nan}, "not_finite"), ({"y": 99}, "error")])
def test_a_client_whose_evaluation_fails_is_left_out_of_the_sums_and_counted(values, outcome, here, runtimes):
    def spoiled(*places, tolerated=1):
        evaluator = Evaluator(builder().build(tiny(f"training.tolerated_failures={tolerated}")), "test")
        evaluator._examples = evaluator._examples[:]
        for index in places:
            arrays = evaluator._examples[index]
            evaluator._examples[index] = type(arrays)(
                {**arrays, **{k: np.full_like(arrays[k], v) for k, v in values.items()}}
            )
        return evaluator

    def without(index):
        evaluator = spoiled()
        del evaluator.clients[index], evaluator._examples[index]
        return evaluator

    weights = builder().build(tiny()).model.initial_weights(3)
    for opened in runtimes.values():
        tff.framework.set_default_context(opened.context)
        evaluated, others = spoiled(2)(weights), without(2)(weights)
        assert list(evaluated.clients) == list(others.clients) and len(evaluated.clients) == len(spoiled().clients) - 1
        assert evaluated.metrics.pop("clients_failed") == 1 and others.metrics.pop("clients_failed") == 0
        assert evaluated.metrics == others.metrics
        np.testing.assert_array_equal(evaluated.confusion, others.confusion)
        two = r"^the evaluations on test examples of 2 clients failed: \S+ \(OUT\), \S+ \(OUT\); training.tolerated"
        with pytest.raises(UserError, match=two.replace("OUT", outcome)):
            spoiled(0, 2)(weights)
    tff.framework.set_default_context(here.context)
    with pytest.raises((UserError, ComputationFailed), match=r"client 3 of|of 1 clients failed"):
        spoiled(2, tolerated=0)(weights)
    everybody = spoiled(*range(len(spoiled().clients)))
    if outcome == "error":
        with pytest.raises(UserError, match="of 2 clients failed"):
            everybody(weights)
    else:  # it is the model's fault, and its metrics say so
        assert np.isnan(everybody(weights).metrics["loss"])
    assert "test/clients_failed" in metric_names(builder().build(tiny("training.tolerated_failures=0")))
    assert "test/clients_failed" not in metric_names(builder().build(tiny()))


def begun(path, experiment):
    folder = RunFolder(path)
    folder.begin(experiment.recipe.to_toml(), resume=False)
    return folder


def test_every_output_says_that_clients_failed(here, tmp_path, capsys):
    said = "simulated failures: of the clients asked, 20 % never answer, 10 % answer too late; each round uses"
    recipe, out = write_recipe(tmp_path / "r.toml", failures={"dropout": 0.2, "late": 0.1}), tmp_path / "run"
    typed = command(capsys, "train", recipe, "--set", "training.rounds=1", "--out", out, "--runtime", "in-process")
    assert typed.code == 0, typed.err
    assert " ".join(typed.out.split()).count(said) == 2, "before and after the training"
    assert any(said in note for note in json.loads((out / "summary.json").read_text("utf-8"))["notes"])
    assert said in RunFolder(out).log.read_text("utf-8")
    experiment = builder().build(tiny("failures.dropout=0.2", "failures.late=0.1"))
    assert said in _training(experiment)["notes"]
    assert said not in " ".join(_privacy(experiment, None))
    assert resolve({**_table(experiment.recipe.to_toml())}, "again.toml").failures == experiment.recipe.failures


def _table(text):
    from tff_re.recipes.reading import tomllib

    return tomllib.loads(text)


def test_a_quorum_that_is_not_reached_is_one_line(tmp_path, capsys):
    training = {"rounds": 3, "clients_per_round": 2, "min_clients": 2, "attempts": 2}
    recipe = write_recipe(tmp_path / "r.toml", failures={"dropout": 0.999}, training=training)
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    line = "round 1: too few clients answered in each of 2 attempts (0 of 2, 0 of 2; training.min_clients is 2); lower"
    refusal(typed, line, "training.attempts or training.over_sampling")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["failures.dropout=0.6", "failures.late=0.5"],
            "shares dropout, late must be below 1 together, or no client",
        ),
        (["failures.dropout=1.0"], "shares dropout must be below 1, or no client ever answers; got 1"),
        (["failures.dropout=1.0", "training.min_clients=1"], "dropout must be below 1, or no client ever answers"),
        (["training.attempts=3"], "'training.attempts' needs min_clients of at least 1"),
        (["failures.dropout=1.5"], "'failures.dropout' must be from 0 to 1, got 1.5"),
        (["failures.droput=0.1"], "unknown key 'failures.droput'; did you mean 'dropout'?"),
        (
            ["training.over_sampling=2", "training.sampling=poisson"],
            "over_sampling' needs sampling = 'fixed'",
        ),
        (["training.attempts=2"], "'training.attempts' needs min_clients of at least 1"),
        (["training.over_sampling=0.5"], "'training.over_sampling' must be from 1 to 1000, got 0.5"),
        (["training.over_sampling=2.5"], "asks 5 clients a round, but only 4 have training examples; lower it to at"),
        (["training.min_clients=3"], "training.min_clients is 3, but at most 2 answers count in a round; lower it"),
    ],
)
def test_bad_values_are_refused_by_their_key(overrides, message):
    with pytest.raises(UserError) as caught:
        builder().build(tiny(*overrides))
    assert str(caught.value).startswith("tiny.toml: ") and message in str(caught.value)


# Privacy

PRIVATE = (
    "evaluation.train_split=false",
    "privacy.clip=0.5",
    "privacy.delta=1e-3",
    "privacy.noise_multiplier=1.5",
    "training.rounds=20",
)


def accounting_of(*overrides):
    recipe = tiny(*PRIVATE, *overrides)
    experiment = builder().build(recipe)
    return recipe.privacy, accounting_in(experiment)


def test_privacy_counts_all_who_may_be_asked():
    """Of 4 clients 2 answers count: 3 are asked at once, and all of them in two attempts."""

    def epsilon(privacy, asked, **options):
        return client_accounting(privacy, num_clients=4, per_round=asked, rounds=20, **options).epsilon(20)

    privacy, plain = accounting_of()
    _, dropping = accounting_of("failures.dropout=0.3")
    _, more = accounting_of("failures.dropout=0.3", "training.over_sampling=1.5")
    _, repeated = accounting_of("failures.dropout=0.3", "training.min_clients=1", "training.attempts=2")
    assert plain.epsilon(20) == dropping.epsilon(20) == epsilon(privacy, 2)
    assert more.epsilon(20) == epsilon(privacy, 3) and "3 of 4" in more.sampling
    assert repeated.epsilon(20) == epsilon(privacy, 4) >= more.epsilon(20) >= plain.epsilon(20)
    _, poisson = accounting_of("failures.dropout=0.3", "training.sampling=poisson")
    assert poisson.epsilon(20) == epsilon(privacy, 2, sampling="poisson")


def test_privacy_of_examples_counts_every_client_that_was_asked():
    part = taking_part("privacy.unit=example", *PRIVATE, *ALL, "training.min_clients=5", "training.attempts=9")
    taken = Counter(who for number in range(1, 21) for who in part.asked(number))
    counted = Counter(f"c{index}" for number in range(1, 21) for index in part.counted(number))
    assert taken.total() > 200 > counted.total() and all(taken[who] >= n for who, n in counted.items())
    assert Failures(tiny("privacy.unit=example", *PRIVATE, *ALL)).is_recorded
    assert not Failures(tiny(*PRIVATE, *ALL)).is_recorded, "who was asked must not be known"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.tolerated_failures=1"], "training.tolerated_failures cannot be combined with [privacy]"),
        (
            ["training.sampling=poisson", "training.min_clients=1"],
            "min_clients cannot be combined with Poisson sampling",
        ),
        (["failures.between_stages=0.1"], "failures.between_stages cannot be combined with [privacy] of clients"),
    ],
)
def test_what_privacy_cannot_count_is_refused(overrides, message):
    with pytest.raises(UserError) as caught:
        builder().build(tiny(*PRIVATE, *overrides))
    assert message in str(caught.value)


def test_a_private_run_does_not_tell_who_was_lost(here, tmp_path):
    plan = (*PRIVATE, *FAIR, "failures.dropout=0.5", "training.over_sampling=1.5")
    experiment, _ = run(tmp_path / "run", here, *plan)
    assert not (tmp_path / "run" / "answers.csv").exists()
    assert not any("clients/" in name for row in read_history(RunFolder(tmp_path / "run")) for name in row)
    heading = (tmp_path / "run" / "clients.csv").read_text("utf-8").splitlines()[0]
    assert heading == "client,examples,accuracy,loss"
    assert any("privacy counts all clients that may be asked" in note for note in experiment.notes)
    assert attrs.asdict(experiment.recipe.failures)["dropout"] == 0.5
