"""Your own texts with entities: JSON lines, CoNLL columns, PubTator, or brat's folders.

The file's ending says which: ``.jsonl``; ``.conll``, ``.tsv`` or ``.bio``; ``.pubtator``; ``.ann``, or a folder.
``.gz`` may follow. Offsets count code points from 0, the end exclusive. docs/data.md has an example of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.catalogue import data_set
from datasets.entities.brat import read_brat
from datasets.entities.building import DOCUMENT, REFUSE, EntityBuilder
from datasets.entities.columns import read_columns
from datasets.entities.pubtator import read_pubtator_texts
from datasets.entities.records import EntityCorpus, EntitySpan
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.json_values import Fail, field, identifier, require
from datasets.relations.reading import ending_of, further_fields, json_objects

NAME = "entities"

UNLABELLED = "unlabelled"
"""The one type of a corpus whose entities are not read and whose types are not named."""

UNKNOWN_TYPE = "entity"
"""The type of an entity in CoNLL columns whose tags name none (``B``, ``I``)."""

_KNOWN = ("id", "document", "text", "entities")
_COLUMNS = (".conll", ".tsv", ".bio")
_SPAN_KEYS = ("start", "end", "type")
_OFFSETS = "give offsets in characters (code points), the end exclusive"


@data_set(
    NAME,
    title="own texts with entities",
    kind="entities",
    task="typed spans of texts in files of your own: JSON lines, CoNLL columns, PubTator or brat, see docs/data.md",
    labels=("types",),
    files={},
    language="any",
    licence="the files' own",
    citation="none",
    available_from="you: name a file or folder by task.path or --file",
)
def read(
    path: PathLike,
    *,
    name: str = NAME,
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "refuse",
    other_types: str = REFUSE,
    unit: str = DOCUMENT,
    labelled: bool = True,
) -> EntityCorpus:
    """Read the texts of a file or folder, compressed or not, with their entities.

    Windows' line ends are refused in JSON lines, and are no part of the text in columns and PubTator. In a text of brat
    they are two characters each, as brat counts.

    Args:
      path: The file, or the folder of brat.
      name: The corpus's name.
      split: Part of the ids, ``<split>-<id>``. A sentence of columns without an id has its number, a text of brat the
        file's name without its ending.
      entity_types: The types, in the order of their tags; not set: those in the file, sorted.
      nested: What overlapping entities are: ``refuse``, or the ``outermost`` is read.
      other_types: Entities whose type is not in `entity_types`: ``refuse`` or ``leave_out``.
      unit: A sample is a text (``document``), or a ``sentence`` of it as the rule of `split_sentences` finds them.
      labelled: Whether entities are read; if not, texts have none, and their only type is `UNLABELLED`.

    Raises:
      DataError: another ending, a file without texts, an empty text, an id that is there twice, an entity beyond its
        text or not at its offsets, entities that overlap, a type that is refused, a malformed line, or labelled texts
        without an entity and without `entity_types`.
    """
    if not labelled and entity_types is None:
        entity_types = (UNLABELLED,)
    builder = EntityBuilder(*(path, name), entity_types=entity_types, nested=nested, unit=unit, other_types=other_types)
    ending = ending_of(path)
    if Path(path).is_dir() or ending == ".ann":
        read_brat(path, builder, split, labelled=labelled)
    elif ending == ".jsonl":
        _read_json_lines(path, builder, split, labelled=labelled)
    elif ending in _COLUMNS:
        bare_type = entity_types[0] if entity_types and len(entity_types) == 1 else UNKNOWN_TYPE
        read_columns(path, builder, split, bare_type=bare_type, labelled=labelled)
    elif ending == ".pubtator":
        read_pubtator_texts(path, builder, split, labelled=labelled)
    else:
        endings = ", ".join((".jsonl", *_COLUMNS, ".pubtator", ".ann"))
        raise DataError(
            f"is neither a folder nor {endings}", path=path, remedy="give the file its ending (.gz may follow it)"
        )
    return builder.build()


def is_named_so(path: PathLike) -> bool:
    """Return whether this is a folder, or a file's name has an ending of these formats."""
    return Path(path).is_dir() or ending_of(path) in (".jsonl", *_COLUMNS, ".pubtator", ".ann")


def _read_json_lines(path: PathLike, builder: EntityBuilder, split: str, *, labelled: bool) -> None:
    for fail, record in json_objects(path):
        record_id = identifier(record, "id", fail)
        text = field(record, "text", str, fail)
        document = record_id if record.get("document") is None else identifier(record, "document", fail)
        spans = []
        if labelled:
            for number, value in enumerate(field(record, "entities", list, fail), 1):
                spans.append(_span(value, f"entity number {number}", text, builder, fail))
        builder.add(f"{split}-{record_id}", document, text, spans, fail, more=further_fields(record, _KNOWN, fail))


def _span(value: Any, what: str, text: str, builder: EntityBuilder, fail: Fail) -> EntitySpan:
    if isinstance(value, Mapping):
        missing = [key for key in _SPAN_KEYS if key not in value]
        if missing:
            raise fail(f'{what} has no "{missing[0]}"', remedy="give it start, end and type")
        value = [value[key] for key in _SPAN_KEYS]
    if not isinstance(value, list) or len(value) != len(_SPAN_KEYS):
        raise fail(f"{what} is not [start, end, type]", remedy='write [0, 7, "drug"]')
    start, end = (require(offset, int, f"an offset of {what}", fail) for offset in value[:2])
    kind = builder.checked_type(require(value[2], str, f"the type of {what}", fail), fail)
    if not 0 <= start < end <= len(text):
        raise fail(f"{what} is empty or lies beyond the text of {len(text)} characters", remedy=_OFFSETS)
    return EntitySpan(start, end, kind)
