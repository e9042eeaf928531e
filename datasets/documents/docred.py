"""DocRED's JSON: documents as sentences of tokens, entities as lists of mentions, relations between entities.

A file is a list of objects::

    {"title": "…", "sents": [["Skai", "TV", "is", …], …],
     "vertexSet": [[{"name": "Skai TV", "sent_id": 0, "pos": [0, 2], "type": "ORG"}, …], …],
     "labels": [{"h": 0, "t": 2, "r": "P159", "evidence": [0]}, …]}

`pos` counts tokens of the sentence `sent_id`, the end exclusive; `h` and `t` are places in `vertexSet`, which are the
entities' identifiers here. Files without `labels` (a test set) state nothing. The text is the tokens, joined by one
blank; the title is no part of it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.pairs import document_corpus, rule_of
from datasets.documents.records import Document, EntityMention, Fact
from datasets.errors import DataError
from datasets.files import PathLike, read_json
from datasets.json_values import Fail, field, require, within
from datasets.relations.reading import notes_of

_Span = tuple[int, int]


@data_set(
    "docred",
    title="Re-DocRED, articles of Wikipedia",
    kind="documents",
    task="entities in an article's beginning: which of Wikidata's relations the first has to the second",
    labels=("relation",),
    files={split: f"re_docred/{split}_revised.json" for split in ("train", "dev", "test")},
    licence="MIT",
    citation="Yao et al., DocRED, ACL 2019; Tan et al., Revisiting DocRED, EMNLP 2022",
    available_from="tonytan48/Re-DocRED on GitHub; DocRED's own files (thunlp/DocRED) are read by task.path",
)
def read_docred(
    path: PathLike,
    *,
    name: str,
    label: str,
    split: str,
    relations: Sequence[str] | None = None,
    pair_types: Sequence[Sequence[str]] | None = None,
    directed: bool | Collection[str] = True,
    held_out: bool = False,
) -> DocumentCorpus:
    """Read the documents of a file.

    The relations are by default those that it states (see `datasets.documents.pairs.rule_of`).
    """
    tally: Counter[str] = Counter()
    documents = read_docred_json(path, tally=tally)
    rule = rule_of(documents, path, relations=relations, pair_types=pair_types, directed=directed, held_out=held_out)
    return document_corpus(documents, rule, name=name, split=split, notes=notes_of(tally), facts_by_name=True)


def read_docred_json(path: PathLike, *, tally: Counter[str] | None = None) -> tuple[Document, ...]:
    """Read the documents of a file in DocRED's format, compressed or not, in its order.

    Mentions are in the order of the text.

    What is irregular but clear is read and counted: a mention or a relation that is there twice, an entity whose
    mentions have several types (the first one counts), a title that an earlier document has (it gets a number).

    Args:
      path: The file.
      tally: Gets the counts, from a description (for `notes_of`) to a number.

    Raises:
      DataError: no JSON of this form; a mention beyond its sentence, or without a token; an entity without a mention;
        a relation of an entity that is not there.
    """
    tally = Counter() if tally is None else tally
    fail = functools.partial(DataError, path=path)
    values = require(read_json(path), list, "the file", fail, remedy="give DocRED's JSON, a list of documents")
    documents: dict[str, Document] = {}
    for position, value in enumerate(values, 1):
        # Not by its title, which is words of a text.
        fail = functools.partial(DataError, path=path, record=f"document number {position}")
        title = field(require(value, dict, "it", fail), "title", str, fail)
        if not title.strip():
            raise fail("has no title", remedy="give every document one")
        document_id, number = title, 1
        while document_id in documents:
            number += 1
            document_id = f"{title} ({number})"
        tally["documents have the title of an earlier one"] += number > 1
        documents[document_id] = _document(value, document_id, tally, fail)
    if not documents:
        raise DataError("has no documents", path=path, remedy="give it at least one")
    return tuple(documents.values())


def _document(value: Mapping[str, Any], document_id: str, tally: Counter[str], fail: Fail) -> Document:
    text, tokens = _text(value, fail)
    mentions: dict[tuple[int, int, str], EntityMention] = {}
    entities = field(value, "vertexSet", list, fail)
    for index, entity in enumerate(entities):
        of_entity = require(entity, list, f"entity {index}", fail)
        if not of_entity:
            raise fail(f"entity {index} has no mention", remedy="leave it out, or give it one")
        types = []
        for number, mention in enumerate(of_entity):
            where = f"mention {number} of entity {index}"
            start, end, name, kind = _mention(mention, where, tokens, fail)
            types.append(kind)
            key = (start, end, str(index))
            tally["duplicate mentions are read once"] += key in mentions
            name = None if name == text[start:end] else name
            mentions.setdefault(key, EntityMention(start, end, types[0], (str(index),), name))
        tally["entities have mentions with several types; the first counts"] += len(set(types)) > 1
    in_text = sorted(mentions.values(), key=lambda mention: (mention.start, mention.end))
    sentences = tuple((spans[0][0], spans[-1][1]) for spans in tokens if spans)
    facts = _facts(value, len(entities), tally, fail)
    return Document(document_id, text, 0, tuple(in_text), facts, sentences)


def _text(value: Mapping[str, Any], fail: Fail) -> tuple[str, list[list[_Span]]]:
    """Return the text, and the spans of each sentence's tokens in it."""
    words, spans, start = [], [], 0
    for number, sentence in enumerate(field(value, "sents", list, fail)):
        spans.append([])
        for token in require(sentence, list, f"sentence {number}", fail):
            word = require(token, str, f"a token of sentence {number}", fail)
            words.append(word)
            spans[-1].append((start, start + len(word)))
            start += len(word) + 1
    text = " ".join(words)
    if not text.strip():
        raise fail("has no text", remedy="leave it out")
    return text, spans


def _mention(mention: Any, where: str, tokens: Sequence[Sequence[_Span]], fail: Fail) -> tuple[int, int, str, str]:
    """Return start, end, name and type of a mention."""
    mention, of_mention = require(mention, dict, where, fail), within(where, fail)
    sentence, tokens_of = field(mention, "sent_id", int, of_mention), field(mention, "pos", list, of_mention)
    kind = field(mention, "type", str, of_mention)
    if not kind.strip():
        raise fail(f"{where} has no type", remedy="name it")
    if not 0 <= sentence < len(tokens):
        raise fail(f"{where} is in no sentence", remedy=f"give a sent_id below {len(tokens)}")
    spans = tokens[sentence]
    first, last = (require(p, int, f"the place of {where}", fail) for p in tokens_of) if len(tokens_of) == 2 else (0, 0)
    if not 0 <= first < last <= len(spans):
        remedy = "give pos as [first token, token after the last]"
        raise fail(f"{where} is empty or beyond its sentence of {len(spans)} tokens", remedy=remedy)
    start, end = spans[first][0], spans[last - 1][1]
    if start == end:
        raise fail(f"{where} is empty", remedy="give it a token that is not")
    return start, end, field(mention, "name", str, of_mention), kind


def _facts(value: Mapping[str, Any], entities: int, tally: Counter[str], fail: Fail) -> tuple[Fact, ...]:
    labels = require(value.get("labels", []), list, '"labels"', fail)
    facts: dict[Fact, None] = {}
    for number, label in enumerate(labels):
        label = require(label, dict, f"label {number}", fail)
        of_label = within(f"label {number}", fail)
        head, tail = field(label, "h", int, of_label), field(label, "t", int, of_label)
        relation = field(label, "r", str, of_label)
        if not (0 <= head < entities and 0 <= tail < entities):
            remedy = f"give h and t from 0 to {entities - 1}"
            raise fail(f"label {number} names an entity that does not exist", remedy=remedy)
        if not relation.strip():
            raise fail(f"label {number} names no relation", remedy="name it")
        fact = Fact(str(head), relation, str(tail))
        tally["duplicate relations are read once"] += fact in facts
        facts[fact] = None
    return tuple(facts)
