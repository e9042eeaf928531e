"""Runs with [privacy]: Poisson rounds, noise that a resumed run repeats, the epsilon that is shown, and secrets."""

from __future__ import annotations

import csv
import functools
import json
import math
import re
import shutil
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from computations.privacy.options import rounded_up
from tests.runs.resuming import assert_same_files, resumed_after
from tests.stacks import computing_on
from tests.upper_floors import (
    SYNTHETIC,
    Stop,
    assert_same_weights,
    builder,
    command,
    refusal,
    share_computations,
    tiny,
    write_recipe,
)
from tff_re.comparison.outcome import compare
from tff_re.comparison.report import write_report
from tff_re.comparison.rows import ComparisonRow, Guarantee, Table
from tff_re.comparison.suite import suite_of_recipes
from tff_re.comparison.tables import comparison_markdown
from tff_re.errors import Diverged, UserError
from tff_re.recipes.reading import load
from tff_re.runs.folder import RunFolder
from tff_re.runs.randomness import noise_seed, seed_of
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.runs.sampling import sample_clients
from tff_re.runs.training import client_seed
from tff_re.runtime import open_runtime

DELTA, Z = 1e-3, 1.5
SEED = 1
"""Of the run: its rounds draw 2, 1, 0, 1 and 1 of four clients."""

POISSON = ("training.sampling=poisson", "training.clients_per_round=1", "training.rounds=5", "evaluation.every=2")
POISSON += ("evaluation.train_split=false",)
CLIENT = (*POISSON, f"privacy={{clip=0.5, noise_multiplier={Z}, delta={DELTA}}}")
EXAMPLE = (*POISSON, f'privacy={{unit="example", clip=0.5, noise_multiplier={Z}, delta={DELTA}}}')
QUIET = {"evaluation": {"train_split": False}}
FILES = ("metrics.csv", "clients.csv", "summary.json", "recipe.toml")


def run(folder, runtime, plan, **options):
    options = {"details": False, "builder": builder(), **options}
    return train_run(tiny(*plan, seed=SEED), folder, runtime=runtime, **options)[1]


def drawn(number: int, seed=SEED) -> list[int]:
    return sample_clients(seed, number, 4, 1, "poisson").tolist()


@functools.cache
def spent(noise_multiplier: float, share: float, count: int) -> float:
    """dp-accounting's own figure for so many sampled Gaussian mechanisms; at this width it differs by 1e-5 from that at
    the default one, which takes ten times as long."""
    single = dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(noise_multiplier))
    whole = dp_accounting.SelfComposedDpEvent(single, count)
    return PLDAccountant(value_discretization_interval=1e-3).compose(whole).get_epsilon(DELTA)


def summary(folder) -> dict:
    return json.loads((folder / "summary.json").read_text("utf-8"))


def epsilons(folder) -> list[float]:
    return [row["privacy/epsilon"] for row in read_history(RunFolder(folder))]


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.fixture(scope="module")
def in_process(session_mark, tmp_path_factory):
    with open_runtime("in-process", log_path=tmp_path_factory.mktemp("runtime") / "log") as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(in_process, tmp_path_factory):
    """(plan, runtime) -> an undisturbed run: its folder and result."""
    made = {}

    def run_of(plan, runtime=in_process):
        if (plan, runtime.name) not in made:
            folder = tmp_path_factory.mktemp("whole") / "run"
            with computing_on(runtime):
                made[plan, runtime.name] = SimpleNamespace(folder=folder, result=run(folder, runtime, plan))
        return made[plan, runtime.name]

    return run_of


# Sampling


def test_poisson_sampling_draws_every_client_by_itself():
    rounds = [sample_clients(3, number, 40, 10, "poisson") for number in range(1, 1001)]
    sizes = np.array([len(chosen) for chosen in rounds])
    taken = np.bincount(np.concatenate(rounds), minlength=40)
    # Binomial(40, 1/4): mean 10, variance 7.5; of 1000 rounds a client is in 250, standard deviation 13.7.
    assert abs(sizes.mean() - 10) < 0.4 and abs(sizes.var() - 7.5) < 1.5
    assert abs(taken - 250).max() < 5 * 13.7
    together = np.mean([{0, 1} <= set(chosen.tolist()) for chosen in rounds])
    assert abs(together - 1 / 16) < 0.04, "independently"
    np.testing.assert_array_equal(rounds[4], sample_clients(3, 5, 40, 10, "poisson"))
    assert len(sample_clients(3, 1, 5, 5, "poisson")) == 5


def test_the_plan_has_an_empty_round():
    assert [drawn(number) for number in range(1, 6)] == [[0, 2], [1], [], [3], [3]]


def test_a_round_without_clients_changes_nothing(runtime, tmp_path):
    plan = (*POISSON, "training.checkpoint_every=1", 'algorithm={name="scaffold", local_epochs=1}')
    done = run(tmp_path / "run", runtime, plan)
    rows = read_history(RunFolder(tmp_path / "run"))
    row = rows[2]
    assert row["clients/counted"] == row["local/steps"] == 0 and "local/loss" not in row
    assert all(math.isfinite(value) for r in rows for value in r.values())
    assert [row["clients/counted"] for row in rows] == [len(drawn(number)) for number in range(1, 6)]
    assert summary(tmp_path / "run")["best"]["local/loss"] > 0
    assert done.stopped is None and done.privacy is None


# Noise and what it costs


def test_both_runtimes_give_the_same(whole, worker, in_process):
    histories = (read_history(RunFolder(whole(CLIENT, runtime).folder)) for runtime in (worker, in_process))
    for first, second in zip(*histories, strict=True):
        assert first == pytest.approx(second, rel=1e-4, abs=1e-5)


def test_clients_spend_what_dp_accounting_says(whole):
    done = whole(CLIENT)
    assert epsilons(done.folder) == pytest.approx([spent(Z, 1 / 4, count) for count in range(1, 6)], rel=1e-3)
    privacy = summary(done.folder)["privacy"]
    assert privacy["epsilon"] == epsilons(done.folder)[-1] and privacy["delta"] == DELTA and privacy["stopped"] is None
    assert (privacy["unit"], privacy["clip"], privacy["noise_multiplier"]) == ("client", 0.5, Z)
    assert privacy["neighbours"] == "adding or removing one client" and privacy["accountant"] == "PLD"
    assert "Poisson" in privacy["sampling"] and rounded_up(privacy["epsilon"]) in privacy["statement"]
    assert any("evaluation of every client" in line for line in privacy["not_covered"])
    assert_names_its_files(done.folder, privacy)
    assert not any(
        name.startswith(("local/", "clients/")) for row in read_history(RunFolder(done.folder)) for name in row
    )
    assert done.result.privacy == privacy


def test_nobody_may_be_there_where_clients_keep_state(runtime, tmp_path):
    """TFF's worker gives nothing that could be read then."""
    plan = (*CLIENT, 'algorithm={name="moon", local_epochs=1}', "training.rounds=3")
    run(tmp_path / "run", runtime, plan)
    assert len(epsilons(tmp_path / "run")) == 3 and not drawn(3)


def test_a_target_is_met_with_all_rounds_whatever_the_sampling(in_process, tmp_path):
    target = f"privacy={{clip=0.5, epsilon=3.0, delta={DELTA}}}"
    plan = (*CLIENT, target, "training.sampling=fixed", "training.clients_per_round=4", "training.rounds=2")
    privacy = run(tmp_path / "run", in_process, plan).privacy
    assert 2.9 < privacy["epsilon"] <= 3.0 and privacy["neighbours"] == "zeroing out one client"
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(privacy["noise_multiplier"]), 2)
    assert PLDAccountant().compose(event).get_epsilon(DELTA) == pytest.approx(epsilons(tmp_path / "run")[-1], rel=1e-3)


def test_examples_spend_by_the_rounds_that_their_client_was_in(whole):
    experiment = builder().build(tiny(*EXAMPLE, seed=SEED))
    sizes = [len(client.train["y"]) for client in experiment.prepared.examples.clients]
    rounds = [sum(k in drawn(number) for number in range(1, 6)) for k in range(4)]
    each = {(min(1, 10 / n), -(-n // 10) * r) for n, r in zip(sizes, rounds, strict=True) if r}
    wanted = max(spent(Z, share, steps) for share, steps in each)
    assert epsilons(whole(EXAMPLE).folder)[-1] == pytest.approx(wanted, rel=1e-3)
    privacy = summary(whole(EXAMPLE).folder)["privacy"]
    assert any("in which rounds it took part" in line for line in privacy["seen_by_server"])
    assert_names_its_files(whole(EXAMPLE).folder, privacy)


def assert_names_its_files(folder, privacy):
    """What is said not to be covered names files that the run has."""
    named = set(re.findall(r"[\w.]+\.(?:csv|json|toml)", " ".join((*privacy["not_covered"], privacy["noise"]))))
    assert {"metrics.csv", "timings.csv", "labels.csv"} <= named
    assert not {name for name in named if not (folder / name).exists()}
    assert set(privacy["seen_by_server"]) < set(privacy["not_covered"])


def test_statistics_of_the_training_leave_only_where_a_simulation_asks_for_them(whole, in_process, tmp_path):
    """Not even for a round of nobody; the weights are the same."""
    quiet = whole(EXAMPLE)
    ways = (*EXAMPLE, "privacy.training_metrics=true", "evaluation.train_split=true")
    with_metrics = run(tmp_path / "run", in_process, ways)
    rows, more = (read_history(RunFolder(folder)) for folder in (quiet.folder, tmp_path / "run"))
    names = {name for row in rows for name in row}
    assert not [name for name in names if name.startswith(("local/", "clients/", "train/"))]
    assert [row["clients/counted"] for row in more] == [len(drawn(number)) for number in range(1, 6)]
    assert "train/loss" in more[-1] and [{n: row[n] for n in names & {*row}} for row in more] == rows
    assert_same_weights(quiet.result.weights, with_metrics.weights)
    assert_names_its_files(tmp_path / "run", with_metrics.privacy)
    added = set(with_metrics.privacy["seen_by_server"]) - set(quiet.result.privacy["seen_by_server"])
    assert sorted(line.split(",")[0] for line in added) == [
        "the evaluation of all training examples",
        "the training loss",
    ]


@pytest.mark.parametrize("plan", [CLIENT, EXAMPLE])
def test_training_examples_are_not_evaluated_beside_the_noise(plan, in_process, tmp_path):
    with pytest.raises(UserError, match=r"; set evaluation.train_split = false \(a simulation"):
        run(tmp_path / "run", in_process, (*plan, "evaluation.train_split=true"))
    assert not (tmp_path / "run").exists()


def test_a_run_whose_updates_are_not_finite_ends(in_process, tmp_path):
    """Though nothing says how many of its clients counted."""
    wild = ("privacy.noise_multiplier=1e6", 'algorithm={name="fedavg", learning_rate=1e38}')
    with pytest.raises(Diverged, match=r"left all weights unchanged: .*learning_rate"):
        run(tmp_path / "run", in_process, (*EXAMPLE, *wild))


@pytest.mark.parametrize(("plan", "fixture"), [(CLIENT, "worker"), (CLIENT, "in_process"), (EXAMPLE, "in_process")])
def test_a_resumed_run_has_the_same_numbers(plan, fixture, whole, request, tmp_path):
    runtime = request.getfixturevalue(fixture)
    with computing_on(runtime):
        result = resumed_after(lambda **how: run(tmp_path / "run", runtime, plan, **how), 3)
    assert_same_files(tmp_path / "run", whole(plan, runtime).folder, *FILES)
    assert_same_weights(result.weights, whole(plan, runtime).result.weights)


# The budget


BUDGET = (*CLIENT, f"privacy.epsilon={spent(Z, 1 / 4, 3) + 0.01}")


@pytest.fixture(scope="module")
def stopped(in_process, tmp_path_factory):
    """A run that spent its budget: its folder and result."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    return SimpleNamespace(folder=folder, result=run(folder, in_process, BUDGET, details=True))


def test_a_run_stops_before_it_spends_more_than_its_budget(stopped):
    assert len(epsilons(stopped.folder)) == 3
    line = summary(stopped.folder)["privacy"]["stopped"]
    assert line == stopped.result.stopped and line.startswith("stopped after round 3 at ε = ") and "more than" in line
    assert line in (stopped.folder / "run.log").read_text("utf-8")
    assert "test/accuracy" in read_history(RunFolder(stopped.folder))[-1], "its last round is evaluated"


def test_a_stopped_run_does_not_go_on(stopped, in_process, tmp_path):
    shutil.copytree(stopped.folder, tmp_path / "run")
    seen = []
    again = run(tmp_path / "run", in_process, BUDGET, resume=True, on_round=seen.append)
    assert not seen and again.stopped == stopped.result.stopped and again.test.metrics == stopped.result.test.metrics
    assert_same_files(tmp_path / "run", stopped.folder, *FILES)
    broken = resumed_after(lambda **how: run(tmp_path / "broken", in_process, BUDGET, **how), 2)
    assert broken.stopped == stopped.result.stopped
    assert_same_files(tmp_path / "broken", stopped.folder, *FILES)


def test_the_card_and_the_export_say_what_was_spent(stopped, capsys):
    typed = command(capsys, "export", stopped.folder, "--runtime", "in-process")
    assert typed.code == 0, typed
    about = json.loads((stopped.folder / "export" / "export.json").read_text("utf-8"))["details"]
    privacy = about["differential_privacy"]
    assert privacy["epsilon"] == epsilons(stopped.folder)[-1] and about["rounds"] == 3
    card = (stopped.folder / "export" / "README.md").read_text("utf-8").replace("\\", "")
    assert f"differential privacy: {privacy['statement']}" in card and "no differential privacy" not in card
    assert all(f"not covered: {line}" in card for line in privacy["not_covered"])


# Comparisons


@pytest.mark.slow
def test_a_comparison_has_a_column_of_epsilon(in_process, tmp_path):
    paths = []
    for name, privacy in (("plain", None), ("noised", {"clip": 0.5, "noise_multiplier": Z, "delta": DELTA})):
        training = {"rounds": 2, "clients_per_round": 1, "sampling": "poisson"}
        table = {"name": name, "training": training, "privacy": privacy, **QUIET}
        paths.append(str(write_recipe(tmp_path / f"{name}.toml", **table)))
    suite = suite_of_recipes(tuple(paths), (), (SEED,))
    ways = {"builder": builder(), "runtime_name": "in-process"}
    outcomes = compare(suite, tmp_path / "out", **ways)
    write_report(suite, outcomes, tmp_path / "out")
    wanted = f"{rounded_up(spent(Z, 1 / 4, 2))} ({DELTA}, client)"
    head, _, plain, noised, *_ = (
        (tmp_path / "out" / "comparison.md").read_text("utf-8").split("| algorithm")[1].split("\n")
    )
    column = head.split(" | ").index("ε (δ, unit)")
    assert [row.strip("| ").split(" | ")[column] for row in (plain, noised)] == ["–", wanted]
    with open(tmp_path / "out" / "comparison.csv", newline="", encoding="utf-8") as file:
        first, second, *references = csv.DictReader(file)
    assert first["epsilon"] == "" and float(second["epsilon"]) == pytest.approx(spent(Z, 1 / 4, 2), rel=1e-3)
    assert (
        all(row["epsilon"] == "" for row in references)
        and second["privacy_unit"] == "client"
        and float(second["delta"]) == DELTA
    )


def test_a_stopped_run_is_finished_for_a_comparison(tmp_path):
    privacy = {"clip": 0.5, "noise_multiplier": Z, "delta": DELTA, "epsilon": spent(Z, 1 / 4, 1) + 0.01}
    training = {"rounds": 3, "clients_per_round": 1, "sampling": "poisson"}
    path = str(write_recipe(tmp_path / "r.toml", training=training, privacy=privacy, **QUIET))
    suite, started = suite_of_recipes((path,), (), (SEED,)), []
    ways = {"builder": builder(), "runtime_name": "in-process", "on_round": started.append}
    first = compare(suite, tmp_path / "out", **ways)
    assert len(started) == 1
    again = compare(suite, tmp_path / "out", resume=True, **ways)
    assert len(started) == 1 and again["tiny"][SEED].history == first["tiny"][SEED].history


def test_no_guarantee_is_shown_as_such():
    rows = [ComparisonRow("a", {}, privacy=Guarantee(math.inf, 1e-5, "client")), ComparisonRow("b", {})]
    lines = comparison_markdown(Table(rows)).splitlines()
    assert "| ∞ (1e-05, client) |" in lines[2] and "| – |" in lines[3] and "no guarantee" in lines[-1]
    assert rounded_up(2.5001) == "2.51" and rounded_up(2.5) == "2.50" and rounded_up(0) == "0.00"


# Secrets


def in_any_file(folder, *needles: bytes) -> list:
    """Files below a folder that hold one of these bytes, or of these written in hexadecimal digits."""
    wanted = [*needles, *(needle.hex().encode() for needle in needles)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    return [path for path in files if any(needle in path.read_bytes() for needle in wanted)]


def test_a_secret_is_in_no_file(in_process, tmp_path, capsys):
    secret = np.random.default_rng(5).bytes(32)
    (tmp_path / "noise.secret").write_bytes(secret)
    plan = (*CLIENT, f'privacy.noise_seed="file:{tmp_path / "noise.secret"}"')
    folder = tmp_path / "run"
    run(folder, in_process, (*plan, "privacy.training_metrics=true"), details=True)
    assert command(capsys, "export", folder, "--runtime", "in-process").code == 0
    assert "file:noise.secret" in (folder / "export" / "recipe.toml").read_text("utf-8")
    words = [noise_seed(secret), *(client_seed(secret, r, f"{k:03d}") for r in range(1, 6) for k in range(4))]
    ids = [client.client_id for client in builder().build(tiny(*plan, seed=SEED)).prepared.examples.clients]
    words += [client_seed(secret, r, name) for r in range(1, 6) for name in ids]
    assert not in_any_file(folder, secret, *(word.tobytes() for word in words))
    numbers = [str(int(number)).encode() for word in words for number in word]
    texts = [path for path in folder.rglob("*") if path.suffix in (".csv", ".json", ".toml", ".log", ".md")]
    assert not [path for path in texts for number in numbers if len(number) > 7 and number in path.read_bytes()]
    assert [row["clients/counted"] for row in read_history(RunFolder(folder))] == [
        len(drawn(number, secret)) for number in range(1, 6)
    ], "the clients are drawn by the secret, too"


def test_a_run_with_a_secret_file_goes_on_with_its_numbers(in_process, tmp_path):
    (tmp_path / "one").write_bytes(bytes(range(32)))
    plan = (*CLIENT, "training.rounds=4", f'privacy.noise_seed="file:{tmp_path / "one"}"')
    whole = run(tmp_path / "whole", in_process, plan)
    again = resumed_after(lambda **how: run(tmp_path / "run", in_process, plan, **how), 3)
    assert_same_files(tmp_path / "run", tmp_path / "whole", *FILES)
    (tmp_path / "one").write_bytes(bytes(range(1, 33)))
    other = run(tmp_path / "other", in_process, plan)
    assert_same_weights(again.weights, whole.weights)
    assert not np.array_equal(whole.weights.trainable[0], other.weights.trainable[0])


@pytest.mark.parametrize("plan", [CLIENT, pytest.param(EXAMPLE, marks=pytest.mark.slow)])
def test_the_systems_randomness_is_new_and_all_that_was_begun_counts(plan, in_process, tmp_path, capsys):
    plan = (*plan, "privacy.noise_seed=system", "training.clients_per_round=4", "training.rounds=4")
    with pytest.raises(Stop):
        run(tmp_path / "run", in_process, plan, on_round=_stop_at_3)
    stored = json.loads((tmp_path / "run" / "spent.json").read_text("utf-8"))
    before = epsilons(tmp_path / "run")
    resumed = run(tmp_path / "run", in_process, plan, resume=True)
    after = epsilons(tmp_path / "run")
    assert stored["rounds"] == 3 and "new randomness" in capsys.readouterr().err
    # The checkpoint is of round 2: round 3 was done twice, and what it released then is not taken back.
    assert after[:2] == before[:2] and after[2] > before[2]
    assert json.loads((tmp_path / "run" / "spent.json").read_text("utf-8"))["rounds"] == 5
    other = run(tmp_path / "other", in_process, plan)
    assert not np.array_equal(resumed.weights.trainable[0], other.weights.trainable[0])


def _stop_at_3(report):
    if report.round == 3:
        raise Stop


# Refusals


FEDAVG = {"algorithm": {"name": "fedavg", "local_epochs": 1}}
BAD = [
    ({}, {}, ["[privacy]", "neither noise_multiplier nor epsilon"]),
    ({"noise_multiplier": 1.0, "delta": 1.0}, {}, ["'privacy.delta'"]),
    ({"noise_multiplier": 1.0, "noise_seed": "clock"}, {}, ["'privacy.noise_seed'", "'file:PATH'", "'clock'"]),
    ({"noise_multiplier": 1.0, "noise_seed": "file:/no/such"}, {}, ["'privacy.noise_seed'", "/no/such", "No such"]),
    (
        {"noise_multiplier": 1.0, "noise_seed": "file:/dev/null"},
        {},
        ["'privacy.noise_seed'", "/dev/null", "is not a regular file"],
    ),
    ({"noise_multiplier": 0.1, "epsilon": 1.0}, {}, ["'privacy.epsilon'", "first round"]),
    (
        {"noise_multiplier": 1.0, "unit": "group"},
        {},
        ["privacy.unit is 'group'", "do not belong to documents or patients"],
    ),
    *(
        ({"noise_multiplier": 1.0, "unit": unit}, {"algorithm": {"name": name}}, [f"unit = '{unit}'", name])
        for unit, name in (("client", "scaffold"), ("client", "fedcmc"), ("example", "scaffold"), ("example", "fedcmc"))
    ),
    ({"noise_multiplier": 1.0, "mechanism": "tree"}, {}, ["[privacy]", "tree", "fedpap"]),
    ({"noise_multiplier": 1.0, "unit": "example", "mechanism": "tree"}, {}, ["'privacy.mechanism'", "unit = 'client'"]),
    ({"noise_multiplier": 1.0, "unit": "example", "clip_quantile": 0.5}, {}, ["'privacy.clip_quantile'"]),
    ({"noise_multiplier": 1.0, "unit": "example", "normaliser": 0.5}, {}, ["'privacy.normaliser'"]),
    ({"noise_multiplier": 1.0, "mechanism": "tree", "noise_seed": "system"}, FEDAVG, ["noise_seed", "tree"]),
]


@pytest.mark.parametrize(("privacy", "tables", "parts"), BAD)
def test_what_cannot_be_private_is_one_line(privacy, tables, parts, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", privacy=privacy, **QUIET, **tables)
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    refusal(typed, recipe, *parts)


def test_an_empty_secret_is_refused(capsys, tmp_path):
    (tmp_path / "secret").write_bytes(b"")
    privacy = {"noise_multiplier": 1.0, "noise_seed": f"file:{tmp_path / 'secret'}"}
    recipe = write_recipe(tmp_path / "r.toml", privacy=privacy, **QUIET)
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    refusal(typed, "'privacy.noise_seed'", tmp_path / "secret", "0 bytes", "at least 16")
    assert not (tmp_path / "run").exists()
    (tmp_path / "secret").write_bytes(bytes(16))
    assert seed_of(load(str(recipe))) == bytes(16)


def test_the_command_says_what_was_spent(capsys, tmp_path):
    privacy = {"noise_multiplier": Z, "clip": 0.5, "delta": 0.3}
    training = {"rounds": 2, "clients_per_round": 1, "sampling": "poisson"}
    recipe = write_recipe(tmp_path / "r.toml", privacy=privacy, training=training, **QUIET)
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    assert typed.code == 0 and typed.err.count("\n") == 1 and "privacy.delta is 0.3, not below 1 / 4" in typed.err
    spent_by_run = summary(tmp_path / "run")["privacy"]
    assert "round 2/2, " in typed.out and f"ε {rounded_up(spent_by_run['epsilon'])}" in typed.out
    assert (
        f"privacy: {spent_by_run['statement']}\n" in typed.out
        and "not covered: the evaluation of every client" in typed.out
    )
    assert SYNTHETIC["name"] in typed.out and "privacy: clip = 0.5" in typed.out, "the tree of its configuration"
