"""How documents spread over clients: the data of FedLCC's Figure 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import attrs
import numpy as np

from datasets.documents.corpus import DocumentCorpus, DocumentSample
from datasets.partition.base import Partition
from datasets.partition.structural_entropy import StructuralEntropy, entropies

ROW = (
    *("client", "documents", "entities", "mentions", "pairs", "positive", "positive_share"),
    *("entropy", "entropy_least", "entropy_greatest"),
)
"""Of a client's training documents: `mentions` count a composite one once for each entity; `positive_share` is
positive / pairs, `entropy` the mean structural entropy; all 0 for a client that has no pairs or documents."""

BINS = 20
"""Of the histogram in `document_statistics`: two for each of ten clients whose parts of the range are equal."""


@dataclass(frozen=True)
class DocumentStatistics:
    """How training documents spread over K clients.

    Attributes:
      rows: A row a client, with the columns `ROW`.
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
    """Return the rows and the histogram of a partition.

    The entropy has the form and graph by which the partition was cut, or the partitioner's defaults if it was not cut
    by entropy.

    Raises:
      DataError: the partition is not one of these corpora.
    """
    defaults = attrs.fields(StructuralEntropy)
    form, graph = defaults.form.default, defaults.graph.default
    if partition.partitioner == StructuralEntropy.name:
        # Partitions that were stored before there was a choice of graphs were made by the second one.
        form, graph = partition.options.get("form", form), partition.options.get("graph", "edge_oriented")
    partition.check_against(*corpora)
    samples = {sample.sample_id: sample for corpus in corpora for sample in corpus.samples}
    value_of = dict(zip(samples, entropies(list(samples.values()), form, graph), strict=True))
    by_client = {
        client: ([samples[i] for i in ids.train], np.array([value_of[i] for i in ids.train]))
        for client, ids in partition.clients.items()
    }
    edges = np.histogram_bin_edges(np.concatenate([values for _, values in by_client.values()]), BINS)
    counts = [np.histogram(values, edges)[0] for _, values in by_client.values()]
    rows = tuple(_row(client, *held) for client, held in by_client.items())
    return DocumentStatistics(rows, np.array(counts, np.int64), edges, form, graph)


def _row(client: str, samples: Sequence[DocumentSample], values: np.ndarray) -> dict[str, Any]:
    pairs = [pair for sample in samples for pair in sample.pairs]
    positive = sum(bool(pair.labels) for pair in pairs)
    row = (
        client,
        len(samples),
        sum(len(sample.entities) for sample in samples),
        sum(len(entity.mentions) for sample in samples for entity in sample.entities),
        len(pairs),
        positive,
        positive / len(pairs) if pairs else 0.0,
        *(float(statistic(values)) if len(values) else 0.0 for statistic in (np.mean, np.min, np.max)),
    )
    return dict(zip(ROW, row, strict=True))
