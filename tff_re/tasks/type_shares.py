"""A trivial model of documents that knows only what stands in an annotation: the types of a pair and its sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.documents.corpus import DocumentCorpus, DocumentSample
from datasets.documents.encoding import PairId

NAME = "by the types of a pair, from dev"

Kind = tuple[str, str, bool]
"""Types of head and tail, and whether a sentence mentions both."""


@dataclass(frozen=True)
class TypeShares:
    """Of each kind of pair, the share that has each of R relations.

    Attributes:
      shares: Kind of pair -> float64 [R].
      relations: R.
    """

    shares: Mapping[Kind, np.ndarray] = field(repr=False)
    relations: int

    @classmethod
    def from_corpus(cls, corpus: DocumentCorpus) -> TypeShares:
        """Count the candidate pairs of a corpus."""
        relations = len(corpus.relation_names)
        pairs: dict[Kind, int] = defaultdict(int)
        stated: dict[Kind, np.ndarray] = defaultdict(lambda: np.zeros(relations))
        for sample in corpus.samples:
            for pair in sample.pairs:
                kind = sample.entities[pair.head].kind, sample.entities[pair.tail].kind, pair.intra
                pairs[kind] += 1
                stated[kind][list(pair.labels)] += 1
        return cls({kind: stated[kind] / number for kind, number in pairs.items()}, relations)

    def scores(self, corpus: DocumentCorpus, pairs: Sequence[Sequence[PairId]], width: int) -> np.ndarray:
        """The shares of each pair's kind, or 0 for a kind that was never seen.

        Args:
          corpus: The documents of the pairs.
          pairs: Of each of D documents, in any order.
          width: P, at least the pairs of any of them.

        Returns:
          float32 [D, P, R], filled up with zeros.
        """
        types = {sample.document_id: _types(sample) for sample in corpus.samples}
        scores = np.zeros([len(pairs), width, self.relations], np.float32)
        for row, of_document in zip(scores, pairs, strict=True):
            for column, pair in enumerate(of_document):
                of_entity = types[pair.document_id]
                share = self.shares.get((of_entity[pair.head_id], of_entity[pair.tail_id], pair.intra))
                if share is not None:
                    row[column] = share
        return scores


def _types(sample: DocumentSample) -> dict[str, str]:
    return {entity.entity_id: entity.kind for entity in sample.entities}
