"""From a partition of texts, or of pairs of mentions, to the clients' arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError
from datasets.federated import ClientExamples, Examples, FederatedExamples
from datasets.partition import Partition
from datasets.relations.records import RelationCorpus
from datasets.text.encoding import TextEncoding
from datasets.text.relation_encoding import EncodingReport, RelationEncoding


def training_texts(
    partition: Partition, *corpora: TextCorpus | RelationCorpus, text_of: Callable[[Any], str] = lambda s: s.text
) -> dict[str, list[str]]:
    """Client id to the texts that it trains on: what a vocabulary may be built from.

    Clients without training samples are left out. `text_of` gives a sample's text as the vocabulary is to see it.

    Raises:
      DataError: the partition is not one of these corpora.
    """
    partition.check_against(*corpora)
    sample_of = {sample.sample_id: sample for corpus in corpora for sample in corpus.samples}
    return {
        client: [text_of(sample_of[sample_id]) for sample_id in samples.train]
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
    _check(corpora, partition)
    tokens = encoding.encode([sample.text for corpus in corpora for sample in corpus.samples])
    return _give_out(corpora, partition, {"tokens": tokens})


def encode_relations(
    corpora: RelationCorpus | Sequence[RelationCorpus], partition: Partition, encoding: RelationEncoding
) -> tuple[FederatedExamples, EncodingReport]:
    """The clients' examples, the arrays of `RelationEncoding.encode` and `y` int32 [n], and what the limit cut.

    A client's test examples are sorted by their length, because evaluation pads a batch to its longest text.

    Args:
      corpora: The corpus, or the corpus and the corpus of test samples.
      partition: A partition of them.
      encoding: From pairs of mentions to arrays.

    Raises:
      DataError: the partition is not one of these corpora, or they differ in their classes.
    """
    corpora = (corpora,) if isinstance(corpora, RelationCorpus) else tuple(corpora)
    _check(corpora, partition)
    encoded = encoding.encode([mention for corpus in corpora for mention in corpus.mentions])
    lengths = encoded.arrays["attention_mask"].sum(axis=1)
    return _give_out(corpora, partition, encoded.arrays, order_test_by=lengths), encoded.report


def _check(corpora: Sequence[TextCorpus | RelationCorpus], partition: Partition) -> None:
    partition.check_against(*corpora)
    if len({corpus.label_names for corpus in corpora}) != 1:
        raise DataError("the corpora differ in their classes", remedy="read them with the same label_names")


def _give_out(corpora, partition: Partition, arrays: Examples, order_test_by: np.ndarray | None = None):
    """FederatedExamples of arrays whose rows are all samples of the corpora, one corpus after the other."""
    samples = [sample for corpus in corpora for sample in corpus.samples]
    arrays = {**arrays, "y": np.array([sample.label for sample in samples], np.int32)}
    row_of = {sample.sample_id: row for row, sample in enumerate(samples)}

    def examples(sample_ids: Sequence[str], order_by: np.ndarray | None = None) -> Examples:
        rows = np.array([row_of[sample_id] for sample_id in sample_ids], np.int64)
        if order_by is not None:
            rows = rows[np.argsort(order_by[rows], kind="stable")]
        return {name: array[rows] for name, array in arrays.items()}

    return FederatedExamples(
        tuple(
            ClientExamples(client, examples(ids.train), examples(ids.test, order_test_by))
            for client, ids in partition.clients.items()
        ),
        corpora[0].label_names,
        examples(partition.server) if partition.server else None,
    )
