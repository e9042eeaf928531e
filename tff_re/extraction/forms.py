"""Facts and mentions as lines of files: JSON lines and PubTator."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from datasets.documents.pubtator import LINE_ENDS
from datasets.errors import DataError, named
from tff_re.extraction.records import Annotated, Fact, Mention, RawDocument

_DIGITS = 6
_PUBTATOR_ID = re.compile(r"[^|\t\r\n]*[^|\s][^|\t\r\n]*")


def fact_line(document: RawDocument, fact: Fact, exports: Mapping[str, str | None], show_text: bool) -> str:
    """A fact as a line of JSON.

    The mentions' words are in it only with `show_text`.

    Args:
      document: Where it was found.
      fact: The fact.
      exports: `entities_export`, `relations_export`: digests of the exports, None for a model of no export.
      show_text: Whether to write the words.
    """
    value = {
        "document": document.document_id,
        "head": _argument(document, fact.head, fact.head_mentions, show_text),
        "relation": fact.relation,
        "tail": _argument(document, fact.tail, fact.tail_mentions, show_text),
        "probability": round(fact.probability, _DIGITS),
        "sentence": fact.sentence,
        **exports,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


def mentions_line(annotated: Annotated, exports: Mapping[str, str | None], show_text: bool) -> str:
    """A document's mentions as a line of JSON, with the arguments of `fact_line`."""
    document = annotated.document
    mentions = [mention_values(document, mention, show_text) for mention in annotated.mentions]
    return json.dumps({"document": document.document_id, "mentions": mentions, **exports}, ensure_ascii=False) + "\n"


def mention_values(document: RawDocument, mention: Mention, show_text: bool) -> dict[str, Any]:
    """A mention as JSON has it."""
    similarity = {} if mention.similarity is None else {"similarity": round(mention.similarity, _DIGITS)}
    words = {"text": document.text[mention.start : mention.end]} if show_text else {}
    return {
        "start": mention.start,
        "end": mention.end,
        "type": mention.type,
        "id": mention.entity_id,
        "probability": round(mention.probability, _DIGITS),
        "linked": mention.linked,
        **similarity,
        **words,
    }


def _argument(document: RawDocument, mention: Mention, spans: Sequence, show_text: bool) -> dict[str, Any]:
    return mention_values(document, mention, show_text) | ({"mentions": spans} if spans else {})


def check_pubtator_id(document: RawDocument) -> None:
    """Raises DataError where the document's id cannot stand in PubTator's form."""
    if not _PUBTATOR_ID.fullmatch(document.document_id):
        record = named("document", document.document_id)
        raise DataError("its id cannot stand in PubTator's form", record=record, remedy="use ids without | and tabs")


def pubtator_block(annotated: Annotated, facts: Sequence[Fact]) -> str:
    """A document in PubTator's form, with its text, and an empty line after it.

    A text without a title is written as the title. Line breaks and tabs, which the form cannot hold, become blanks, so
    that offsets stay. Unlinked mentions have the numbers of the run as ids.
    """
    document = annotated.document
    text, name = document.text.translate(LINE_ENDS), document.document_id
    title, abstract = text, ""
    if document.title_length is not None:
        title, abstract = text[: document.title_length], text[document.title_length + 1 :]
    rows = [(name, str(m.start), str(m.end), text[m.start : m.end], m.type, m.entity_id) for m in annotated.mentions]
    rows += dict.fromkeys((name, fact.relation, fact.head.entity_id, fact.tail.entity_id) for fact in facts)
    lines = [f"{name}|t|{title}", f"{name}|a|{abstract}", *map("\t".join, rows)]
    return "\n".join(lines) + "\n\n"


def page_line(annotated: Annotated, facts: Sequence[Fact]) -> str:
    """All of a document that an HTML page shows, as a line of JSON.

    It holds the text.
    """
    document = annotated.document
    value = {
        "id": document.document_id,
        "text": document.text,
        "mentions": [mention_values(document, mention, True) for mention in annotated.mentions],
        "facts": [json.loads(fact_line(document, fact, {}, True)) for fact in facts],
    }
    return json.dumps(value, ensure_ascii=False) + "\n"
