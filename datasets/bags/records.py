"""What readers of distantly supervised data return: sentences of pairs of entities, labelled by a knowledge base."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.errors import DataError, named
from datasets.relations.records import Span, TwoArguments

NEGATIVE = "NA"
"""The relation of a pair that the knowledge base does not relate (Riedel et al., 2010)."""

Pair = tuple[str, str]
"""Identifiers of the head and of the tail."""


@dataclass(frozen=True, slots=True)
class BagSentence(TwoArguments):
    """A sentence that mentions both entities of a pair: one instance of the pair's bag.

    Partitioners take it (`datasets.partition.Sample`), and what encodes a `RelationMention` encodes it, too.

    Attributes:
      sentence_id: Unique in its corpus, over its splits.
      document_id: The document that the text comes from.
      text: The sentence.
      head: Span of the mention of the head.
      tail: Span of the mention of the tail; it may overlap the head's.
      head_type: Type of the head in words, e.g. ``chemical``.
      tail_type: The same for the tail.
      head_id: The head's identifier in the knowledge base.
      tail_id: The tail's.
      relations: All relations of the pair, in the order of their labels; the sentence may state them or not.
      label: Index of the first relation, for partitioners and their statistics.

    Raises:
      DataError: a span that is empty or lies beyond the text, an empty type, or no relation.
    """

    sentence_id: str
    document_id: str
    text: str = field(repr=False)
    head: Span
    tail: Span
    head_type: str
    tail_type: str
    head_id: str
    tail_id: str
    relations: tuple[str, ...]
    label: int

    def __post_init__(self):
        self.check_arguments("sentence", self.sentence_id)
        if not self.relations:
            raise DataError(
                "its pair has no relation", record=named("sentence", self.sentence_id), remedy=f'use e.g. "{NEGATIVE}"'
            )

    @property
    def sample_id(self) -> str:
        """The id under which a partition holds it."""
        return self.sentence_id

    @property
    def fields(self) -> Mapping[str, str]:
        """What a partitioner may group by: `relation` (the first one), `head_type`, `tail_type`."""
        return {"relation": self.relations[0], "head_type": self.head_type, "tail_type": self.tail_type}

    @property
    def pair(self) -> Pair:
        """The identifiers of its head and tail, which name its bag."""
        return self.head_id, self.tail_id


@dataclass(frozen=True)
class BagCorpus:
    """Sentences of pairs of entities; all sentences of a pair are its bag. Partitioners take it as it is.

    Attributes:
      name: The corpus, e.g. ``nyt10``.
      sentences: At least one, with unique ids; the sentences of a pair need not stand together.
      relation_names: The relations in the order of the labels, the negative one first.
      negative: The name of the relation of unrelated pairs.
      notes: What a report has to say about the corpus.

    Raises:
      DataError: no sentences, an id or a relation twice, a negative that is not the first relation, a relation that is
        none of the corpus's, relations out of order or a label that is not that of the first, a pair with the negative
        and another relation, or a pair whose sentences disagree about its relations.
    """

    name: str
    sentences: tuple[BagSentence, ...] = field(repr=False)
    relation_names: tuple[str, ...]
    negative: str = NEGATIVE
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        record = f"corpus {self.name}"
        if not self.sentences:
            raise DataError("has no sentences", record=record, remedy="give it at least one")
        label_of = {name: label for label, name in enumerate(self.relation_names)}
        if len(label_of) != len(self.relation_names):
            raise DataError("has a relation twice", record=record, remedy="name every relation once")
        if self.relation_names[:1] != (self.negative,):
            raise DataError("its negative is not its first relation", record=record, remedy="put it first")
        seen: set[str] = set()
        relations_of: dict[Pair, tuple[str, ...]] = {}
        for position, sentence in enumerate(self.sentences, 1):
            problem = None
            if sentence.sentence_id in seen:
                problem = "duplicate id", "give every sentence an id of its own"
            elif relations_of.setdefault(sentence.pair, sentence.relations) is not sentence.relations:
                if relations_of[sentence.pair] != sentence.relations:
                    problem = "another sentence of its pair has other relations", "give a bag's sentences the same ones"
            else:
                problem = self._problem(sentence.relations, label_of)
            if problem is None and sentence.label != label_of[sentence.relations[0]]:
                problem = (
                    f"its label {sentence.label} is not that of its first relation",
                    "use the relation's index in relation_names",
                )
            if problem is not None:
                where = named("sentence", sentence.sentence_id, position)
                raise DataError(problem[0], record=where, remedy=problem[1])
            seen.add(sentence.sentence_id)

    def _problem(self, relations: tuple[str, ...], label_of: Mapping[str, int]) -> tuple[str, str] | None:
        """What is wrong with the relations of a pair, and the remedy."""
        labels = [label_of.get(relation) for relation in relations]
        if None in labels:
            return "its pair has a relation that is none of the corpus's", "name it in relation_names"
        if len(labels) > 1 and 0 in labels:
            return f"its pair has {self.negative} and another relation", f"leave {self.negative} out"
        if labels != sorted(set(labels)):
            return "its pair has a relation twice or out of order", "give them once, in the order of relation_names"
        return None

    @property
    def samples(self) -> tuple[BagSentence, ...]:
        """The sentences, under the name that partitioners know."""
        return self.sentences

    @property
    def label_names(self) -> tuple[str, ...]:
        """The relations, under the name that partitioners know."""
        return self.relation_names

    @property
    def positive_labels(self) -> tuple[int, ...]:
        """The labels of all relations but the negative one."""
        return tuple(range(1, len(self.relation_names)))

    @functools.cached_property
    def bags(self) -> dict[Pair, tuple[int, ...]]:
        """Each pair, in the order of first occurrence, and the indices of its sentences, increasing."""
        found: dict[Pair, list[int]] = {}
        for index, sentence in enumerate(self.sentences):
            found.setdefault(sentence.pair, []).append(index)
        return {pair: tuple(indices) for pair, indices in found.items()}

    @functools.cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs, in the order of first occurrence."""
        return tuple(self.bags)

    @functools.cached_property
    def triples(self) -> tuple[tuple[int, int], ...]:
        """(index into `pairs`, label) of every pair and each of its relations, the negative included, in order."""
        label_of = {name: label for label, name in enumerate(self.relation_names)}
        return tuple(
            (pair, label_of[relation])
            for pair, indices in enumerate(self.bags.values())
            for relation in self.sentences[indices[0]].relations
        )

    def describe(self) -> str:
        """Its size in the words of the field: sentences, pairs of entities, facts."""
        facts = sum(label > 0 for _, label in self.triples)
        return f"{len(self.sentences)} sentences, {len(self.pairs)} pairs of entities, {facts} facts"
