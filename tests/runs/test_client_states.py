"""States of clients: only those of asked clients are kept, in files that hold each of them a few times at most."""

from collections import OrderedDict

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from safetensors import numpy as safetensors

from tff_re.errors import UserError
from tff_re.runs.client_states import ClientStates


def blank(index):
    """Of client i arrays of i rows, a scalar, and numbers of another type."""
    return OrderedDict(rows=np.zeros((index % 3, 2), np.float32), number=np.int64(-1), more=[np.zeros(3, np.uint8)])


def state(index, value):
    rows = np.full((index % 3, 2), value, np.float32)
    return OrderedDict(rows=rows, number=np.int64(value), more=[np.full(3, value, np.uint8)])


def assert_equal(actual, expected):
    assert list(actual) == list(expected)
    for name in ("rows", "number"):
        assert np.asarray(actual[name]).dtype == np.asarray(expected[name]).dtype
        np.testing.assert_array_equal(actual[name], expected[name])
    np.testing.assert_array_equal(actual["more"][0], expected["more"][0])
    assert isinstance(actual["number"], np.int64)


changes = st.lists(st.dictionaries(st.integers(0, 11), st.integers(0, 255), max_size=6), max_size=12)


@hypothesis.given(rounds=changes, checkpoints=st.sets(st.integers(0, 11)))
def test_states_come_back_from_their_files(tmp_path_factory, rounds, checkpoints):
    folder = tmp_path_factory.mktemp("states")
    states, expected = ClientStates(12, blank), {}
    for number, changed in enumerate(rounds):
        for client, value in changed.items():
            states[client] = state(client, value)
            expected[client] = state(client, value)
        if number not in checkpoints:
            continue
        states.write(folder / f"clients_{number}")
        read = ClientStates(12, blank)
        read.read(folder, states.files)
        for client in range(12):
            assert_equal(read[client], expected.get(client, blank(client)))
            assert_equal(states[client], expected.get(client, blank(client)))
        held = sum((folder / name).stat().st_size - 400 for name, _ in states.files)
        one = 3 + 8 + 16 + 8 * 4  # bytes of a state, with its index and its shapes
        assert held <= 2 * len(expected) * one
    for client in range(12):
        assert_equal(states[client], expected.get(client, blank(client)))


def test_a_file_holds_what_changed_and_smaller_files_before(tmp_path):
    states = ClientStates(1000, blank)

    def write(number, clients, value):
        for client in clients:
            states[client] = state(client, value)
        states.write(tmp_path / f"clients_{number}")
        return [name for name, _ in states.files]

    assert write(1, range(600), 1) == ["clients_1"]
    assert write(2, range(590, 610), 2) == ["clients_1", "clients_2"]
    assert write(3, [700], 3) == ["clients_1", "clients_2", "clients_3"]
    stored = safetensors.load_file(tmp_path / "clients_2")
    assert stored["clients"].tolist() == list(range(590, 610)) and stored["shapes"][0].tolist() == [3, 590 % 3, 2]
    assert write(4, [700, 701], 4) == ["clients_1", "clients_2", "clients_4"]  # 3 is a part of 4
    assert write(5, [], 5) == ["clients_1", "clients_2", "clients_4"]
    assert write(6, range(600, 1000), 6) == ["clients_6"]  # all that was before is a part of it
    read = ClientStates(1000, blank)
    read.read(tmp_path, states.files)
    values = {client: int(read[client]["number"]) for client in (0, 589, 590, 599, 600, 700, 999)}
    assert values == {0: 1, 589: 1, 590: 2, 599: 2, 600: 6, 700: 6, 999: 6}


def test_a_snapshot_stays_as_it_was(tmp_path):
    states = ClientStates(3, blank)
    states[1] = state(1, 7)
    before = states.snapshot()
    states[1] = state(1, 8)
    states[2] = state(2, 8)
    states.write(tmp_path / "clients_1")
    assert [int(s["number"]) for s in before] == [-1, 7, -1] and not before.files
    before.write(tmp_path / "clients_0")
    assert [int(s["number"]) for s in states] == [-1, 8, 8] and len(states) == len(before) == 3


def test_blank_states_are_made_when_they_are_read():
    asked = []
    states = ClientStates(10**6, lambda index: asked.append(index) or blank(index))
    states[5] = state(5, 1)
    assert not asked and int(states[5]["number"]) == 1
    assert int(states[999_999]["number"]) == -1 and asked == [999_999]
    for index in (10**6, -1):
        with pytest.raises(IndexError):
            states[index]
        with pytest.raises(IndexError):
            states[index] = blank(0)


def test_what_is_missing_or_damaged_is_named(tmp_path):
    states = ClientStates(4, blank)
    states[3] = state(3, 1)
    path = tmp_path / "clients_1"
    states.write(path)
    content = path.read_bytes()
    for wrong in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b""):
        path.write_bytes(wrong)
        with pytest.raises(UserError, match="clients_1: is damaged; put it back"):
            ClientStates(4, blank).read(tmp_path, states.files)
    path.write_bytes(content)
    with pytest.raises(UserError, match="states of more clients than this run has"):
        ClientStates(3, blank).read(tmp_path, states.files)
    with pytest.raises(UserError, match="clients_1: is damaged"):  # of states of another structure
        ClientStates(4, lambda index: [np.zeros(2, np.float32)]).read(tmp_path, states.files)
    path.unlink()
    with pytest.raises(UserError, match="clients_1: is missing; put it back"):
        ClientStates(4, blank).read(tmp_path, states.files)


def test_an_interrupted_write_leaves_the_files_and_the_changes(tmp_path, monkeypatch):
    states = ClientStates(4, blank)
    states[3] = state(3, 1)
    states.write(tmp_path / "clients_1")
    states[3] = state(3, 2)
    states[0] = state(0, 2)
    before = states.files
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        states.write(tmp_path / "clients_2")
    monkeypatch.undo()
    assert states.files == before and [path.name for path in tmp_path.iterdir()] == ["clients_1"]
    assert [int(s["number"]) for s in states] == [2, -1, -1, 2]
    states.write(tmp_path / "clients_2")
    assert [int(s["number"]) for s in states] == [2, -1, -1, 2] and [name for name, _ in states.files] == ["clients_2"]
