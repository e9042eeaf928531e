"""How documents spread over clients: the data of FedLCC's Figure 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import attrs
import numpy as np

from datasets.documents.corpus import DocumentCorpus
from datasets.partition.base import Partition
from datasets.partition.structural_entropy import StructuralEntropy, entropies

ROW = (
    *("client", "documents", "entities", "mentions", "pairs", "positive", "positive_share"),
    *("entropy", "entropy_least", "entropy_greatest"),
)
"""The columns of `client_rows`."""

BINS = 20
"""Of the histogram in `document_statistics`: two for each of ten clients whose parts of the range are equal."""


@dataclass(frozen=True)
class DocumentStatistics:
    """How training documents spread over K clients.

    Attributes:
      rows: A row a client, see `client_rows`.
      histogram: int64 [K, B], each client's documents in bins of the structural entropy.
      edges: float64 [B + 1], of the bins.
      form, graph: Of the entropy.
    """

    rows: tuple[dict[str, Any], ...]
    histogram: np.ndarray
    edges: np.ndarray
    form: str
    graph: str


def document_statistics(partition: Partition, *corpora: DocumentCorpus) -> DocumentStatistics:
    """The rows and the histogram of a partition; the entropy has the form and the graph that the partition was cut by,
    the partitioner's defaults if it was not cut by entropy.

    Raises:
      DataError: the partition is not one of these corpora.
    """
    defaults = attrs.fields(StructuralEntropy)
    form, graph = defaults.form.default, defaults.graph.default
    if partition.partitioner == StructuralEntropy.name:
        # Partitions that were stored before there was a choice of graphs were made by the second one.
        form, graph = partition.options.get("form", form), partition.options.get("graph", "edge_oriented")
    rows = client_rows(partition, *corpora, form=form, graph=graph)
    samples = [sample for corpus in corpora for sample in corpus.samples]
    value_of = dict(zip((sample.sample_id for sample in samples), entropies(samples, form, graph), strict=True))
    by_client = [np.array([value_of[i] for i in ids.train]) for ids in partition.clients.values()]
    edges = np.histogram_bin_edges(np.concatenate(by_client), BINS)
    counts = [np.histogram(values, edges)[0] for values in by_client]
    return DocumentStatistics(tuple(rows), np.array(counts, np.int64), edges, form, graph)


def client_rows(
    partition: Partition, *corpora: DocumentCorpus, form: str = "paper", graph: str = "released_code"
) -> list[dict[str, Any]]:
    """A row a client, of its training documents: the columns `ROW`.

    `documents`, `entities`, `mentions` (a composite one once for each entity), candidate `pairs` and `positive` ones
    are counts; `positive_share` is positive / pairs, `entropy` the mean structural entropy of form and graph,
    `entropy_least` and `entropy_greatest` its range; all 0 for a client that has no pairs or documents.

    Raises:
      DataError: the partition is not one of these corpora, or an unknown form or graph.
    """
    partition.check_against(*corpora)
    samples = [sample for corpus in corpora for sample in corpus.samples]
    index_of = {sample.sample_id: index for index, sample in enumerate(samples)}
    values = entropies(samples, form, graph)
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
                        *(float(of(values[indices])) if indices else 0.0 for of in (np.mean, np.min, np.max)),
                    ),
                    strict=True,
                )
            )
        )
    return rows
