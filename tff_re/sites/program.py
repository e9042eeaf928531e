"""The stage protocol, which computes over clients at sites in stages.

Each stage maps broadcast values to partial sums.

A round consists of the stages of the compiled form (`tff_re.runtime.in_process.stages`). In a stage a site gets the
values that the server broadcasts in it, computes its clients, and answers with the sums over them, nothing else. What a
later stage needs of the clients stays at the site, and so does what clients keep for later rounds. The coordinator adds
the sites' sums up in the sites' order and goes on. No engine is in here: how bytes travel is `tff_re.sites.transport`.

Values of leaves are those of `tff_re.runtime.in_process.leaves`; arrays are a value's tensors, depth first.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.traffic import type_bytes
from tff_re.runtime.compiled_form import Name, Step, free_names
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.kept import Kept
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.stages import Aggregation, ClientPass, Plan, Stage
from tff_re.sites.digest import program_digest

fw = tff.framework


@dataclass
class SiteStage(Stage):
    """A stage whose clients are at sites.

    Attributes:
      sent: steps at the server whose values a site gets in this stage, each in the first stage that needs it.
      shared: steps that are alike for all clients and that a site computes itself.
      held: steps of earlier stages that this one reads, of `sent` and `stored`.
    """

    sent: list[Step]
    shared: list[Step]
    held: list[Name]


@dataclass
class Carried:
    """What a site stores between two stages of one call, for all clients together and for each client."""

    shared: dict[Name, object]
    clients: Kept


class Program(Plan):
    """A computation over clients for both sides.

    The same recipe gives the same `digest` on every machine.
    """

    stages: list[SiteStage]

    def __init__(self, computation: tff.Computation):
        """Compile the program.

        Raises CompositionError if clients' values reach the server in any way but sums.
        """
        self.result_type = computation.type_signature.result
        self._sent_before: set[Name] = set()
        super().__init__(computation)
        self.dropped = [[] for _ in self.steps]  # a value that is broadcast is read again when it is sent

    @cached_property
    def digest(self) -> str:
        """See `program_digest`."""
        return program_digest(self.form)

    def bytes_up(self, stage: SiteStage, clients: int) -> int:
        """Return the bytes that a site sends in a stage.

        If the updates are collected, it depends on the number of clients.
        """
        return sum(type_bytes(aggregation.type, rows=clients) for aggregation in stage.sums)

    @property
    def collects(self) -> bool:
        """Return whether updates of single clients leave a site side by side, instead of their sum."""
        return any(_has_rows(aggregation.type) for stage in self.stages for aggregation in stage.sums)

    def client_results(self) -> list[Step]:
        """Return the parts of the result that stay at clients, in their order."""
        return [self.form.steps[name] for name in self.form.result if self.form.steps[name].per_client]

    def run_at_site(
        self,
        stage: SiteStage,
        sent: dict[Name, object],
        argument: Callable[[int, Step], object],
        before: Carried | None,
        *,
        clients: int,
        threads: int,
        pool: concurrent.futures.Executor,
    ) -> tuple[list[object], Carried]:
        """Compute a site's part of a stage.

        Args:
          stage: what to compute.
          sent: the values of `stage.sent`.
          argument: client by its number -> a part of its argument.
          before: what was kept of earlier stages; None: this is the first.
          clients: how many.
          threads: how many of them are under way at once.
          pool: with at least so many threads.

        Returns:
          (the sums over the clients, not reported; what is kept now)

        Raises:
          ComputationFailed, TypeError: a leaf failed, or a part of the argument is not of its type.
        """
        after = before or Carried({}, Kept(clients, frozenset(self.form.result)))
        after.shared |= sent
        cancelled = Cancellation()
        scope = Scope({CANCELLATION: cancelled, **after.shared})
        for step in stage.shared:
            scope[step.name] = self.compute(step, scope)
        ways = {"threads": threads, "pool": pool, "cancelled": cancelled}
        return ClientPass(self, stage, clients, argument, after.clients, **ways).totals(scope), after

    def carried_arrays(self, stage: SiteStage, carried: Carried, clients: int) -> list[np.ndarray]:
        """Return the arrays that `carried_of` reads."""
        shared, of_clients = self._carried(stage)
        clients_values = [carried.clients.of(client) for client in range(clients)]
        values = [carried.shared[step.name] for step in shared]
        return arrays_of([*values, *(of_client[step.name] for of_client in clients_values for step in of_clients)])

    def carried_of(self, stage: SiteStage, arrays: Iterator[np.ndarray], clients: int) -> Carried:
        """Return what was stored after a stage for this number of clients.

        Raises TypeError if the arrays do not fit.
        """
        shared, of_clients = self._carried(stage)
        carried = Carried(
            {step.name: value_of(step.type_signature, arrays) for step in shared},
            Kept(clients, frozenset(self.form.result)),
        )
        for client in range(clients):
            carried.clients.add(client, {s.name: value_of(s.type_signature, arrays) for s in of_clients})
        return carried

    def _carried(self, stage: SiteStage) -> tuple[list[Step], list[Step]]:
        """Return what a site must store after a stage, from what was sent and for each client."""
        index = self.stages.index(stage)
        needed = {name for later in self.stages[index + 1 :] for name in later.held} | {*self.form.result}
        sent = {step.name for earlier in self.stages[: index + 1] for step in earlier.sent}
        steps = [step for name, step in self.form.steps.items() if name in needed]
        of_clients = [s for s in steps if s.per_client and not s.is_argument and s.stage <= stage.number]
        return [step for step in steps if step.name in sent], of_clients

    def _stage(self, number: int) -> SiteStage:
        for step in self.form.aggregations(number):
            if (uri := step.expression.function.uri) != fw.FEDERATED_AGGREGATE.uri:
                raise CompositionError(f"{uri} needs all clients in one place; sites cannot do it")
        stage, steps = super()._stage(number), self.form.steps
        sent, shared, held = set(), set(), set()
        parameter = None if self.form.parameter is None else self.form.parameter.name
        waiting = [name for step in stage.steps for name in step.needs]
        for aggregation in stage.sums:  # what sites do of them: value, zero, accumulate
            waiting += [
                name for part in aggregation.step.expression.argument[:3] for name in free_names(part, parameter)
            ]
        seen: set[Name] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            step = steps[name]
            if step.per_client:
                if not step.is_argument and step.stage < number:
                    held.add(name)
            elif _is_broadcast(step):
                (held if name in self._sent_before else sent).add(name)
            elif step.is_argument or _at_server(step.type_signature):
                raise CompositionError(f"a client reads a value of the server that is not broadcast ({name})")
            else:  # a constant, or made of what was broadcast
                shared.add(name)
                waiting += step.needs
        self._sent_before |= sent

        def in_order(names):
            return [step for name, step in steps.items() if name in names]

        return SiteStage(**vars(stage), sent=in_order(sent), shared=in_order(shared), held=sorted(held, key=str))


def _has_rows(type_signature: tff.Type) -> bool:
    return tff.types.contains(
        type_signature, lambda t: isinstance(t, tff.TensorType) and t.shape is not None and None in t.shape
    )


def _is_broadcast(step: Step) -> bool:
    expression = step.expression
    called = isinstance(expression, fw.Call) and isinstance(expression.function, fw.Intrinsic)
    return called and expression.function.uri == fw.FEDERATED_BROADCAST.uri


def _at_server(type_signature: tff.Type) -> bool:
    return tff.types.contains(type_signature, lambda t: isinstance(t, tff.FederatedType) and t.placement is tff.SERVER)


def member(type_signature: tff.Type) -> tff.Type:
    """Return a type without its placement."""
    return type_signature.member if isinstance(type_signature, tff.FederatedType) else type_signature


def leaves(type_signature: tff.Type, name: str | None = None) -> Iterator[tuple[str | None, tff.TensorType]]:
    """Return (the innermost name, type) of each tensor, in the order of the arrays."""
    type_signature = member(type_signature)
    if isinstance(type_signature, tff.StructType):
        for inner, part in tff.structure.iter_elements(type_signature):
            yield from leaves(part, inner or name)
    else:
        yield name, type_signature


def arrays_of(value) -> list[np.ndarray]:
    """Return the tensors of a value, depth first, as arrays."""
    return [tensor.numpy() if hasattr(tensor, "numpy") else np.asarray(tensor) for tensor in tf.nest.flatten(value)]


def value_of(type_signature: tff.Type, arrays: Iterator[np.ndarray]):
    """Return the value of a type from its arrays.

    Raises TypeError if an array has the wrong type or is missing.
    """
    type_signature = member(type_signature)
    if isinstance(type_signature, tff.StructType):
        return tuple(value_of(part, arrays) for part in type_signature.children())
    if not isinstance(type_signature, tff.TensorType):
        raise TypeError(f"a value of type {type_signature} does not travel")
    array = next(arrays, None)
    if array is None:
        raise TypeError("there are too few arrays")
    dtype, shape = np.dtype(type_signature.dtype), tf.TensorShape(type_signature.shape)
    if array.dtype != dtype or not shape.is_compatible_with(array.shape):
        raise TypeError(f"an array of {array.dtype}{list(array.shape)} cannot be of type {type_signature}")
    return tf.convert_to_tensor(array)


def merged(scope: Scope, aggregation: Aggregation, partials: Iterable[object]):
    """Return the sum of the sites' sums, in their order.

    Without any, it is the sum over an empty set of clients.
    """
    partials = iter(partials)
    total = next(partials, None)
    if total is None:
        total = aggregation.zero(scope)
    merge = aggregation.merge(scope)
    for other in partials:
        total = merge((total, other))
    return total
