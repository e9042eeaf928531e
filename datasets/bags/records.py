"""What readers of distantly supervised data return: sentences of pairs of entities, labelled by a knowledge base."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.errors import DataError, named
from datasets.relations.records import LabelledCorpus, Span, TwoArguments

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
        record = named("sentence", self.sentence_id)
        self.check_arguments(record)
        if not self.relations:
            raise DataError("its pair has no relation", record=record, remedy=f'use e.g. "{NEGATIVE}"')

    @property
    def sample_id(self) -> str:
        """Return the id under which a partition holds it."""
        return self.sentence_id

    @property
    def fields(self) -> Mapping[str, str]:
        """Return what a partitioner may group by: `relation` (the first one), `head_type`, `tail_type`."""
        return {"relation": self.relations[0], "head_type": self.head_type, "tail_type": self.tail_type}

    @property
    def pair(self) -> Pair:
        """Return the identifiers of its head and tail, which name its bag."""
        return self.head_id, self.tail_id


@dataclass(frozen=True)
class BagCorpus(LabelledCorpus):
    """Sentences of pairs of entities, where all sentences of a pair are its bag.

    Partitioners accept it unchanged.

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
        if self.relation_names[:1] != (self.negative,):
            raise DataError(
                "its negative is not its first relation", record=f"corpus {self.name}", remedy="put it first"
            )
        for rows in self.bags.values():
            relations = self.sentences[rows[0]].relations
            other = next((row for row in rows if self.sentences[row].relations != relations), None)
            if other is None:
                row, problem = rows[0], self._problem(relations)
            else:
                row = other
                problem = "another sentence of its pair has other relations", "give a bag's sentences the same ones"
            if problem is not None:
                where = named("sentence", self.sentences[row].sentence_id, row + 1)
                raise DataError(problem[0], record=where, remedy=problem[1])
        self.check_samples("sentence")

    def _problem(self, relations: tuple[str, ...]) -> tuple[str, str] | None:
        """Return what is wrong with the relations of a pair and how to fix it."""
        if not set(relations) <= set(self.relation_names):
            return "its pair has a relation that the corpus does not have", "name it in relation_names"
        if len(relations) > 1 and self.negative in relations:
            return f"its pair has {self.negative} and another relation", f"leave {self.negative} out"
        if relations != tuple(sorted(set(relations), key=self.relation_names.index)):
            return "its pair has a relation twice or out of order", "give them once, in the order of relation_names"
        return None

    @property
    def samples(self) -> tuple[BagSentence, ...]:
        """Return the sentences, under the name that partitioners know."""
        return self.sentences

    @functools.cached_property
    def bags(self) -> dict[Pair, tuple[int, ...]]:
        """Return each pair, in the order of first occurrence, and the increasing indices of its sentences."""
        indices_of: dict[Pair, list[int]] = {}
        for index, sentence in enumerate(self.sentences):
            indices_of.setdefault(sentence.pair, []).append(index)
        return {pair: tuple(indices) for pair, indices in indices_of.items()}

    @functools.cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Return the pairs, in the order of first occurrence."""
        return tuple(self.bags)

    @functools.cached_property
    def triples(self) -> tuple[tuple[int, int], ...]:
        """Return (index into `pairs`, label) of every pair and each of its relations, negatives included, in order."""
        return tuple(
            (pair, self.relation_names.index(relation))
            for pair, rows in enumerate(self.bags.values())
            for relation in self.sentences[rows[0]].relations
        )

    def describe(self) -> str:
        """Describe its size in the field's words: sentences, pairs of entities, facts."""
        facts = sum(label > 0 for _, label in self.triples)
        return f"{len(self.sentences)} sentences, {len(self.pairs)} pairs of entities, {facts} facts"
