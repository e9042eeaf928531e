"""From a partition of texts to the clients' arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.errors import DataError
from datasets.federated import ClientExamples, Examples, FederatedExamples
from datasets.partition import Partition
from datasets.records import TextCorpus
from datasets.text.encoding import TextEncoding


def training_texts(partition: Partition, *corpora: TextCorpus) -> dict[str, list[str]]:
    """Client id to the texts that it trains on: what a vocabulary may be built from.

    Clients without training samples are left out.

    Raises:
      DataError: the partition is not one of these corpora.
    """
    partition.check_against(*corpora)
    text_of = {sample.sample_id: sample.text for corpus in corpora for sample in corpus.samples}
    return {
        client: [text_of[sample_id] for sample_id in samples.train]
        for client, samples in partition.clients.items()
        if samples.train
    }


def encode_partition(
    corpora: TextCorpus | Sequence[TextCorpus], partition: Partition, encoding: TextEncoding
) -> FederatedExamples:
    """The clients' examples, `tokens` int32 [n, max_length] and `y` int32 [n]; every text is encoded once.

    Args:
      corpora: The corpus, or the corpus and the dev corpus if the split is the official one.
      partition: A partition of them.
      encoding: From texts to ids.

    Raises:
      DataError: the partition is not one of these corpora, or they differ in their classes.
    """
    corpora = (corpora,) if isinstance(corpora, TextCorpus) else tuple(corpora)
    partition.check_against(*corpora)
    if len({corpus.label_names for corpus in corpora}) != 1:
        raise DataError("the corpora differ in their classes", remedy="read them with the same label_names")
    samples = [sample for corpus in corpora for sample in corpus.samples]
    tokens = encoding.encode([sample.text for sample in samples])
    labels = np.array([sample.label for sample in samples], np.int32)
    row_of = {sample.sample_id: row for row, sample in enumerate(samples)}

    def examples(sample_ids: Sequence[str]) -> Examples:
        rows = np.array([row_of[sample_id] for sample_id in sample_ids], np.int64)
        return {"tokens": tokens[rows], "y": labels[rows]}

    return FederatedExamples(
        tuple(ClientExamples(c, examples(s.train), examples(s.test)) for c, s in partition.clients.items()),
        corpora[0].label_names,
    )
