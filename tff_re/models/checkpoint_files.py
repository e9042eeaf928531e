"""Weights of pretrained encoders in files: safetensors and HDF5, of a folder or a hub id, never a pickle."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors import safe_open

from tff_re.errors import UserError
from tff_re.models.torch_names import encoder_name, is_transposed, renamed, transposed
from tff_re.models.transformers_version import cached_file

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "tf_model.h5", "tf_model.h5.index.json")
"""What can be read, in the order in which it is looked for; an index names several files."""

_INDEX = ".index.json"

_FLOATS = ("F16", "BF16", "F32", "F64", "float16", "float32", "float64")
"""As safetensors and as NumPy name them."""


@dataclass(frozen=True)
class StoredWeight:
    """A weight in an open file.

    Attributes:
      shape: its shape.
      kind: its type, as the file names it.
      read: reads it.
    """

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Checkpoint:
    """The weights in open files. They are read one at a time.

    Attributes:
      weights: name -> StoredWeight.
      is_keras: whether names and layouts are Keras'; else they are PyTorch's.
    """

    weights: Mapping[str, StoredWeight]
    is_keras: bool

    def name_of(self, main: str, tail: str) -> str:
        """The name that a weight of an encoder has here, or would have.

        Args:
          main: the name of the encoder's main layer, such as `bert`.
          tail: the rest of the weight's name in Keras (`Adaptable.tail`).
        """
        if not self.is_keras:
            has_prefix = any(name.startswith(f"{main}.") for name in self.weights)  # the encoder of a larger model
            return (f"{main}." if has_prefix else "") + encoder_name(tail)
        name = f"{main}/{tail}:0"
        older = re.sub("/embeddings:0$", "/weight:0", name)
        return older if older in self.weights and name not in self.weights else name

    def shape_of(self, shape: tuple[int, ...], leaf: str) -> tuple[int, ...]:
        """The shape here of an array that has `shape` in Keras, but for axes of length one.

        Args:
          leaf: the last part of the weight's name in Keras.
        """
        return shape[::-1] if is_transposed(leaf) and not self.is_keras else shape

    def fits(self, name: str, shape: tuple[int, ...], leaf: str) -> bool:
        """Whether a weight has the shape that `shape_of` gives. PyTorch has axes of length one at other places."""
        first, other = self.weights[name].shape, self.shape_of(shape, leaf)
        return [n for n in first if n != 1] == [n for n in other if n != 1]

    def read(self, name: str, shape: tuple[int, ...], leaf: str) -> np.ndarray:
        """A weight in Keras' layout, float32 of `shape`, which fits."""
        value = self.weights[name].read()
        return np.asarray(value if self.is_keras else transposed(value, leaf), np.float32).reshape(shape)

    def not_float(self) -> str | None:
        """The first weight by name that holds no floats, if there is one. Ids of positions are no weights."""
        return min(
            (
                name
                for name, weight in self.weights.items()
                if weight.kind not in _FLOATS and not name.removesuffix(":0").endswith("_ids")
            ),
            default=None,
        )


@contextlib.contextmanager
def open_checkpoint(source: str, **how: Any) -> Iterator[Checkpoint]:
    """Opens the weights of an encoder.

    Args:
      source: its folder or hub id.
      **how: arguments of `cached_file`, for a hub id.

    Raises:
      UserError: no such files are there.
      OSError, ValueError, SafetensorError: a file cannot be read.
    """
    with contextlib.ExitStack() as files:
        weights, is_keras = {}, True
        paths, is_sharded = _paths(source, how)
        for path in paths:
            if path.suffix == ".safetensors":
                file = files.enter_context(safe_open(path, framework="numpy"))
                is_keras = (file.metadata() or {}).get("format") == "tf"
                weights |= _in_safetensors(file, is_keras)
            else:
                weights |= _in_hdf5(files.enter_context(h5py.File(path, "r")), is_sharded)
        yield Checkpoint(weights, is_keras)


def _paths(source: str, how: Mapping[str, Any]) -> tuple[list[Path], bool]:
    """(the files with an encoder's weights, whether an index names them)."""
    look = functools.partial(cached_file, source, _raise_exceptions_for_missing_entries=False, **how)
    name, path = next(((name, path) for name in WEIGHT_FILES if (path := look(name)) is not None), (None, None))
    if name is None:
        raise UserError(
            f"encoder {source}: has neither {WEIGHT_FILES[0]} nor {WEIGHT_FILES[2]}; save the weights as safetensors "
            "(PyTorch's own files are pickles, which tff-re does not read)"
        )
    if not name.endswith(_INDEX):
        return [Path(path)], False
    paths = []
    for shard in _shards(Path(path), Path(name.removesuffix(_INDEX)).suffix):
        if (path := look(shard)) is None:
            raise UserError(f"encoder {source}: lacks {shard}, which {name} lists; copy the encoder again")
        paths.append(Path(path))
    return paths, True


def _shards(index: Path, suffix: str) -> list[str]:
    """The names of files in an index."""
    content = json.loads(index.read_text("utf-8"))
    places = content.get("weight_map") if isinstance(content, dict) else None
    names = sorted(set(map(str, places.values()))) if isinstance(places, dict) else []
    if not names or any(Path(name).name != name or Path(name).suffix != suffix for name in names):
        raise ValueError(f"{index.name} does not list files {suffix} in the same folder")
    return names


def _in_safetensors(file, is_keras: bool) -> dict[str, StoredWeight]:
    # bfloat16 is a type of NumPy here: TensorFlow imports ml_dtypes, which registers it.
    weights = {}
    for name in file.keys():  # noqa: SIM118
        about = file.get_slice(name)
        read = functools.partial(file.get_tensor, name)
        weights[name if is_keras else renamed(name)] = StoredWeight(tuple(about.get_shape()), about.get_dtype(), read)
    return weights


def _in_hdf5(file: h5py.File, is_sharded: bool) -> dict[str, StoredWeight]:
    """The arrays of a file of Keras: `layer/model/name` in a single one, `name` in those that an index names."""
    weights = {}

    def look(path, item):
        if isinstance(item, h5py.Dataset):
            name = path if is_sharded else "/".join(path.split("/")[2:]) or path
            if item.external or item.is_virtual:
                raise ValueError(f"weight {name} is in another file")
            weights[name] = StoredWeight(item.shape or (), item.dtype.name, functools.partial(item.__getitem__, ()))

    file.visititems(look)
    return weights
