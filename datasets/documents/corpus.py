"""Document-level relation classification: entities, candidate pairs, samples and a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from datasets.documents.graph import adjacency, sentences_of
from datasets.documents.records import Document, EntityMention
from datasets.errors import DataError, named
from datasets.partition.structural_entropy import GRAPHS

LABEL_NAMES = ("unrelated", "related")
"""The classes of documents, for statistics: without and with a positive pair."""


@dataclass(frozen=True)
class DocumentEntity:
    """An entity of a document, with its identifier, its type and its mentions (including composite ones)."""

    entity_id: str
    kind: str
    mentions: tuple[EntityMention, ...] = field(repr=False)


@dataclass(frozen=True)
class DocumentPair:
    """A candidate pair, which may have a relation from the head to the tail.

    Attributes:
      head, tail: Indices of the sample's `entities`.
      labels: Indices of the corpus's `relation_names` that hold, increasing; empty for a negative pair.
      intra: Whether a sentence mentions both.
      uncounted: Relations without a direction that the same two entities have as an earlier pair, in the other order;
        the evaluation counts them there.
    """

    head: int
    tail: int
    labels: tuple[int, ...]
    intra: bool
    uncounted: tuple[int, ...] = ()


@dataclass(frozen=True)
class DocumentSample:
    """A document with its candidate pairs.

    It has the attributes that a partitioner needs (`datasets.partition.Sample`).

    Attributes:
      sample_id: Unique over a corpus's splits.
      document: The text, its mentions and facts.
      entities: In the order of their first mentions.
      pairs: In the order of heads, then tails; a document may have none.
    """

    sample_id: str
    document: Document
    entities: tuple[DocumentEntity, ...] = field(repr=False)
    pairs: tuple[DocumentPair, ...] = field(repr=False)

    @property
    def document_id(self) -> str:
        """Return the document's id, for example its PMID."""
        return self.document.document_id

    @property
    def label(self) -> int:
        """Return the index in `LABEL_NAMES`, 1 if there is a positive pair."""
        return int(any(pair.labels for pair in self.pairs))

    @property
    def fields(self) -> Mapping[str, str]:
        """Return what a partitioner may group by: `label`."""
        return {"label": LABEL_NAMES[self.label]}

    @cached_property
    def degrees(self) -> Mapping[str, tuple[int, ...]]:
        """Return the node degrees of each document graph, by its name, for `structural_entropy` (see `adjacency`)."""
        entities, sentences = [entity.mentions for entity in self.entities], sentences_of(self.document)
        pairs = [(pair.head, pair.tail) for pair in self.pairs]
        return {g: tuple(adjacency(entities, sentences, pairs, g).sum(axis=1).tolist()) for g in GRAPHS}

    def pair_ids(self, pair: DocumentPair) -> tuple[str, str, str]:
        """Return document, head and tail, which the evaluation compares with the gold."""
        return self.document_id, self.entities[pair.head].entity_id, self.entities[pair.tail].entity_id


@dataclass(frozen=True)
class DocumentCorpus:
    """Samples of one document-level relation classification.

    Partitioners and `build_partition` accept it unchanged.

    Attributes:
      name: The corpus, e.g. ``cdr``.
      samples: At least one, with unique ids.
      relation_names: The relations that a pair may have, R of them; a pair may have none and several.
      notes: What a report has to say about the corpus.
      pair_types: Types of the heads and tails of candidate pairs.
      facts_by_name: Whether entities of two documents are told to be the same by their names alone (DocRED), so that
        the facts that training documents state are known by names.

    Raises:
      DataError: no samples, or an id twice.
    """

    name: str
    samples: tuple[DocumentSample, ...] = field(repr=False)
    relation_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    pair_types: tuple[tuple[str, str], ...] = ()
    facts_by_name: bool = False

    def __post_init__(self):
        if not self.samples:
            raise DataError("has no documents", record=f"corpus {self.name}", remedy="give it at least one")
        seen = set()
        for position, sample in enumerate(self.samples, 1):
            if sample.sample_id in seen:
                where = named("document", sample.document_id, position)
                raise DataError("duplicate id", record=where, remedy="give every document an id of its own")
            seen.add(sample.sample_id)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the classes of documents, under the name that partitioners know."""
        return LABEL_NAMES

    @property
    def entity_types(self) -> tuple[str, ...]:
        """Return the types of the entities in candidate pairs, sorted."""
        return entity_types(self.pair_types)

    def counts(self) -> dict[str, int]:
        """Count documents, entities, mentions (composite ones once per entity), pairs, and positive and intra pairs."""
        pairs = [pair for sample in self.samples for pair in sample.pairs]
        positive = [pair for pair in pairs if pair.labels]
        entities = [entity for sample in self.samples for entity in sample.entities]
        return {
            "documents": len(self.samples),
            "entities": len(entities),
            "mentions": sum(len(entity.mentions) for entity in entities),
            "pairs": len(pairs),
            "positive": len(positive),
            "negative": len(pairs) - len(positive),
            "intra": sum(pair.intra for pair in pairs),
            "positive_intra": sum(pair.intra for pair in positive),
        }


def entity_types(pair_types: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the types in pairs of types, each once, sorted."""
    return tuple(sorted({kind for kinds in pair_types for kind in kinds}))
