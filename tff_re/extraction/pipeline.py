"""The steps from documents to facts, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from datasets.entities.records import PredictedSpan
from datasets.relations.sentences import sentences_of_text
from tff_re.extraction.records import Annotated, EntityRecogniser, Fact, Mention, RawDocument
from tff_re.extraction.relations import RelationModel
from tff_re.extraction.terminology import Linker

Unit = Literal["documents", "sentences"]


@dataclass(frozen=True)
class Pipeline:
    """Recognises entities, links them, and classifies their pairs.

    Attributes:
      recogniser: Finds the entities.
      relations: Classifies pairs of mentions or of entities; None: no relation is predicted.
      linker: Gives mentions their ids.
      unit: What the recogniser reads at once: whole documents, or one sentence at a time.
    """

    recogniser: EntityRecogniser
    relations: RelationModel | None
    linker: Linker
    unit: Unit = "documents"

    def annotate(self, documents: Sequence[RawDocument]) -> list[Annotated]:
        """The documents with their entities."""
        parts = [
            (number, start, document.text[start:end])
            for number, document in enumerate(documents)
            for start, end in self._parts(document)
        ]
        mentions: list[list[Mention]] = [[] for _ in documents]
        cut = [False] * len(documents)
        for (number, start, text), (entities, was_cut) in zip(parts, self._entities(parts), strict=True):
            mentions[number] += [self._mention(entity, text, start) for entity in entities]
            cut[number] |= was_cut
        parts_of = zip(documents, mentions, cut, strict=True)
        return [Annotated(document, tuple(of_text), was_cut) for document, of_text, was_cut in parts_of]

    def facts(self, annotated: Sequence[Annotated]) -> list[list[Fact]]:
        """The facts of each document."""
        return [[] for _ in annotated] if self.relations is None else self.relations.facts(annotated)

    def skipped(self) -> list[str]:
        """Ids of the documents that the model of relations could not read since the last call."""
        if self.relations is None:
            return []
        ids = list(self.relations.skipped)
        self.relations.skipped.clear()
        return ids

    def _entities(self, parts: Sequence[tuple[int, int, str]]) -> Iterator[tuple[Sequence[PredictedSpan], bool]]:
        """(its entities, whether the recogniser read only a part of it) of each text."""
        texts = [text for *_, text in parts]
        if not texts:
            return
        recognise_each = getattr(self.recogniser, "recognise_each", None)
        if recognise_each is None:
            yield from ((entities, False) for entities in self.recogniser.predict(texts))
            return
        for result in recognise_each(texts):
            if isinstance(result, Exception):
                raise result
            yield result.entities, result.read_to is not None

    def _parts(self, document: RawDocument) -> list[tuple[int, int]]:
        if self.unit == "sentences":
            return sentences_of_text(document.text, (), document.title_length)
        return [(0, len(document.text))] if document.text.strip() else []

    def _mention(self, entity: PredictedSpan, text: str, start: int) -> Mention:
        link = self.linker(text[entity.start : entity.end], entity.type)
        span = entity.start + start, entity.end + start
        return Mention(*span, entity.type, float(entity.probability), link.entity_id, link.linked, link.similarity)
