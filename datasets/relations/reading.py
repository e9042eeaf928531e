"""What the readers of relation extraction data share: lines, columns, offsets, spans."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.errors import DataError, named
from datasets.files import PathLike, decode, parse_json, read_byte_lines, read_bytes
from datasets.json_values import Fail, require
from datasets.relations.records import NO_RELATION, RelationCorpus, RelationMention, Span

_NUMBER = re.compile(r"[0-9]{1,9}")


def read_lines(path: PathLike, *, ended: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line number (from 1) and line of a UTF-8 file, compressed or not, without carriage returns.

    Args:
      path: The file.
      ended: Whether the last line has to end with a line feed: for forms whose last column may be cut (an identifier)
        and still be well-formed.

    Raises:
      DataError: the file cannot be read, a line is not UTF-8, or the last one has no end.
    """
    lines = read_bytes(path).split(b"\n")
    if not lines[-1]:
        lines.pop()
    elif ended and lines[-1].strip():
        raise DataError(
            "the file ends within this line, without a line feed",
            path=path,
            line=len(lines),
            remedy="copy or download it again; if nothing is missing, end the line",
        )
    byte = 0
    for number, data in enumerate(lines, 1):
        yield number, decode(data, path, line=number, byte=byte).removesuffix("\r")
        byte += len(data) + 1


def lines_to_check(path: PathLike, *, ended: bool = False) -> Iterator[tuple[Fail, str]]:
    """Yield the lines of `read_lines`, each after a function that builds its error with file and line."""
    for number, line in read_lines(path, ended=ended):
        yield functools.partial(DataError, path=path, line=number), line


def ending_of(path: PathLike) -> str:
    """Return the ending of a file's name without ``.gz``, such as ``.tsv`` of ``ours.tsv.gz``."""
    return next((end for end in reversed(Path(path).suffixes) if end != ".gz"), "")


def strict_lines(path: PathLike) -> Iterator[tuple[Fail, int, int, bytes]]:
    """Yield an error function, number, offset and bytes (without the end) of each line of a file, compressed or not.

    Raises:
      DataError: a byte order mark, or a line that is empty, ends with a carriage return or has no end.
    """
    byte = 0
    for number, data in enumerate(read_byte_lines(path), 1):
        fail = functools.partial(DataError, path=path, line=number)
        if number == 1 and data.startswith(b"\xef\xbb\xbf"):
            raise fail("begins with a byte order mark", remedy="save the file as UTF-8 without one")
        if not data.endswith(b"\n"):
            remedy = "copy the file again; if nothing is missing, end the line"
            raise fail("the file ends within this line, without a line feed", remedy=remedy)
        line = data[:-1]
        if line.endswith(b"\r"):
            raise fail("ends with a carriage return", remedy="save the file with line feeds only (dos2unix)")
        if not line.strip():
            raise fail("is empty", remedy="remove the empty line")
        yield fail, number, byte, line
        byte += len(data)


def json_objects(path: PathLike) -> Iterator[tuple[Fail, dict[str, Any]]]:
    """Yield the object of each line of a JSON lines file, after its error function, with `strict_lines`.

    Raises:
      DataError: as `strict_lines`, or a line that is not a JSON object.
    """
    for fail, number, byte, line in strict_lines(path):
        value = parse_json(line, path, line=number, byte=byte)
        yield fail, require(value, dict, "the line", fail)


def further_fields(record: Mapping[str, Any], known: Collection[str], fail: Fail) -> dict[str, str]:
    """Return the fields of a record besides the `known` keys, as strings.

    Null is left out.

    Raises `fail`'s error for a value that is neither a string nor a number.
    """
    fields = {}
    for position, (key, value) in enumerate(record.items(), 1):
        if key in known or value is None:
            continue
        if not isinstance(value, str | int | float):
            raise fail(
                f"{named('field', key, position)} is neither a string nor a number", remedy="give a single value"
            )
        fields[key] = str(value)
    return fields


def columns(line: str, counts: int | Sequence[int], fail: Fail, separator: str = "\t") -> list[str]:
    """Return the columns of a line, whose number must be one of `counts`.

    Raises `fail`'s error otherwise.
    """
    counts = (counts,) if isinstance(counts, int) else tuple(counts)
    result = line.split(separator)
    if len(result) not in counts:
        raise fail(f"has {len(result)} columns", remedy=f"give it {' or '.join(map(str, counts))}")
    return result


def whole_number(value: str, what: str, fail: Fail) -> int:
    """Return a column as an integer of at least 0.

    Raises `fail`'s error otherwise.
    """
    if not _NUMBER.fullmatch(value):
        raise fail(f"{what} is not a whole number of at least 0", remedy="give it in decimal digits")
    return int(value)


def span(start: str, end: str, what: str, length: int, fail: Fail) -> Span:
    """Return two columns as a span in a text of `length` characters.

    Raises `fail`'s error if it is empty or exceeds the text.
    """
    first, last = whole_number(start, f"the {what}'s start", fail), whole_number(end, f"the {what}'s end", fail)
    if not first < last <= length:
        raise fail(
            f"the {what} {first}:{last} is empty or lies beyond the text of {length} characters",
            remedy="give character offsets, the end exclusive",
        )
    return first, last


def one_of(value: str, known: Iterable[str], what: str, fail: Fail, *, column: int | None = None) -> str:
    """Return the value if it is known.

    Raises `fail`'s error otherwise.

    The error names the place (`what`, and its column from 1), not the value: columns may be shifted, and the value
    then is a piece of a patient's text.
    """
    known = tuple(known)
    if value not in known:
        where = "" if column is None else f" in column {column}"
        raise fail(f"unknown {what}{where}", remedy=f"use one of {', '.join(known)}")
    return value


def occurrences(part: str, text: str) -> list[int]:
    """Return where `part` starts in `text`, including overlapping occurrences."""
    return [match.start() for match in re.finditer(f"(?={re.escape(part)})", text)]


def trimmed(text: str, where: Span) -> Span:
    """Return the span without the blanks at its ends.

    start >= end if there is nothing else.
    """
    part = text[slice(*where)]
    return where[0] + len(part) - len(part.lstrip()), where[1] - len(part) + len(part.rstrip())


def without_marks(text: str, marks: Sequence[Span]) -> tuple[str, list[int]]:
    """Return the text without these (disjoint) spans, and where each of them was in what remains."""
    parts, places, done, removed = [], {}, 0, 0
    for start, end in sorted(marks):
        parts.append(text[done:start])
        places[start, end] = start - removed
        removed += end - start
        done = end
    parts.append(text[done:])
    return "".join(parts), [places[mark] for mark in marks]


def notes_of(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return notes, for example ``2 lines repeat an earlier one`` for ``{"lines repeat an earlier one": 2}``."""
    return tuple(f"{count} {what}" for what, count in counts.items() if count)


class CorpusBuilder:
    """Makes a corpus of the `mentions` that a reader finds.

    `counts` become its notes (see `notes_of`).
    """

    def __init__(self, path: PathLike, name: str, relation_names: Sequence[str], negative: str = NO_RELATION):
        self.counts = Counter()
        self._path, self._name, self._names = path, name, tuple(relation_names)
        self._negative = negative if negative in self._names else None
        self.mentions: list[RelationMention] = []
        self._ids = Counter()

    def next_id(self, document: str) -> str:
        """Return the id ``<document>/<n>``, n from 1 in each document."""
        self._ids[document] += 1
        return f"{document}/{self._ids[document]}"

    def add(self, *attributes) -> RelationMention:
        """Add a mention with the attributes of `RelationMention`, in its order, and the label of the relation."""
        mention = RelationMention(*attributes, self._names.index(attributes[-1]))
        self.counts["pairs of overlapping mentions"] += mention.overlapping
        self.mentions.append(mention)
        return mention

    def build(self, *notes: str) -> RelationCorpus:
        """Return the corpus, with these notes before those of the counts.

        Raises DataError if there are no mentions.
        """
        if not self.mentions:
            raise DataError("gives no pair of mentions", path=self._path, remedy="give it at least one")
        notes += notes_of(self.counts)
        return RelationCorpus(self._name, tuple(self.mentions), self._names, self._negative, notes)
