"""The records of texts with marked entities, which are typed spans in a text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from datasets.errors import DataError, named

NO_ENTITY = "no entity"
"""The class of a text without entities, for partitions and their statistics."""


@dataclass(frozen=True, order=True)
class EntitySpan:
    """An entity of a text.

    Attributes:
      start, end: Characters (code points) of the text, half-open.
      type: The entity's type, e.g. ``Disease``.
    """

    start: int
    end: int
    type: str


class PredictedSpan(Protocol):
    """A predicted entity: characters (code points) of a text, half-open, with a type and its probability."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def probability(self) -> float: ...


@dataclass(frozen=True)
class EntitySample:
    """A text with its entities.

    It has the attributes that a partitioner needs (`datasets.partition.Sample`).

    Attributes:
      sample_id: Unique over a corpus's splits.
      document_id: The document that the text comes from; several samples may share it.
      text: The text.
      spans: Its entities, in the order of the text; no two share a character.
      label: Index of the corpus's `label_names`: the type of most entities (the first of them on a tie), 0 for none.
      more: Further values that a partitioner may group by; `group` is what privacy of groups hides together.

    Raises:
      DataError: a span that is empty, lies beyond the text, or overlaps another; the sample and the offsets are named.
    """

    sample_id: str
    document_id: str
    text: str = field(repr=False)
    spans: tuple[EntitySpan, ...] = field(repr=False)
    label: int
    more: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self):
        where, end_before = named("sample", self.sample_id), 0
        for span in self.spans:
            offsets = f"{span.start}:{span.end}"
            if not 0 <= span.start < span.end <= len(self.text):
                raise DataError(
                    f"the entity {offsets} is empty or beyond the text of {len(self.text)} characters",
                    record=where,
                    remedy="give 0 <= start < end <= length",
                )
            if span.start < end_before:
                raise DataError(
                    f"the entity {offsets} overlaps the one before it, or is not in the order of the text",
                    record=where,
                    remedy="sort the entities, and keep one of those that overlap (nested = 'outermost')",
                )
            end_before = span.end

    @property
    def group_id(self) -> str:
        """Return what group privacy hides together: `group` of `more`, or the document if there is none."""
        return self.more.get("group", self.document_id)

    @property
    def fields(self) -> Mapping[str, str]:
        """Return what a partitioner may group by."""
        return {**self.more, "document": self.document_id}


@dataclass(frozen=True)
class EntityCorpus:
    """Samples of one entity recognition.

    Partitioners and `build_partition` accept it unchanged.

    Attributes:
      name: The corpus, e.g. ``ncbi_disease``.
      samples: At least one, with unique ids.
      entity_types: The types, in the order of their tags.
      notes: What a report has to say about the corpus, such as nested entities left out.

    Raises:
      DataError: no samples, an id or a type twice, a span of another type, or a label that is not the sample's.
    """

    name: str
    samples: tuple[EntitySample, ...] = field(repr=False)
    entity_types: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        record = f"corpus {self.name}"
        if not self.samples:
            raise DataError("has no texts", record=record, remedy="give it at least one")
        if not self.entity_types or len(set(self.entity_types)) != len(self.entity_types):
            raise DataError("has no entity type, or one twice", record=record, remedy="name every type once")
        seen = set()
        for position, sample in enumerate(self.samples, 1):
            where = named("sample", sample.sample_id, position)
            if sample.sample_id in seen:
                raise DataError("duplicate id", record=where, remedy="give every text an id of its own")
            seen.add(sample.sample_id)
            for span in sample.spans:
                if span.type not in self.entity_types:
                    raise DataError(
                        f"the entity {span.start}:{span.end} has a type that is not one of "
                        f"{', '.join(self.entity_types)}",
                        record=where,
                        remedy="add the type to entity_types, or leave the entity out",
                    )
            if sample.label != label_of(sample.spans, self.entity_types):
                raise DataError(
                    f"its label {sample.label} is not that of its entities", record=where, remedy="use label_of"
                )

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the classes of texts, under the name that partitioners know."""
        return (NO_ENTITY, *self.entity_types)


def annotated_with(sample: EntitySample, types: Sequence[str] | None, entity_types: Sequence[str]) -> EntitySample:
    """Return the sample with only the entities of these types, or with all for None.

    `entity_types` are the corpus's, for the label.
    """
    if types is None:
        return sample
    spans = tuple(span for span in sample.spans if span.type in types)
    return dataclasses.replace(sample, spans=spans, label=label_of(spans, tuple(entity_types)))


def label_of(spans: tuple[EntitySpan, ...], entity_types: tuple[str, ...]) -> int:
    """Return the index in `label_names` of the type that most spans have.

    It is the first of them on a tie, and 0 without spans.
    """
    counts = Counter(span.type for span in spans)
    return max(range(len(entity_types)), key=lambda i: counts[entity_types[i]]) + 1 if spans else 0
