"""Messages: what comes out is what went in, and no bytes that come in raise anything else than Malformed."""

from __future__ import annotations

import json
import socket
import threading
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from tests.sites.sites_for_tests import payload
from tff_re.errors import UserError
from tff_re.runtime.errors import RuntimeProblem
from tff_re.sites.messages import Malformed, pack, unpack
from tff_re.sites.transport import MAX_BYTES, NoAnswer, Relay, Serving, Sockets, engine_of, listen, receive, send

NUMBERS = st.sampled_from([np.float32, np.float16, np.int32, np.int64, np.uint8, np.bool_])
ARRAYS = arrays_of.arrays(NUMBERS, arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3))


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3), st.lists(ARRAYS, max_size=3)
)
def test_what_comes_out_is_what_went_in(table, arrays):
    read, again = unpack(pack(table, arrays))
    assert read == table and payload(again) == payload(arrays)
    for ours, other in zip(arrays, again, strict=True):
        assert ours.dtype == other.dtype and ours.shape == other.shape and ours.tobytes() == other.tobytes()


@settings(max_examples=40)
@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_a_message_or_malformed(noise, cut):
    whole = pack({"kind": "stage"}, [np.arange(3)])
    for message in (noise, whole[:cut], whole + noise, len(noise).to_bytes(8, "little") + noise):
        try:
            table, arrays = unpack(message)
        except Malformed:
            continue
        assert isinstance(table, dict) and payload(arrays) <= len(message)


@given(st.lists(ARRAYS, max_size=3))
def test_a_message_is_a_safetensors_file(arrays):
    message = pack({"kind": "stage", "clients": ["\ud800", "甲"]}, arrays)
    read = safetensors.numpy.load(message)
    assert len(read) == len(arrays)
    for number, array in enumerate(arrays):
        assert read[str(number)].dtype == array.dtype and read[str(number)].tobytes() == array.tobytes()
    assert unpack(message)[0]["clients"] == ["\ud800", "甲"]
    assert "甲".encode() in message  # words are looked for in what leaves a site


ARRAY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
TABLE = {"table": "{}"}


def message_of(head, arrays=bytes(8)):
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + arrays


@pytest.mark.parametrize(
    "head",
    [
        {"__metadata__": TABLE, "0": {**ARRAY, "dtype": "BF16"}},
        {"__metadata__": TABLE, "0": {**ARRAY, "dtype": ["F32"]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": [-1]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": [1 << 62]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": [0, 1 << 62], "data_offsets": [0, 0]}, "1": ARRAY},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": [2.0]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": "22"}},
        {"__metadata__": TABLE, "0": {**ARRAY, "shape": [1] * 33 + [2]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "data_offsets": [8, 16]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "data_offsets": [-8, 0]}},
        {"__metadata__": TABLE, "0": {**ARRAY, "more": 1}},
        {"__metadata__": TABLE, "0": {"dtype": "F32", "shape": [2]}},
        {"__metadata__": TABLE, "0": "x"},
        {"__metadata__": TABLE, "1": ARRAY},
        {"__metadata__": TABLE},
        {"__metadata__": {"table": "[]"}, "0": ARRAY},
        {"__metadata__": {"table": "{"}, "0": ARRAY},
        {"__metadata__": {"table": {}}, "0": ARRAY},
        {"__metadata__": {**TABLE, "more": "1"}, "0": ARRAY},
        {"0": ARRAY},
        [],
    ],
)
def test_what_is_no_message(head):
    assert unpack(message_of({"__metadata__": TABLE, "0": ARRAY}))[1][0].shape == (2,)
    with pytest.raises(Malformed):
        unpack(message_of(head))


def test_arrays_that_do_not_travel():
    for array in (np.array([None]), np.array(["x"]), np.array([1j])):
        with pytest.raises(ValueError, match="does not travel"):
            pack({}, [array])


def test_the_length_of_a_message_takes_no_memory_before_its_bytes_are_there():
    for length, line in ((MAX_BYTES + 1, b"x" * 100), (MAX_BYTES, b"x" * 100)):
        here, there = socket.socketpair()
        with here, there:
            there.sendall(length.to_bytes(8, "little") + line)
            there.shutdown(socket.SHUT_WR)
            tracemalloc.start()
            with pytest.raises(EOFError):
                receive(here)
            assert tracemalloc.get_traced_memory()[1] < 1 << 22
            tracemalloc.stop()


def test_a_socket_is_this_users_and_carries_messages(tmp_path):
    path = tmp_path / "site.sock"
    serving = Serving(lambda message: message[::-1], path)
    thread = threading.Thread(target=serving.run)
    thread.start()
    assert path.stat().st_mode & 0o777 == 0o600
    engine = Sockets({"aachen": path})
    large = bytes(range(256)) * 10_000
    assert engine.call("aachen", large, 10) == large[::-1]
    with pytest.raises(RuntimeProblem, match="another process listens"):
        listen(path)
    serving.close()
    thread.join(5)
    assert not thread.is_alive() and not path.exists()
    with pytest.raises(NoAnswer, match="site aachen does not answer"):
        engine.call("aachen", b"x", 1)


def test_a_site_that_never_answers(tmp_path):
    listening = listen(tmp_path / "s")
    with listening, pytest.raises(NoAnswer, match=r"within 0\.05 s"):
        Sockets({"aachen": tmp_path / "s"}).call("aachen", b"x", 0.05)


def test_a_relay_is_told_the_site(tmp_path):
    heard = []

    def relay(listening):
        connection, _ = listening.accept()
        with connection:
            heard.extend([receive(connection), receive(connection)])
            send(connection, b"" if heard[0] == b"bonn" else b"answer")

    for site, answered in (("aachen", True), ("bonn", False)):
        heard.clear()
        with listen(tmp_path / site) as listening:
            thread = threading.Thread(target=relay, args=[listening])
            thread.start()
            engine = engine_of(f"flower:{tmp_path / site}", ("aachen", "bonn"))
            assert isinstance(engine, Relay)
            if answered:
                assert engine.call(site, b"message", 5) == b"answer"
            else:
                with pytest.raises(NoAnswer, match="no answer of it"):
                    engine.call(site, b"message", 5)
            thread.join(5)
        assert heard == [site.encode(), b"message"]


@pytest.mark.parametrize(
    ("runtime", "sites", "line"),
    [
        ("sites:aachen", (), "NAME=SOCKET"),
        ("sites:a=x,a=y", (), "each name once"),
        ("sites:a=x", ("b",), "no socket of b"),
        ("flower:/no/such/socket", ("a",), "flwr run"),
        ("flower:/x", (), "--sites"),
        ("sites:a=x", ("a", "a"), "twice"),
        ("sites:a=x", ("../a",), "not a site's name"),
    ],
)
def test_malformed_names_of_engines(runtime, sites, line):
    with pytest.raises(UserError, match=line):
        engine_of(runtime, sites)


def test_a_file_in_the_sockets_place_is_left(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuntimeProblem, match="is not a socket"):
        listen(tmp_path / "file")
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "dead"))
    left.close()
    listen(tmp_path / "dead").close()
