"""Partitions in JSON files, so that a run can be repeated anywhere."""

from __future__ import annotations

import functools
import json

from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError, named
from datasets.files import PathLike, read_json, write_atomically
from datasets.json_values import Fail, field, require
from datasets.partition.base import ClientSamples, Partition

FORMAT = "tff-re partition"
VERSION = 1


def write_partition(partition: Partition, path: PathLike) -> None:
    """Writes a partition as JSON, whole or not at all; it holds ids, no texts. Raises DataError."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "partitioner": partition.partitioner,
        "options": dict(partition.options),
        "seed": partition.seed,
        "notes": list(partition.notes),
        **({"server": list(partition.server)} if partition.server else {}),
        "clients": {
            client: {"train": list(samples.train), "test": list(samples.test)}
            for client, samples in partition.clients.items()
        },
    }
    write_atomically(path, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


def read_partition(path: PathLike, *corpora: TextCorpus) -> Partition:
    """Reads a partition and checks it against the corpora that it was made for.

    Args:
      path: The file.
      *corpora: The corpus, and the dev corpus if the split is the official one; without any the samples' ids are not
        checked.

    Raises:
      DataError: the file is missing, no partition or of another version, a client has no samples, or a sample is
        unknown, missing or held twice.
    """
    fail = functools.partial(DataError, path=path)
    value = require(read_json(path), dict, "the file", fail)
    if value.get("format") != FORMAT:
        raise fail("is not a partition", remedy="write it with write_partition")
    if value.get("version") != VERSION or isinstance(value["version"], bool):
        raise fail("is written in another version of the format", remedy=f"this program reads version {VERSION}")
    clients = {}
    for number, (client, samples) in enumerate(field(value, "clients", dict, fail).items(), 1):
        at_client = functools.partial(fail, record=named("client", client, number))
        require(samples, dict, "it", at_client)
        clients[client] = ClientSamples(_ids(samples, "train", at_client), _ids(samples, "test", at_client))
    notes = field(value, "notes", list, fail)
    for note in notes:
        require(note, str, "a note", fail)
    try:
        partition = Partition(
            field(value, "partitioner", str, fail),
            field(value, "options", dict, fail),
            field(value, "seed", int, fail),
            clients,
            tuple(notes),
            _ids(value, "server", fail) if "server" in value else (),
        )
        if corpora:
            partition.check_against(*corpora)
    except DataError as error:
        raise (
            error
            if error.path is not None
            else DataError(error.reason, path=path, record=error.record, remedy=error.remedy)
        ) from None
    return partition


def _ids(samples: dict, split: str, fail: Fail) -> tuple[str, ...]:
    ids = field(samples, split, list, fail)
    for sample_id in ids:
        require(sample_id, str, f'an id in "{split}"', fail)
    return tuple(ids)
