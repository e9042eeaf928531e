"""From documents to candidate pairs of entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets.documents.corpus import DocumentCorpus, DocumentEntity, DocumentPair, DocumentSample
from datasets.documents.graph import sentence_index, sentences_of
from datasets.documents.mesh import is_hypernym
from datasets.documents.records import Document
from datasets.errors import DataError, named
from datasets.relations.reading import notes_of

UNRELATED = ("both", "once")


@dataclass(frozen=True)
class PairRule:
    """Which pairs of entities are candidates.

    Attributes:
      head_kind, tail_kind: Types of the two entities; where they are the same, an entity is head and tail in turn.
      relation_names: The relations, R of them.
      unrelated: With one type for both: whether two unrelated entities are candidates in ``both`` directions, as CHR's
        authors ask for, or ``once``, the one named first as the head, which is what the published counts of FedLCC
        count. With ``once`` a pair whose head is named after its tail is always positive, so the order of the mentions
        tells a model part of the answer.
    """

    head_kind: str
    tail_kind: str
    relation_names: tuple[str, ...]
    unrelated: str = "both"


def document_corpus(
    documents: Sequence[Document],
    rule: PairRule,
    *,
    name: str,
    split: str = "train",
    tree_numbers: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
) -> DocumentCorpus:
    """The documents with their entities and candidate pairs.

    An entity is an identifier with a type; mentions without an identifier belong to none and are no candidates. A pair
    is positive where the document states a relation of its identifiers. A relation of an entity with itself is left
    out, one whose entities are no candidates stays in `Document.facts` alone; both are noted.

    Args:
      documents: At least one, with unique ids.
      rule: Which pairs are candidates.
      name: The corpus's name.
      split: Part of the ids ``<name>-<split>-<document id>``.
      tree_numbers: Identifier to its places in the hierarchy (`read_mesh_tree`). A negative pair is then left out if a
        positive pair of the document has the same head and a tail that its tail is a hypernym of, or the same tail
        and such a head (Gu et al. 2016; Verga et al. 2018).
      notes: Of the reader; they come first.

    Raises:
      DataError: a fact with a relation that the rule does not know, or no documents.
    """
    counts: Counter[str] = Counter()
    samples = []
    for document in documents:
        entities = _entities(document)
        pairs = _pairs(document, entities, rule, counts)
        if tree_numbers is not None:
            candidates = _without_hypernyms(pairs, [entity.entity_id for entity in entities], tree_numbers)
            counts["negative pairs left out as hypernyms of a positive pair (MeSH tree)"] += len(pairs) - len(
                candidates
            )
            pairs = candidates
        counts["documents without a candidate pair"] += not pairs
        samples.append(DocumentSample(f"{name}-{split}-{document.document_id}", document, entities, tuple(pairs)))
    filtering = () if tree_numbers is None else (f"hypernym filtering with {len(tree_numbers)} descriptors of MeSH",)
    return DocumentCorpus(name, tuple(samples), rule.relation_names, (*notes, *filtering, *notes_of(counts)))


def _entities(document: Document) -> tuple[DocumentEntity, ...]:
    return tuple(
        DocumentEntity(entity_id, kind, tuple(mention for mention in mentions if mention.kind == kind))
        for entity_id, mentions in document.entities().items()
        for kind in dict.fromkeys(mention.kind for mention in mentions)
    )


def _pairs(
    document: Document, entities: Sequence[DocumentEntity], rule: PairRule, counts: Counter[str]
) -> list[DocumentPair]:
    stated: dict[tuple[str, str], set[int]] = {}
    for fact in document.facts:
        if fact.relation not in rule.relation_names:
            raise DataError(
                "states a relation that is unknown here",
                record=named("document", document.document_id),
                remedy=f"use {', '.join(rule.relation_names)}",
            )
        stated.setdefault((fact.head_id, fact.tail_id), set()).add(rule.relation_names.index(fact.relation))
    sentences = sentences_of(document)
    places = [{sentence_index(mention, sentences) for mention in entity.mentions} for entity in entities]
    pairs, candidates = [], set()
    for i, head in enumerate(entities):
        for j, tail in enumerate(entities):
            key = (head.entity_id, tail.entity_id)
            if (head.kind, tail.kind) != (rule.head_kind, rule.tail_kind) or key[0] == key[1]:
                continue
            one_way = rule.unrelated == "once" and rule.head_kind == rule.tail_kind
            if one_way and key not in stated and (key[::-1] in stated or j < i):
                continue
            candidates.add(key)
            pairs.append(DocumentPair(i, j, tuple(sorted(stated.get(key, ()))), bool(places[i] & places[j])))
    counts["relations of an entity with itself left out"] += sum(head == tail for head, tail in stated)
    counts["relations of entities that are no candidates, which count as missed"] += sum(
        key[0] != key[1] and key not in candidates for key in stated
    )
    return pairs


def _without_hypernyms(
    pairs: Sequence[DocumentPair], ids: Sequence[str], tree_numbers: Mapping[str, Sequence[str]]
) -> list[DocumentPair]:
    def above(entity: int, other: int) -> bool:
        return is_hypernym(tree_numbers.get(ids[entity], ()), tree_numbers.get(ids[other], ()))

    def above_a_positive(pair: DocumentPair) -> bool:
        return any(
            (pair.head == other.head and above(pair.tail, other.tail))
            or (pair.tail == other.tail and above(pair.head, other.head))
            for other in pairs
            if other.labels
        )

    return [pair for pair in pairs if pair.labels or not above_a_positive(pair)]
