"""Tricks with the bytes of messages, in both directions and with every kind. They do not depend on the algorithm."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import attrs
import numpy as np

from tests.sites.adversaries.tricks import trick
from tff_re.sites.fields import ARRAY, REST
from tff_re.sites.messages import pack, unpack

ANY = "*"
"""Of tricks with messages of every kind. They do not count as tricks of a kind."""

HUGE = 10**12
PATHS = ("../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "..", "\0")


def head_of(message: bytes) -> tuple[dict, bytes]:
    """Return the head of a message as JSON, and what comes after it."""
    length = int.from_bytes(message[:8], "little")
    return json.loads(message[8 : 8 + length]), message[8 + length :]


def with_head(head: object, rest: bytes, length: int | None = None) -> bytes:
    """Return a message with this head, which may claim another length."""
    text = json.dumps(head).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + rest


def repacked(table: object, arrays) -> bytes:
    """Return a message of any table, also of one that `pack` would not make."""
    head, rest = head_of(pack({}, arrays))
    head["__metadata__"]["table"] = json.dumps(table)
    return with_head(head, rest)


class Planted:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


class AnyMessage:
    """Attributes:
    honest: the message, a `protocol.Question` or `protocol.Answer`.
    message: its bytes.
    planted: a file that is written when something is unpickled.
    """

    def __init__(self, honest, message: bytes, planted: Path):
        self.honest, self.message, self.planted = honest, message, planted
        self.table, self.arrays = unpack(message)

    @property
    def fields(self) -> dict[str, attrs.Attribute]:
        return {field.name: field for field in attrs.fields(type(self.honest))}

    @trick(ANY, holds="the message is cut off")
    def truncated(self):
        """It sends a part of a message."""
        for cut in (0, 1, 7, 8, len(self.message) // 2):
            yield self.message[:cut]
        yield self.message[:-1], "cut off" if self.arrays else "the message is cut off"
        yield self.message + b"\0", "longer than its head says"

    @trick(ANY, holds="the message is cut off")
    def lengths_of_10_to_the_12(self):
        """It claims lengths that the message does not have, so that memory is taken or read beyond its end."""
        for length in (HUGE, 1 << 28, (1 << 63) - 1, (1 << 64) - 1):
            yield length.to_bytes(8, "little") + self.message[8:]
            yield length.to_bytes(8, "little")
        head, rest = head_of(self.message)
        form = {"dtype": "U8", "shape": [HUGE], "data_offsets": [len(rest), len(rest) + HUGE]}
        yield with_head({**head, str(len(self.arrays)): form}, rest), "the arrays of the message are cut off"
        for shape in ([0] * 33, [-1], [HUGE, HUGE]):
            form = {"dtype": "U8", "shape": shape, "data_offsets": [len(rest)] * 2}
            yield with_head({**head, str(len(self.arrays)): form}, rest), ""

    @trick(ANY, holds="the head of the message is no JSON of a table and forms of arrays")
    def heads_that_are_none(self):
        """It sends a head that is no JSON, nested too deeply, or without its table."""
        for text in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", b'{"__metadata__": {"table": 3}}'):
            yield len(text).to_bytes(8, "little") + text
        for table in ("[]", "3", "{", "[" * 100_000):
            head = {"__metadata__": {"table": table}}
            yield with_head(head, b"")

    @trick(ANY, holds="unknown key 'more'")
    def unknown_and_missing_keys(self):
        """It adds a key, or leaves one out."""
        yield repacked({**self.table, "more": 1}, self.arrays)
        for key in self.table.keys() - {"kind"}:
            less = {name: value for name, value in self.table.items() if name != key}
            if (field := self.fields[key]).default is attrs.NOTHING and ARRAY not in field.metadata:
                yield repacked(less, self.arrays), f"the key '{key}' is missing"

    @trick(ANY, holds="must be")
    def values_of_other_types(self):
        """It puts a truth value in place of a number, a number in place of a text, a text in place of a list."""
        others = {str: (3, ["x"], True), int: ("1", 1.5, True, float("nan"), 10**30), list: ("x", {}, 3), bool: (1,)}
        for key, value in self.table.items():
            for other in others.get(type(value), ([], "x")) if key != "kind" else ():
                line = f"'{key}'" if ARRAY in self.fields[key].metadata else f"'{key}' must be"
                yield repacked({**self.table, key: other}, self.arrays), line

    @trick(ANY, holds="must be")
    def names_with_path_separators(self):
        """It names a run, a site or a client by a path."""
        for key, value in self.table.items():
            for path in PATHS:
                if key in ("run", "site", "program", "split", "purpose"):
                    yield repacked({**self.table, key: path}, self.arrays), f"'{key}' must be"
                elif key in ("sites", "signers"):
                    yield repacked({**self.table, key: [path, *value[1:]]}, self.arrays), f"'{key}' must be"

    @trick(ANY, holds="must be")
    def arrays_of_other_forms(self):
        """It sends arrays of other types and shapes, more of them and fewer."""
        if any(REST in field.metadata for field in self.fields.values()):
            return  # what a stage takes, the site knows, and its sums the coordinator
        yield repacked(self.table, [*self.arrays, np.zeros(3)]), "there are more arrays than the message has"
        for number, array in enumerate(self.arrays):
            (key,) = [
                k for k, v in self.table.items() if type(v) is int and v == number and ARRAY in self.fields[k].metadata
            ]
            other_type = np.float32 if array.dtype == np.float64 else np.float64
            for other in (array.astype(other_type), array[None], array[..., None], np.array(7, array.dtype)):
                arrays = [*self.arrays[:number], other, *self.arrays[number + 1 :]]
                yield repacked(self.table, arrays), f"'{key}' must"
        if self.arrays:
            yield repacked(self.table, self.arrays[:-1]), "must be the number of its array"

    @trick(ANY, holds="message")
    def pickled_objects(self):
        """It sends objects that run code when they are unpickled, as a message, in its head or as an array."""
        pickled, saved = pickle.dumps(Planted(self.planted)), io.BytesIO()
        np.save(saved, np.array([Planted(self.planted)], object), allow_pickle=True)
        head, rest = head_of(self.message)
        for content in (pickled, saved.getvalue()):
            yield content
            yield len(content).to_bytes(8, "little") + content
            yield self.message + content
            for dtype in ("O", "|O", "object", "V8"):
                form = {"dtype": dtype, "shape": [len(content)], "data_offsets": [len(rest), len(rest) + len(content)]}
                yield with_head({**head, str(len(self.arrays)): form}, rest + content)
        assert not self.planted.exists()

    @trick(ANY, holds="")
    def noise(self):
        """It sends any bytes, or a message with some of its bytes changed."""
        generator = np.random.default_rng(0)
        for size in (8, 100, 10_000):
            yield generator.bytes(size)
        for _ in range(20):
            changed = bytearray(self.message)
            changed[generator.integers(len(self.message) - 1)] ^= 1 << generator.integers(8)
            changed[0] ^= 1
            yield bytes(changed)


class AnyQuestion(AnyMessage):
    """A coordinator's."""

    @trick(ANY, holds="unknown kind of message; use the same version of tff-re everywhere")
    def unknown_kinds(self):
        """It sends a kind that there is not."""
        for kind in ("hallo", "Hello", "", "__class__", 3, True, None, ["hello"], {"hello": 1}):
            yield repacked({**self.table, "kind": kind}, self.arrays)
        yield repacked({key: value for key, value in self.table.items() if key != "kind"}, self.arrays)


class AnyAnswer(AnyMessage):
    """A site's."""

    @trick(ANY, holds="another site answers in its place")
    def the_name_of_another_site(self):
        """It answers for another site."""
        for site in ("celle", "aachen"):
            clients = [[site, *sizes] for _, *sizes in self.table.get("clients", [])]
            more = {"clients": clients} if clients else {}
            yield repacked({**self.table, "site": site, **more}, self.arrays)

    @trick(ANY, holds="must have one reason")
    def refusals_that_are_none(self):
        """It refuses with two reasons, without a text, or with fields of an answer."""
        for reasons in ({"refused": "x", "lost": "y"}, {"refused": "x", "failed": "y", "lost": "z"}):
            yield repacked({"site": "bonn", **reasons}, [])
        for value in (3, True, ["x"], {}):
            yield repacked({"site": "bonn", "refused": value}, []), "'refused' must be a text"
        yield repacked({"site": "bonn", "refused": "x", "words": []}, []), "unknown key 'words'"
        yield repacked({"site": "bonn", "refused": "x"}, [np.zeros(1)]), "more arrays than the message has"
