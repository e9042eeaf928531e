"""From a partition of documents to the clients' arrays and the server's test documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from datasets.documents.corpus import LABEL_NAMES, DocumentCorpus
from datasets.documents.encoding import DocumentEncoding, EncodedDocuments
from datasets.documents.scoring import Gold, NamedFact, facts_by_name, gold_facts
from datasets.errors import DataError
from datasets.federated import FederatedExamples, distribute
from datasets.partition import Partition


@dataclass(frozen=True)
class HeldOutDocuments:
    """Documents that no client has, for selecting the threshold or for testing.

    Attributes:
      name: E.g. ``dev``.
      encoded: Arrays and pair ids, the documents sorted by their length, so that a batch is padded little.
      gold: What the corpus states of these documents, candidates or not.
    """

    name: str
    encoded: EncodedDocuments = field(repr=False)
    gold: Gold = field(repr=False)


def encode_document_clients(
    corpora: DocumentCorpus | Sequence[DocumentCorpus],
    partition: Partition,
    encoding: DocumentEncoding,
    held_out: dict[str, DocumentCorpus] | None = None,
) -> tuple[FederatedExamples, dict[str, HeldOutDocuments]]:
    """Return the clients' examples, the arrays of `DocumentEncoding.encode`, and the held-out documents by name.

    All arrays have the same widths. A client's test examples are sorted by their length.

    Raises:
      DataError: the partition is not one of these corpora, the corpora differ in their relations, a held-out document
        stands among the clients' as well, or one that the encoding refuses.
    """
    corpora = (corpora,) if isinstance(corpora, DocumentCorpus) else tuple(corpora)
    held_out = held_out or {}
    partition.check_against(*corpora)
    everything = (*corpora, *held_out.values())
    if len({(corpus.relation_names, corpus.pair_types) for corpus in everything}) != 1:
        reason = "the corpora differ in their relations or in their pairs' types"
        raise DataError(reason, remedy="read them with the same rule")
    _check_apart(corpora, held_out)
    encoded = encoding.encode_together(everything)
    arrays = {
        name: np.concatenate([part.arrays[name] for part in encoded[: len(corpora)]]) for name in encoded[0].arrays
    }
    samples, lengths = [sample for corpus in corpora for sample in corpus.samples], arrays["attention_mask"].sum(axis=1)
    federated = distribute(partition, samples, arrays, LABEL_NAMES, lengths)
    pairs = zip(held_out.items(), encoded[len(corpora) :], strict=True)
    known = facts_by_name(corpora) if all(corpus.facts_by_name for corpus in corpora) else None
    return federated, {name: hold_out(name, corpus, part, known) for (name, corpus), part in pairs}


def hold_out(
    name: str, corpus: DocumentCorpus, encoded: EncodedDocuments, known: Collection[NamedFact] | None = None
) -> HeldOutDocuments:
    """Return documents of a corpus that no client has (see `HeldOutDocuments`).

    `known` are as in `gold_facts`.
    """
    return HeldOutDocuments(name, _by_length(encoded), gold_facts(corpus, known))


def _check_apart(corpora: Sequence[DocumentCorpus], held_out: dict[str, DocumentCorpus]) -> None:
    known: dict[str, str] = {s.document_id: "the clients" for corpus in corpora for s in corpus.samples}
    for name, corpus in held_out.items():
        common = [s.document_id for s in corpus.samples if s.document_id in known]
        if common:
            raise DataError(
                f"{len(common)} documents are also among those of {known[common[0]]}",
                record=f"held-out documents {name}",
                remedy="use disjoint splits or files, or draw test documents from the clients' file (task.test_subset)",
            )
        known.update((sample.document_id, name) for sample in corpus.samples)


def _by_length(encoded: EncodedDocuments) -> EncodedDocuments:
    order = np.argsort(encoded.lengths, kind="stable")
    arrays = {name: array[order] for name, array in encoded.arrays.items()}
    return EncodedDocuments(arrays, tuple(encoded.pairs[row] for row in order))
