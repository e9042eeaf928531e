"""From a partition of texts with entities to the clients' arrays.

Clients may annotate different types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from datasets.entities.encoding import EntityReport, TaggedEncoding
from datasets.entities.records import NO_ENTITY, EntityCorpus, annotated_with
from datasets.errors import DataError, named, nearest
from datasets.federated import FederatedExamples, distribute
from datasets.partition import Partition


def encode_entity_clients(
    corpora: EntityCorpus | Sequence[EntityCorpus],
    partition: Partition,
    encoding: TaggedEncoding,
    *,
    annotated: Mapping[str, Sequence[str]] | None = None,
    test_annotated: bool = True,
    left_out: bool = True,
) -> tuple[FederatedExamples, EntityReport]:
    """Return the clients' examples, the arrays of `TaggedEncoding.encode`, and what became of the texts.

    The classes are those of `EntityCorpus.label_names`. A client's test examples are sorted by their number of tokens,
    because evaluation pads a batch to its longest text.

    A text is annotated with the types of its corpus, so that corpora of different types can train together. Where
    `annotated` names its client, it is annotated with the client's types only, and has no entities of other types.

    Args:
      corpora: Of types that the encoding has.
      partition: Of these corpora.
      encoding: `TaggedTokenEncoding` or `TaggedPieceEncoding`.
      annotated: Client -> the types that it annotates; all types for the others, and for the server's texts.
      test_annotated: Whether the client annotated its test texts, too; if not, they have entities of all types.
      left_out: Whether the array `annotated` says so, which leaves the other types out of the loss; if not, training
        texts seem to have no entity of the other types. Test texts always say it.

    Raises:
      DataError: the partition is not one of these corpora, a corpus has a type that the encoding has not, or
        `annotated` names a client or type that is not there, or no type.
    """
    corpora = (corpora,) if isinstance(corpora, EntityCorpus) else tuple(corpora)
    partition.check_against(*corpora)
    for corpus in corpora:
        foreign = [name for name in corpus.entity_types if name not in encoding.entity_types]
        if foreign:
            raise DataError(
                f"the encoding has no type {foreign[0]}",
                record=f"corpus {corpus.name}",
                remedy="encode with the types of all corpora",
            )
    annotated = annotated or {}
    _check(annotated, partition, encoding.entity_types)
    client_of = {sample_id: client for client, ids in partition.clients.items() for sample_id in ids.train}
    tested_at = {sample_id: client for client, ids in partition.clients.items() for sample_id in ids.test}
    if test_annotated:
        client_of |= tested_at
    samples, rows = [], []
    for corpus in corpora:
        for sample in corpus.samples:
            types = annotated.get(client_of.get(sample.sample_id))
            samples.append(annotated_with(sample, types, encoding.entity_types))
            if types is None or not (left_out or sample.sample_id in tested_at):
                types = encoding.entity_types
            rows.append([name in corpus.entity_types and name in types for name in encoding.entity_types])
    encoded = encoding.encode(samples, np.array(rows, np.int32))
    lengths = (encoded.arrays["tags"] >= 0).sum(axis=1)
    names = (NO_ENTITY, *encoding.entity_types)
    return distribute(partition, samples, encoded.arrays, names, lengths), encoded.report


def _check(annotated: Mapping[str, Sequence[str]], partition: Partition, entity_types: Sequence[str]) -> None:
    for number, (client, types) in enumerate(annotated.items(), 1):
        record = f"annotated, {named('client', client, number)}"
        if client not in partition.clients:
            raise DataError("there is no such client", record=record, remedy=nearest(client, partition.clients))
        if not types:
            raise DataError("annotates no type", record=record, remedy="name at least one, or leave the client out")
        for name in types:
            if name not in entity_types:
                remedy = nearest(name, entity_types)
                raise DataError(f"there is no such type ({named('type', name)})", record=record, remedy=remedy)
