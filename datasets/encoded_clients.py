"""From a partition of texts, or of pairs of mentions, to the clients' arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError
from datasets.federated import FederatedExamples, distribute
from datasets.partition import Partition
from datasets.relations.records import RelationCorpus
from datasets.text.encoding import TextEncoding
from datasets.text.piece_encoding import PieceEncoding, PieceReport
from datasets.text.relation_encoding import EncodingReport, RelationEncoding


def training_texts(
    partition: Partition, *corpora: TextCorpus | RelationCorpus, text_of: Callable[[Any], str] = lambda s: s.text
) -> dict[str, list[str]]:
    """Return the texts that each client trains on (by id), from which a vocabulary may be built.

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
    """Return the clients' examples, `tokens` int32 [n, max_length] and `y` int32 [n].

    Every text is encoded once.

    Raises:
      DataError: the partition is not one of these corpora, or they differ in their classes.
    """
    corpora = (corpora,) if isinstance(corpora, TextCorpus) else tuple(corpora)
    samples = _samples(corpora, partition)
    arrays = {"tokens": encoding.encode([sample.text for sample in samples]), "y": _labels(samples)}
    return distribute(partition, samples, arrays, corpora[0].label_names)


def encode_relations(
    corpora: RelationCorpus | Sequence[RelationCorpus], partition: Partition, encoding: RelationEncoding
) -> tuple[FederatedExamples, EncodingReport]:
    """Return the clients' examples, and what the limit cut.

    The examples are the arrays of `RelationEncoding.encode` and `y` int32 [n].

    A client's test examples are sorted by their length, because evaluation pads a batch to its longest text.

    Raises:
      DataError: the partition is not one of these corpora, or they differ in their classes.
    """
    corpora = (corpora,) if isinstance(corpora, RelationCorpus) else tuple(corpora)
    return _by_length(partition, _samples(corpora, partition), encoding, corpora[0].label_names)


def encode_pieces(
    corpora: TextCorpus | Sequence[TextCorpus], partition: Partition, encoding: PieceEncoding
) -> tuple[FederatedExamples, PieceReport]:
    """Return the examples of whole texts, and what became of the texts.

    The examples are the arrays of `PieceEncoding.encode` and `y` int32 [n].
    """
    corpora = (corpora,) if isinstance(corpora, TextCorpus) else tuple(corpora)
    return _by_length(partition, _samples(corpora, partition), encoding, corpora[0].label_names)


def _by_length(partition: Partition, samples: Sequence, encoding, label_names):
    """Return (FederatedExamples, test examples from short to long), and the encoding's report."""
    whole_texts = isinstance(encoding, PieceEncoding)
    encoded = encoding.encode([sample.text for sample in samples] if whole_texts else samples)
    lengths, arrays = encoded.arrays["attention_mask"].sum(axis=1), {**encoded.arrays, "y": _labels(samples)}
    return distribute(partition, samples, arrays, label_names, lengths), encoded.report


def _samples(corpora: Sequence[TextCorpus | RelationCorpus], partition: Partition) -> list:
    partition.check_against(*corpora)
    if len({corpus.label_names for corpus in corpora}) != 1:
        raise DataError("the corpora differ in their classes", remedy="read them with the same label_names")
    return [sample for corpus in corpora for sample in corpus.samples]


def _labels(samples: Sequence[Any]) -> np.ndarray:
    return np.array([sample.label for sample in samples], np.int32)
