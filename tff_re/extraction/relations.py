"""Exported models of relations on recognised mentions: of two mentions in a sentence, and of whole documents."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from datasets.documents.corpus import DocumentCorpus, DocumentEntity, DocumentPair, DocumentSample
from datasets.documents.records import Document, EntityMention
from datasets.errors import DataError, named
from datasets.relations.records import RelationMention, Span
from datasets.relations.sentences import sentences_of_text
from tff_re.extraction.pairs import PairTypes
from tff_re.extraction.records import Annotated, Fact, Mention

PAIRS_AT_ONCE = 512
"""Pairs of sentences that are classified together."""


class RelationModel(Protocol):
    """An exported model of relations with its pairs of types.

    Attributes:
      labels: The relations that a fact may have.
      undirected: Those of them that have no direction.
      of_mentions: Whether it relates mentions, and not the entities of a document.
      skipped: Ids of documents that the model cannot read, see `facts`.
    """

    labels: tuple[str, ...]
    undirected: frozenset[str]
    of_mentions: bool
    skipped: list[str]

    def facts(self, documents: Sequence[Annotated]) -> list[list[Fact]]:
        """The facts of each document."""
        ...


def relation_model(predictor: Any, pairs: PairTypes) -> RelationModel:
    """The model of a loaded export (`RelationPredictor` or `DocumentPredictor`) for these pairs of types."""
    return _MODELS[predictor.data_sets](predictor, pairs)


def check_model(predictor: Any, name: str) -> None:
    """Raises DataError if the model is not one of relations in sentences or documents.

    The error calls the export `name`.
    """
    if getattr(predictor, "data_sets", None) not in _MODELS:
        takes = getattr(predictor, "takes", "something else")
        raise DataError(
            f"{name} takes {takes}, but extraction needs a model of two mentions in a sentence or of the entities of "
            "a document",
            remedy="give an export of the task sentence_relations or document_relations",
        )


@dataclass(frozen=True)
class _Candidate:
    """Two mentions in a sentence.

    `number` is the document's index in its batch.
    """

    number: int
    sentence: Span
    head: Mention
    tail: Mention


class SentenceRelations:
    """A model of two mentions in a sentence.

    Every two mentions of a sentence with allowed types are a pair. The model reads the sentence as in training: with
    both mentions marked or blinded or, where its training texts had placeholders in their place, with these.
    """

    undirected, of_mentions = frozenset(), True

    def __init__(self, predictor: Any, pairs: PairTypes):
        details = predictor.description.get("details") or {}
        self._predictor, self._pairs = predictor, pairs
        self._negative: str | None = details.get("negative_label")
        self._placeholders: Mapping[str, str] = details.get("placeholders") or {}
        self.labels = tuple(label for label in predictor.labels if label != self._negative)
        self.skipped: list[str] = []

    def facts(self, documents: Sequence[Annotated]) -> list[list[Fact]]:
        """The facts of each document, sentence by sentence: pairs whose most probable class is a relation."""
        facts: list[list[Fact]] = [[] for _ in documents]
        for chunk in chunks(self._candidates(documents), PAIRS_AT_ONCE):
            samples = [self._sample(documents[candidate.number], candidate) for candidate in chunk]
            for candidate, prediction in zip(chunk, self._predictor.predict(samples), strict=True):
                if prediction.label != self._negative:
                    parts = candidate.head, prediction.label, candidate.tail
                    facts[candidate.number].append(Fact(*parts, prediction.probability, candidate.sentence))
        return facts

    def _candidates(self, documents: Sequence[Annotated]) -> Iterator[_Candidate]:
        for number, annotated in enumerate(documents):
            mentions = [mention for mention in annotated.mentions if mention.type in self._pairs.types]
            for sentence, inside in _by_sentence(annotated, mentions):
                for first, second in itertools.combinations(inside, 2):
                    if first.entity_id == second.entity_id or first.span == second.span:
                        continue
                    if self._placeholders and second.start < first.end:
                        continue
                    for head, tail in self._pairs.oriented(first, second):
                        yield _Candidate(number, sentence, head, tail)

    def _sample(self, annotated: Annotated, candidate: _Candidate) -> RelationMention:
        start, end = candidate.sentence
        text, mentions = annotated.document.text[start:end], (candidate.head, candidate.tail)
        spans = [(mention.start - start, mention.end - start) for mention in mentions]
        types = [self._pairs.relation_types[mention.type] for mention in mentions]
        if self._placeholders:
            text, spans = replaced(text, spans, [self._placeholders.get(name) for name in types])
        document_id = annotated.document.document_id
        return RelationMention(document_id, document_id, text, *spans, *types, "", 0)


def replaced(text: str, spans: Sequence[Span], words: Sequence[str | None]) -> tuple[str, list[Span]]:
    """The text with words in place of two disjoint spans, and the new positions of these spans.

    None leaves a span's words.
    """
    places: dict[int, Span] = {}
    parts, done, length = [], 0, 0
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        start, end = spans[i]
        word = text[start:end] if words[i] is None else words[i]
        length += start - done
        parts += [text[done:start], word]
        places[i] = (length, length + len(word))
        length, done = length + len(word), end
    return "".join([*parts, text[done:]]), [places[i] for i in range(len(spans))]


class DocumentRelations:
    """A model of the entities of a whole document.

    An entity is what has one id and one type: a terminology's, or of unlinked mentions those with one folded text.
    Every two entities with allowed types are a pair, and its relations are those whose probability reaches the export's
    threshold. A relation without a direction is a fact once, of two entities whose types do not tell head from tail in
    the order of the text. The model is given entities with the types that it was trained with.
    """

    of_mentions = False

    def __init__(self, predictor: Any, pairs: PairTypes):
        self._predictor, self._pairs = predictor, pairs
        details = predictor.description.get("details") or {}
        self.labels = tuple(predictor.labels)
        self._once = details.get("label") == "once"
        directed = (details.get("pairs") or {}).get("directed", True)
        with_direction = set(self.labels if directed is True else directed or ())
        self._undirected = tuple(index for index, label in enumerate(self.labels) if label not in with_direction)
        self.undirected = frozenset(self.labels[index] for index in self._undirected)
        self.skipped: list[str] = []

    def facts(self, documents: Sequence[Annotated]) -> list[list[Fact]]:
        """The facts of each document. One that has more pieces than the model reads has none, and is in `skipped`."""
        facts: list[list[Fact]] = [[] for _ in documents]
        samples = {number: self._sample(annotated) for number, annotated in enumerate(documents)}
        samples = {number: sample for number, sample in samples.items() if sample.pairs}
        for number, scores in self._scores(samples).items():
            entities = _Entities(documents[number], samples[number])
            for pair, row in zip(samples[number].pairs, scores, strict=True):
                for index, (label, probability) in enumerate(zip(self.labels, row, strict=True)):
                    if probability >= self._predictor.threshold and index not in pair.uncounted:
                        facts[number].append(entities.fact(pair, label, float(probability)))
        return facts

    def _scores(self, samples: Mapping[int, DocumentSample]) -> dict[int, np.ndarray]:
        """Number of a document -> the probabilities of its pairs, float32 [P, R]."""
        if not samples:
            return {}
        try:
            return dict(zip(samples, self._scored(list(samples.values())), strict=True))
        except DataError:
            if len(samples) == 1:
                (sample,) = samples.values()
                self.skipped.append(named("document", sample.document_id))
                return {}
        return {n: scores for number in samples for n, scores in self._scores({number: samples[number]}).items()}

    def _scored(self, samples: Sequence[DocumentSample]) -> list[np.ndarray]:
        return self._predictor.scores(DocumentCorpus("extraction", tuple(map(self._renamed, samples)), self.labels))

    def _renamed(self, sample: DocumentSample) -> DocumentSample:
        """The sample with entities of the types that the model of relations knows."""
        names = self._pairs.relation_types
        entities = (dataclasses.replace(entity, kind=names[entity.kind]) for entity in sample.entities)
        return dataclasses.replace(sample, entities=tuple(entities))

    def _sample(self, annotated: Annotated) -> DocumentSample:
        grouped: dict[tuple[str, str], list[EntityMention]] = {}
        for mention in annotated.mentions:
            if mention.type in self._pairs.types:
                marked = EntityMention(*mention.span, mention.type, (mention.entity_id,))
                grouped.setdefault((mention.entity_id, mention.type), []).append(marked)
        entities = [DocumentEntity(*key, tuple(mentions)) for key, mentions in grouped.items()]
        document = annotated.document
        mentions = tuple(mention for marked in grouped.values() for mention in marked)
        whole = Document(document.document_id, document.text, document.title_length or 0, mentions, ())
        return DocumentSample(document.document_id, whole, tuple(entities), tuple(self._pairs_of(entities)))

    def _pairs_of(self, entities: Sequence[DocumentEntity]) -> Iterator[DocumentPair]:
        for (i, head), (j, tail) in itertools.permutations(enumerate(entities), 2):
            if head.entity_id == tail.entity_id or not self._pairs.allowed(head.kind, tail.kind):
                continue
            reversed_before = j < i and self._pairs.allowed(tail.kind, head.kind)
            once = self._once and self._pairs.same_role(head.kind, tail.kind)
            if reversed_before and (once or len(self._undirected) == len(self.labels)):
                continue
            yield DocumentPair(i, j, (), False, self._undirected if reversed_before else ())


class _Entities:
    """The entities of a document as facts name them."""

    def __init__(self, annotated: Annotated, sample: DocumentSample):
        self._of_entity: dict[tuple[str, str], list[Mention]] = {}
        self._sentence_of: dict[Mention, Span] = {}
        for mention in annotated.mentions:
            self._of_entity.setdefault((mention.entity_id, mention.type), []).append(mention)
        for sentence, inside in _by_sentence(annotated, annotated.mentions):
            self._sentence_of |= dict.fromkeys(inside, sentence)
        self._entities = sample.entities

    def fact(self, pair: DocumentPair, relation: str, probability: float) -> Fact:
        heads, tails = (self._mentions(self._entities[i]) for i in (pair.head, pair.tail))
        head, tail, sentence = self._nearest(heads, tails)
        spans = [tuple(mention.span for mention in mentions) for mentions in (heads, tails)]
        return Fact(head, relation, tail, probability, sentence, *spans)

    def _mentions(self, entity: DocumentEntity) -> list[Mention]:
        return self._of_entity[entity.entity_id, entity.kind]

    def _nearest(self, heads: Iterable[Mention], tails: Iterable[Mention]) -> tuple[Mention, Mention, Span | None]:
        """The two mentions nearest to each other in one sentence, with the sentence.

        If no sentence holds both, it is the first mention of each, and None.
        """
        heads, tails = list(heads), list(tails)
        together = [
            (abs(head.start - tail.start), head.start, tail.start, head, tail)
            for head in heads
            for tail in tails
            if self._sentence_of.get(head) is not None and self._sentence_of.get(head) == self._sentence_of.get(tail)
        ]
        if not together:
            return heads[0], tails[0], None
        *_, head, tail = min(together, key=lambda pair: pair[:3])
        return head, tail, self._sentence_of[head]


_MODELS = {"relations": SentenceRelations, "documents": DocumentRelations}


def _by_sentence(annotated: Annotated, mentions: Sequence[Mention]) -> Iterator[tuple[Span, list[Mention]]]:
    """Each sentence with the mentions inside, in the order of the text.

    Sentences without a mention are left out.
    """
    document, waiting = annotated.document, sorted(mentions, key=lambda mention: mention.span)
    spans = [mention.span for mention in annotated.mentions]
    position = 0
    for sentence in sentences_of_text(document.text, spans, document.title_length):
        inside = []
        while position < len(waiting) and waiting[position].start < sentence[1]:
            if sentence[0] <= waiting[position].start and waiting[position].end <= sentence[1]:
                inside.append(waiting[position])
            position += 1
        if inside:
            yield sentence, inside


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items in lists of up to `size`, as they come."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk
