"""Converts between a caller's values (NumPy, Python containers, data sets) and the leaves' values."""

from __future__ import annotations

import typing
import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tree

from computations import federated as tff


class Values:
    """Converts values in both directions and recognises arrays that it returned before.

    An array that is given out is a read-only view of a tensor's memory. When the same object comes back, as a server's
    state does in the next round, the tensor is there already: nothing is copied, to a GPU neither.
    """

    def __init__(self):
        self._lent: dict[int, tuple[weakref.ref, tf.Tensor]] = {}

    def take(self, value, type_spec: tff.Type):
        """Return a caller's value as one for leaves.

        Raises TypeError if it has the wrong type.
        """
        if isinstance(type_spec, tff.FederatedType):
            return self.take(value, type_spec.member)
        if isinstance(type_spec, tff.StructType):
            return tuple(map(self.take, _members(value, type_spec), type_spec))
        if isinstance(type_spec, tff.SequenceType):
            return _take_sequence(value, type_spec)
        if isinstance(type_spec, tff.TensorType):
            return self._take_tensor(value, type_spec)
        raise TypeError(f"a value of type {type_spec} cannot be an argument")

    def arrays(self, value, type_spec: tff.Type) -> list[np.ndarray]:
        """Return the arrays of a caller's value, depth first.

        Raises TypeError if it has the wrong type.
        """
        if isinstance(type_spec, tff.StructType):
            members = _members(value, type_spec)
            return [array for pair in zip(members, type_spec, strict=True) for array in self.arrays(*pair)]
        if not isinstance(type_spec, tff.TensorType):
            raise TypeError(f"a value of type {type_spec} cannot be an argument")
        dtype = tf.as_dtype(type_spec.dtype.type)
        value = _checked(value, type_spec)
        if dtype == tf.string and not isinstance(value, tf.Tensor):
            value = tf.convert_to_tensor(value, dtype)
        return [np.asarray(value, None if dtype == tf.string else dtype.as_numpy_dtype)]

    def give(self, value, type_spec: tff.Type):
        """Return a value of leaves like TFF's own context, with structures as `tff.structure.Struct`."""
        if isinstance(type_spec, tff.FederatedType):
            return self.give(value, type_spec.member)
        if isinstance(type_spec, tff.StructType):
            types = tff.structure.to_elements(type_spec)
            return tff.structure.Struct([(n, self.give(v, kind)) for (n, kind), v in zip(types, value, strict=True)])
        if isinstance(type_spec, tff.SequenceType):
            structure = tff.type_to_tf_structure(type_spec.element)
            return tf.data.experimental.from_variant(value, structure)
        if value.dtype == tf.string or not value.shape.rank:
            return value.numpy()
        as_numpy = np.asarray(value)
        if as_numpy.nbytes >= 4096:  # smaller arrays are copied sooner than looked up
            key = id(as_numpy)
            self._lent[key] = (weakref.ref(as_numpy, lambda _: self._lent.pop(key, None)), value)
        return as_numpy

    def give_rows(self, value, type_spec: tff.Type, num_clients: int) -> list:
        """Return values of leaves with a row for each client as a list of the clients' values."""
        if isinstance(type_spec, tff.StructType):
            types = tff.structure.to_elements(type_spec)
            members = [
                [(name, row) for row in self.give_rows(member, kind, num_clients)]
                for (name, kind), member in zip(types, value, strict=True)
            ]
            rows = zip(*members, strict=True) if members else [()] * num_clients
            return [tff.structure.Struct(list(row)) for row in rows]
        array = value.numpy()
        # A copy, so that the value of a client that is kept does not keep those of all.
        return [np.array(array[client]) if array.ndim > 1 else array[client] for client in range(num_clients)]

    def close(self) -> None:
        self._lent.clear()

    def _take_tensor(self, value, type_spec: tff.TensorType) -> tf.Tensor:
        dtype = type_spec.dtype.type
        known, tensor = self._lent.get(id(value), (None, None))
        if (
            known is not None
            and known() is value
            and tensor.dtype == tf.as_dtype(dtype)
            and tff.array.is_compatible_shape(value, type_spec.shape)
        ):
            return tensor
        value = _checked(value, type_spec)
        return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value, tf.as_dtype(dtype))


_ARRAYS = typing.get_args(tff.array.Array)
"""Types of arrays and scalars."""


def elements(value) -> list:
    """Return the elements of a caller's container as `tff.structure.from_container` orders them."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    return list(tff.structure.from_container(value))


def _members(value, type_spec: tff.StructType) -> list:
    members = elements(value)
    if len(members) != len(type_spec):
        raise TypeError(f"a value of {len(members)} elements cannot be of type {type_spec}")
    return members


def _checked(value, type_spec: tff.TensorType):
    """Return a caller's tensor, array or scalar.

    The rules for arrays are those of TFF for what it sends to a worker. Raises TypeError if it is not of the type.
    """
    dtype = type_spec.dtype.type
    if isinstance(value, tf.Variable):
        value = value.read_value()
    if isinstance(value, tf.Tensor):
        if value.dtype != tf.as_dtype(dtype) or not tf.TensorShape(type_spec.shape).is_compatible_with(value.shape):
            raise TypeError(f"a tensor of {value.dtype.name}{value.shape} cannot be of type {type_spec}")
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if not all(tff.array.is_compatible_dtype(member, dtype) for member in tree.flatten(value)):
            raise TypeError(f"a {type(value).__name__} of other members cannot be of type {type_spec}")
        value = np.asarray(value, dtype)
    elif not isinstance(value, _ARRAYS):
        raise TypeError(f"a {type(value).__name__} cannot be of type {type_spec}")
    if not tff.array.is_compatible_shape(value, type_spec.shape) or not tff.array.is_compatible_dtype(value, dtype):
        shape = getattr(value, "shape", ())
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"an array of {kind}{list(shape)} cannot be of type {type_spec}")
    return value


def _take_sequence(value, type_spec: tff.SequenceType) -> tf.Tensor:
    if isinstance(value, list):
        value = tff.sequence_from_elements(value, type_spec.element)
        return tf.data.experimental.to_variant(value)
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(f"a {type(value).__name__} cannot be of type {type_spec}")
    actual = tff.SequenceType(tff.types.tensorflow_to_type(value.element_spec))
    if not type_spec.is_assignable_from(actual):
        raise TypeError(f"a data set of type {actual} cannot be of type {type_spec}")
    return tf.data.experimental.to_variant(value)
