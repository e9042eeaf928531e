"""The stage protocol: a computation over clients as stages, each (broadcast values) -> (partial sums), at sites.

A round consists of the stages of the compiled form (`tff_re.runtime.compiled_form`). In a stage a site gets the
values that the server broadcasts in it, computes its clients, and answers with the sums over them, nothing else. What a
later stage needs of the clients stays at the site, and so does what clients keep for later rounds. The coordinator adds
the sites' sums up in the sites' order and goes on. No engine is in here: how bytes travel is `tff_re.sites.engines`.

Values of leaves are those of `tff_re.runtime.in_process.leaves`; arrays are a value's tensors, depth first.
"""

from __future__ import annotations

import collections
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError
from computations.native_form import native_block
from computations.traffic import type_bytes
from tff_re.runtime.compiled_form import CompiledForm, Name, Step, compiled_form, free_names
from tff_re.runtime.in_process.expressions import CANCELLATION, Expressions, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.sites.digest import program_digest

fw = tff.framework


class Aggregation:
    """One `federated_aggregate`, cut into what sites do (`value`, `zero`, `accumulate`) and the server (`merge`,
    `report`)."""

    def __init__(self, step: Step, expressions: Expressions):
        if step.expression.function.uri != fw.FEDERATED_AGGREGATE.uri:
            raise CompositionError(f"{step.expression.function.uri} needs all clients in one place; sites cannot do it")
        self.step, self.at_site = step, step.expression.argument[:3]
        self.type = step.expression.argument[1].type_signature
        made = map(expressions.of, step.expression.argument)
        self.value, self.zero, self.accumulate, self.merge, self.report = made
        self.neutral: list[float] | None = None  # see `tff_re.sites.sums`

    @property
    def collects(self) -> bool:
        """Whether the clients' values are put side by side."""
        return tff.types.contains(
            self.type, lambda t: isinstance(t, tff.TensorType) and t.shape is not None and None in t.shape
        )


@dataclass
class Stage:
    """What happens between two aggregations, or after the last one.

    Attributes:
      number: from 0.
      sent: steps at the server whose values a site gets in this stage, each in the first stage that needs it.
      shared: steps that are alike for all clients and that a site computes itself.
      steps: of a client, in this order; parts of the argument come first.
      sums: what the clients' values are folded into, in order.
      kept: what of a client later stages need, or is a part of the result.
      held: steps of earlier stages that this one reads, of `sent` and `kept`.
    """

    number: int
    sent: list[Step]
    shared: list[Step]
    steps: list[Step]
    sums: list[Aggregation]
    kept: list[Step]
    held: list[Name]


class Program:
    """A computation over clients for both sides. The same recipe gives the same `digest` on every machine."""

    def __init__(self, computation: tff.Computation):
        """Raises CompositionError where values of clients reach the server in another way than by sums."""
        self.form: CompiledForm = compiled_form(native_block(computation))
        self.result_type = computation.type_signature.result  # the compiled one names no Python containers
        parameter = self.form.parameter
        self._parameter = None if parameter is None else parameter.name
        self.expressions = Expressions(self._parameter)
        computed = [s for s in self.form.steps.values() if not s.given and not s.aggregates]
        self._compute = {step.name: self.expressions.of(step.expression) for step in computed}
        self._sent_before: set[Name] = set()
        self.stages = [
            self._stage(number)
            for number in range(self.form.stages + 1)
            if self.form.at_clients(number) or self.form.aggregations(number)
        ]

    @cached_property
    def digest(self) -> str:
        """See `program_digest`."""
        return program_digest(self.form)

    def compute(self, step: Step, scope: Scope):
        """The value of a step that is no part of the argument and no aggregation."""
        return self._compute[step.name](scope)

    def bytes_of(self, stage: Stage, clients: int) -> tuple[int, int]:
        """(down, up): payload that a site gets and sends in a stage; it depends on the number of its clients where
        their updates are collected."""
        down = sum(type_bytes(step.type_signature) for step in stage.sent)
        return down, sum(type_bytes(one.type, rows=clients) for one in stage.sums)

    @property
    def collects(self) -> bool:
        """Whether updates of single clients leave a site, side by side, and no sum of them."""
        return any(one.collects for stage in self.stages for one in stage.sums)

    def client_results(self) -> list[Step]:
        """The parts of the result that stay at clients, in their order."""
        return [self.form.steps[name] for name in self.form.result if self.form.steps[name].per_client]

    def carried(self, stage: Stage) -> tuple[list[Step], list[Step]]:
        """What a site has to keep after a stage: (of what was sent, of each client)."""
        place = self.stages.index(stage)
        needed = {name for later in self.stages[place + 1 :] for name in later.held} | {*self.form.result}
        sent = {step.name for earlier in self.stages[: place + 1] for step in earlier.sent}
        found = [step for name, step in self.form.steps.items() if name in needed]
        of_clients = [s for s in found if s.per_client and not s.given and s.stage <= stage.number]
        return [step for step in found if step.name in sent], of_clients

    def kept_arrays(self, stage: Stage, kept: Kept) -> list[np.ndarray]:
        """For `kept_of`."""
        shared, of_clients = self.carried(stage)
        values = [kept.shared[step.name] for step in shared]
        return arrays_of([*values, *(own[step.name] for own in kept.clients for step in of_clients)])

    def kept_of(self, stage: Stage, arrays: Iterator[np.ndarray], clients: int) -> Kept:
        """What was kept after a stage, of so many clients. Raises TypeError where the arrays do not fit."""
        shared, of_clients = self.carried(stage)
        values = {step.name: value_of(step.type_signature, arrays) for step in shared}
        return Kept(values, [{s.name: value_of(s.type_signature, arrays) for s in of_clients} for _ in range(clients)])

    def server_steps(self, number: int) -> list[Step]:
        """What the server computes before a stage."""
        return [
            s for s in self.form.steps.values() if s.stage == number and not (s.per_client or s.aggregates or s.given)
        ]

    def _stage(self, number: int) -> Stage:
        form, steps = self.form, self.form.steps
        own = form.at_clients(number)
        sums = [Aggregation(step, self.expressions) for step in form.aggregations(number)]
        sent, shared, given, held = set(), set(), set(), set()
        waiting = [name for step in own for name in step.needs]
        waiting += [n for one in sums for part in one.at_site for n in free_names(part, self._parameter)]
        seen: set[Name] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            step = steps[name]
            if step.per_client:
                if step.given:
                    given.add(name)
                elif step.stage < number:
                    held.add(name)
            elif _is_broadcast(step):
                (held if name in self._sent_before else sent).add(name)
            elif step.given or _at_server(step.type_signature):
                raise CompositionError(f"a client reads a value of the server that is not broadcast ({name})")
            else:  # a constant, or made of what was broadcast
                shared.add(name)
                waiting += step.needs
        self._sent_before |= sent

        def in_order(names):
            return [step for name, step in steps.items() if name in names]

        kept = [steps[name] for name in form.kept(number)]
        return Stage(number, in_order(sent), in_order(shared), in_order(given) + own, sums, kept, sorted(held, key=str))

    def close(self) -> None:
        """Frees the leaves."""
        for leaf in self.expressions.leaves.values():
            leaf.close()


def _is_broadcast(step: Step) -> bool:
    expression = step.expression
    called = isinstance(expression, fw.Call) and isinstance(expression.function, fw.Intrinsic)
    return called and expression.function.uri == fw.FEDERATED_BROADCAST.uri


def _at_server(type_signature: tff.Type) -> bool:
    return tff.types.contains(type_signature, lambda t: isinstance(t, tff.FederatedType) and t.placement is tff.SERVER)


def member(type_signature: tff.Type) -> tff.Type:
    """A type without its placement."""
    return type_signature.member if isinstance(type_signature, tff.FederatedType) else type_signature


def arrays_of(value) -> list[np.ndarray]:
    """The tensors of a value, depth first, as arrays."""
    return [tensor.numpy() if hasattr(tensor, "numpy") else np.asarray(tensor) for tensor in tf.nest.flatten(value)]


def value_of(type_signature: tff.Type, arrays: Iterator[np.ndarray]):
    """The value of a type from its arrays. Raises TypeError where one is not of its type, or there are too few."""
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


@dataclass
class Kept:
    """What a site keeps between two stages of one call: of all clients together, and of each."""

    shared: dict[Name, object]
    clients: list[dict[Name, object]]


def run_stage(
    program: Program,
    stage: Stage,
    sent: dict[Name, object],
    given: Sequence[Callable[[Step], object]],
    before: Kept,
    *,
    threads: int,
    pool: concurrent.futures.Executor,
) -> tuple[list[object], Kept]:
    """A site's part of a stage.

    Args:
      program, stage: what to compute.
      sent: the values of `stage.sent`.
      given: for each client, in their order, what gives its part of the argument.
      before: what was kept of earlier stages.
      threads: how many clients are under way at once.
      pool: with at least so many threads.

    Returns:
      (the sums over the clients, not reported; what is kept now)

    Raises:
      ComputationFailed, TypeError: a leaf failed, or a part of the argument is not of its type.
    """
    received = {**before.shared, **sent}
    scope = Scope({CANCELLATION: Cancellation(), **received})
    for step in stage.shared:
        scope[step.name] = program.compute(step, scope)
    totals = [one.zero(scope) for one in stage.sums]
    accumulate = [one.accumulate(scope) for one in stage.sums]
    kept: list[dict[Name, object]] = []

    def one_client(number: int):
        own: dict[Name, object] = {}
        inner = Scope(own, before.clients[number], *scope.maps)
        for step in stage.steps:
            own[step.name] = given[number](step) if step.given else program.compute(step, inner)
        return [one.value(inner) for one in stage.sums], {s.name: own[s.name] for s in stage.kept}

    waiting = collections.deque()
    for number in range(len(given) + threads):
        if number < len(given):
            waiting.append(pool.submit(one_client, number))
        if number >= threads:  # in the clients' order
            values, own = waiting.popleft().result()
            totals = [add((total, value)) for add, total, value in zip(accumulate, totals, values, strict=True)]
            kept.append({**before.clients[number - threads], **own})
    return totals, Kept(received, kept)


def merged(scope: Scope, one: Aggregation, partials: Iterable[object]):
    """What the server makes of the sites' sums, in their order; of none, what it makes of no client."""
    partials = iter(partials)
    total = next(partials, None)
    if total is None:
        total = one.zero(scope)
    merge = one.merge(scope)
    for other in partials:
        total = merge((total, other))
    return one.report(scope)(total)
