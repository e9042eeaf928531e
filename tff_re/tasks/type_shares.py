"""A trivial model of documents that knows only what stands in an annotation: the types of a pair and its sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.documents.corpus import DocumentCorpus, DocumentPair, DocumentSample
from datasets.documents.encoding import PairId

BY_TYPES = "by the types of a pair, from dev"

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
        for _, pair, kind in _pairs(corpus):
            pairs[kind] += 1
            stated[kind][list(pair.labels)] += 1
        return cls({kind: stated[kind] / number for kind, number in pairs.items()}, relations)

    def rule(self, threshold: float) -> TypeShares:
        """Return 1 in place of the shares that reach a threshold, and 0 in place of the others."""
        named = {kind: (share >= threshold).astype(float) for kind, share in self.shares.items()}
        return TypeShares(named, self.relations)

    def scores(self, corpus: DocumentCorpus, pairs: Sequence[Sequence[PairId]], width: int) -> np.ndarray:
        """The shares of each pair's kind, or 0 for a kind that was never seen.

        Args:
          corpus: The documents of the pairs.
          pairs: Of each of D documents, in any order.
          width: P, at least the pairs of any of them.

        Returns:
          float32 [D, P, R], filled up with zeros.
        """
        kinds = {sample.pair_ids(pair): kind for sample, pair, kind in _pairs(corpus)}
        scores = np.zeros([len(pairs), width, self.relations], np.float32)
        for row, of_document in zip(scores, pairs, strict=True):
            for column, pair in enumerate(of_document):
                share = self.shares.get(kinds[pair.document_id, pair.head_id, pair.tail_id])
                if share is not None:
                    row[column] = share
        return scores


def _pairs(corpus: DocumentCorpus) -> Iterator[tuple[DocumentSample, DocumentPair, Kind]]:
    for sample in corpus.samples:
        for pair in sample.pairs:
            yield sample, pair, (sample.entities[pair.head].kind, sample.entities[pair.tail].kind, pair.intra)
