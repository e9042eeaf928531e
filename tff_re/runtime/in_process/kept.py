"""Values of clients that are stored for a later pass, in memory up to a bound and then in a temporary file."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tff_re.runtime.errors import RuntimeProblem

MOST_IN_MEMORY = 64 * 2**20
"""Bytes of one call. What a round keeps of all clients does not grow beyond it, whatever their number."""

SMALLEST = 4096
"""Bytes of a tensor that is worth a place in a file."""


@dataclass(frozen=True)
class _Filed:
    """A tensor in the file."""

    start: int
    shape: tuple[int, ...]
    dtype: tf.DType


class _Read(dict):
    """A client's values by name, read when requested."""

    def __init__(self, store: Kept, stored: Mapping):
        self._store, self._stored = store, stored

    def __missing__(self, name):
        value = self[name] = self._store.map(self._store.read, self._stored[name])
        return value


class Kept:
    """The stored values of one call, with one thread at a time for each client."""

    def __init__(self, num_clients: int, returned: frozenset):
        """Create the store.

        `returned` names the values that the caller gets, which have to be in memory at the end.
        """
        self._stored: list[dict] = [{} for _ in range(num_clients)]
        self._returned, self._lock = returned, threading.Lock()
        self._held = self._end = self._filed = 0
        self._file = None

    def of(self, client: int) -> _Read:
        """Return what was added for a client."""
        return _Read(self, self._stored[client])

    def add(self, client: int, values: Mapping) -> None:
        for name, value in values.items():
            self._stored[client][name] = value if name in self._returned else self.map(self._store, value)

    def forget(self, client: int, names) -> None:
        for name in names:
            stored = self._stored[client].pop(name, None)
            if stored is not None and name not in self._returned:
                self.map(self._free, stored)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def map(self, function, value):
        """Map a function over the tensors of a structure."""
        return tuple(self.map(function, v) for v in value) if isinstance(value, tuple) else function(value)

    def _store(self, tensor):
        if not _may_be_filed(tensor):
            return tensor
        size = _size(tensor)
        with self._lock:
            if self._held + size <= MOST_IN_MEMORY:
                self._held += size
                return tensor
            self._file = self._file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            filed = _Filed(self._end, tuple(tensor.shape), tensor.dtype)
            self._end += size
            self._filed += 1
        data = memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], filed.start + done)
        except OSError as error:
            raise RuntimeProblem(
                f"what clients keep between the stages of a round cannot be written ({error.strerror}); free some "
                "space in the folder for temporary files, or name another one by the environment variable TMPDIR"
            ) from error
        return filed

    def read(self, stored):
        """Read the tensor."""
        if not isinstance(stored, _Filed):
            return stored
        array, done = np.empty(_size(stored), np.uint8), 0
        while done < len(array):
            done += os.preadv(self._file.fileno(), [memoryview(array)[done:]], stored.start + done)
        return tf.constant(array.view(stored.dtype.as_numpy_dtype).reshape(stored.shape))

    def _free(self, stored) -> None:
        with self._lock:
            if isinstance(stored, _Filed):
                self._filed -= 1
                if not self._filed:
                    self._end = 0
                    self._file.truncate(0)
            elif _may_be_filed(stored):
                self._held -= _size(stored)


def _size(tensor: tf.Tensor | _Filed) -> int:
    """Return the bytes of a value."""
    return int(np.prod(tensor.shape)) * tensor.dtype.size


def _may_be_filed(tensor: tf.Tensor) -> bool:
    kind = tensor.dtype
    return (kind.is_floating or kind.is_integer or kind.is_bool) and _size(tensor) >= SMALLEST
