"""What the parts of an extraction pass to each other. All offsets are code points of a document's text, half-open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from datasets.documents.records import Document
from datasets.entities.records import PredictedSpan
from datasets.relations.records import Span

EXACT, FOLDED, SIMILAR, UNLINKED = "exact", "folded", "similar", "none"
"""How a mention was linked to a terminology: its name as it is, folded, by similarity, or not at all."""


class EntityRecogniser(Protocol):
    """A model that finds entities in raw texts, such as a loaded export of entity recognition.

    One that cuts long texts may also have `recognise_each(texts)`: for each text an object with its `entities`, and
    with `read_to`, the characters that it read, None for all.

    Attributes:
      entity_types: The types that it predicts.
    """

    @property
    def entity_types(self) -> Sequence[str]: ...

    def predict(self, texts: Sequence[str]) -> Sequence[Sequence[PredictedSpan]]:
        """The entities of each text, in the order of the text, none of which overlap."""
        ...


@dataclass(frozen=True)
class RawDocument:
    """A text to extract facts from.

    Attributes:
      document_id: As the file gives it.
      text: The text; of PubTator title, one blank, abstract.
      title_length: Where the title ends; None: there is no title.
    """

    document_id: str
    text: str = field(repr=False)
    title_length: int | None = None


@dataclass(frozen=True)
class GoldDocuments:
    """Documents with mentions and relations, to score an extraction on.

    Attributes:
      documents: The documents.
      of_mentions: Whether a relation is between two mentions, each an entity of its own, and not between entities that
        a document may mention several times.
    """

    documents: Sequence[Document] = field(repr=False)
    of_mentions: bool = False


@dataclass(frozen=True)
class Mention:
    """An entity in a text.

    Attributes:
      start, end: Its span.
      type: As the recogniser names it.
      probability: The recogniser's.
      entity_id: The terminology's id; of an unlinked mention a keyed number for its type and folded text.
      linked: How it was linked: `EXACT`, `FOLDED`, `SIMILAR` or `UNLINKED`.
      similarity: Of the mention to the terminology's name, from 0 to 1; None unless linked by similarity.
    """

    start: int
    end: int
    type: str
    probability: float
    entity_id: str
    linked: str = UNLINKED
    similarity: float | None = None

    @property
    def span(self) -> Span:
        """Start and end."""
        return self.start, self.end


@dataclass(frozen=True)
class Annotated:
    """A document with its mentions.

    Attributes:
      document: The document.
      mentions: In the order of the text.
      cut: Whether the recogniser read only a part of it.
    """

    document: RawDocument
    mentions: tuple[Mention, ...]
    cut: bool = False


@dataclass(frozen=True)
class Fact:
    """A predicted relation.

    Attributes:
      head, tail: The two mentions; of a whole-document model those nearest to each other in a sentence, if any, or the
        first of each entity.
      relation: Its name.
      probability: The model's.
      sentence: The span of the sentence with both; None: no sentence has both.
      head_mentions, tail_mentions: Spans of all mentions of both entities; empty for a model of sentences.
    """

    head: Mention
    relation: str
    tail: Mention
    probability: float
    sentence: Span | None
    head_mentions: tuple[Span, ...] = ()
    tail_mentions: tuple[Span, ...] = ()
