"""Texts with entities as files: JSON lines, CoNLL columns, PubTator and brat, in the formats that `neutral` reads.

Ids are those of the samples. With `split`, the beginning ``<split>-`` that a reader has put before an id is left out,
so that a file that is read and written has its own ids again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from datasets.documents.pubtator import LINE_ENDS
from datasets.entities.columns import DOCUMENT_START, FIELD
from datasets.entities.records import EntitySample, EntitySpan
from datasets.entities.tags import Token, tag_names, tags_of
from datasets.errors import DataError, named
from datasets.files import PathLike, write_atomically

_SEPARATOR = re.compile(r"[\t\n\r]")
_OF_A_LINE = re.compile(r"[^\n\r]+")
_NOT_IN_NAMES = re.compile(r"^\.|[/%\x00-\x1f]")
_MARK = "\ufeff"


def to_json_lines(samples: Iterable[EntitySample], split: str | None = None) -> str:
    """Write one JSON object per line.

    It has `id`, `document` if it is not the id, `text`, `entities` and the fields of `more`.
    """
    lines = []
    for sample in samples:
        record = {"id": _id(sample, split), "document": sample.document_id, "text": sample.text}
        if record["document"] == record["id"]:
            del record["document"]
        record["entities"] = [[span.start, span.end, span.type] for span in sample.spans]
        lines.append(json.dumps({**sample.more, **record}, ensure_ascii=False) + "\n")
    return "".join(lines)


def to_conll(samples: Iterable[EntitySample], tokens: Iterable[Sequence[Token]], split: str | None = None) -> str:
    """Write tokens and their BIO tags between tabs.

    `id`, `document` and the fields of `more` come before each sentence.

    Args:
      samples: The texts. What lies between tokens is not written: read again, the text is the tokens joined by blanks.
      tokens: The tokens of each text, in its order.
      split: See above.

    Raises:
      DataError: a text without tokens, a token that is blank, has a tab or a line's end, begins with a byte order mark
        or means the start of a document, an entity that does not begin and end with a token, or an id or a field that
        is not one line.
    """
    lines = []
    for number, (sample, places) in enumerate(zip(samples, tokens, strict=True), 1):
        where = named("sample", sample.sample_id, number)
        sample_id = _id(sample, split)
        fields = {"id": sample_id, "document": sample.document_id, **sample.more}
        if fields["document"] == sample_id:
            del fields["document"]
        for key, value in fields.items():
            lines.append(f"# {key} = {value}")
            if not FIELD.fullmatch(lines[-1]) or _SEPARATOR.search(value):
                reason = f"{named('field', key)} cannot be written as # key = value"
                raise DataError(reason, record=where, remedy="write JSON lines")
        written = [sample.text[start:end] for start, end in places]
        if not written:
            raise DataError("has no tokens", record=where, remedy="leave it out")
        if any(not word.strip() or _SEPARATOR.search(word) for word in written):
            raise DataError("a token is blank, or has a tab or a line's end", record=where, remedy="split it there")
        if DOCUMENT_START in written or any(word.startswith(_MARK) for word in written):
            reason = f"a token is {DOCUMENT_START}, or begins with a byte order mark"
            raise DataError(reason, record=where, remedy="write JSON lines")
        lines += [f"{word}\t{tag}" for word, tag in zip(written, _tags(sample, places, where), strict=True)]
        lines.append("")
    return "".join(line + "\n" for line in lines)


def _tags(sample: EntitySample, tokens: Sequence[Token], where: str) -> list[str]:
    types = sorted({span.type for span in sample.spans})
    if not types:
        return ["O"] * len(tokens)
    tags, unrepresented = tags_of(sample.spans, tokens, types, "BIO")
    if unrepresented:
        reason = f"the entity {unrepresented[0].start}:{unrepresented[0].end} does not begin and end with a token"
        raise DataError(reason, record=where, remedy="write another form, which has offsets")
    names = tag_names(types, "BIO")
    return [names[tag] for tag in tags]


def to_pubtator(samples: Iterable[EntitySample], split: str | None = None) -> str:
    """Write a PubTator document for each text.

    Entities have no identifier (``-1``). Documents and fields of texts are not written.

    The title ends at the first blank within the text, and a text without one is a title without abstract. Tabs and
    line ends of the text are written as blanks, so that offsets stay what they are.

    Raises:
      DataError: an id or a type with a character that the form separates by.
    """
    blocks = []
    for number, sample in enumerate(samples, 1):
        where = named("sample", sample.sample_id, number)
        sample_id, text = _id(sample, split), sample.text.translate(LINE_ENDS)
        if not sample_id.strip() or "|" in sample_id or _SEPARATOR.search(sample_id):
            raise DataError("its id has a tab, a line's end or |", record=where, remedy="rename it")
        end = text.find(" ")
        title, abstract = (text, "") if end in (-1, len(text) - 1) else (text[:end], text[end + 1 :])
        lines = [f"{sample_id}|t|{title}", f"{sample_id}|a|{abstract}"]
        for span in sample.spans:
            _require_name(span, r"[\t\n\r]", where)
            lines.append(f"{sample_id}\t{span.start}\t{span.end}\t{text[span.start : span.end]}\t{span.type}\t-1")
        blocks.append("".join(line + "\n" for line in lines))
    return "\n".join(blocks)


def to_brat(folder: PathLike, samples: Iterable[EntitySample], split: str | None = None) -> list[Path]:
    """Write ``<id>.txt`` and ``<id>.ann`` of each text into the folder, which is created, and return the files.

    In the names of files ``/``, ``%``, control characters and a dot at the beginning are written as ``%2F`` and so on.
    An entity over a line's end has a fragment for each line, as brat writes it. Documents and fields of texts are not
    written.

    Raises:
      DataError: a type with a blank, a text that begins with a byte order mark, a file that is there already, or one
        that cannot be written.
    """
    contents: dict[Path, str] = {}
    for number, sample in enumerate(samples, 1):
        where = named("sample", sample.sample_id, number)
        name = _NOT_IN_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", _id(sample, split))
        if sample.text.startswith(_MARK):
            raise DataError("its text begins with a byte order mark", record=where, remedy="write another form")
        lines = []
        for index, span in enumerate(sample.spans, 1):
            _require_name(span, r"\s", where)
            fragments = _fragments(span, sample.text)
            offsets = ";".join(f"{start} {end}" for start, end in fragments)
            mention = " ".join(sample.text[start:end] for start, end in fragments).translate(LINE_ENDS)
            lines.append(f"T{index}\t{span.type} {offsets}\t{mention}\n")
        for ending, content in ((".txt", sample.text), (".ann", "".join(lines))):
            file = Path(folder) / f"{name}{ending}"
            if file in contents or file.exists():
                raise DataError("already exists", path=file, remedy="name a new folder")
            contents[file] = content
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        write_atomically(file, content.encode())
    return list(contents)


def _id(sample: EntitySample, split: str | None) -> str:
    return sample.sample_id if split is None else sample.sample_id.removeprefix(f"{split}-")


def _require_name(span: EntitySpan, forbidden: str, where: str) -> None:
    if re.search(forbidden, span.type):
        raise DataError(
            "the type of an entity has a blank", record=where, remedy="rename the type, or write JSON lines"
        )


def _fragments(span: EntitySpan, text: str) -> list[tuple[int, int]]:
    """Return the parts of an entity on each line, or the whole if it begins or ends with a line's end."""
    mention = text[span.start : span.end]
    if mention[0] in "\n\r" or mention[-1] in "\n\r":
        return [(span.start, span.end)]
    return [(span.start + match.start(), span.start + match.end()) for match in _OF_A_LINE.finditer(mention)]
