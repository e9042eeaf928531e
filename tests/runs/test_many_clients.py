"""Runs of many clients of which few are asked: what is made and kept is of these."""

from collections import Counter

import numpy as np
import pytest

from datasets.synthetic import generate
from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import assert_same_weights, tiny
from tff_re.pages.run_page import run_page
from tff_re.runs import tables
from tff_re.runs.checkpoints import Records
from tff_re.runs.client_states import ClientStates
from tff_re.runs.evaluation import AT_ONCE, Arranged
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_table
from tff_re.runs.run import train_run
from tff_re.runs.sampling import sample_clients
from tff_re.runs.tables import Rows

CLIENTS, PER_ROUND, ROUNDS = 5000, 7, 6

PLAN = (
    "task={name='synthetic', num_clients=5000, num_features=3, num_classes=2, total_train=10000, total_test=5000}",
    "algorithm={name='scaffold', local_epochs=1, learning_rate=0.05}",
    "evaluation={every=6, train_split=false}",
    *(f"training.{key}" for key in ("rounds=6", "clients_per_round=7", "checkpoint_every=2")),
)


def run(folder, runtime, **options):
    return train_run(tiny(*PLAN), folder, runtime=runtime, details=False, **options)


@pytest.fixture(scope="module")
def observed(here, tmp_path_factory):
    """(the run's folder, its result, (split, client's index) -> how often its arrays were made, blank states made)."""
    made, blanks, folder = Counter(), [], tmp_path_factory.mktemp("many") / "run"
    plain, plain_states = Arranged._arrays_of, ClientStates.__init__

    def arrays_of(arranged, index):
        made[arranged._split, int(index)] += 1
        return plain(arranged, index)

    def init(states, number, blank):
        plain_states(states, number, lambda index: blanks.append(index) or blank(index))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arranged, "_arrays_of", arrays_of)
        patch.setattr(ClientStates, "__init__", init)
        patch.setattr(tables, "MOST_IN_CSV", 1000)
        _, result = run(folder, here)
    return folder, result, made, blanks


def asked():
    return [sample_clients(tiny().seed, number, CLIENTS, PER_ROUND).tolist() for number in range(1, ROUNDS + 1)]


def test_only_clients_that_are_asked_have_arrays_and_states(observed):
    _, _, made, blanks = observed
    training = {index: count for (split, index), count in made.items() if split == "train"}
    everyone = {client for of_round in asked() for client in of_round}
    assert training.keys() >= everyone and len(training) <= len(everyone) + 1  # and the first one, for a blank state
    assert sum(training.values()) <= 4 * ROUNDS * PER_ROUND
    assert {index for split, index in made if split == "test"} == set(range(CLIENTS))  # the evaluation asks all
    assert set(blanks) <= everyone | {0} and len(blanks) < 20 * ROUNDS * PER_ROUND


def test_checkpoints_hold_the_states_of_those_that_were_asked(observed):
    folder = observed[0]
    files = sorted(path.stat().st_size for path in (folder / "checkpoints").glob("clients_*"))
    distinct = len({client for of_round in asked() for client in of_round})
    one = 4 * (3 * 2 + 2) + 8 + 3 * 8  # bytes of a client's control variate, its index and its shapes
    assert sum(files) <= 2 * distinct * one + 400 * len(files) < 5000 * one / 10
    whole = sum(path.stat().st_size for path in (folder / "checkpoints").rglob("*") if path.is_file())
    assert whole < 300_000  # the states of all would be as much again


def test_an_interrupted_run_of_many_clients_goes_on_the_same(observed, here, tmp_path):
    folder, whole, *_ = observed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_IN_CSV", 1000)
        _, result = resumed_after(lambda **options: run(tmp_path / "run", here, **options), 3)
    assert_same_files(tmp_path / "run", folder, "metrics.csv", "clients.npz", "labels.npz", "summary.json")
    assert_same_weights(result.weights, whole.weights)

    def states(path):
        """Those of the newest checkpoint, read as a resume reads them."""
        return {name: (path / "checkpoints" / name).read_bytes() for name in ("clients_6.safetensors",)}

    assert states(tmp_path / "run") == states(folder)


def test_what_is_measured_of_many_clients_is_a_table(observed):
    folder, result, *_ = observed
    run_folder = RunFolder(folder)
    assert run_folder.clients.name == "clients.npz" and run_folder.labels.name == "labels.npz"
    assert not (folder / "clients.csv").exists() and not (folder / "labels.csv").exists()
    rows = read_table(run_folder.clients, "client", "examples", "accuracy", "loss")
    assert isinstance(rows, Rows) and len(rows) == CLIENTS
    values = {row["client"]: (row["examples"], row["accuracy"], row["loss"]) for row in rows}
    assert values == result.test.clients
    page = run_page(folder)
    assert "client (2,000 of 5,000, evenly spaced" in page and "The 12 lowest and the 12 highest of 5,000" in page
    assert len(page) < 3_000_000


def test_parts_of_an_evaluation_are_those_of_one_call(here):
    experiment_clients = generate(0.5, 0.5, num_clients=10, num_features=3, num_classes=2, max_size=60).clients
    assert len(experiment_clients[2:5]) == 3 and AT_ONCE > 10
    ids = [client.client_id for client in experiment_clients]
    assert ids == [f"client-{k}" for k in range(10)]
    with pytest.raises(IndexError):
        experiment_clients[10]
    again = experiment_clients[-1]
    np.testing.assert_array_equal(again.train["x"], experiment_clients[9].train["x"])
    assert again.train["x"].base is not None  # a view, not a copy


def test_no_old_states_are_left(here, tmp_path):
    names = []
    plain = Records.save

    def save(records, number, state):
        plain(records, number, state)
        names.append({path.name for path in (tmp_path / "run" / "checkpoints").glob("clients_*")})
        referenced = {name for name, _ in state["memory"].files}
        assert referenced <= names[-1] and len(names[-1]) <= len(referenced) + 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Records, "save", save)
        run(tmp_path / "run", here)
    assert len(names) == 3 and "clients_6.safetensors" in names[-1]
