"""A call of a computation as one TensorFlow function, for clients whose values are small.

Calling a function costs tenths of a millisecond, whatever is in it. Stage by stage (`stages`) a round takes four such
calls for each client, which is most of the time of a round with a small model. Here one graph has all of them:

    for each stage:
        for each lane, side by side:  for each client of the lane:  the client's steps
        for each client, in order:    add what it gives to the sums
        the server's steps

Each leaf computes in it what it computes in the stages, from the same numbers and in the same order of clients, so both
ways give the same bits. As many lanes as threads are side by side; each has variables of its own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.traffic import type_bytes
from tff_re.runtime.compiled_form import Name, Step
from tff_re.runtime.in_process import leaves
from tff_re.runtime.in_process.client_arrays import (
    divided,
    packed_arrays,
    packed_specs,
    spec_of,
    structure_of,
    tensor_types,
    unpacked,
)
from tff_re.runtime.in_process.devices import gpu_names
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation, Copy, Leaf
from tff_re.runtime.in_process.stages import Plan, Stage

MAX_BYTES = 64 * 2**20
"""Largest size of what all clients of a call give, and of their arguments. With more, a call goes through the stages,
which hold few clients' values at a time."""

FIRST_CALL = 2
"""The call of a computation that is the first to run as one function. Building its graph takes some tenths of a second
more than the stages need, which a single call would not win back."""


class OneCall:
    """Runs a plan as one function, if `fits` says so."""

    def __init__(self, plan: Plan, threads: int):
        """Create it without building the graph.

        Args:
          plan: what to run.
          threads: how many clients are computed side by side.
        """
        self.plan, self._threads = plan, threads
        self._bytes = None if gpu_names() else _bytes_a_client(plan)
        self._graph: _Graph | None = None
        self._calls = 0
        self._lock = threading.Lock()

    def fits(self, num_clients: int) -> bool:
        """Return whether a call with this number of clients may run as one function.

        The rule: the computation has clients. No argument is a sequence, and all that clients give in a stage has
        fixed shapes. What they give is at most `MAX_BYTES`. There is no GPU: there a client's values go to the memory
        of the device anyway, and this was not measured.
        """
        return self._bytes is not None and self._bytes * num_clients <= MAX_BYTES

    def run(
        self,
        num_clients: int,
        at_server: Callable[[Step], object],
        at_clients: Callable[[Step], list[list[np.ndarray]]],
        cancelled: Cancellation,
    ) -> dict[Name, object] | None:
        """Return the parts of the result by name, or None if nothing was computed.

        A part at the clients is a structure of tensors with a row for each client. Nothing is computed before
        `FIRST_CALL`, if the arguments have more than `MAX_BYTES`, or while another thread uses the variables.

        Args:
          num_clients: how many.
          at_server: the value of a part of the argument at the server.
          at_clients: the arrays of each client's part of the argument, depth first.
          cancelled: what ends the call.

        Raises:
          tf.errors.OpError: a leaf failed.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._calls += 1
            if self._calls < FIRST_CALL:
                return None
            arguments = {}
            for step in _argument_steps(self.plan):
                if step.per_client:
                    kinds, of_clients = list(tensor_types(step.type_signature)), at_clients(step)
                    columns = zip(*of_clients, strict=True) if of_clients else [()] * len(kinds)
                    arguments[step.name] = list(map(packed_arrays, columns, kinds))
                else:
                    arguments[step.name] = at_server(step)
            if _bytes_of_clients(self.plan, arguments) > MAX_BYTES:
                return None
            lanes = max(min(self._threads, num_clients), 1)
            if self._graph is None or self._graph.num_lanes < lanes:
                self._close_graph()
                self._graph = _Graph(self.plan, lanes)
            return self._graph(num_clients, arguments, cancelled)
        finally:
            self._lock.release()

    @property
    def held_nodes(self) -> int:
        """The number of graph nodes in the copies of leaves, those of the one function included."""
        return self.plan.held_nodes + (0 if self._graph is None else self._graph.held_nodes)

    def close(self) -> None:
        """Free the leaves of the plan and of the graph.

        A later call makes them again.
        """
        self._close_graph()
        self.plan.close()

    def _close_graph(self) -> None:
        if self._graph is not None:
            self._graph.close()
            self._graph = None


# Types and arguments.


def _argument_steps(plan: Plan) -> list[Step]:
    return [step for step in plan.all_steps.values() if step.is_argument]


def _types_from_clients(plan: Plan, stage: Stage) -> list[tff.Type]:
    """Return the types of what clients give in a stage: what is stored, then what is added to the sums."""
    stored = [plan.all_steps[name].type_signature for name in stage.stored]
    return stored + [aggregation.value_type for aggregation in stage.sums]


def _bytes_a_client(plan: Plan) -> int | None:
    """Return the bytes of what a client gives, or None where the rule of `OneCall.fits` refuses the computation."""
    arguments = [step.type_signature for step in _argument_steps(plan)]
    outputs = [kind for stage in plan.stages for kind in _types_from_clients(plan, stage)]
    if not plan.stages or any(tff.types.contains(kind, _is_sequence) for kind in arguments):
        return None
    if any(tff.types.contains(kind, _has_no_fixed_size) for kind in outputs):
        return None
    return sum(type_bytes(kind.member) for kind in outputs)


def _is_sequence(kind: tff.Type) -> bool:
    return isinstance(kind, tff.SequenceType)


def _has_no_fixed_size(kind: tff.Type) -> bool:
    if isinstance(kind, tff.TensorType):
        return kind.dtype.type is np.str_ or not tf.TensorShape(kind.shape).is_fully_defined()
    return not isinstance(kind, (tff.StructType, tff.FederatedType))


def _bytes_of_clients(plan: Plan, arguments: Mapping[Name, object]) -> int:
    packed = [arguments[step.name] for step in _argument_steps(plan) if step.per_client]
    return sum(array.nbytes for parts in packed for arrays in parts for array in arrays)


# The graph.


class _Caller:
    """Calls leaves in a graph that is being built.

    It stands in scopes in place of a `Cancellation`.

    Its calls are one after the other. It has a copy of each leaf that keeps state, because two callers run at the same
    time.

    Attributes:
      after: what the next call waits for.
    """

    def __init__(self):
        self.after: list[tf.Tensor] = []
        self._copies: dict[Leaf, Copy] = {}

    def call(self, leaf: Leaf, argument=None):
        if leaf not in self._copies:
            self._copies[leaf] = leaf.new_copy()
        with tf.control_dependencies(self.after):
            value, computed = self._copies[leaf].in_graph(argument)
        self.after = computed or self.after
        return value

    @property
    def held_nodes(self) -> int:
        return sum(leaf.nodes for leaf in self._copies)

    def close(self) -> None:
        for copy in self._copies.values():
            copy.close()


@dataclass
class _Clients:
    """The clients of a call, in the graph.

    Attributes:
      lanes: each lane's clients, int32 [n].
      rows: for each client, its place in the lanes one after the other, int32 [number of clients].
      arguments: name -> what `packed_arrays` returned, for each tensor.
      stored: name -> what the clients stored, a list of TensorFlow for each tensor (see `_empty_list`).
    """

    lanes: list[tf.Tensor]
    rows: tf.Tensor
    arguments: dict[Name, list[list[tf.Tensor]]]
    stored: dict[Name, list[tf.Tensor]]


class _Stored(dict):
    """What a client stored in earlier stages, read when it is used."""

    def __init__(self, clients: _Clients, plan: Plan, row: tf.Tensor):
        self._clients, self._plan, self._row = clients, plan, row

    def __missing__(self, name: Name):
        kind, lists = self._plan.all_steps[name].type_signature, self._clients.stored[name]
        value = self[name] = _item(kind, lists, self._row)
        return value


class _Graph:
    """The function of a plan, with a number of lanes."""

    def __init__(self, plan: Plan, num_lanes: int):
        self._plan, self.num_lanes = plan, num_lanes
        self._server, self._adding = _Caller(), _Caller()
        self._lanes = [_Caller() for _ in range(num_lanes)]
        specs = [tf.TensorSpec([None], tf.int32)] * (num_lanes + 1)
        for step in _argument_steps(plan):
            for kind in tensor_types(step.type_signature):
                specs += packed_specs(kind) if step.per_client else [spec_of(kind)]
        self._function = tf.compat.v1.wrap_function(self._body, specs)

    def __call__(self, num_clients: int, arguments: Mapping[Name, object], cancelled: Cancellation):
        """See `OneCall.run`."""
        flat, sizes = [], np.ones([num_clients])
        for step in _argument_steps(self._plan):
            if not step.per_client:
                flat += tf.nest.flatten(arguments[step.name])
                continue
            for arrays in arguments[step.name]:
                flat += map(tf.convert_to_tensor, arrays)
                sizes += np.diff(arrays[1]) if len(arrays) > 1 else 0
        lanes = divided(num_clients, sizes, self.num_lanes)
        rows = np.argsort(np.concatenate(lanes)).astype(np.int32)
        with cancelled.managed() as manager:
            results = leaves.run_function(self._function, [*map(tf.convert_to_tensor, [*lanes, rows]), *flat], manager)
        remaining = iter(results)
        return {
            name: structure_of(self._plan.all_steps[name].type_signature, remaining) for name in self._plan.result_names
        }

    @property
    def _callers(self) -> tuple[_Caller, ...]:
        return (self._server, self._adding, *self._lanes)

    @property
    def held_nodes(self) -> int:
        """The number of graph nodes in the copies of leaves."""
        return sum(caller.held_nodes for caller in self._callers)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def _body(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        steps, remaining, at_server = self._plan.all_steps, iter(tensors), {}
        lanes = [next(remaining) for _ in self._lanes]
        clients = _Clients(lanes, next(remaining), {}, {})
        for step in _argument_steps(self._plan):
            if step.per_client:
                kinds = tensor_types(step.type_signature)
                clients.arguments[step.name] = [[next(remaining) for _ in packed_specs(kind)] for kind in kinds]
            else:
                at_server[step.name] = structure_of(step.type_signature, remaining)
        values: dict[object, object] = {CANCELLATION: self._server}
        self._plan.run(values, lambda step: at_server[step.name], functools.partial(self._totals, clients))
        result = []
        for name in self._plan.result_names:
            if steps[name].per_client:
                kinds = tensor_types(steps[name].type_signature)
                result += [_rows(*part, clients.rows) for part in zip(clients.stored[name], kinds, strict=True)]
            else:
                result += tf.nest.flatten(values[name])
        return [tf.identity(tensor) for tensor in result]

    def _totals(self, clients: _Clients, stage: Stage, scope: Scope) -> list[object]:
        """Return the sums of a stage, and add what it stores to `clients.stored`."""
        types = [list(tensor_types(kind)) for kind in _types_from_clients(self._plan, stage)]
        kinds = [kind for tensors in types for kind in tensors]
        lanes = zip(clients.lanes, self._lanes, strict=True)
        of_lanes = [self._lane(clients, stage, scope, indices, kinds, caller) for indices, caller in lanes]
        joined = iter([_one_list(lists, kind) for *lists, kind in zip(*of_lanes, kinds, strict=True)])
        outputs = [[next(joined) for _ in tensors] for tensors in types]
        clients.stored.update(zip(stage.stored, outputs, strict=False))
        return self._added(clients, stage, scope, outputs[len(stage.stored) :])

    def _lane(self, clients: _Clients, stage: Stage, scope: Scope, indices, kinds, caller: _Caller) -> list[tf.Tensor]:
        """Return what the clients of a lane give in a stage, a list of TensorFlow for each of `kinds`."""

        def body(index, *lists):
            caller.after, client = [index], indices[index]
            values: dict[object, object] = {CANCELLATION: caller}
            inner = Scope(values, _Stored(clients, self._plan, clients.rows[client]), *scope.maps)
            for step in stage.steps:
                if step.is_argument:
                    parts = zip(clients.arguments[step.name], tensor_types(step.type_signature), strict=True)
                    tensors = (unpacked(packed, client, kind) for packed, kind in parts)
                    values[step.name] = structure_of(step.type_signature, tensors)
                else:
                    values[step.name] = self._plan.compute(step, inner)
            outputs = [*(values[name] for name in stage.stored), *(a.value(inner) for a in stage.sums)]
            pairs = zip(lists, tf.nest.flatten(outputs), strict=True)
            return [tf.raw_ops.TensorListSetItem(input_handle=to, index=index, item=item) for to, item in pairs]

        def lane():
            caller.after, size = [], tf.size(indices)
            return _loop(size, body, [_empty_list(kind, size) for kind in kinds], caller)

        # A function that is not merged into the graph runs in threads of its own. Small operations of one graph do not.
        before, apart = caller.after, {"_noinline": True}
        function = tf.function(lane, autograph=False, experimental_attributes=apart).get_concrete_function()
        with tf.control_dependencies(before):
            lists = leaves.call_in_graph(function, [])
        caller.after = lists or before
        return lists

    def _added(self, clients: _Clients, stage: Stage, scope: Scope, outputs: list[list[tf.Tensor]]) -> list[object]:
        """Return the sums of a stage: what clients give is added in their order."""
        if not stage.sums:
            return []

        def body(client, *totals):
            self._adding.after, row, flat, remaining = [client], clients.rows[client], [], iter(totals)
            inner = Scope({CANCELLATION: self._adding}, *scope.maps)
            for aggregation, lists in zip(stage.sums, outputs, strict=True):
                total = structure_of(aggregation.type, remaining)
                added = aggregation.accumulate(inner)((total, _item(aggregation.value_type, lists, row)))
                kinds = tensor_types(aggregation.type)
                flat += map(_shaped, tf.nest.flatten(added), kinds)
            return flat

        kinds = [kind for aggregation in stage.sums for kind in tensor_types(aggregation.type)]
        zeros = tf.nest.flatten([aggregation.zero(scope) for aggregation in stage.sums])
        totals = iter(_loop(tf.size(clients.rows), body, list(map(_shaped, zeros, kinds)), self._adding, kinds))
        return [structure_of(aggregation.type, totals) for aggregation in stage.sums]


def _loop(size: tf.Tensor, body: Callable, start: list[tf.Tensor], caller: _Caller, kinds=None) -> list[tf.Tensor]:
    """Return the loop variables after calling `body(index, *variables)` for each index.

    An iteration begins when the calls of the caller in the one before have ended.
    """

    def step(index, *variables):
        changed = body(index, *variables)
        with tf.control_dependencies(caller.after):
            return [index + 1, *changed]

    with tf.control_dependencies(caller.after):
        first = tf.identity(tf.constant(0))
    shapes = [tf.TensorShape([]) for _ in start] if kinds is None else [spec_of(kind).shape for kind in kinds]
    ended, *variables = tf.while_loop(
        lambda index, *_: index < size,
        step,
        [first, *start],
        shape_invariants=[tf.TensorShape([]), *shapes],
        parallel_iterations=1,
    )
    caller.after = [ended]
    return variables


def _shaped(tensor: tf.Tensor, kind: tff.TensorType) -> tf.Tensor:
    """Return a tensor whose shape is known as far as its type tells it."""
    return tf.ensure_shape(tensor, kind.shape)


# Lists of TensorFlow hold tensors without copying them.


def _empty_list(kind: tff.TensorType, size: tf.Tensor) -> tf.Tensor:
    spec = spec_of(kind)
    return tf.raw_ops.TensorListReserve(element_shape=spec.shape, num_elements=size, element_dtype=spec.dtype)


def _one_list(lists: Sequence[tf.Tensor], kind: tff.TensorType) -> tf.Tensor:
    dtype = spec_of(kind).dtype
    return functools.reduce(
        lambda a, b: tf.raw_ops.TensorListConcatLists(input_a=a, input_b=b, element_dtype=dtype), lists
    )


def _item(kind: tff.Type, lists: Sequence[tf.Tensor], row: tf.Tensor):
    """Return the value of a type in a row of its tensors' lists."""
    specs = map(spec_of, tensor_types(kind))
    tensors = [
        tf.raw_ops.TensorListGetItem(input_handle=i, index=row, element_shape=spec.shape, element_dtype=spec.dtype)
        for i, spec in zip(lists, specs, strict=True)
    ]
    return structure_of(kind, iter(tensors))


def _rows(values: tf.Tensor, kind: tff.TensorType, rows: tf.Tensor) -> tf.Tensor:
    """Return some rows of a list as one tensor."""
    spec = spec_of(kind)
    return tf.raw_ops.TensorListGather(
        input_handle=values, indices=rows, element_shape=spec.shape, element_dtype=spec.dtype
    )
