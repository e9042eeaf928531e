"""What clients keep between rounds, in a simulation: only of clients that were asked, in files that checkpoints share.

A checkpoint writes the states that changed since the one before into a file of its own, and merges files into it that
are at most twice as large. So a state is written a few times, whatever the number of clients, and all files together
are less than twice as large as the states of the clients that were asked. A file is never changed.

A file has the form of safetensors: `clients`, int64 [n], in increasing order; `shapes`, int64 [n, d], the dimensions
of a client's arrays, one array after the other; `states`, uint8, the bytes of these arrays, client after client.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tree

from datasets.files import replace_file
from tff_re.errors import UserError

_MERGED = 2.0
"""An earlier file of up to so many times the size of the new one is merged into it."""


class ClientStates(Sequence):
    """The states of K clients by their indices.

    The state of a client that was never asked is made when it is read. States in files are read when they are asked
    for, and not kept in memory.
    """

    def __init__(self, number: int, blank: Callable[[int], Any]):
        """Makes states of which none was set.

        Args:
          number: K.
          blank: index -> what this client starts with; all have the same structure and dtypes.
        """
        self._number, self._blank = number, blank
        self._changed: dict[int, Any] = {}
        self._files: tuple[_StatesFile, ...] = ()

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._number:
            raise IndexError(f"there are {self._number} clients, but the index is {index}")
        if index in self._changed:
            return self._changed[index]
        for file in reversed(self._files):
            if (position := file.position(index)) is not None:
                return file.state(position, self._blank(index))
        return self._blank(index)

    def __setitem__(self, index: int, state: Any) -> None:
        if not 0 <= index < self._number:
            raise IndexError(f"there are {self._number} clients, but the index is {index}")
        self._changed[int(index)] = state

    def snapshot(self) -> ClientStates:
        """The states as they are now: setting one here does not change it there. The states are not copied."""
        copy = ClientStates(self._number, self._blank)
        copy._changed, copy._files = dict(self._changed), self._files
        return copy

    @property
    def files(self) -> list[list]:
        """The files of the written states, the oldest first: [name, SHA-256] of each, for a checkpoint."""
        return [[file.path.name, file.digest] for file in self._files]

    def write(self, path: Path) -> None:
        """Writes what changed into a file, which is then one of `files`. An interruption leaves all as it was."""
        if not self._changed:
            return
        files, merged = list(self._files), []
        clients, size = np.array(sorted(self._changed), np.int64), sum(map(_bytes_of, self._changed.values()))
        while files and files[-1].size <= _MERGED * size:
            merged.append(files.pop())
            more = np.setdiff1d(merged[-1].clients, clients)
            size += int(merged[-1].sizes[np.searchsorted(merged[-1].clients, more)].sum())
            clients = np.union1d(clients, more)
        shapes = np.array([self._stored(int(client), merged)[0] for client in clients], np.int64)
        states = (self._stored(int(client), merged)[1]() for client in clients)
        digest = _write(path, clients, shapes.reshape(len(clients), -1), states, size)
        self._files, self._changed = (*files, _StatesFile(path, digest, self._blank(0))), {}

    def _stored(self, client: int, merged: Sequence[_StatesFile]) -> tuple[list[int], Callable[[], bytes]]:
        """(dimensions, what reads the bytes) of a state that changed, or is in one of these files, the newest first."""
        if client in self._changed:
            leaves = [np.asarray(leaf) for leaf in tree.flatten(self._changed[client])]
            return [n for leaf in leaves for n in leaf.shape], lambda: b"".join(leaf.tobytes() for leaf in leaves)
        file, position = next((file, at) for file in merged if (at := file.position(client)) is not None)
        return file.shapes[position].tolist(), lambda: file.bytes_of(position)

    def read(self, folder: Path, files: Sequence[Sequence[str]]) -> None:
        """Takes the states of `files`.

        Raises:
          UserError: a file is missing or damaged, or its states are not of these clients; names it.
        """
        self._files = tuple(_StatesFile(folder / name, digest, self._blank(0), check=True) for name, digest in files)
        self._changed = {}
        for file in self._files:
            if len(file.clients) and int(file.clients[-1]) >= self._number:
                raise UserError(f"{file.path}: holds states of more clients than this run has; put the original back")


class _StatesFile:
    """A file of states, mapped into memory."""

    def __init__(self, path: Path, digest: str, blank: Any, *, check: bool = False):
        self.path, self.digest = path, digest
        damaged = UserError(f"{path}: is damaged; put it back, or train into another --out")
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; put it back, or train into another --out") from None
        except ValueError:  # it is empty
            raise damaged from None
        if check and hashlib.sha256(self._bytes).hexdigest() != digest:
            raise damaged
        try:
            (length,) = struct.unpack("<Q", self._bytes[:8])
            header = json.loads(self._bytes[8 : 8 + length])
            offsets = {name: 8 + length + entry["data_offsets"][0] for name, entry in header.items()}
            number, dims = header["shapes"]["shape"]
            self.clients = np.frombuffer(self._bytes, np.int64, number, offsets["clients"])
            self.shapes = np.frombuffer(self._bytes, np.int64, number * dims, offsets["shapes"]).reshape(number, dims)
            leaves = [np.asarray(leaf) for leaf in tree.flatten(blank)]
            self.sizes = np.zeros(number, np.int64)
            for leaf, columns in zip(leaves, _columns(leaves), strict=True):
                self.sizes += self.shapes[:, columns].prod(axis=1) * leaf.dtype.itemsize
            if dims != sum(leaf.ndim for leaf in leaves) or self.sizes.sum() != header["states"]["shape"][0]:
                raise ValueError(header)
        except (ValueError, KeyError, TypeError, struct.error):
            raise damaged from None
        self._ends = offsets["states"] + np.cumsum(self.sizes)
        self.size = int(self.sizes.sum())

    def position(self, client: int) -> int | None:
        """Where a client's state is, or None if it is not here."""
        position = int(np.searchsorted(self.clients, client))
        return position if position < len(self.clients) and self.clients[position] == client else None

    def bytes_of(self, position: int) -> bytes:
        """The bytes of a state."""
        return self._bytes[self._ends[position] - self.sizes[position] : self._ends[position]]

    def state(self, position: int, blank: Any) -> Any:
        """A state in the containers of `blank`."""
        leaves, content, start = [np.asarray(leaf) for leaf in tree.flatten(blank)], self.bytes_of(position), 0
        values = []
        for leaf, columns in zip(leaves, _columns(leaves), strict=True):
            shape = self.shapes[position, columns]
            end = start + int(shape.prod()) * leaf.dtype.itemsize
            # A slice of bytes is a copy, and aligned; [()] makes a scalar of an array without dimensions.
            values.append(np.frombuffer(content[start:end], leaf.dtype).reshape(shape)[()])
            start = end
        return tree.unflatten_as(blank, values)


def _columns(leaves: Sequence[np.ndarray]) -> list[slice]:
    """The columns of `shapes` that each array has."""
    ends = np.cumsum([leaf.ndim for leaf in leaves])
    return [slice(end - leaf.ndim, end) for leaf, end in zip(leaves, ends, strict=True)]


def _bytes_of(state: Any) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in tree.flatten(state))


def _write(path: Path, clients: np.ndarray, shapes: np.ndarray, states: Iterable[bytes], size: int) -> str:
    """Writes a file of `size` bytes of states, whole or not at all, and returns its SHA-256."""
    header, end, digest = {}, 0, hashlib.sha256()
    for name, dtype, shape, length in (
        ("clients", "I64", clients.shape, clients.nbytes),
        ("shapes", "I64", shapes.shape, shapes.nbytes),
        ("states", "U8", (size,), size),
    ):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (end, end + length)}
        end += length
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)  # so that numbers are aligned

    def pieces() -> Iterator[bytes]:
        for piece in itertools.chain((struct.pack("<Q", len(text)), text, clients.tobytes(), shapes.tobytes()), states):
            digest.update(piece)
            yield piece

    replace_file(path, pieces())
    return digest.hexdigest()
