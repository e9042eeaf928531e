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
    """Write a partition as JSON, atomically.

    It contains ids, but no texts. Raises DataError.
    """
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
    """Read a partition and check it against its corpora, if any are given.

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
        clients[client] = ClientSamples(*(_strings(samples, split, at_client) for split in ("train", "test")))
    try:
        partition = Partition(
            field(value, "partitioner", str, fail),
            field(value, "options", dict, fail),
            field(value, "seed", int, fail),
            clients,
            _strings(value, "notes", fail),
            _strings(value, "server", fail) if "server" in value else (),
        )
        if corpora:
            partition.check_against(*corpora)
    except DataError as error:
        if error.path is not None:
            raise
        raise fail(error.reason, record=error.record, remedy=error.remedy) from None
    return partition


def _strings(record: dict, key: str, fail: Fail) -> tuple[str, ...]:
    return tuple(require(item, str, f'an item of "{key}"', fail) for item in field(record, key, list, fail))
