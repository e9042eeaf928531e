"""NYT10 and other data in OpenNRE's format: JSON lines, and a JSON file with the number of each relation.

A line is a sentence, a pair and one relation::

    {"text": …, "relation": "/people/person/nationality",
     "h": {"id": "m.01", "name": …, "pos": [0, 9]}, "t": {"id": "m.02", "name": …, "pos": [14, 21]}}

`pos` counts characters (code points) of the text, the end exclusive. A pair with several relations has the same
sentence in several lines; here it stands once, with all relations of its pair.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from datasets.bags.records import NEGATIVE, BagCorpus, BagSentence, Pair
from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike, read_byte_lines, read_json, read_json_lines, sibling_file
from datasets.json_values import Fail, field, identifier, require
from datasets.relations.reading import notes_of
from datasets.relations.records import UNKNOWN_TYPE, Span

MISPLACED = ("refuse", "leave_out")

ENTITIES = ("entity h", "entity t")


def _read_relation_names(path: PathLike) -> tuple[str, ...]:
    """Return the relations of a ``rel2id`` file by their numbers, the negative one first."""
    fail = functools.partial(DataError, path=path)
    numbers = require(read_json(path), dict, "the file", fail)
    for position, (name, number) in enumerate(numbers.items(), 1):
        require(number, int, f"the number of relation {position}", fail)
        if not name.strip():
            raise fail(f"the name of relation {position} is blank", remedy="name it")
    if len(set(numbers.values())) != len(numbers):
        raise fail("two relations have the same number", remedy="number them anew")
    if NEGATIVE not in numbers:
        raise fail(f'has no relation "{NEGATIVE}"', remedy="add it: it is the relation of unrelated pairs")
    return tuple(sorted(numbers, key=lambda name: (name != NEGATIVE, numbers[name])))


@data_set(
    "nyt10",
    title="NYT10, OpenNRE's form",
    kind="bags",
    task="pairs of entities in news and all sentences that mention both: relations of Freebase",
    labels=("relations",),
    files={split: f"nyt10/nyt10_{part}.txt" for split, part in (("train", "train"), ("dev", "val"), ("test", "test"))},
    licence="none stated; the texts are the New York Times'",
    citation="Riedel et al., Modeling Relations and Their Mentions without Labeled Text, ECML PKDD 2010",
    available_from="thunlp/OpenNRE on GitHub, benchmark/download_nyt10.sh; nyt10_rel2id.json goes next to the splits",
)
def read(
    path: PathLike,
    *,
    name: str = "nyt10",
    split: str = "train",
    labelled: bool = True,
    rel2id: PathLike | None = None,
    misplaced: str = "refuse",
    types: Sequence[str] = (UNKNOWN_TYPE, UNKNOWN_TYPE),
    pair_key: str | None = None,
) -> BagCorpus:
    """Read the bags of a file, compressed or not, line by line.

    Lines of one pair with the same text and positions are one sentence. A pair that stands with a relation and as
    negative is related: the negative, which only says that the knowledge base knows none, is dropped. Both are counted
    in the notes. An entity's name is compared with the text at its position; case, underscores and the kind and number
    of blanks may differ.

    Args:
      path: The file.
      name: The corpus's name.
      split: Part of the ids ``<name>-<split>-<line>``. The form knows no documents: a sentence is its own.
      labelled: Whether the relations are known; otherwise what lines say of them is not read, and all pairs stand as
        negative.
      rel2id: The file of relations and their numbers; by default ``<name>_rel2id.json`` beside the file.
      misplaced: What to do with a line whose position is beyond the text or does not have the entity's name:
        ``refuse``, or ``leave_out`` and say how many in the notes.
      types: The head's and the tail's, which the form does not have.
      pair_key: A key of a line that names the pair where the entities have no ``id``.

    Raises:
      DataError: a line that is not JSON or lacks a key, tokens in place of a text, a blank text, a relation that
        `rel2id` does not have, an entity that is not in its sentence, or a file without lines.
    """
    if misplaced not in MISPLACED:
        raise DataError("unknown way with misplaced entities", remedy=f"use {' or '.join(MISPLACED)}")
    relation_names = (NEGATIVE,)
    if labelled:
        relation_names = _read_relation_names(sibling_file(path, f"{name}_rel2id.json") if rel2id is None else rel2id)
    labels_of: dict[Pair, set[int]] = {}
    lines: dict[tuple[Pair, str, Span, Span], int] = {}  # of each sentence, in the order of the file
    counts = Counter()
    _require_json_lines(path)
    for line, value in read_json_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        text = _text(require(value, dict, "the line", fail), fail)
        relation = field(value, "relation", str, fail) if labelled else NEGATIVE
        if relation not in relation_names:
            raise fail("its relation is not in the file of relations", remedy="add it there, or correct the line")
        entities = [field(value, key, dict, fail) for key in ("h", "t")]
        pair = _pair(value, entities, pair_key, fail)
        try:
            head, tail = (_span(entity, what, text, fail) for entity, what in zip(entities, ENTITIES, strict=True))
        except _Misplaced:
            if misplaced == "refuse":
                raise
            counts["lines left out, an entity is not in its sentence"] += 1
            continue
        labels_of.setdefault(pair, set()).add(relation_names.index(relation))
        if lines.setdefault((pair, text, head, tail), line) != line:
            counts["lines repeat a sentence of their pair and are read once"] += 1
    if not lines:
        raise DataError("has no sentences", path=path, remedy="give it at least one line")
    for labels in labels_of.values():
        if len(labels) > 1 and 0 in labels:
            counts[f"pairs have both a relation and {NEGATIVE}; they count as related"] += 1
            labels.remove(0)
    relations_of = {pair: tuple(relation_names[label] for label in sorted(labels_of[pair])) for pair in labels_of}
    sentences = [
        BagSentence(*[f"{name}-{split}-{line}"] * 2, *spans, *types, *pair, relations_of[pair], min(labels_of[pair]))
        for (pair, *spans), line in lines.items()
    ]
    return BagCorpus(name, tuple(sentences), relation_names, notes=notes_of(counts))


def _require_json_lines(path: PathLike) -> None:
    """Refuse the older formats of NYT10, which their first line shows."""
    with contextlib.closing(read_byte_lines(path)) as lines:
        first = next(lines, b"").strip()
    for old, problem in (
        (first.endswith(b"###END###"), "is NYT10's older form (columns between tabs, then ###END###)"),
        (first.startswith(b"["), "is one JSON list, OpenNRE's older form"),
    ):
        if old:
            remedy = "use OpenNRE's JSON lines, which benchmark/download_nyt10.sh there gets"
            raise DataError(problem, path=path, line=1, remedy=remedy)


class _Misplaced(DataError):
    """An entity that is not in its sentence."""


def _text(value: Mapping[str, Any], fail: Fail) -> str:
    if "text" not in value and ("token" in value or "tokens" in value):
        remedy = 'give the text as "text", and "pos" in characters: tokens are not read'
        raise fail("has tokens and no text", remedy=remedy)
    text = field(value, "text", str, fail)
    if not text.strip():
        raise fail("its bag is empty here: the text is blank", remedy="give the sentence, or remove the line")
    return text


def _pair(value: Mapping[str, Any], entities: list[Mapping[str, Any]], pair_key: str | None, fail: Fail) -> Pair:
    if pair_key is not None and not any("id" in entity for entity in entities):
        name = sys.intern(identifier(value, pair_key, fail))
        return name, name
    head_id, tail_id = (
        sys.intern(identifier(entity, "id", functools.partial(fail, record=what)))
        for entity, what in zip(entities, ENTITIES, strict=True)
    )
    return head_id, tail_id


def _span(entity: Mapping[str, Any], what: str, text: str, fail: Fail) -> Span:
    fail = functools.partial(fail, record=what)
    position = field(entity, "pos", list, fail)
    if len(position) != 2 or not all(type(number) is int for number in position):
        raise fail('"pos" is not two whole numbers', remedy="give the first character and the one after the last")
    start, end = position
    misplaced = functools.partial(_Misplaced, **fail.keywords)
    if not 0 <= start < end <= len(text):
        raise misplaced(
            f"its position {start}:{end} is empty or lies beyond the text of {len(text)} characters",
            remedy="give 0 <= start < end <= length",
        )
    name, there = field(entity, "name", str, fail), text[start:end]
    if name != there and _plain(name) != _plain(there):
        raise misplaced("its name is not at its position", remedy="correct the position or the name")
    return start, end


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).casefold()
