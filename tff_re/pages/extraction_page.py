"""The page of an extraction: a graph to click, the facts, and the texts with their mentions. It holds the texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from datasets.errors import counted
from datasets.files import read_json_lines
from tff_re.pages.network import network
from tff_re.pages.page import Block, Facts, Items, MarkedText, Section, Table, TextPart, Words, page
from tff_re.report.drawing import COLOURS

_MOST_ROWS, _MOST_NODES = 500, 60

Key = tuple[str, str]
"""Id and type of an entity."""


class Result(Protocol):
    """What was extracted from all documents, of which the page may show only the first ones."""

    @property
    def documents(self) -> int: ...
    @property
    def mentions(self) -> int: ...
    @property
    def facts(self) -> int | None: ...
    @property
    def notes(self) -> Sequence[str]: ...


def extraction_page(path: Path, result: Result) -> str:
    """The page as HTML.

    Args:
      path: JSON lines of documents, each with `id`, `text`, `mentions` and `facts`.
      result: What was extracted from all documents; without facts there is no section for them.

    Raises:
      DataError: the file cannot be read.
    """
    documents = [value for _, value in read_json_lines(path)]
    facts = [fact for document in documents for fact in document["facts"]]
    mentions = [mention for document in documents for mention in document["mentions"]]
    arguments = (fact[side] for fact in facts for side in ("head", "tail"))
    numbers: dict[Key, int] = {}
    names: dict[Key, str] = {}
    for mention in itertools.chain(arguments, mentions):
        numbers.setdefault(_key(mention), len(numbers))
        names.setdefault(_key(mention), mention["text"])
    types = sorted({mention["type"] for mention in mentions})
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(types)}
    first = counted(len(documents), "document")
    rest = "" if len(documents) == result.documents else f"; this page shows the first {first}"
    counts = (result.documents, "document"), (result.mentions, "mention"), (result.facts, "fact")
    summary = ", ".join(counted(count, noun) for count, noun in counts if count is not None) + f"{rest}."
    with_facts = result.facts is not None
    click = "in the graph or in a text to see its facts" if with_facts else "to see its other mentions"
    about: list[Block] = [
        Words(f"This page contains texts. Click an entity {click}."),
        Facts({"types": ", ".join(types)} if types else {}),
        *([Items(list(result.notes))] if result.notes else []),
    ]
    drawn = network(
        [(numbers[_key(fact["head"])], fact["relation"], numbers[_key(fact["tail"])]) for fact in facts],
        {numbers[key]: (name, f"{key[1]}, {key[0]}", colours.get(key[1], COLOURS[0])) for key, name in names.items()},
        _MOST_NODES,
    )
    sections = [
        Section("graph", "Graph", [] if drawn is None else [drawn]),
        Section("facts", "Facts", _table(facts, numbers)),
    ]
    sections = [
        Section("about", "What was extracted", about),
        *(sections if with_facts else []),
        Section("texts", "Texts", list(_texts(documents, numbers, colours))),
    ]
    title = "Extracted facts" if with_facts else "Recognised entities"
    return page(title, summary, sections, "made by tff-re extract")


def _key(mention: Mapping[str, Any]) -> Key:
    return mention["id"], mention["type"]


def _table(facts: Sequence[Mapping[str, Any]], numbers: Mapping[Key, int]) -> list[Block]:
    if not facts:
        return [Words("No fact was found in these documents.")]
    rows, entities = [], []
    for fact in facts[:_MOST_ROWS]:
        head, tail = fact["head"], fact["tail"]
        cells = (head["text"], fact["relation"], tail["text"], f"{fact['probability']:.3f}")
        rows.append([*cells, fact["document"], head["id"], tail["id"]])
        entities.append((numbers[_key(head)], numbers[_key(tail)]))
    heading = ["head", "relation", "tail", "probability", "document", "head id", "tail id"]
    caption = "" if len(facts) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(facts)} facts."
    return [Table(heading, rows, caption=caption, entities=entities)]


def _texts(
    documents: Iterable[Mapping[str, Any]], numbers: Mapping[Key, int], colours: Mapping[str, str]
) -> Iterator[MarkedText]:
    for document in documents:
        yield MarkedText(str(document["id"]), list(_parts(document, numbers, colours)))


def _parts(document: Mapping[str, Any], numbers: Mapping[Key, int], colours: Mapping[str, str]) -> Iterator[TextPart]:
    text, done = document["text"], 0
    for mention in document["mentions"]:
        start, end = mention["start"], mention["end"]
        if start < done:
            continue
        if start > done:
            yield TextPart(text[done:start])
        note = f"{mention['type']}, {mention['id']}, {mention['probability']:.3f}"
        yield TextPart(text[start:end], colours[mention["type"]], numbers[_key(mention)], note)
        done = end
    if done < len(text):
        yield TextPart(text[done:])
