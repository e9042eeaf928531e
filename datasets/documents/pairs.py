"""From documents to candidate pairs of entities."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from datasets.documents.corpus import DocumentCorpus, DocumentEntity, DocumentPair, DocumentSample, entity_types
from datasets.documents.graph import sentence_index, sentences_of
from datasets.documents.mesh import is_hypernym
from datasets.documents.records import Document, Fact
from datasets.errors import DataError, named, nearest
from datasets.files import PathLike
from datasets.relations.reading import notes_of

UNRELATED = ("both", "once")

PairTypes = tuple[tuple[str, str], ...]
"""Types of a pair's head and tail."""


@dataclass(frozen=True)
class PairRule:
    """The rule that says which pairs of entities are candidates.

    Attributes:
      pair_types: Types of a pair's head and tail. Where both are the same, an entity is head and tail in turn.
      relation_names: The relations, R of them.
      undirected: Those of them that hold of two entities in either order. Where no relation has a direction, two
        entities are a candidate once: as `pair_types` order them, or the one named first as the head.
      unrelated: With two entities of one type: whether unrelated ones are candidates in ``both`` directions, as CHR's
        authors ask for, or ``once``, the one named first as the head, which is what the published counts of FedLCC
        count. With ``once`` a pair whose head is named after its tail is always positive, so the order of the mentions
        tells a model part of the answer.
      others: Whether a document may state relations that are not among `relation_names`; they count as missed.
    """

    pair_types: PairTypes
    relation_names: tuple[str, ...]
    undirected: frozenset[str] = frozenset()
    unrelated: str = "both"
    others: bool = False

    @property
    def directed(self) -> bool:
        """Return whether a relation has a direction."""
        return not set(self.relation_names) <= self.undirected


def rule_of(
    documents: Sequence[Document],
    path: PathLike,
    *,
    relations: Sequence[str] | None = None,
    pair_types: Sequence[Sequence[str]] | None = None,
    directed: bool | Collection[str] = True,
    held_out: bool = False,
    kinds: Collection[str] | None = None,
) -> PairRule:
    """Return the rule for a file's documents.

    Anything not given is taken from the documents.

    Args:
      documents: Of the file.
      path: The file, for messages.
      relations: Their names; None: those that the documents state, sorted.
      pair_types: Types of head and tail; None: those of the stated relations, sorted, each two types once where no
        relation has a direction.
      directed: Whether the relations have a direction, or which of them have.
      held_out: Whether other relations than `relations` count as missed, in place of being refused, and types without a
        mention are no error.
      kinds: The types that there are; None: those of the documents' mentions.

    Raises:
      DataError: no relation is stated, none joins two mentioned entities, or a name in `directed` or `pair_types` is
        none of the file's.
    """
    names = tuple(sorted({f.relation for d in documents for f in d.facts}) if relations is None else relations)
    if len(set(names)) < len(names):
        raise DataError("a relation is named twice", path=path, remedy="name each once (task.relations)")
    if not names:
        raise DataError("states no relation", path=path, remedy="name the relations (task.relations)")
    if not held_out:
        _require_known(documents, path, names)
    if not isinstance(directed, bool) and (unknown := sorted(set(directed) - set(names))):
        raise DataError("directed names an unknown relation", path=path, remedy=nearest(unknown[0], names))
    with_direction = set(names if directed is True else directed or ())
    undirected = frozenset(names) - with_direction
    if pair_types is None:
        types = _stated_types(documents, names, undirected)
        if not types:
            reason = "no stated relation joins two entities that are mentioned"
            raise DataError(reason, path=path, remedy="name the types of the pairs (task.pair_types)")
    else:
        types = tuple(dict.fromkeys((head, tail) for head, tail in pair_types))
        kinds = kinds or {mention.kind for document in documents for mention in document.mentions}
        unknown = [kind for kind in entity_types(types) if kind not in kinds]
        if unknown and not held_out:
            raise DataError("pair_types names a type that no mention has", path=path, remedy=nearest(unknown[0], kinds))
    return PairRule(types, names, undirected, others=held_out)


def _require_known(documents: Sequence[Document], path: PathLike, names: Collection[str]) -> None:
    for position, document in enumerate(documents, 1):
        for fact in document.facts:
            if fact.relation not in names:
                raise DataError(
                    "states a relation that is not in the list",
                    path=path,
                    record=named("document", document.document_id, position),
                    remedy=nearest(fact.relation, names),
                )


def _stated_types(documents: Sequence[Document], names: Collection[str], undirected: Collection[str]) -> PairTypes:
    """Return the types of heads and tails of stated relations, sorted."""
    of_directed, of_undirected = set(), set()
    for document in documents:
        kinds = {i: {m.kind for m in mentions} for i, mentions in document.entities().items()}
        for fact in document.facts:
            if fact.relation in names and fact.head_id != fact.tail_id:
                heads, tails = kinds.get(fact.head_id, ()), kinds.get(fact.tail_id, ())
                joined = {(head, tail) for head in heads for tail in tails}
                if fact.relation in undirected:
                    of_undirected |= {tuple(sorted(types)) for types in joined}
                else:
                    of_directed |= joined
    return tuple(sorted(of_directed | {t for t in of_undirected if t[::-1] not in of_directed}))


def document_corpus(
    documents: Sequence[Document],
    rule: PairRule,
    *,
    name: str,
    split: str = "train",
    tree_numbers: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
    facts_by_name: bool = False,
) -> DocumentCorpus:
    """Return the documents with their entities and candidate pairs.

    An entity is an identifier with a type; mentions without an identifier belong to none and are no candidates. A pair
    is positive where the document states a relation of its identifiers. A relation of an entity with itself is left
    out, one whose entities are no candidates stays in `Document.facts` alone; both are noted.

    Args:
      documents: At least one, with unique ids.
      rule: Which pairs are candidates.
      name: The corpus's name.
      split: Part of the ids ``<name>-<split>-<document id>``.
      tree_numbers: Identifier to its places in the hierarchy (`read_mesh_tree`). A negative pair is then left out if a
        positive pair of the document has the same head and a tail that its tail is a hypernym of. Hypernyms among the
        heads, chemicals in CDR, stay: so the published counts of CDR have it (Verga et al. 2018; FedLCC, Table 1).
      notes: Of the reader; they come first.
      facts_by_name: See `DocumentCorpus`.

    Raises:
      DataError: a fact with a relation that the rule does not allow, or no documents.
    """
    counts: Counter[str] = Counter()
    samples, negative, left_out = [], 0, 0
    for document in documents:
        entities = _entities(document)
        document, pairs = _paired(document, entities, rule, counts)
        if tree_numbers is not None:
            negative += sum(not pair.labels for pair in pairs)
            candidates = _without_hypernyms(pairs, [entity.entity_id for entity in entities], tree_numbers)
            left_out += len(pairs) - len(candidates)
            pairs = candidates
        counts["documents without a candidate pair"] += not pairs
        samples.append(DocumentSample(f"{name}-{split}-{document.document_id}", document, entities, tuple(pairs)))
    if tree_numbers is not None:
        notes = (*notes, filtering_note(negative, left_out, len(tree_numbers)))
    notes = (*notes, *notes_of(counts))
    return DocumentCorpus(name, tuple(samples), rule.relation_names, notes, rule.pair_types, facts_by_name)


def filtering_note(negative: int, left_out: int = 0, descriptors: int | None = None) -> str:
    """Describe hypernym filtering: the `negative` pairs, those that it leaves out, and the tree's descriptors."""
    if descriptors is None:
        return f"no hypernym filtering: all {negative} negative pairs are kept"
    return (
        f"hypernym filtering with {descriptors} descriptors of MeSH: {negative - left_out} of {negative} negative "
        f"pairs are kept, {left_out} are hypernyms of a positive pair"
    )


def _entities(document: Document) -> tuple[DocumentEntity, ...]:
    return tuple(
        DocumentEntity(entity_id, kind, tuple(mention for mention in mentions if mention.kind == kind))
        for entity_id, mentions in document.entities().items()
        for kind in dict.fromkeys(mention.kind for mention in mentions)
    )


_Key = tuple[str, str]
"""Identifiers of head and tail."""


def _paired(
    document: Document, entities: Sequence[DocumentEntity], rule: PairRule, counts: Counter[str]
) -> tuple[Document, list[DocumentPair]]:
    """Return the document and its candidate pairs.

    A fact without a direction is in the order of the first pair of the two.
    """
    holds = _relations(document, rule, counts)
    candidates = _candidates(entities, rule, holds, counts)
    document = _ordered(document, rule, candidates)
    sentences = sentences_of(document)
    places = [{sentence_index(mention, sentences) for mention in entity.mentions} for entity in entities]
    either_way = tuple(index for index, name in enumerate(rule.relation_names) if name in rule.undirected)
    pairs, seen = [], set()
    for key, (i, j) in candidates.items():
        uncounted = either_way if key[::-1] in seen else ()
        seen.add(key)
        labels = tuple(sorted(holds.get(key, ())))
        pairs.append(DocumentPair(i, j, labels, bool(places[i] & places[j]), uncounted))
    facts = [fact for fact in document.facts if fact.relation in rule.relation_names]
    counts["relations of an entity with itself left out"] += sum(fact.head_id == fact.tail_id for fact in facts)
    counts["relations of entities that are not candidates, which count as missed"] += sum(
        fact.head_id != fact.tail_id and (fact.head_id, fact.tail_id) not in candidates for fact in facts
    )
    return document, pairs


def _relations(document: Document, rule: PairRule, counts: Counter[str]) -> dict[_Key, set[int]]:
    """Return the relations that hold for each (head, tail).

    Those without a direction are listed in both orders.
    """
    holds: dict[_Key, set[int]] = {}
    others = 0
    for fact in document.facts:
        if fact.relation not in rule.relation_names:
            if not rule.others:
                raise DataError(
                    "states a relation that is unknown here",
                    record=named("document", document.document_id),
                    remedy=f"use {', '.join(rule.relation_names)}",
                )
            others += 1
            continue
        key, relation = (fact.head_id, fact.tail_id), rule.relation_names.index(fact.relation)
        for order in (key, key[::-1]) if fact.relation in rule.undirected else (key,):
            holds.setdefault(order, set()).add(relation)
    if others:
        counts["stated facts have a relation that training does not state, and count as missed"] += others
    return holds


def _candidates(
    entities: Sequence[DocumentEntity], rule: PairRule, holds: Collection[_Key], counts: Counter[str]
) -> dict[_Key, tuple[int, int]]:
    """Return the indices of the entities for each (head, tail), in the order of heads, then tails."""
    types = set(rule.pair_types)
    candidates: dict[_Key, tuple[int, int]] = {}
    for i, head in enumerate(entities):
        for j, tail in enumerate(entities):
            key, kinds = (head.entity_id, tail.entity_id), (head.kind, tail.kind)
            if kinds not in types or key[0] == key[1]:
                continue
            if not rule.directed and kinds[::-1] in types and j < i:
                continue
            one_way = rule.unrelated == "once" and head.kind == tail.kind
            if one_way and key not in holds and (key[::-1] in holds or j < i):
                continue
            if key in candidates:
                counts["pairs of identifiers that have several types are candidates once"] += 1
                continue
            candidates[key] = i, j
    return candidates


def _ordered(document: Document, rule: PairRule, candidates: Mapping[_Key, tuple[int, int]]) -> Document:
    """Return the document with each fact without a direction once.

    It is in the order of the first candidate of the two entities, or in that of their identifiers if there is none.
    """
    if not rule.undirected:
        return document
    first = {frozenset(key): key for key in reversed(candidates)}

    def ordered(fact: Fact) -> Fact:
        if fact.relation not in rule.undirected or fact.head_id == fact.tail_id:
            return fact
        ids = fact.head_id, fact.tail_id
        head, tail = first.get(frozenset(ids), tuple(sorted(ids)))
        return Fact(head, fact.relation, tail)

    return dataclasses.replace(document, facts=tuple(dict.fromkeys(map(ordered, document.facts))))


def _without_hypernyms(
    pairs: Sequence[DocumentPair], ids: Sequence[str], tree_numbers: Mapping[str, Sequence[str]]
) -> list[DocumentPair]:
    def above(entity: int, other: int) -> bool:
        return is_hypernym(tree_numbers.get(ids[entity], ()), tree_numbers.get(ids[other], ()))

    positive = [pair for pair in pairs if pair.labels]
    return [
        pair
        for pair in pairs
        if pair.labels or not any(pair.head == other.head and above(pair.tail, other.tail) for other in positive)
    ]
