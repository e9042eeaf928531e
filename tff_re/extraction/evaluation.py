"""The pipeline on gold documents: recognition, relations on gold mentions, and both together, so that errors have a
place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from datasets.documents.records import Document
from datasets.entities.records import EntitySpan
from datasets.entities.scoring import SpanCounts, score_spans
from datasets.errors import DataError, counted
from datasets.relations.records import Span
from tff_re.extraction.extract import CUT, DOCUMENTS_AT_ONCE, SKIPPED, notes_of_documents
from tff_re.extraction.pipeline import Pipeline
from tff_re.extraction.records import UNLINKED, Annotated, Fact, GoldDocuments, Mention, RawDocument
from tff_re.extraction.relations import chunks

GOLD = "gold"
"""How gold mentions are linked."""

Triple = tuple[str, str, str]
"""Head, relation, tail."""


@dataclass(frozen=True)
class Counts:
    """Right, predicted and gold items.

    Without any items, precision, recall and F1 are 0.
    """

    right: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        """Share of the predicted that is right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold that was predicted."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.right / (self.predicted + self.gold) if self.predicted + self.gold else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.right + other.right, self.predicted + other.predicted, self.gold + other.gold)


@dataclass(frozen=True)
class Evaluation:
    """Scores of a pipeline on gold documents.

    Attributes:
      documents: How many.
      recognition: Entities, strict: start, end and type.
      by_type: The same for each type.
      on_gold_mentions: Relations between gold entities, predicted from gold mentions.
      end_to_end: Relations predicted from the raw text, strict: relation and both entities.
      notes: What was left out.
    """

    documents: int
    recognition: Counts
    by_type: dict[str, Counts]
    on_gold_mentions: Counts
    end_to_end: Counts
    notes: tuple[str, ...]

    def rows(self) -> Iterator[tuple[str, Counts]]:
        """(what was evaluated, its counts)."""
        yield "recognition", self.recognition
        yield from ((f"recognition: {name}", counts) for name, counts in self.by_type.items())
        yield "relations on gold mentions", self.on_gold_mentions
        yield "relations from raw text", self.end_to_end


def evaluate(
    pipeline: Pipeline, gold: GoldDocuments, on_batch: Callable[[int], None] = lambda documents: None
) -> Evaluation:
    """Scores a pipeline on documents with gold mentions and facts.

    An entity of a fact from raw text is right if its id is the gold one or, without a terminology's id, if one of its
    mentions has the span and type of a gold mention of the entity. Two predicted entities that are one gold entity
    count once. Where gold relations are of mentions, only the span and the type of the mention count. Relations that
    the model predicts without a direction are right in both orders. Gold mentions without an id take no part in
    relations.

    Args:
      pipeline: Recognises, links and classifies.
      gold: The documents; types are those of the recogniser, in any case.
      on_batch: Called with the number of documents done.

    Raises:
      DataError: No gold entity has a type of the recogniser, no gold fact a relation of the model, or the gold
        relations are of mentions and the model's are not.
    """
    documents, undirected = gold.documents, pipeline.relations.undirected
    if gold.of_mentions and not pipeline.relations.of_mentions:
        raise DataError(
            "the gold relations are between mentions, but the model's are between the entities of a document",
            remedy="give an export of the task sentence_relations",
        )
    names, notes = _names(pipeline, documents)
    by_type = {name: Counts() for name in pipeline.recogniser.entity_types}
    on_gold, end_to_end, done, cut = Counts(), Counts(), 0, 0
    for batch in chunks(documents, DOCUMENTS_AT_ONCE):
        raw = [RawDocument(document.document_id, document.text, document.title_length) for document in batch]
        marked = [Annotated(text, _gold_mentions(document, names)) for text, document in zip(raw, batch, strict=True)]
        recognised = pipeline.annotate(raw)
        for name, counts in _recognition(recognised, batch, names, tuple(by_type)).items():
            by_type[name] += Counts(counts.true_positives, counts.predicted, counts.actual)
        for document, facts in zip(batch, pipeline.facts(marked), strict=True):
            on_gold += _relations(facts, document, _Identities({}, gold.of_mentions), undirected)
        for document, facts in zip(batch, pipeline.facts(recognised), strict=True):
            identities = _Identities(_ids_of_spans(document, names), gold.of_mentions)
            end_to_end += _relations(facts, document, identities, undirected)
        cut += sum(document.cut for document in recognised)
        done += len(batch)
        on_batch(done)
    notes += notes_of_documents({CUT: cut, SKIPPED: len(set(pipeline.skipped()))}, pipeline.unit)
    total = sum(by_type.values(), Counts())
    return Evaluation(len(documents), total, by_type, on_gold, end_to_end, tuple(notes))


def _names(pipeline: Pipeline, documents: Sequence[Document]) -> tuple[dict[str, str], list[str]]:
    """(gold type -> the recogniser's name of it, notes)."""
    by_case = {name.casefold(): name for name in pipeline.recogniser.entity_types}
    gold = Counter(mention.kind for document in documents for mention in document.mentions)
    names = {kind: by_case[kind.casefold()] for kind in gold if kind.casefold() in by_case}
    if gold and not names:
        raise DataError(
            f"the gold entities have types {', '.join(sorted(gold))}, but the recogniser knows "
            f"{', '.join(by_case.values())}",
            remedy="evaluate it on documents with its types",
        )
    relations = Counter(fact.relation for document in documents for fact in document.facts)
    known = set(pipeline.relations.labels)
    if relations and not known & set(relations):
        raise DataError(
            f"the gold relations are {', '.join(sorted(relations))}, but the model knows {', '.join(sorted(known))}",
            remedy="evaluate it on documents with its relations",
        )
    left_out = {kind: count for kind, count in gold.items() if kind not in names}
    missed = {name: count for name, count in relations.items() if name not in known}
    notes = [
        f"left out: {counted(count, 'gold mention', f' of {kind}')}, a type that the recogniser does not know"
        for kind, count in left_out.items()
    ]
    notes += [
        f"counted as missed: {counted(count, 'gold relation', f' {name}')}, which the model does not know"
        for name, count in missed.items()
    ]
    return names, notes


def _gold_mentions(document: Document, names: dict[str, str]) -> tuple[Mention, ...]:
    return tuple(
        Mention(mention.start, mention.end, names[mention.kind], 1.0, entity_id, GOLD)
        for mention in document.mentions
        if mention.kind in names
        for entity_id in mention.entity_ids
    )


def _recognition(
    annotated: Sequence[Annotated], documents: Sequence[Document], names: dict[str, str], types: Sequence[str]
) -> Mapping[str, SpanCounts]:
    """Type -> its counts over the documents."""
    gold = [[EntitySpan(m.start, m.end, names[m.kind]) for m in d.mentions if m.kind in names] for d in documents]
    predicted = [[EntitySpan(*mention.span, mention.type) for mention in d.mentions] for d in annotated]
    return score_spans(gold, predicted, types).by_type


def _ids_of_spans(document: Document, names: dict[str, str]) -> dict[tuple[int, int, str], set[str]]:
    """Span and type of a gold mention -> the ids of what it names."""
    ids: dict[tuple[int, int, str], set[str]] = {}
    for mention in document.mentions:
        if mention.kind in names:
            ids.setdefault((mention.start, mention.end, names[mention.kind]), set()).update(mention.entity_ids)
    return ids


@dataclass(frozen=True)
class _Identities:
    """Which gold entities predicted ones are.

    Attributes:
      of_spans: Span and type of a gold mention -> the ids of what it names.
      of_mentions: As in `GoldDocuments`.
    """

    of_spans: Mapping[tuple[int, int, str], set[str]]
    of_mentions: bool

    def ids(self, mention: Mention, spans: Sequence[Span]) -> set[str]:
        """The gold ids that a predicted entity may stand for.

        It is the entity's own id if no gold mention is at its position.
        """
        if mention.linked == GOLD or (mention.linked != UNLINKED and not self.of_mentions):
            return {mention.entity_id}
        at_place = [self.of_spans.get((*span, mention.type), set()) for span in (mention.span, *spans)]
        unmatched_id = f"{mention.start}:{mention.end} {mention.type}" if self.of_mentions else mention.entity_id
        return next((matching for matching in at_place if matching), {unmatched_id})


def _relations(
    facts: Iterable[Fact], document: Document, identities: _Identities, undirected: Collection[str]
) -> Counts:
    """Counts of a document's facts."""
    gold = {_triple(fact.head_id, fact.relation, fact.tail_id, undirected) for fact in document.facts}
    predicted: set[Triple] = set()
    for fact in facts:
        heads = identities.ids(fact.head, fact.head_mentions)
        tails = identities.ids(fact.tail, fact.tail_mentions)
        triples = {_triple(head, fact.relation, tail, undirected) for head, tail in itertools.product(heads, tails)}
        predicted.add(min(triples & gold or triples))
    return Counts(len(predicted & gold), len(predicted), len(gold))


def _triple(head: str, relation: str, tail: str, undirected: Collection[str]) -> Triple:
    """Head, relation and tail, with the two entities sorted if the relation has no direction."""
    first, second = sorted((head, tail)) if relation in undirected else (head, tail)
    return first, relation, second
