"""A program state with its small arrays in one, for checkpoints.

TFF's program state manager writes a SavedModel with a variable for every array. A variable costs some four
milliseconds, whatever its size, and the states of a hundred clients are a thousand of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import tree
from safetensors import numpy as safetensors

_SMALL = 2**16  # bytes; a larger array is not copied
_NUMBERS = "biuf"  # kinds of NumPy's types


def packed(state: Any) -> OrderedDict:
    """What a checkpoint holds of a program state.

    Args:
      state: nested containers of arrays (or eager tensors).

    Returns:
      `small`, uint8 [bytes]: the small arrays by name, in the form of safetensors; and `large`, a list of the others,
      with None in the places of the small ones.
    """
    small, large = {}, []
    for name, leaf in _named(state):
        array = np.asarray(leaf)
        is_small = array.nbytes <= _SMALL and array.dtype.kind in _NUMBERS
        if is_small:
            small[name] = array
        large.append(None if is_small else leaf)
    return OrderedDict(small=np.frombuffer(safetensors.save(small), np.uint8), large=large)


def blank(structure: Any) -> OrderedDict:
    """A packed state of the same structure as that of any state with this structure."""
    return OrderedDict(small=np.zeros(0, np.uint8), large=[None] * len(tree.flatten(structure)))


def unpacked(packed: OrderedDict, structure: Any) -> Any:
    """The program state, with NumPy arrays in the containers of `structure`.

    Raises:
      ValueError: it is not a state of this structure.
    """
    small = safetensors.load(np.asarray(packed["small"], np.uint8).tobytes())
    names = [name for name, _ in _named(structure)]
    if {name for name, leaf in zip(names, packed["large"], strict=True) if leaf is None} != small.keys():
        raise ValueError("not a state of this structure")
    leaves = [small[name][()] if leaf is None else leaf for name, leaf in zip(names, packed["large"], strict=True)]
    return tree.unflatten_as(structure, leaves)


def _named(structure: Any) -> list[tuple[str, Any]]:
    """The leaves with their names, which no two have in common whatever the keys are."""
    leaves = enumerate(tree.flatten_with_path(structure))
    return [(f"{index} {'/'.join(map(str, path))}", leaf) for index, (path, leaf) in leaves]
