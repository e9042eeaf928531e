"""The records of document-level data: a text, its entities' mentions, and relations between entities."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets.errors import DataError, named


@dataclass(frozen=True)
class EntityMention:
    """A span in which a document names one entity, or several at once (a composite mention).

    Attributes:
      start, end: Characters (code points) of the document's text, half-open.
      kind: The type of the entity, e.g. ``Chemical``.
      entity_ids: Identifiers of the entities named, without ``-1``; empty for a mention that the corpus does not link.
      name: What the corpus calls it where that is not the text between the offsets; else None.
    """

    start: int
    end: int
    kind: str
    entity_ids: tuple[str, ...]
    name: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Fact:
    """A relation between two entities of a document or of a knowledge base."""

    head_id: str
    relation: str
    tail_id: str


@dataclass(frozen=True)
class Document:
    """A text with entities and relations between them.

    Attributes:
      document_id: Unique in its corpus.
      text: Title, one character, abstract; offsets count in it.
      title_length: Where the title ends.
      mentions: In the order of the text; they may overlap.
      facts: The relations that the corpus states for the document.
      sentences: Spans of the text, in its order, where the corpus says them; empty: they are found by a rule.

    Raises:
      DataError: a mention that is empty or lies beyond the text.
    """

    document_id: str
    text: str = field(repr=False)
    title_length: int
    mentions: tuple[EntityMention, ...] = field(repr=False)
    facts: tuple[Fact, ...] = field(repr=False)
    sentences: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    def __post_init__(self):
        for mention in self.mentions:
            if not 0 <= mention.start < mention.end <= len(self.text):
                raise DataError(
                    f"a mention {mention.start}:{mention.end} is empty or lies beyond the text of {len(self.text)} "
                    "characters",
                    record=named("document", self.document_id),
                    remedy="give 0 <= start < end <= length",
                )

    def entities(self) -> dict[str, tuple[EntityMention, ...]]:
        """Return the mentions of each identifier, ordered by first mention.

        A composite mention is listed under all its ids.
        """
        mentions_of: dict[str, list[EntityMention]] = {}
        for mention in self.mentions:
            for entity_id in mention.entity_ids:
                mentions_of.setdefault(entity_id, []).append(mention)
        return {entity_id: tuple(mentions) for entity_id, mentions in mentions_of.items()}

    def names(self) -> dict[str, frozenset[str]]:
        """Return the names of each identifier's mentions."""
        return {
            entity_id: frozenset(self.text[m.start : m.end] if m.name is None else m.name for m in mentions)
            for entity_id, mentions in self.entities().items()
        }
