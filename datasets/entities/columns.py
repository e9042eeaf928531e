"""CoNLL columns, with one token per line, its tag in the last column, and an empty line between sentences.

::

    # id = 7
    # ward = north
    Aspirin	B-drug
    inhibits	O
    COX-2	B-enzyme

Columns are separated by tabs, or by blanks where a line has no tab. Tags are BIO or BIOES, with a type (``B-drug``) or
without (``B``). A line ``# key = value`` before the first token of a sentence is a field of it: ``id``, ``document``,
any other for partitions; ``text`` is not read. A line whose first column is ``-DOCSTART-`` begins a document.

The text of a sentence is its tokens joined by one blank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from datasets.entities.building import EntityBuilder
from datasets.entities.records import EntitySpan
from datasets.entities.tags import spans_of, tag_names
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import lines_to_check

FIELD = re.compile(r"# ([A-Za-z_][A-Za-z0-9_.-]*) = ([^\s](?:[^\t]*[^\s])?)")
"""A field of the sentence that follows."""

DOCUMENT_START = "-DOCSTART-"

_TAG = re.compile(r"[BIES](?:-(.+))?")
_SCHEME = "BIOES"
"""Tags of BIO are tags of BIOES, and mean the same."""

_TAG_REMEDY = "write O, or B, I, E or S with a type as in B-drug; separate all columns in the same way"


@dataclass
class _Sentence:
    """A sentence while its lines are read, with its tokens, the letter and type of each tag, and its fields."""

    fail: Fail
    fields: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    tags: list[tuple[str, str]] = field(default_factory=list)


def read_columns(path: PathLike, builder: EntityBuilder, prefix: str, *, bare_type: str, labelled: bool = True) -> None:
    """Add the sentences of a file, compressed or not, as ``<prefix>-<id>``.

    Without an id it is ``<prefix>-<n>``, n from 1.

    An entity begins at ``B`` or ``S``, and at ``I`` or ``E`` after a token that is outside or of another type, as in
    seqeval. Documents are counted from 1 (``document-1``); a sentence that no document holds is one by itself.

    Args:
      path: The file.
      builder: Gets the sentences.
      prefix: Part of their ids.
      bare_type: The type of tags without one.
      labelled: Whether tags are read; if not, the tokens are in the first column, and there may be no other.

    Raises:
      DataError: a line with another number of columns than the first, an empty token, a tag of another scheme, a field
        twice, fields without a sentence, a last line without a line feed, or what `EntityBuilder.add` refuses.
    """
    for number, sentence in enumerate(_sentences(path, builder, bare_type, labelled), 1):
        tokens, start = [], 0
        for token in sentence.tokens:
            tokens.append((start, start + len(token)))
            start += len(token) + 1
        fields = dict(sentence.fields)
        sentence_id = fields.pop("id", str(number))
        document = fields.pop("document", sentence_id)
        fields.pop("text", None)
        spans = _spans(sentence.tags, tokens) if labelled else ()
        text = " ".join(sentence.tokens)
        builder.add(f"{prefix}-{sentence_id}", document, text, spans, sentence.fail, more=fields)


def _spans(tags: list[tuple[str, str]], tokens: list[tuple[int, int]]) -> tuple[EntitySpan, ...]:
    types = sorted({kind for _, kind in tags if kind})
    if not types:
        return ()
    index = {name: i for i, name in enumerate(tag_names(types, _SCHEME))}
    return spans_of([index[f"{letter}-{kind}" if kind else "O"] for letter, kind in tags], tokens, types, _SCHEME)


def _sentences(path: PathLike, builder: EntityBuilder, bare_type: str, labelled: bool) -> Iterator[_Sentence]:
    sentence, width, documents = None, None, 0
    for fail, line in lines_to_check(path, ended=labelled):
        if not line.strip(" \t"):
            if sentence is not None:
                yield _complete(sentence)
            sentence = None
            continue
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        if cells[0] == DOCUMENT_START:
            if sentence is not None:
                raise fail(f"{DOCUMENT_START} is within a sentence", remedy="put an empty line before it")
            documents += 1
            continue
        if sentence is None:
            sentence = _Sentence(fail, {"document": f"document-{documents}"} if documents else {})
        match = None if sentence.tokens else FIELD.fullmatch(line)
        if match is not None:
            _add_field(sentence.fields, match[1], match[2], documents, fail)
            continue
        width = width or len(cells)
        if len(cells) != width or (labelled and width == 1):
            wanted = max(width, 2) if labelled else width
            raise fail(f"has {len(cells)} columns", remedy=f"give it {wanted}; {_TAG_REMEDY}")
        if not cells[0].strip():
            raise fail("has an empty token", remedy="remove the line, or end the sentence with an empty one")
        sentence.tokens.append(cells[0])
        sentence.tags.append(_tag(cells[-1], builder, bare_type, fail) if labelled else ("O", ""))
    if sentence is not None:
        yield _complete(sentence)


def _complete(sentence: _Sentence) -> _Sentence:
    if not sentence.tokens:
        raise sentence.fail("there is no sentence after these fields", remedy="remove them, or the empty line")
    return sentence


def _add_field(fields: dict[str, str], key: str, value: str, documents: int, fail: Fail) -> None:
    by_start = key == "document" and fields.get(key) == f"document-{documents}"
    if key in fields and not by_start:
        raise fail("the sentence has this field twice", remedy="remove one of them")
    fields[key] = value


def _tag(tag: str, builder: EntityBuilder, bare_type: str, fail: Fail) -> tuple[str, str]:
    """Return letter and type of a tag, with an empty type for ``O``."""
    if tag == "O":
        return "O", ""
    match = _TAG.fullmatch(tag)
    if match is None:
        raise fail("its last column is not a tag of BIO or BIOES", remedy=_TAG_REMEDY)
    return tag[0], builder.checked_type(bare_type if match[1] is None else match[1], fail)
