"""The catalogue's texts with labels, by name."""

from __future__ import annotations

from datasets.catalogue import find_data_set, load, locate, split_file
from datasets.dialogues.imcs_v2 import read_symptom_vocabulary
from datasets.dialogues.records import TextCorpus
from datasets.files import PathLike


def load_corpus(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
) -> TextCorpus:
    """Read the texts and labels of a data set (see `datasets.catalogue.load`).

    A file of the catalogue whose reader asks for that has the classes of the training split.
    """
    more = {}
    if path is None and split != "train" and "training" in find_data_set(name).options:
        more["training"] = split_file(name, "train", data_dir)
    return load("texts", name, data_dir, path=path, label=label, split=split, **more)


def symptom_vocabulary(name: str, data_dir: PathLike | None = None, path: PathLike | None = None) -> tuple[str, ...]:
    """Return the words of a data set that segmentation must know, empty for a data set without a vocabulary.

    Raises:
      DataError: an unknown name, or a file that is not there or malformed.
    """
    data_set = find_data_set(name)
    if path is None:
        if data_set.vocabulary is None:
            return ()
        path = locate(name, data_set.vocabulary, data_dir)
    return read_symptom_vocabulary(path)
