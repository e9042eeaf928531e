"""How documents spread over clients: the data of FedLCC's Figure 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasets.documents.records import DocumentCorpus
from datasets.partition.base import Partition
from datasets.partition.structural_entropy import entropies

ROW = ("client", "documents", "entities", "mentions", "pairs", "positive", "positive_share", "entropy")
"""The columns of `client_rows`."""


def client_rows(partition: Partition, *corpora: DocumentCorpus, form: str = "paper") -> list[dict[str, Any]]:
    """A row a client, of its training documents: the columns `ROW`.

    `documents`, `entities`, `mentions` (a composite one once for each entity), candidate `pairs` and `positive` ones
    are counts; `positive_share` is positive / pairs, `entropy` the documents' mean structural entropy of the form,
    both 0 for a client that has no pairs or documents.

    Raises:
      DataError: the partition is not one of these corpora, or an unknown form.
    """
    partition.check_against(*corpora)
    samples = [sample for corpus in corpora for sample in corpus.samples]
    index_of = {sample.sample_id: index for index, sample in enumerate(samples)}
    values = entropies(samples, form)
    rows = []
    for client, ids in partition.clients.items():
        indices = [index_of[sample_id] for sample_id in ids.train]
        mine = [samples[index] for index in indices]
        pairs = [pair for sample in mine for pair in sample.pairs]
        positive = sum(bool(pair.labels) for pair in pairs)
        rows.append(
            dict(
                zip(
                    ROW,
                    (
                        client,
                        len(mine),
                        sum(len(sample.entities) for sample in mine),
                        sum(len(entity.mentions) for sample in mine for entity in sample.entities),
                        len(pairs),
                        positive,
                        positive / len(pairs) if pairs else 0.0,
                        float(values[indices].mean()) if indices else 0.0,
                    ),
                    strict=True,
                )
            )
        )
    return rows


def entropy_histogram(
    corpus: DocumentCorpus, bins: int | np.ndarray = 10, *, form: str = "paper"
) -> tuple[np.ndarray, np.ndarray]:
    """Counts, int64 [B], and edges, float64 [B + 1], of the documents' structural entropies; bins as in NumPy."""
    counts, edges = np.histogram(entropies(corpus.samples, form), bins)
    return counts.astype(np.int64), edges
