"""The form of a computation that TFF's worker runs, compiled once for all who need it."""

from __future__ import annotations

import functools

import tensorflow_federated as tff


@functools.lru_cache(maxsize=64)
def native_form(computation: tff.Computation) -> tff.Computation:
    """What the execution context runs and what `round_traffic` reads; a transformer's takes half a minute to make."""
    return tff.backends.native.desugar_and_transform_to_native(computation)
