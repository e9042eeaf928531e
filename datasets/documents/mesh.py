"""The hierarchy of MeSH, for hypernym filtering.

Two forms are read, compressed or not:

- the National Library of Medicine's descriptors in ASCII (``d2025.bin``; ``MN = C10.228.140`` and ``UI = D001921`` in
  records that begin with ``*NEWRECORD``);
- a table with a descriptor and a tree number in each line, in either order, separated by tabs, with other columns or
  without, such as ``2017MeshTree.txt`` of earlier work; its first line may be a header.

NLM's ``mtrees*.bin`` names terms, not identifiers, and is no use here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import read_lines

_DESCRIPTOR = re.compile(r"D[0-9]{6}(?:[0-9]{3})?")
_TREE_NUMBER = re.compile(r"[A-Z][0-9]{2}(?:\.[0-9]{3})*")
_REMEDY = "give NLM's d<year>.bin, or lines of descriptor, tab, tree number"


def read_mesh_tree(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Return the tree numbers of each descriptor, in the file's order.

    Raises:
      DataError: the file cannot be read, has neither form, or a line of the table or a record is malformed.
    """
    lines = list(read_lines(path))
    records = next((content for _, content in lines if content.strip()), "") == "*NEWRECORD"
    numbers_of = _records(lines, path) if records else _table(lines, path)
    if not numbers_of:
        raise DataError("has no descriptor with a tree number", path=path, remedy=_REMEDY)
    return {descriptor: tuple(dict.fromkeys(numbers)) for descriptor, numbers in numbers_of.items()}


def _table(lines: Sequence[tuple[int, str]], path: PathLike) -> dict[str, list[str]]:
    numbers_of: dict[str, list[str]] = {}
    for line, content in lines:
        if not content.strip():
            continue
        cells = [cell.strip() for cell in content.split("\t")]
        descriptors = [cell for cell in cells if _DESCRIPTOR.fullmatch(cell)]
        numbers = [cell for cell in cells if _TREE_NUMBER.fullmatch(cell)]
        if len(descriptors) == len(numbers) == 1:
            numbers_of.setdefault(descriptors[0], []).append(numbers[0])
        elif line > 1 or descriptors or numbers:
            raise DataError("is not a descriptor and a tree number", path=path, line=line, remedy=_REMEDY)
    return numbers_of


def _records(lines: Sequence[tuple[int, str]], path: PathLike) -> dict[str, list[str]]:
    numbers_of: dict[str, list[str]] = {}
    numbers: list[str] = []
    descriptor, begun = None, 0
    for line, content in [*lines, (len(lines) + 1, "*NEWRECORD")]:
        fail = functools.partial(DataError, path=path, line=line, remedy=_REMEDY)
        key, _, value = content.partition(" = ")
        value = value.strip()
        if content.strip() == "*NEWRECORD":
            if begun and descriptor is None:
                raise fail("the record has no identifier (UI)", line=begun)
            if descriptor is not None and numbers:
                numbers_of[descriptor] = numbers
            descriptor, numbers, begun = None, [], line
        elif key == "MN":
            if not _TREE_NUMBER.fullmatch(value):
                raise fail("is not a tree number")
            numbers.append(value)
        elif key == "UI":
            if not _DESCRIPTOR.fullmatch(value) or descriptor is not None:
                raise fail("is not the record's descriptor")
            descriptor = value
    return numbers_of


def is_hypernym(above: Sequence[str], below: Sequence[str]) -> bool:
    """Return whether a tree number of `above` is an ancestor of (or the same as) one of `below`."""
    return any(low == high or low.startswith(high + ".") for high in above for low in below)
