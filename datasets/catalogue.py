"""The data sets that this project knows, registered by their readers' files, and the locations of their files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from datasets.errors import DataError, named, nearest
from datasets.files import PathLike, with_or_without_gz
from datasets.registry import Registry

ENVIRONMENT_VARIABLE = "TFF_RE_DATA"

DATA_SETS = Registry(
    "data set",
    "datasets",
    *(f"datasets.{kind}" for kind in ("bags", "dialogues", "documents", "entities", "relations")),
)

KINDS = {
    "texts": ("texts with a label", "symptom_classification"),
    "relations": ("pairs of mentions", "sentence_relations"),
    "bags": ("bags of sentences", "bag_relations"),
    "documents": ("documents with pairs of entities", "document_relations"),
    "entities": ("texts with marked entities", "entity_recognition"),
    "vectors": ("vectors of features", "synthetic"),
}
"""Kind of a data set -> what its samples are, and the task that a recipe uses it with."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set of the catalogue.

    Attributes:
      name: As recipes call it.
      title: For people.
      kind: One of `KINDS`; says which loader reads it: `load_corpus` (``texts``), `load_relations`, `load_bags`,
        `load_documents` or `load_entities`, each in ``<folder>.loading``. ``vectors`` are generated.
      language: Of its texts; ``none`` for numbers.
      task: What is classified.
      labels: The label choices, the default one first; of texts with entities ``types``, which no reader asks for.
      files: Split to its file, relative to the data folder (``.gz`` may be added); empty for what is generated
        and for a form of your own files.
      vocabulary: The file of its symptom vocabulary, if it has one.
      pair_types: Of documents, the types of the heads and tails of its candidate pairs; empty where its training file
        or an option says them.
      shipped: Whether its files come with this package, in the folder ``datasets/shipped``.
      strips: Whether its reader leaves out the blanks around a text.
      restricted: Whether its texts are given only to those who agree not to pass them on.
      licence: What is known of its licence.
      citation: The paper.
      available_from: Where to get it.
      read: ``(path, *, name, split, …)``, gives the corpus of a file. Readers of texts, relations and documents take
        ``label``, those of bags ``labelled`` (False: what the file says of relations is not read). What else a reader
        takes by keyword are options of its data set.
    """

    name: str
    title: str
    kind: str
    task: str
    labels: tuple[str, ...]
    files: Mapping[str, str] = field(repr=False)
    vocabulary: str | None = None
    pair_types: tuple[tuple[str, str], ...] = ()
    strips: bool = False
    shipped: bool = False
    restricted: bool = False
    language: str = "English"
    licence: str
    citation: str
    available_from: str
    read: Callable[..., Any] | None = field(default=None, repr=False)

    @property
    def relations(self) -> bool:
        """Return whether its samples are pairs of mentions in a text."""
        return self.kind == "relations"

    @property
    def options(self) -> frozenset[str]:
        """Return the keyword arguments that its reader takes."""
        return frozenset(inspect.signature(self.read).parameters) if self.read else frozenset()

    def default(self, option: str) -> Any:
        """Return the reader's default of an option, or None if it has no such option."""
        return inspect.signature(self.read).parameters[option].default if option in self.options else None


def data_set(name: str, **entry):
    """Register the decorated reader as that of the data set `name`.

    `entry` are the other attributes of `DataSet`.

    Raises:
      ValueError: where another file has taken the name.
    """

    def register(read):
        DATA_SETS.add(name, DataSet(name=name, read=read, **entry), read.__module__)
        return read

    return register


def find_data_set(name: str) -> DataSet:
    """Return the data set of a name.

    Raises DataError with the nearest name for an unknown one.
    """
    if name not in DATA_SETS:
        raise DataError("there is no such data set", record=named("data set", name), remedy=nearest(name, DATA_SETS))
    return DATA_SETS[name]


def load(
    kind: str, name: str, data_dir: PathLike | None = None, *, path: PathLike | None = None, split: str, **options
) -> Any:
    """Read a data set of that kind, as the loaders of all kinds do.

    Args:
      kind: One of `KINDS`.
      name: A name of the catalogue.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file to read in place of the one that the catalogue names.
      split: One of the data set's splits; with `path`, any word for what the file holds, and one of its splits where it
        holds several.
      **options: For the data set's reader; those that are None are left to it. `label` is one of the label choices, the
        first one if it is None.

    Raises:
      DataError: an unknown name, label or split, a data set of another kind, an option that its reader does not take, a
        file that is not there (the message names it), or a malformed one.
    """
    data_set = find_data_set(name)
    if data_set.kind != kind:
        remedy = f'use it with task.name = "{KINDS[data_set.kind][1]}"'
        raise DataError(f"holds no {KINDS[kind][0]}", record=f"data set {name}", remedy=remedy)
    if "label" in options:
        options["label"] = label_choice(data_set, options["label"])
    chosen = {option: value for option, value in options.items() if value is not None}
    for option in chosen:
        if option not in data_set.options:
            raise DataError(f"has no use for {option}", record=f"data set {name}", remedy=f"leave {option} out")
    file = split_file(name, split, data_dir) if path is None else file_in(data_set, Path(path), split) or path
    return data_set.read(Path(file), name=name, split=split, **chosen)


def file_in(data_set: DataSet, folder: Path, split: str | None = None) -> Path | None:
    """The file of a data set in a folder, under its name in the catalogue.

    Args:
      split: whose file; of a data set with one file any word.

    Returns:
      None where `folder` is no folder, or does not hold exactly one such file.
    """
    if not folder.is_dir():
        return None
    files = (data_set.files[split],) if split in data_set.files else data_set.files.values()
    there = (with_or_without_gz(folder / Path(file).name) for file in files)
    paths = {path for path in there if path is not None}
    return paths.pop() if len(paths) == 1 else None


def label_choice(data_set: DataSet, label: str | None) -> str:
    """Return the label choice, or the data set's first one for None.

    Raises DataError for one that it does not have.
    """
    label = data_set.labels[0] if label is None else label
    if label not in data_set.labels:
        raise DataError(
            f"has no such label choice ({named('label', label)})",
            record=f"data set {data_set.name}",
            remedy=f"use one of {', '.join(data_set.labels)}",
        )
    return label


def split_file(name: str, split: str, data_dir: PathLike | None = None) -> Path:
    """Return the file of a split.

    Raises DataError with the name of the expected file if it is not there.
    """
    data_set = find_data_set(name)
    if not data_set.files:
        remedy = "it is generated" if data_set.kind == "vectors" else "name yours by task.path or --file"
        raise DataError("has no files of its own", record=f"data set {name}", remedy=remedy)
    if split not in data_set.files:
        raise DataError(
            f"has no such split ({named('split', split)})",
            record=f"data set {name}",
            remedy=f"use one of {', '.join(data_set.files)}",
        )
    return locate(name, data_set.files[split], data_dir)


def files_there(name: str, data_dir: PathLike | None = None) -> dict[str, bool]:
    """Return the files of a data set, as named in the catalogue, and whether they exist."""
    data_set = find_data_set(name)
    files = list(data_set.files.values()) + ([data_set.vocabulary] if data_set.vocabulary else [])
    root = _root(name, data_dir)
    return {file: bool(root and with_or_without_gz(root / file)) for file in files}


def _root(name: str, data_dir: PathLike | None) -> Path | None:
    if find_data_set(name).shipped:
        # The package is installed as files, never as an archive.
        return Path(str(resources.files("datasets") / "shipped"))
    folder = os.environ.get(ENVIRONMENT_VARIABLE) if data_dir is None else data_dir
    return Path(folder) if folder else None


def locate(name: str, file: str, data_dir: PathLike | None) -> Path:
    """Return a file of a data set, with or without ``.gz``.

    Raises DataError with its name if it is not there.
    """
    root, data_set = _root(name, data_dir), find_data_set(name)
    remedy = f"--data DIR or the environment variable {ENVIRONMENT_VARIABLE}"
    if root is None:
        reason = f"needs the file {file} in a data folder, and none is given"
        raise DataError(reason, record=f"data set {name}", remedy=f"name the folder by {remedy}")
    if path := with_or_without_gz(root / file):
        return path
    remedy = f"put it there ({data_set.available_from}), or name another folder by {remedy}"
    others = [split for split, other in data_set.files.items() if with_or_without_gz(root / other)]
    if others and file != data_set.vocabulary:
        remedy = f"the split {' or '.join(others)} is there; or {remedy}"
    raise DataError("no such file (nor with .gz)", path=root / file, remedy=remedy)
