"""Clients' values as arguments of one function: in few arrays, and divided over lanes (see `one_call`)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from computations import federated as tff


def tensor_types(kind: tff.Type) -> Iterator[tff.TensorType]:
    """Yield the types of a structure's tensors, depth first."""
    if isinstance(kind, tff.FederatedType):
        yield from tensor_types(kind.member)
    elif isinstance(kind, tff.StructType):
        for member in kind.children():
            yield from tensor_types(member)
    else:
        yield kind


def structure_of(kind: tff.Type, tensors: Iterator):
    """Return a value of a type from its tensors, depth first."""
    if isinstance(kind, tff.FederatedType):
        return structure_of(kind.member, tensors)
    if isinstance(kind, tff.StructType):
        return tuple([structure_of(member, tensors) for member in kind.children()])
    return next(tensors)


def spec_of(kind: tff.TensorType) -> tf.TensorSpec:
    return tf.TensorSpec(kind.shape, tf.as_dtype(kind.dtype.type))


def packed_arrays(arrays: Sequence[np.ndarray], kind: tff.TensorType) -> tuple[np.ndarray, ...]:
    """Return the clients' arrays as one, with a row for each client if the shape is fixed.

    Otherwise they are flat, one after the other, followed by where each of them begins and ends, and their shapes.
    """
    shape, dtype = tf.TensorShape(kind.shape), tf.as_dtype(kind.dtype.type).as_numpy_dtype
    if shape.is_fully_defined():
        return (np.stack(arrays) if arrays else np.zeros([0, *shape], dtype),)
    flat = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros([0], dtype)
    bounds = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
    return flat, bounds, np.array([array.shape for array in arrays], np.int32).reshape(len(arrays), shape.rank)


def packed_specs(kind: tff.TensorType) -> list[tf.TensorSpec]:
    """Return the specs of what `packed_arrays` returns."""
    spec = spec_of(kind)
    if spec.shape.is_fully_defined():
        return [tf.TensorSpec([None, *spec.shape], spec.dtype)]
    bounds, shapes = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, spec.shape.rank], tf.int32)
    return [tf.TensorSpec([None], spec.dtype), bounds, shapes]


def unpacked(packed: Sequence[tf.Tensor], client: tf.Tensor, kind: tff.TensorType) -> tf.Tensor:
    """Return a client's tensor from what `packed_arrays` returned."""
    if len(packed) == 1:
        return packed[0][client]
    flat, bounds, shapes = packed
    return tf.ensure_shape(tf.reshape(flat[bounds[client] : bounds[client + 1]], shapes[client]), kind.shape)


def divided(num_clients: int, sizes: np.ndarray, num_lanes: int) -> list[np.ndarray]:
    """Divide clients over lanes: the largest first, each to the lane with the least so far."""
    lanes = [[] for _ in range(num_lanes)]
    loads = [(0.0, lane) for lane in range(num_lanes)]
    for client in np.argsort(-sizes[:num_clients], kind="stable"):
        load, lane = heapq.heappop(loads)
        lanes[lane].append(client)
        heapq.heappush(loads, (load + sizes[client], lane))
    return [np.array(lane, np.int32) for lane in lanes]
