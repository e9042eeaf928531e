"""Partitions in files, so that a run can be repeated anywhere: JSON, or of very many samples a binary table."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError, named
from datasets.files import PathLike, parse_json, read_json, write_atomically
from datasets.json_values import Fail, field, require
from datasets.partition.base import ClientSamples, Partition
from datasets.tables import is_table, packed_columns, read_columns

FORMAT = "tff-re partition"
VERSION = 1

MOST_IN_JSON = 100_000
"""Samples of a partition that is written as JSON."""

_SPLITS = ("train", "test")


def write_partition(partition: Partition, path: PathLike) -> Path:
    """Write a partition as JSON, or of more than `MOST_IN_JSON` samples as a table (`.npz`), atomically.

    It contains ids, but no texts. Returns the path, which is `path` with the suffix of its form. Raises DataError.
    """
    about = {
        "format": FORMAT,
        "version": VERSION,
        "partitioner": partition.partitioner,
        "options": dict(partition.options),
        "seed": partition.seed,
        "notes": list(partition.notes),
    }
    if sum(len(samples.train) + len(samples.test) for samples in partition.clients.values()) > MOST_IN_JSON:
        return _write_table(partition, about, Path(path).with_suffix(".npz"))
    value = {
        **about,
        **({"server": list(partition.server)} if partition.server else {}),
        "clients": {
            client: {"train": list(samples.train), "test": list(samples.test)}
            for client, samples in partition.clients.items()
        },
    }
    write_atomically(path, (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))
    return Path(path)


def _write_table(partition: Partition, about: dict[str, Any], path: Path) -> Path:
    """Write the columns `client`, the samples of all clients in their order, and how many each client has."""
    held = partition.clients.values()
    columns: dict[str, Any] = {"about": [json.dumps(about, ensure_ascii=False)], "client": list(partition.clients)}
    for split in _SPLITS:
        columns[split] = [sample_id for samples in held for sample_id in getattr(samples, split)]
        columns[f"{split}_samples"] = np.array([len(getattr(samples, split)) for samples in held], np.int64)
    write_atomically(path, packed_columns({**columns, "server": list(partition.server)}))
    return path


def _read_table(path: PathLike, fail: Fail) -> dict[str, Any]:
    """Read what `_write_table` wrote, as the value of the JSON form."""
    columns = read_columns(path)
    try:
        value = require(parse_json(columns["about"][0].encode("utf-8", "surrogatepass"), path), dict, "the file", fail)
        parts = []
        for split in _SPLITS:
            ends = np.cumsum(columns[f"{split}_samples"])
            if len(ends) != len(columns["client"]) or (len(ends) and ends[-1] != len(columns[split])):
                raise ValueError(split)
            starts = [0, *ends[:-1].tolist()]
            parts.append([columns[split][start:end] for start, end in zip(starts, ends.tolist(), strict=True)])
        held = zip(columns["client"], *parts, strict=True)
        value["clients"] = {client: {"train": train, "test": test} for client, train, test in held}
        if len(value["clients"]) < len(columns["client"]):
            raise ValueError("a client twice")
        return {**value, **({"server": columns["server"]} if columns["server"] else {})}
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        raise fail("is not a partition", remedy="write it with write_partition") from None


def read_partition(path: PathLike, *corpora: TextCorpus) -> Partition:
    """Read a partition and check it against its corpora, if any are given.

    Raises:
      DataError: the file is missing, no partition or of another version, a client has no samples, or a sample is
        unknown, missing or held twice.
    """
    fail = functools.partial(DataError, path=path)
    value = _read_table(path, fail) if is_table(path) else require(read_json(path), dict, "the file", fail)
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
