"""Weights that no client trains, in files that every client's graph reads in place.

With adapters nearly all of an encoder's weights stay as they are. They are written once, one file each, and a graph
maps the files into memory (the operation `ImmutableConst`): no message carries them, no client has a copy, and all
processes of a machine share their pages.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

from tff_re.errors import UserError
from tff_re.models.keras_private import InitializedVariable, layers_in, sort_layer_weights, unwrapped


@dataclass(frozen=True)
class FixedWeights:
    """An encoder's fixed weights in files, and where its trained ones start.

    Two are equal if their files hold the same numbers.

    Attributes:
      digest: of the numbers in the files.
      shapes: of the files' arrays, float32, in the order in which the encoder makes its variables.
      folder: of the files `0`, `1`, …; removed as this process ends.
      start: the encoder's trained weights before the first round, in their order.
    """

    digest: str
    shapes: tuple[tuple[int, ...], ...]
    folder: Path = field(compare=False)
    start: tuple[np.ndarray, ...] = field(compare=False, repr=False)

    @classmethod
    def write(cls, fixed: Sequence[np.ndarray], start: Sequence[np.ndarray]) -> FixedWeights:
        """Writes float32 arrays below the folder for temporary files.

        Raises:
          UserError: the disk is full, or the folder cannot be written.
        """
        digest = hashlib.sha256()
        for array in fixed:
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array, np.float32))
        try:
            folder = _folder() / digest.hexdigest()
            folder.mkdir(exist_ok=True)
            for number, array in enumerate(fixed):
                np.ascontiguousarray(array, np.float32).tofile(folder / str(number))
        except OSError as error:
            size = sum(array.nbytes for array in fixed) / 1e6
            raise UserError(
                f"{tempfile.gettempdir()}: {size:.0f} MB of an encoder's fixed weights cannot be written "
                f"({error.strerror}); free some space, or set TMPDIR to another folder"
            ) from None
        return cls(digest.hexdigest(), tuple(array.shape for array in fixed), folder, tuple(start))

    def arrays(self) -> list[np.ndarray]:
        """The fixed weights, mapped into memory."""
        return [np.memmap(self.folder / str(n), np.float32, "r", shape=shape) for n, shape in enumerate(self.shapes)]


@functools.cache
def _folder() -> Path:
    """Of this process, for all of its fixed weights."""
    folder = Path(tempfile.mkdtemp(prefix="tff-re-fixed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class FixedVariable(InitializedVariable, tf.Variable):
    """What a Keras layer takes for a variable and is a file's content: it has a value and cannot be assigned."""

    def __init__(self, path: Path, shape: Sequence[int], name: str):
        self._path, self._fixed_shape, self._fixed_name = str(path), tf.TensorShape(shape), name

    name = property(lambda self: f"{self._fixed_name}:0")
    shape = property(lambda self: self._fixed_shape)
    dtype = property(lambda self: tf.float32)
    trainable = property(lambda self: False)
    graph = property(lambda self: tf.compat.v1.get_default_graph())
    _shared_name = property(lambda self: self._fixed_name)

    def value(self, name=None):
        """The content as a tensor of the graph that is being built."""
        return tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=self._fixed_shape, memory_region_name=self._path)

    def read_value(self):
        """As `value`."""
        return self.value()

    def _as_graph_element(self):  # which Keras asks for where a layer computes in another precision
        return self.value()

    def sparse_read(self, indices, name=None):
        """Reads these rows of the content, and no others."""
        return tf.gather(self.value(), indices)

    def __repr__(self):
        return f"<FixedVariable {self._fixed_name} {self._fixed_shape}>"


def _to_tensor(variable: FixedVariable, dtype=None, name=None, as_ref=False):
    del name, as_ref
    return variable.value() if dtype in (None, tf.float32) else NotImplemented


tf.register_tensor_conversion_function(FixedVariable, _to_tensor)


class VariableMaker:
    """Makes an encoder's variables: trained ones by their name, fixed ones from files where these are given.

    Attributes:
      fixed: the variables that are not trained, in the order in which they were made.
    """

    def __init__(self, trained: Callable[[str], bool], weights: FixedWeights | None):
        """Args:
        trained: whether a weight is, by the last part of its name (`kernel`, `bias`, …).
        weights: where the others' values are; None: they are variables, too.
        """
        self._trained, self._weights = trained, weights
        self.fixed: list[tf.Variable] = []

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """While it makes the variables. Raises ValueError where a file holds another shape than the variable's."""
        with tf.variable_creator_scope(self._create):
            yield

    def _create(self, next_creator, **kwargs):
        if self._trained(kwargs["name"].rpartition("/")[2]):
            return next_creator(**kwargs)
        if self._weights is None:
            variable = next_creator(**kwargs)
        else:
            number, shapes = len(self.fixed), self._weights.shapes
            shape = tuple(tf.TensorShape(kwargs["shape"]).as_list())
            if number >= len(shapes) or shape != shapes[number]:
                raise ValueError(f"fixed weight {number} does not have shape {shape}: it belongs to another encoder")
            variable = FixedVariable(self._weights.folder / str(number), shape, kwargs["name"])
        self.fixed.append(variable)
        return variable


def sort_weights(layer: tf.keras.layers.Layer, trained: Callable[[str], bool]) -> None:
    """Makes the weights of a built layer trainable or not by their names, and leaves out those that are files."""
    for part in layers_in(layer):
        sort_layer_weights(part, lambda w: not is_fixed(w), lambda w: trained(leaf_name(w)))


def is_fixed(variable) -> bool:
    """Whether a layer's weight is a file, in reduced precision or not."""
    return isinstance(unwrapped(variable), FixedVariable)


def leaf_name(variable) -> str:
    """The last part of a variable's name."""
    return variable.name.removesuffix(":0").rpartition("/")[2]
