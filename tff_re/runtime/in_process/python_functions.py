"""Python inside of computations: `tf.py_function` and `tf.numpy_function`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tensorflow.python.ops import script_ops


@contextlib.contextmanager
def kept_python_functions() -> Iterator[None]:
    """Keeps the Python functions that computations built in the block call.

    TensorFlow keeps such a function as long as the graph that it was written into, and TFF throws that graph away as
    soon as it is serialized.
    """
    registry, kept = script_ops._py_funcs, []
    insert = registry.insert

    def keep(function):
        kept.append(function)
        return insert(function)

    registry.insert = keep
    try:
        yield
    finally:
        if registry.insert is keep:
            registry.insert = insert
