"""FedCMC's local average similarities: recorded in every round, resumed, correlated with the labels, drawn."""

from __future__ import annotations

import collections
import csv
import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

from datasets.partition import LabelCounts
from tests.computations import toolbox
from tests.report.test_report import pixels
from tests.runs.resuming import assert_same_files, resumed
from tests.upper_floors import builder, command, share_computations, tiny, write_recipe
from tff_re.comparison.outcome import Outcome, compare
from tff_re.comparison.report import write_report
from tff_re.comparison.suite import load_suite
from tff_re.errors import UserError
from tff_re.report.similarity import first_and_last, rank_correlations, similarity_figure
from tff_re.runs.checkpoints import Records
from tff_re.runs.folder import RunFolder
from tff_re.runs.randomness import client_seed
from tff_re.runs.reading import read_client_states
from tff_re.runs.results import recorded_similarities
from tff_re.runs.resuming import DataDigests
from tff_re.runs.run import train_run
from tff_re.runs.sampling import sample_clients
from tff_re.runs.training import _fresh_states

RATE, EPOCHS, BATCH, ROUNDS, SAMPLED = 0.3, 2, 7, 6, 3
FEDCMC = {"name": "fedcmc", "optimizer": "sgd", "learning_rate": RATE, "local_epochs": EPOCHS, "batch_size": BATCH}
PLAN = (
    f"algorithm={{name='fedcmc', optimizer='sgd', learning_rate={RATE}, local_epochs={EPOCHS}, batch_size={BATCH}}}",
    f"training.rounds={ROUNDS}",
    f"training.clients_per_round={SAMPLED}",
    "training.checkpoint_every=4",
)


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime, pictures=True)
        yield


def run(folder, runtime, **options):
    return train_run(tiny(*PLAN), folder, builder=builder(), runtime=runtime, **options)


@pytest.fixture(scope="module")
def whole(runtime, tmp_path_factory):
    """The folder of a run and its experiment."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment, _ = run(folder, runtime)
    return SimpleNamespace(folder=folder, experiment=experiment, labels=experiment.prepared.label_names)


# What a run records


def similarities(classifier):
    """Eq. 10, one pair at a time: classifier [C, d]."""
    unit = [v / np.linalg.norm(v) for v in classifier]
    others = range(len(unit))
    return [sum(unit[c] @ unit[i] for i in others if i != c) / (len(unit) - 1) for c in others]


def test_the_recorded_rows_are_those_of_the_clients_own_classifiers(whole):
    """All rounds once more in NumPy; without an encoder FedCMC is FedAvg."""
    recipe, model = whole.experiment.recipe, whole.experiment.model
    clients = [c for c in whole.experiment.prepared.examples.clients if len(c.train["y"])]
    weights = [w.astype(float) for w in model.initial_weights(recipe.seed).trainable]
    expected = {}
    for number in range(1, ROUNDS + 1):
        chosen = [clients[i] for i in sample_clients(recipe.seed, number, len(clients), SAMPLED)]
        models = []
        for client in chosen:
            x, y = client.train["x"], client.train["y"]
            rows = toolbox.batches(client_seed(recipe.seed, number, client.client_id), len(y), BATCH, EPOCHS)
            models.append(toolbox.train(weights, x, y, rows, toolbox.Sgd(RATE)))
            expected[number, client.client_id] = similarities(models[-1][0].T)
        sizes = [len(c.train["y"]) for c in chosen]
        weights = [np.average(layer, axis=0, weights=sizes) for layer in zip(*models, strict=True)]
    with open(whole.folder / "client_states.csv", newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    pixels(whole.folder / "plots" / "similarity.png")
    assert heading == ["round", "client", "name", *whole.labels] and len(whole.labels) == 3
    assert [(int(r), client) for r, client, *_ in rows] == list(expected)
    for number, client, name, *values in rows:
        assert name == "similarity"
        np.testing.assert_allclose(np.array(values, float), expected[int(number), client], atol=1e-5)


def test_what_was_recorded_is_read_back(whole):
    folder = RunFolder(whole.folder)
    recorded = read_client_states(folder, whole.labels)
    assert list(recorded) == ["similarity"] and sorted(recorded["similarity"]) == list(range(1, ROUNDS + 1))
    lines = (whole.folder / "client_states.csv").read_text("utf-8").splitlines()
    (client, value), *_ = recorded["similarity"][1].items()
    assert value.dtype == np.float32 and lines[1] == ",".join(["1", client, "similarity", *map(str, value)])
    names = whole.experiment.prepared.counts.clients
    matrices = first_and_last(recorded["similarity"], names, 3)
    assert list(matrices) == [1, ROUNDS]
    for number, matrix in matrices.items():
        absent = [name not in recorded["similarity"][number] for name in names]
        assert np.isnan(matrix).all(axis=1).tolist() == absent and sum(absent) == len(names) - SAMPLED
        assert not np.isnan(matrix[~np.array(absent)]).any()
    np.testing.assert_array_equal(matrices[1][names.index(client)], value)
    assert first_and_last({}, names, 3) == {}


def test_an_algorithm_that_shows_nothing_records_nothing(runtime, tmp_path):
    folder = RunFolder(tmp_path / "run")
    experiment, _ = train_run(tiny("training.rounds=1"), folder.path, builder=builder(), runtime=runtime, details=False)
    assert not folder.client_states.exists()
    assert read_client_states(folder, ["0"]) == recorded_similarities(experiment.prepared, folder) == {}


@pytest.mark.parametrize(
    ("method", "round_num", "before"),
    [
        pytest.param(
            "release", 3, False, marks=pytest.mark.slow
        ),  # the metrics of round 3 are there, the clients' states not
        ("release_client_states", 5, False),  # a round after the checkpoint
    ],
)
def test_a_run_that_was_broken_off_has_the_same_file(method, round_num, before, whole, runtime, tmp_path):
    resumed(functools.partial(run, tmp_path / "run", runtime), method, round_num, before, details=False)
    assert_same_files(tmp_path / "run", whole.folder, "client_states.csv", "metrics.csv")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("round,client,name,0,1,2", "round,client,name,0,1,2,3", "its columns do not match this run's classes"),
        ("\n1,", "\none,", "row 2 is damaged"),
        (",similarity,", ",similarity,x", "row 2 is damaged"),
        (",similarity,", ",similarity,1,", "row 2 is damaged"),
    ],
)
def test_a_damaged_file_is_named(old, new, complaint, whole, tmp_path):
    folder = RunFolder(tmp_path)
    text = (whole.folder / "client_states.csv").read_text("utf-8")
    assert old in text
    folder.client_states.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(UserError, match=rf"client_states\.csv: {complaint}; remove it"):
        read_client_states(folder, whole.labels)
    records = Records(folder, DataDigests())
    with pytest.raises(UserError, match=complaint):
        records.release_client_states(3, whole.labels, {})
    records.close()


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "client_states.csv").write_bytes(b"round,client\xff")
    with pytest.raises(UserError, match=r"client_states\.csv: is not a CSV file in UTF-8; remove it"):
        read_client_states(RunFolder(tmp_path), ["0"])


def test_a_client_that_did_not_count_has_no_row():
    """It keeps what it had, which is no value of this round."""

    def client_state(*values):
        return collections.OrderedDict(similarity=np.array(values, np.float32))

    experiment = SimpleNamespace(algorithm=SimpleNamespace(client_work=SimpleNamespace(recorded_state=("similarity",))))
    before, after = [client_state(0, 0), client_state(1, 2)], [client_state(0, 0), client_state(3, 4)]

    def fresh(counted):
        metrics = {"work": {"clients/counted": np.float32(counted)}}
        return _fresh_states(experiment, ["a", "b"], before, {"client_state": after, "metrics": metrics})

    assert list(fresh(1)) == ["b"] and fresh(1)["b"]["similarity"].tolist() == [3, 4]
    assert list(fresh(2)) == ["a", "b"]


# The observations as numbers


def test_rank_correlations_by_hand():
    counts = np.array([[5, 1, 3], [0, 2, 9], [4, 4, 4]])
    d = np.array([[-0.5, 0.3, 0.1], [0.1, 0.2, -0.9], [0.4, 0.0, 0.2]])
    # Rows: ranks (3, 1, 2) and (1, 3, 2): -1; (1, 2, 3) and (2, 3, 1): 1 - 6 * 6 / 24 = -0.5; the third is constant.
    # Columns: (3, 1, 2) and (1, 2, 3): 1 - 6 * 6 / 24 = -0.5; (1, 2, 3) and (3, 2, 1): -1; (1, 3, 2) and (2, 1, 3): the
    # first again.
    correlations = rank_correlations(counts, d)
    assert correlations.across_classes == pytest.approx(-0.75) and correlations.across_clients == pytest.approx(-2 / 3)
    # Without the second client its row is gone, and each column has two ranks: (2, 1) and (1, 2); the same; the same.
    d[1] = np.nan
    correlations = rank_correlations(counts, d)
    assert correlations.across_classes == pytest.approx(-1)
    assert correlations.across_clients == pytest.approx((-1 - 1 + 1) / 3)


def test_ties_have_the_mean_of_their_ranks():
    # Ranks (1.5, 1.5, 3) and (3, 2, 1): -1.5 / sqrt(1.5 * 2).
    correlations = rank_correlations(np.array([[0, 0, 7]]), np.array([[0.3, 0.2, 0.1]]))
    assert correlations.across_classes == pytest.approx(-1.5 / math.sqrt(3)) and math.isnan(correlations.across_clients)
    for nothing in (np.full([2, 2], np.nan), np.zeros([2, 2])):
        assert all(map(math.isnan, rank_correlations(np.array([[1, 2], [3, 4]]), nothing)))
    with pytest.raises(ValueError, match="must be"):
        rank_correlations(np.zeros([2, 2]), np.zeros([2, 3]))


# The picture


def drawn(path, clients, classes, rounds=(1, 15), names=None, absent=0):
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 3000, [clients, classes])
    matrices = {r: generator.normal(0, 0.3, [clients, classes]) for r in rounds}
    for matrix in matrices.values():
        matrix[:absent] = np.nan
    ids, names = [f"client-{k}" for k in range(clients)], names or [f"Cause-Effect {c}" for c in range(classes)]
    return similarity_figure(path, counts, ids, names, matrices)


def test_the_figure_has_room_for_every_number(tmp_path):
    drawn(tmp_path / "paper.png", 5, 4)
    drawn(tmp_path / "large.png", 16, 9, absent=14)
    written = drawn(tmp_path / "alone.png", 1, 2, rounds=(1,), names=["发热", "咳嗽"])
    assert written[0] == tmp_path / "alone.png" and all("发热" in text.read_text("utf-8") for text in written[1:])
    sizes = {name: pixels(tmp_path / f"{name}.png") for name in ("paper", "large", "alone")}
    # At 200 dots an inch a number of five characters needs some 60 x 25.
    assert sizes["large"][0] > 3 * 9 * 60 and sizes["large"][1] > 16 * 25
    assert sizes["alone"][0] < sizes["paper"][0] < sizes["large"][0]


# Comparisons


def suite_of(folder, *entries):
    write_recipe(folder / "tiny.toml", training={"rounds": 2, "clients_per_round": 3})
    table = {"title": "Tiny", "recipe": str(folder / "tiny.toml"), "seeds": [3], "entry": list(entries)}
    (folder / "suite.toml").write_text(tomli_w.dumps(table), "utf-8")
    return load_suite(str(folder / "suite.toml"))


def test_a_comparison_draws_the_first_entry_of_a_table_that_recorded_similarities(runtime, capsys, tmp_path):
    entries = (
        {"name": "FedAvg", "group": "A", "algorithm": {"name": "fedavg"}},
        {"name": "FedCMC, μ=1", "group": "A", "algorithm": FEDCMC},
        {"name": "second", "group": "A", "algorithm": FEDCMC},
        {"name": "FedAvg again", "group": "B", "algorithm": {"name": "fedavg"}},
    )
    suite = suite_of(tmp_path, *entries)
    outcomes = compare(suite, tmp_path / "out", builder=builder())
    for name, by_seed in outcomes.items():
        assert all(bool(outcome.similarities) == ("FedAvg" not in name) for outcome in by_seed.values())
    typed = command(capsys, "compare", "--suite", tmp_path / "suite.toml", "--out", tmp_path / "out", "--resume")
    assert typed.code == 0 and typed.err == ""
    pictures = list((tmp_path / "out").glob("similarity-*.png"))
    assert [path.name for path in pictures] == ["similarity-fedcmc-mu-1.png"]
    pixels(pictures[0])
    outcome = outcomes["FedCMC, μ=1"][3]
    assert list(outcome.similarities) == [1, 2] and outcome.similarities[1].shape == outcome.counts.train.shape
    first, last = (rank_correlations(outcome.counts.train, outcome.similarities[r]) for r in (1, 2))
    markdown = (tmp_path / "out" / "comparison.md").read_text("utf-8")
    a, b = markdown.split("## B")
    assert (
        f"(mean over clients), {first.across_classes:+.2f} in round 1 and {last.across_classes:+.2f} in round 2;" in a
    )
    assert (
        f"(mean over classes), {first.across_clients:+.2f} in round 1 and {last.across_clients:+.2f} in round 2." in a
    )
    assert a.count("(similarity-fedcmc-mu-1.png)") == 1 and "FedCMC, μ=1, seed 3: " in a and "similarity" not in b


def test_a_correlation_that_is_none_is_a_dash(tmp_path):
    suite = suite_of(tmp_path, {"name": "FedCMC", "algorithm": FEDCMC})
    counts = LabelCounts(("a", "b"), ("x", "y"), np.array([[1, 2], [1, 2]]), np.zeros([2, 2], int))
    history = [{"round": 1.0, "test/accuracy": 0.5, "train/loss": 1.0}]
    outcome = Outcome(history, 1.0, 1, 1, counts, {1: np.array([[0.2, 0.1], [0.3, 0.1]])})
    report = write_report(suite, {"FedCMC": {3: outcome}}, tmp_path)
    text = (tmp_path / "comparison.md").read_text("utf-8")
    assert "-1.00 in round 1; across the clients of a class (mean over classes), – in round 1." in text
    assert tmp_path / "similarity-fedcmc.png" in report.files
