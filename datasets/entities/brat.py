"""brat's standoff format, with a text in ``name.txt`` and its annotations in ``name.ann``.

An entity is a line ``T1<TAB>Disease 10 23<TAB>heart failure``. Offsets count code points of the text as it lies in the
file: Windows' line ends are two characters. Several fragments (``10 15;20 27``) are an entity where only blanks are
between them, as brat writes an entity over a line's end; other discontinuous entities are left out and counted. Lines
of other annotations (relations, events, attributes, notes) are not read.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from datasets.documents.pubtator import LINE_ENDS
from datasets.entities.building import EntityBuilder
from datasets.entities.records import EntitySpan
from datasets.errors import DataError
from datasets.files import PathLike, decode, read_bytes, with_or_without_gz
from datasets.json_values import Fail
from datasets.relations.reading import lines_to_check, span

_ENTITY_ID = re.compile(r"T[^\s]+")
_PLACE = re.compile(r"([^\s]+) ([0-9]+ [0-9]+(?:;[0-9]+ [0-9]+)*)")
_OTHER = re.compile(r"(?:[REAMN][0-9]+|#[^\t]*|\*)\t")
"""The beginning of a line of another annotation: a relation, an event, an attribute, a reference, a note."""


def read_brat(path: PathLike, builder: EntityBuilder, prefix: str, *, labelled: bool = True) -> None:
    """Add the texts of a folder, or of one ``.ann`` file, as ``<prefix>-<name>``.

    Any file may end in ``.gz``.

    Files of other endings are not looked at, nor are folders in the folder.

    Args:
      path: The folder, or a ``.ann`` file with its ``.txt`` next to it.
      builder: Gets the texts.
      prefix: Part of their ids.
      labelled: Whether annotations are read; if not, there need be none.

    Raises:
      DataError: no text, an annotation file without its text or (labelled) the other way round, a text that begins with
        a byte order mark, a line that is no annotation, an id twice, an entity beyond the text or not at its offsets,
        or what `EntityBuilder.add` refuses.
    """
    for text_file, annotation_file in _files(Path(path), labelled):
        data, name = read_bytes(text_file), _name(text_file, ".txt")
        fail = functools.partial(DataError, path=text_file)
        if data.startswith(b"\xef\xbb\xbf"):
            raise fail("begins with a byte order mark", remedy="save the file as UTF-8 without one, offsets as without")
        text = decode(data, text_file)
        spans = list(_entities(annotation_file, text, builder)) if labelled else []
        if spans:
            fail = functools.partial(DataError, path=annotation_file)
        builder.add(f"{prefix}-{name}", name, text, spans, fail)


def _files(path: Path, labelled: bool) -> Iterator[tuple[Path, Path | None]]:
    """Return the text files, each with its annotations."""
    if not path.is_dir():
        stem = path.with_name(_name(path, ".ann"))
        yield with_or_without_gz(f"{stem}.txt") or Path(f"{stem}.txt"), path
        return
    texts, annotated = _by_name(path, ".txt"), _by_name(path, ".ann")
    if not texts:
        raise DataError("has no .txt file", path=path, remedy="name the folder with the .txt and .ann files")
    for name, file in annotated.items() if labelled else ():
        if name not in texts:
            raise DataError("has no .txt file next to it", path=file, remedy="add its text, or remove it")
    for name, file in texts.items():
        if labelled and name not in annotated:
            raise DataError(
                "has no .ann file next to it", path=file, remedy="add one, which is empty for a text without entities"
            )
        yield file, annotated.get(name)


def _by_name(folder: Path, ending: str) -> dict[str, Path]:
    """Return the files with an ending, by the part of the name before it."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or not file.name.removesuffix(".gz").endswith(ending):
            continue
        if files.setdefault(_name(file, ending), file) != file:
            raise DataError("is there with and without .gz", path=file, remedy="remove one of them")
    return files


def _name(file: Path, ending: str) -> str:
    return file.name.removesuffix(".gz").removesuffix(ending)


def _entities(path: Path, text: str, builder: EntityBuilder) -> Iterator[EntitySpan]:
    seen = set()
    for fail, line in lines_to_check(path):
        if not line.strip() or _OTHER.match(line):
            continue
        entity_id, where, mention = (*line.split("\t", 2), "", "")[:3]
        match = _PLACE.fullmatch(where)
        if match is None or not _ENTITY_ID.fullmatch(entity_id):
            raise fail("is not an annotation", remedy="write T1, type and offsets, and the text, between tabs")
        if entity_id in seen:
            raise fail("duplicate entity", remedy="give every entity of a text an id of its own")
        seen.add(entity_id)
        kind = builder.checked_type(match[1], fail)
        fragments = [span(*fragment.split(" "), "entity", len(text), fail) for fragment in match[2].split(";")]
        _require_mention(" ".join(text[start:end] for start, end in fragments), mention, fail)
        gaps = [text[before[1] : after[0]] for before, after in itertools.pairwise(fragments)]
        if any(gap.strip() for gap in gaps) or sorted(fragments) != fragments:
            builder.counts["discontinuous entities left out"] += 1
            continue
        yield EntitySpan(fragments[0][0], fragments[-1][1], kind)


def _require_mention(in_text: str, mention: str, fail: Fail) -> None:
    if in_text.translate(LINE_ENDS) != mention.translate(LINE_ENDS):
        raise fail(
            "the entity is not at its offsets",
            remedy="repair the offsets, which count code points; a Windows line end is two",
        )
