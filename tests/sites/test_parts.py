"""Messages that the relay cuts in parts and a site puts together: both sides, and a carrier that fails between them."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from tff_re.sites.transport import (
    HEAD,
    MAX_UNDER_WAY,
    PART,
    REST,
    NoAnswer,
    Parts,
    Relay,
    Serving,
    Sockets,
    connected,
    listen,
    receive,
    send,
)


def _of_the_relay():
    path = Path(__file__).parents[2] / "scripts" / "flower" / "tff_re_relay" / "parts.py"
    spec = importlib.util.spec_from_file_location("relay_parts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PIECE = 7
    return module


relay_parts = _of_the_relay()


def numbers(count, start=0):
    return (np.arange(start, start + count) % 251).astype(np.uint8).tobytes()


class Carried:
    """A relay and a site, each behind its socket; `between(number, part, carry)` is in Flower's place."""

    def __init__(self, folder, answer, max_bytes, between=lambda number, part, carry: carry(part)):
        self.parts: list[bytes] = []
        self._serving = Serving(answer, folder / "site.sock")
        threading.Thread(target=self._serving.run, daemon=True).start()
        site, self._between, self._max_bytes = Sockets({"aachen": folder / "site.sock"}), between, max_bytes
        self._carry = lambda part: site.call("aachen", part, 10)
        self._listening = listen(folder / "relay.sock")
        threading.Thread(target=self._serve, daemon=True).start()
        self.engine = Relay(folder / "relay.sock", ("aachen",))

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                assert receive(connection) == b"aachen"
                with contextlib.suppress(EOFError, OSError):
                    relay_parts.exchange(connection, self._ask, self._max_bytes)

    def _ask(self, pieces):
        part = b"".join(pieces)
        self.parts.append(part)
        back = bytes(self._between(len(self.parts), part, self._carry))
        return [back[index : index + 60] for index in range(0, len(back), 60)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._serving.close()


def test_both_sides_have_one_form():
    assert relay_parts.HEAD.format == HEAD.format
    assert (relay_parts.PART, relay_parts.REST) == (PART, REST)


@pytest.mark.parametrize("max_bytes", [1, 10, 64, 1000])
def test_messages_and_answers_of_any_length_arrive_whole(tmp_path, max_bytes):
    lengths, seen = {n for n in (1, max_bytes - 1, max_bytes, max_bytes + 1, 3 * max_bytes, 200) if n}, []

    def answer(message):
        seen.append(bytes(message))
        return numbers(int.from_bytes(message[:3], "little") + 1, 5)

    with Carried(tmp_path, answer, max_bytes) as carried:
        for length in lengths:
            for back in lengths:
                message = (back - 1).to_bytes(3, "little") + numbers(length)
                carried.parts.clear()
                assert carried.engine.call("aachen", message, 10) == numbers(back, 5)
                assert seen.pop() == message and not seen
                assert max(map(len, carried.parts)) <= max_bytes + HEAD.size
                assert len(carried.parts) == -(-len(message) // max_bytes) + -(-back // max_bytes) - 1


def test_a_part_that_comes_again_changes_nothing(tmp_path):
    asked = []

    def answer(message):
        asked.append(bytes(message))
        return numbers(95, 1)

    def twice(number, part, carry):
        if carried.last_of_answer(number):
            return carry(part)
        assert carry(part) == carry(part)
        return carry(part)

    with Carried(tmp_path, answer, 10, twice) as carried:
        carried.last_of_answer = lambda number: number == 10 + 9
        assert carried.engine.call("aachen", numbers(100), 10) == numbers(95, 1)
    assert asked == [numbers(100)]


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_part_that_is_lost_is_no_answer_and_the_message_is_sent_again(tmp_path, lost):
    def between(number, part, carry):
        return b"" if number == lost else carry(part)

    with Carried(tmp_path, lambda message: bytes(message)[::-1], 10, between) as carried:
        with pytest.raises(NoAnswer, match=r"no answer of it|the connection ended"):
            carried.engine.call("aachen", numbers(35), 10)
        assert carried.engine.call("aachen", numbers(35), 10) == numbers(35)[::-1]


def test_a_site_of_another_version_is_named_in_the_relays_log(tmp_path, capsys):
    older = Carried(tmp_path, len, 10, lambda number, part, carry: b'{"refused": "cut off"}')
    with older as carried, pytest.raises(NoAnswer, match="no answer of it"):
        carried.engine.call("aachen", numbers(35), 10)
    assert "another version of tff-re" in capsys.readouterr().out


def test_a_site_keeps_few_unfinished_messages(caplog):
    def put(name, begin, content, total):
        return site.answer(HEAD.pack(PART, name, begin, total, 4) + content)

    site = Parts(lambda message: b"answer to " + bytes(message))
    names = [bytes([number]) * 16 for number in range(MAX_UNDER_WAY + 1)]
    for name in names:
        assert put(name, 0, b"abc", 6) == HEAD.pack(PART, name, 0, 0, 0)
    assert put(names[0], 3, b"def", 6) == b"" and "whose beginning is not there" in caplog.text
    assert put(names[1], 3, b"def", 6) == HEAD.pack(PART, names[1], 0, 16, 0) + b"answ"
    assert site.answer(HEAD.pack(REST, names[1], 4, 16, 100)) == HEAD.pack(PART, names[1], 4, 16, 0) + b"er to abcdef"
    assert site.answer(HEAD.pack(REST, names[1], 4, 16, 100)) == b"", "it is forgotten once it is taken"
    assert put(names[2], 4, b"ef", 6) == HEAD.pack(PART, names[2], 0, 0, 0), "a part is missing before it"
    assert site.answer(HEAD.pack(REST, names[2], 0, 16, 100)) == b""


def test_a_message_that_is_whole_needs_no_part(tmp_path):
    serving = Serving(lambda message: bytes(message)[::-1], tmp_path / "s")
    threading.Thread(target=serving.run, daemon=True).start()
    with connected(tmp_path / "s", "the site", 5) as connection:
        send(connection, b"tff-par")
        assert receive(connection) == b"rap-fft"
    serving.close()
    assert MAX_UNDER_WAY >= 2, "two coordinators at once"
