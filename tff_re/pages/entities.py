"""The page of texts with their entities highlighted. It holds the texts, which may be patients'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from datasets.entities.records import PredictedSpan
from datasets.errors import counted
from tff_re.pages.page import Block, Facts, MarkedText, Section, TextPart, Words, page
from tff_re.report.drawing import COLOURS


class EntityText(Protocol):
    """A text with its entities, which do not overlap and are in the order of the text."""

    @property
    def text_id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def entities(self) -> Sequence[PredictedSpan]: ...


def entities_page(texts: Sequence[EntityText], types: Sequence[str], title: str, made_by: str) -> str:
    """The page as HTML, which needs no other file.  A click on an entity marks all of its type.

    Args:
      texts: in their order.
      types: the types of entities, in the order of their colours.
      title: at its top.
      made_by: the line at its end.
    """
    counts = Counter(entity.type for text in texts for entity in text.entities)
    numbers = {name: number for number, name in enumerate(types)}
    legend = [part for name in types for part in (_mention(name, numbers, name, name), TextPart("  "))]
    about: list[Block] = [
        Words("This page contains texts. Click an entity or a type to highlight all entities of that type."),
        Facts({name: str(counts[name]) for name in types}),
        MarkedText("Types", legend),
    ]
    sections = [
        Section("about", "What was found", about),
        Section("texts", "Texts", [MarkedText(text.text_id, list(parts(text, numbers))) for text in texts]),
    ]
    return page(title, f"{counted(len(texts), 'text')}, {counted(counts.total(), 'entity')}.", sections, made_by)


def parts(text: EntityText, numbers: Mapping[str, int]) -> Iterator[TextPart]:
    """The pieces of a text, its entities among them.

    `numbers` are those of the types.
    """
    done = 0
    for entity in text.entities:
        if entity.start > done:
            yield TextPart(text.text[done : entity.start])
        note = f"{entity.type}, {entity.start} to {entity.end}, {entity.probability:.3f}"
        yield _mention(text.text[entity.start : entity.end], numbers, entity.type, note)
        done = entity.end
    if done < len(text.text):
        yield TextPart(text.text[done:])


def _mention(words: str, numbers: Mapping[str, int], kind: str, note: str) -> TextPart:
    return TextPart(words, COLOURS[numbers[kind] % len(COLOURS)], numbers[kind], note)
