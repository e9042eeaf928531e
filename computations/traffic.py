"""The bytes sent in a round, read from the types of the compiled computation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from computations import federated as tff
from computations.native_form import native_block


@dataclass(frozen=True)
class Traffic:
    """Bytes per client and round.

    `down` is broadcast to each client, and `up` is what each client sends.

    Values count as their types say: compressed ones by their codes, words of n bits (`words_of`) packed.
    """

    down: int
    up: int


_UPLOADS = ("federated_aggregate", "federated_sum", "federated_max", "federated_min")

_WORDS = re.compile(r"words_of_(\d+)_bits")


def words_of(bits: int) -> str:
    """Return the name of an entry whose integers are sent as words of this number of bits, whatever their type here."""
    return f"words_of_{bits}_bits"


def words_bits(name: str | None) -> int | None:
    """Return the bits of an entry that `words_of` names, or None for another name."""
    match = _WORDS.fullmatch(name or "")
    return None if match is None else int(match[1])


def type_bytes(type_spec: tff.Type, *, rows: int | None = None) -> int:
    """Return the size of a value of a TFF type.

    An entry named by `words_of` counts by its words' bits, packed.

    Args:
      type_spec: the type.
      rows: in place of each dimension of None; None: such a type has no size.

    Raises:
      ValueError: for a type whose size is not fixed (a dimension of None, a sequence, a string).
    """
    if isinstance(type_spec, tff.FederatedType):
        return type_bytes(type_spec.member, rows=rows)
    if isinstance(type_spec, tff.StructType):
        return sum(
            math.ceil(_numbers(member) * bits / 8) if bits else type_bytes(member, rows=rows)
            for name, member in tff.structure.iter_elements(type_spec)
            for bits in [words_bits(name)]
        )
    if isinstance(type_spec, tff.TensorType):
        dtype = np.dtype(type_spec.dtype)
        shape: list[Any] | None = (
            None if type_spec.shape is None else [rows if size is None else size for size in type_spec.shape]
        )
        if shape is None or None in shape or dtype.kind not in "biuf":
            raise ValueError(f"the size of {type_spec} is not fixed by its type")
        return math.prod(map(int, shape)) * dtype.itemsize
    raise ValueError(f"a value of type {type_spec} is not sent")


def _numbers(type_spec: tff.Type) -> int:
    """Return how many numbers a value of tensors of fixed shapes has."""
    if isinstance(type_spec, tff.StructType):
        return sum(map(_numbers, type_spec.children()))
    return type_bytes(type_spec) // np.dtype(type_spec.dtype).itemsize


def round_traffic(computation: tff.Computation) -> Traffic:
    """Return the traffic of a computation's native form.

    Every broadcast counts down, and every aggregation's value counts up.
    """
    down = up = 0
    for call in intrinsic_calls(computation):
        uri = call.function.uri
        if uri == "federated_broadcast":
            down += type_bytes(call.argument.type_signature)
        elif uri in _UPLOADS:
            up += type_bytes(_sent(call))
        elif uri.startswith(("federated_secure", "federated_select", "federated_mean")):
            raise ValueError(f"{uri} is not counted yet")
    return Traffic(down=down, up=up)


def uploads(computation: tff.Computation) -> list[tff.Type]:
    """Return the type of every value that leaves each client in a computation, read from its native form.

    Raises:
      ValueError: values of clients reach the server in another way than by sums, maxima and aggregates.
    """
    sent_types = []
    for call in intrinsic_calls(computation):
        if call.function.uri in _UPLOADS:
            sent_types.append(_sent(call))
        elif _places(call.argument.type_signature) - _places(call.type_signature) and tff.SERVER in _places(
            call.type_signature
        ):
            raise ValueError(f"{call.function.uri} sends values from clients to the server in an unknown way")
    return sent_types


def _sent(call: tff.framework.Call) -> tff.Type:
    """Return the type of what each client sends in an aggregation."""
    argument = call.argument.type_signature
    return (argument[0] if call.function.uri == "federated_aggregate" else argument).member


def _places(type_spec: tff.Type) -> set:
    """Return the placements of the parts of a type."""
    if isinstance(type_spec, tff.FederatedType):
        return {type_spec.placement}
    return set().union(*map(_places, type_spec.children())) if isinstance(type_spec, tff.StructType) else set()


def intrinsic_calls(computation: tff.Computation) -> list[tff.framework.Call]:
    """Return all calls of an intrinsic in the native form of a computation."""
    calls: list[tff.framework.Call] = []

    def look(block: tff.framework.ComputationBuildingBlock) -> tuple[tff.framework.ComputationBuildingBlock, bool]:
        if isinstance(block, tff.framework.Call) and isinstance(block.function, tff.framework.Intrinsic):
            calls.append(block)
        return block, False

    tff.framework.transform_postorder(native_block(computation), look)
    return calls
