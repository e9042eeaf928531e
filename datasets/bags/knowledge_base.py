"""Knowledge bases: facts from a table of one's own, or those that documents state themselves."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from datasets.documents.records import Document, Fact
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import columns, read_lines


def read_facts(path: PathLike) -> tuple[Fact, ...]:
    """The facts of a table, compressed or not: a line is head's id, relation, tail's id between tabs; no header.

    Blanks around a column are not part of it.

    Raises:
      DataError: a line with another number of columns, an empty column, a duplicate fact, or no fact.
    """
    facts: dict[Fact, int] = {}
    for line, text in read_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        row = [column.strip() for column in columns(text, 3, fail)]
        for value, what in zip(row, ("head", "relation", "tail"), strict=True):
            if not value:
                raise fail(f"its {what} is empty", remedy="give head, relation and tail between tabs")
        fact = Fact(*row)
        if fact in facts:
            raise fail(f"is the same fact as line {facts[fact]}", remedy="remove one of them")
        facts[fact] = line
    if not facts:
        raise DataError("has no facts", path=path, remedy="give it at least one line")
    return tuple(facts)


def stated_facts(documents: Iterable[Document]) -> tuple[Fact, ...]:
    """The facts that the documents' annotators state, each once, in the order of the documents."""
    return tuple(dict.fromkeys(fact for document in documents for fact in document.facts))
