"""Your own relations, with two mentions in a text and their relation, as JSON lines or TSV.

The file's ending says which: ``.jsonl`` or ``.tsv``, either with ``.gz`` behind it. UTF-8 without a byte order mark,
lines end with a line feed. Offsets count code points from 0, the end exclusive. docs/data.md has an example.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datasets.catalogue import data_set
from datasets.errors import DataError, named
from datasets.files import PathLike, decode
from datasets.json_values import Fail, field, identifier, optional_string, require
from datasets.relations.reading import (
    columns,
    ending_of,
    further_fields,
    json_objects,
    notes_of,
    one_of,
    strict_lines,
    whole_number,
)
from datasets.relations.records import UNKNOWN_TYPE, RelationCorpus, RelationMention, Span

NAME = "relations"

UNLABELLED = "unlabelled"
"""The relation of every record where labels are not read."""

_SPANS = ("head", "tail")
_KNOWN = ("id", "document", "text", *_SPANS, *(f"{side}_type" for side in _SPANS), "label")
_OFFSETS = tuple(f"{side}_{end}" for side in _SPANS for end in ("start", "end"))
_COLUMNS = ("id", "text", *_OFFSETS)
"""What the header of a TSV has to name."""


@data_set(
    NAME,
    title="own relations",
    kind="relations",
    task="two mentions in a text, in files of your own: JSON lines or TSV, see docs/data.md",
    labels=("label",),
    files={},
    language="any",
    licence="the files' own",
    citation="none",
    available_from="you: name a file by task.path or --file",
)
def read(
    path: PathLike,
    *,
    name: str = NAME,
    label: str = "label",
    split: str = "train",
    class_names: Sequence[str] | None = None,
    negative_label: str | None = None,
    labelled: bool = True,
) -> RelationCorpus:
    """Read the pairs of a file, compressed or not, where a record is a pair of mentions.

    A record has `id`, `text`, `head` and `tail` ([start, end]; in TSV the columns `head_start`, `head_end`,
    `tail_start`, `tail_end`) and `label`. It may have `document` (its own id if not), `head_type` and `tail_type`
    ("entity" if not), `group` (what one person's records share) and further fields: strings or numbers, by which a
    partitioner may group. An empty cell of a TSV is a field that the record does not have.

    Args:
      path: The file.
      name: The corpus's name.
      label: The form's one label choice.
      split: Part of the ids, ``<split>-<id>``.
      class_names: The classes; not set: those in the file, sorted. The negative one comes first.
      negative_label: The class that means "no relation"; not set: every class is a relation.
      labelled: Whether `label` is read; if not, every record has the relation `UNLABELLED`.

    Raises:
      DataError: another ending, a byte order mark, a line that ends with a carriage return or is no record, an empty
        text, an offset beyond the text, mentions that share a character, an id that is there twice, a label that is
        missing or none of `class_names`, a negative label that no record has (with `class_names`: that is none of
        them), or no record.
    """
    class_order, seen, ids, counts = None if class_names is None else tuple(class_names), set(), set(), Counter()
    mentions: list[RelationMention] = []
    for fail, record in _records(path):
        relation = _label(record, class_order, fail) if labelled else UNLABELLED
        mention = _mention(record, split, relation, fail)
        if mention.mention_id in ids:
            raise fail(f"duplicate id ({named('id', record['id'])})", remedy="give every record an id of its own")
        ids.add(mention.mention_id)
        pair = (mention.document_id, mention.text, mention.head, mention.tail)
        counts["records repeat an earlier one's document, text and mentions"] += pair in seen
        seen.add(pair)
        mentions.append(mention)
    if not mentions:
        raise DataError("holds no record", path=path, remedy="give it at least one")
    names, negative = (UNLABELLED,), None
    if labelled:
        names = _classes(path, class_order, {mention.relation for mention in mentions}, negative_label)
        negative = negative_label
    label_of = {relation: number for number, relation in enumerate(names)}
    mentions = [dataclasses.replace(mention, label=label_of[mention.relation]) for mention in mentions]
    return RelationCorpus(name, tuple(mentions), names, negative, notes_of(counts))


def _classes(path: PathLike, class_order, labels: set[str], negative: str | None) -> tuple[str, ...]:
    names = tuple(sorted(labels)) if class_order is None else class_order
    if negative is None:
        return names
    if negative not in names:
        where = "not a label of any record" if class_order is None else "not one of class_names"
        remedy = f"use one of {', '.join(names)}" + (
            ", or list all classes in class_names" if class_order is None else ""
        )
        raise DataError(f"negative_label is {where}", path=path, remedy=remedy)
    return (negative, *(relation for relation in names if relation != negative))


def is_named_so(path: PathLike) -> bool:
    """Return whether a file's name has an ending of this format."""
    return ending_of(path) in (".jsonl", ".tsv")


def _records(path: PathLike) -> Iterator[tuple[Fail, Mapping[str, Any]]]:
    """Yield an error function and each record, with the keys of the JSON format."""
    ending = ending_of(path)
    if ending == ".jsonl":
        return _json_records(path)
    if ending == ".tsv":
        return _tsv_records(path)
    raise DataError("is not .jsonl or .tsv", path=path, remedy="give the file its ending (.gz may follow it)")


def _json_records(path: PathLike) -> Iterator[tuple[Fail, Mapping[str, Any]]]:
    for fail, record in json_objects(path):
        for side in _SPANS:
            value = field(record, side, list, fail)
            if len(value) != 2:
                raise fail(f'"{side}" is not [start, end]', remedy="give two offsets")
            for offset in value:
                require(offset, int, f'an offset of "{side}"', fail)
        yield fail, record


def _tsv_records(path: PathLike) -> Iterator[tuple[Fail, Mapping[str, Any]]]:
    header: list[str] = []
    for fail, number, byte, line in strict_lines(path):
        text = decode(line, path, line=number, byte=byte)
        if not header:
            header = text.split("\t")
            missing = [name for name in _COLUMNS if name not in header]
            if missing:
                raise fail(f"the header has no column {missing[0]}", remedy=f"name {', '.join(_COLUMNS)} and label")
            if len(set(header)) != len(header) or not all(name.strip() for name in header):
                raise fail("the header has a column twice, or one without a name", remedy="name every column once")
            continue
        row = zip(header, columns(text, len(header), fail), strict=True)
        cells = {name: cell for name, cell in row if cell}
        record: dict[str, Any] = {name: cell for name, cell in cells.items() if name not in _OFFSETS}
        for side in _SPANS:
            ends = (f"{side}_start", f"{side}_end")
            record[side] = [whole_number(cells.get(end, ""), end, fail) for end in ends]
        yield fail, record


def _label(record: Mapping[str, Any], known: tuple[str, ...] | None, fail: Fail) -> str:
    label = identifier(record, "label", fail)
    if label.splitlines() != [label] or label != label.strip():
        raise fail('"label" is not one line of text', remedy="give the class's name, without blanks around it")
    return label if known is None else one_of(label, known, "label", fail)


def _mention(record: Mapping[str, Any], split: str, relation: str, fail: Fail) -> RelationMention:
    """Return the pair of a record, with the label 0.

    Raises `fail`'s error.
    """
    record_id = identifier(record, "id", fail)
    text = field(record, "text", str, fail)
    if not text.strip():
        raise fail("has an empty text", remedy="give the text that holds the mentions")
    head, tail = (_span(record[side], side, len(text), fail) for side in _SPANS)
    if head[0] < tail[1] and tail[0] < head[1]:
        raise fail("its head and tail share characters", remedy="give two mentions that do not overlap")
    document = record_id if record.get("document") is None else identifier(record, "document", fail)
    types = [_type(record, side, fail) for side in _SPANS]
    if record.get("relation") is not None:
        raise fail("has a field named relation", remedy='"label" is the relation; rename the other')
    more = further_fields(record, _KNOWN, fail)
    return RelationMention(f"{split}-{record_id}", document, text, head, tail, *types, relation, 0, more)


def _span(value: Sequence[int], side: str, length: int, fail: Fail) -> Span:
    start, end = value
    if not 0 <= start < end <= length:
        raise fail(
            f"its {side} is empty or lies beyond the text of {length} characters",
            remedy="give offsets in characters (code points), the end exclusive",
        )
    return start, end


def _type(record: Mapping[str, Any], side: str, fail: Fail) -> str:
    kind = optional_string(record, f"{side}_type", fail) or UNKNOWN_TYPE
    if not kind.strip():
        raise fail(f'"{side}_type" is blank', remedy="give the type a name, or leave it out")
    return kind
