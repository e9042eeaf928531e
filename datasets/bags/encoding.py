"""From bags to arrays: sentences at platforms for training, whole bags at the server for held-out evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.bags.records import BagCorpus, Pair
from datasets.errors import DataError
from datasets.federated import ClientExamples, Examples, FederatedExamples
from datasets.partition import Partition
from datasets.text.relation_encoding import EncodingReport, RelationEncoding

SIDE_ARRAYS = ("triple", "platform")
"""What `encode_bag_clients` gives in addition to a sentence's arrays and its label."""


def encode_bag_clients(
    corpus: BagCorpus, partition: Partition, encoding: RelationEncoding
) -> tuple[FederatedExamples, EncodingReport]:
    """Return the clients' instances, one row for each sentence and each relation of its pair, and what the limit cut.

    Rows stand in the order of the client's sentences, a sentence's relations in the order of their labels. Beside the
    arrays of `RelationEncoding.encode` a row has, all int32 [n]:

    - ``y``: the relation's label;
    - ``triple``: the index of (pair, relation) in `corpus.triples`, the same at every client;
    - ``platform``: the client's place in the partition, the same in all rows of a client.

    The test split is empty: bags are evaluated whole, at the server (`encode_bags`). Every sentence is encoded once.

    Args:
      corpus: The corpus.
      partition: A partition of its sentences that holds none out.
      encoding: From a sentence with two mentions to arrays.

    Raises:
      DataError: the partition is not one of this corpus, or has samples for testing or at the server.
    """
    partition.check_against(corpus)
    if partition.server or any(client.test for client in partition.clients.values()):
        raise DataError(
            "the partition holds out single sentences, but bags are evaluated as a whole",
            record=f"corpus {corpus.name}",
            remedy="build it with test_share = 0 and server_share = 0",
        )
    index_of = {sentence.sentence_id: index for index, sentence in enumerate(corpus.sentences)}
    triples_of: dict[Pair, list[int]] = {}
    for number, (pair, _) in enumerate(corpus.triples):
        triples_of.setdefault(corpus.pairs[pair], []).append(number)
    labels = np.array([label for _, label in corpus.triples], np.int32)
    clients, reports = [], []
    for platform, (client, samples) in enumerate(partition.clients.items()):
        sentences = [corpus.sentences[index_of[sample_id]] for sample_id in samples.train]
        encoded = encoding.encode(sentences)
        reports.append(encoded.report)
        triples = [triples_of[sentence.pair] for sentence in sentences]
        rows = np.repeat(np.arange(len(sentences)), [len(of_pair) for of_pair in triples])
        triple = np.array([number for of_pair in triples for number in of_pair], np.int32)
        single = len(rows) == len(sentences)
        examples = {name: array if single else array[rows] for name, array in encoded.arrays.items()}
        examples |= {"y": labels[triple], "triple": triple, "platform": np.full(len(triple), platform, np.int32)}
        clients.append(ClientExamples(client, examples, {name: array[:0] for name, array in examples.items()}))
    report = EncodingReport(*map(sum, zip(*map(dataclasses.astuple, reports), strict=True)))
    return FederatedExamples(tuple(clients), corpus.label_names), report


@dataclass(frozen=True)
class HeldOutBags:
    """Bags for evaluation, with n sentences of B pairs and C relations.

    Attributes:
      arrays: The arrays of `RelationEncoding.encode`, and ``bag`` int32 [n], the sentence's bag, 0 to B - 1, ascending.
      labels: float32 [B, C], 1 for each relation of the pair; an unrelated pair has a 1 for the negative.
      pairs: The bags' pairs, in the order of `BagCorpus.pairs`.
      sentence_ids: The rows' sentences; those of a bag stand in the order of the corpus.
      label_names: The relations, in the order of the labels.
    """

    arrays: Examples = field(repr=False)
    labels: np.ndarray = field(repr=False)
    pairs: tuple[Pair, ...] = field(repr=False)
    sentence_ids: tuple[str, ...] = field(repr=False)
    label_names: tuple[str, ...]


def encode_bags(
    corpus: BagCorpus, encoding: RelationEncoding, *, label_names: Sequence[str] | None = None
) -> tuple[HeldOutBags, EncodingReport]:
    """Return the whole bags of a corpus for evaluation at the server, and what the limit cut.

    Args:
      corpus: The corpus.
      encoding: That of the training sentences.
      label_names: The relations of training, if the columns of `labels` are to be those.

    Raises:
      DataError: a relation of the corpus that training does not have.
    """
    names = corpus.label_names if label_names is None else tuple(label_names)
    order = [index for indices in corpus.bags.values() for index in indices]
    sizes = [len(indices) for indices in corpus.bags.values()]
    sentences = [corpus.sentences[index] for index in order]
    labels = np.zeros((len(sizes), len(names)), np.float32)
    for pair, label in corpus.triples:
        name = corpus.label_names[label]
        if name not in names:
            raise DataError(
                f"relation number {label} is not in the training corpus",
                record=f"corpus {corpus.name}",
                remedy="read both with the same relations",
            )
        labels[pair, names.index(name)] = 1
    encoded = encoding.encode(sentences)
    arrays = {**encoded.arrays, "bag": np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)}
    ids = tuple(sentence.sentence_id for sentence in sentences)
    return HeldOutBags(arrays, labels, corpus.pairs, ids, names), encoded.report
