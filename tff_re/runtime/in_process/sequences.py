"""The intrinsics that make or take sequences, element by element; functions for `graph.Applied`."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_re.runtime.in_process.values import Values, dataset, variant_of


def selected(element: tff.Type) -> Callable:
    """`federated_select` for one client: what the program gives for (the server's value, each of the client's keys)."""

    def function(cancelled, argument, select):
        server_value, keys = argument
        return _sequence([select((server_value, key)) for key in tf.unstack(keys)], element)

    return function


def mapped(source: tff.Type, element: tff.Type) -> Callable:
    """`sequence_map`: from (sequence,) to the sequence of what the program gives for each element."""

    def function(cancelled, argument, program):
        return _sequence([program(member) for member in _elements(*argument, source)], element)

    return function


def reduced(source: tff.Type) -> Callable:
    """`sequence_reduce`: from (sequence, zero) to what the program gives for (result so far, each element)."""

    def function(cancelled, argument, program):
        sequence, result = argument
        for member in _elements(sequence, source):
            result = program((result, member))
        return result

    return function


def total(element: tff.Type) -> Callable:
    """`sequence_sum`: from (sequence,) to the sum of its elements."""

    def function(cancelled, argument):
        zero = tff.types.type_conversions.structure_from_tensor_type_tree(
            lambda tensor_type: tf.zeros(tensor_type.shape, tensor_type.dtype), element
        )
        result = Values().take(zero, element)
        for member in _elements(*argument, element):
            result = _added(result, member)
        return result

    return function


def _elements(variant: tf.Tensor, element: tff.Type):
    values = Values()
    for member in dataset(variant, element):
        yield values.take(member, element)


def _sequence(members: list, element: tff.Type) -> tf.Tensor:
    values = Values()
    return variant_of([values.give(member, element) for member in members], element)


def _added(one, other):
    if isinstance(one, tuple):
        return tuple(map(_added, one, other))
    return one + other
