"""A computation over clients, cut at its aggregations so that groups of clients can be computed apart.

TFF's mergeable form (`tff.backends.native.compile_to_mergeable_comp_form`) cuts a computation at one aggregation, and
what stays at clients is computed a second time after it. The staged form allows aggregations that depend on one another
(attention: a maximum, a broadcast, two sums), and keeps what a later stage needs of the clients where it is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow_federated as tff
from tensorflow_federated.python.core.impl.compiler import building_block_factory as factory

from computations.errors import CompositionError
from tff_re.runtime.compiled_form import CompiledForm, Name, Step, compiled_form, free_names

fw = tff.framework

ARGUMENT = "argument"
SERVER_RESULT = "result"


def merged(stage: int) -> str:
    """Name of the bundle of a stage's aggregates, at the server."""
    return f"merged {stage}"


def kept(stage: int) -> str:
    """Name of the bundle of what a group of clients keeps of a stage."""
    return f"kept {stage}"


@dataclass(frozen=True)
class Program:
    """A function of bundles: `body` takes the struct of the `inputs` and gives the struct of the `outputs`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: fw.Lambda


@dataclass(frozen=True)
class Stage:
    """What happens between two aggregations.

    Attributes:
      work: for a group of clients; its first output, `partials`, are the group's aggregates, not reported yet, at the
        server; its second one, where there is one, the bundle `kept(stage)`.
    """

    work: Program
    _merging: tuple[tuple[fw.ComputationBuildingBlock, fw.ComputationBuildingBlock], ...]

    PARTIALS = "partials"

    def merge(self, groups: int) -> Program:
        """From the groups' partials, inputs `partials 0`, `partials 1`, …, in this order, to what is aggregated."""
        names = tuple(f"{self.PARTIALS} {group}" for group in range(groups))
        parameter = fw.Reference("inputs", tff.StructType([self.work.body.type_signature.result[0]] * groups))
        combined = []
        for place, (merge, report) in enumerate(self._merging):
            partials = [fw.Selection(fw.Selection(parameter, index=g), index=place) for g in range(groups)]
            together = factory.create_federated_zip(fw.Struct(partials))
            combined.append(factory.create_federated_apply(_fold(merge, report, groups), together))
        body = fw.Lambda(parameter.name, parameter.type_signature, fw.Struct([fw.Struct(combined)]))
        return Program(names, ("merged",), body)


@dataclass(frozen=True)
class ClientResult:
    """Where a part of the result that stays at clients is: an element of a bundle."""

    bundle: str
    place: int


@dataclass(frozen=True)
class StagedForm:
    """Stages, and what comes after the last aggregation.

    Attributes:
      parameter_type, result_type: of the computation.
      stages: in order; a stage may use the bundle `merged(i)` of every stage before it.
      at_clients: for every group of clients after the last aggregation, or None.
      at_server: gives the bundle `SERVER_RESULT`, the parts of the result that are at the server; or None.
      result: the parts of the result, depth first: a ClientResult, or the place in `SERVER_RESULT`.
      part_types: their types.
    """

    parameter_type: tff.Type
    result_type: tff.Type
    stages: tuple[Stage, ...]
    at_clients: Program | None
    at_server: Program | None
    result: tuple[ClientResult | int, ...]
    part_types: tuple[tff.Type, ...]

    def groups_need(self, stage: int) -> bool:
        """Whether every group needs the aggregates of a stage, not only the server."""
        later = [s.work for s in self.stages] + ([self.at_clients] if self.at_clients else [])
        return any(merged(stage) in program.inputs for program in later)


@functools.lru_cache(maxsize=64)  # as many as `native_form` keeps
def staged_form(computation: tff.Computation) -> StagedForm:
    """The staged form of a computation in its native form (`computations.native_form`).

    Raises CompositionError where values of clients reach the server in another way than by a `federated_aggregate`.
    """
    return _Cutter(compiled_form(computation.to_building_block())).cut()


class _Cutter:
    def __init__(self, form: CompiledForm):
        if form.parameter is None:
            raise CompositionError("only a computation with arguments can be computed in groups of clients")
        for uri in (step.expression.function.uri for step in form.steps.values() if step.aggregates):
            if uri != fw.FEDERATED_AGGREGATE.uri:
                raise CompositionError(f"{uri} needs all clients in one place; groups of them cannot be computed apart")
        self._form = form
        self._aggregations = [form.aggregations(stage) for stage in range(form.stages)]
        self._kept = [form.kept(stage) for stage in range(form.stages + 1)]

    def cut(self) -> StagedForm:
        form, steps = self._form, self._form.steps
        last = form.stages
        at_server = [name for name in form.result if not steps[name].per_client]

        def place(name):
            if not steps[name].per_client:
                return at_server.index(name)
            stage = steps[name].stage
            return ClientResult(kept(stage), self._kept[stage].index(name))

        return StagedForm(
            parameter_type=form.parameter.type_signature,
            result_type=form.result_type,
            stages=tuple(self._stage(number) for number in range(last)),
            at_clients=self._program(last, [self._bundle(last)]) if self._kept[last] else None,
            at_server=self._program(last + 1, [(SERVER_RESULT, self._references(at_server))]) if at_server else None,
            result=tuple(map(place, form.result)),
            part_types=tuple(steps[name].type_signature for name in form.result),
        )

    def _stage(self, number: int) -> Stage:
        calls = [step.expression for step in self._aggregations[number]]
        outputs = [(Stage.PARTIALS, [_partial(call) for call in calls])]
        if self._kept[number]:
            outputs.append(self._bundle(number))
        merging = tuple(tuple(map(self._function, (call.argument[3], call.argument[4]))) for call in calls)
        return Stage(self._program(number, outputs), merging)

    def _function(self, expression):
        """What an aggregation merges or reports by."""
        while isinstance(expression, fw.Reference):
            expression = self._form.steps[expression.name].expression
        if free_names(expression):
            raise CompositionError("an aggregation merges or reports by a value of its round; it cannot be cut")
        return expression

    def _references(self, names: Sequence[str]) -> list[fw.Reference]:
        return [fw.Reference(name, self._form.steps[name].type_signature) for name in names]

    def _bundle(self, stage: int) -> tuple[str, list[fw.Reference]]:
        return kept(stage), self._references(self._kept[stage])

    def _program(self, stage: int, outputs: Sequence[tuple[str, list[fw.ComputationBuildingBlock]]]) -> Program:
        """What makes some bundles out of the argument, earlier aggregates, and what was kept of earlier stages."""
        parameter = self._form.parameter
        types: dict[str, tff.Type] = {}  # of the bundles that go in
        outside: dict[str, tuple[str, int] | None] = {}  # bundle, and place in it
        inside: set[str] = set()

        def take(name: str, bundle: str, steps: Sequence[Step]) -> None:
            types[bundle] = tff.StructType([step.type_signature for step in steps])
            outside[name] = (bundle, [step.name for step in steps].index(name))

        def add(name: Name) -> None:
            step = self._form.steps[name]
            if name in inside or name in outside:
                return
            if step.given:
                types[ARGUMENT] = parameter.type_signature
                outside[parameter.name] = (ARGUMENT, None)
            elif step.aggregates:
                take(name, merged(step.stage), self._aggregations[step.stage])
            elif step.per_client and step.stage < stage:
                take(name, kept(step.stage), [self._form.steps[other] for other in self._kept[step.stage]])
            else:
                inside.add(name)
                for other in step.needs:
                    add(other)

        for expression in (expression for _, expressions in outputs for expression in expressions):
            for name in free_names(expression, parameter.name):
                add(name)
        bundles = tuple(sorted(types))
        inputs = fw.Reference("inputs", tff.StructType([types[bundle] for bundle in bundles]))
        locals_ = []
        for name, (bundle, place) in outside.items():
            source = fw.Selection(inputs, index=bundles.index(bundle))
            locals_.append((name, source if place is None else fw.Selection(source, index=place)))
        locals_ += [(name, step.expression) for name, step in self._form.steps.items() if name in inside]
        # A call is a local of its own, as in a native form.
        made = [[(f"output {o} {p}", e) for p, e in enumerate(es)] for o, (_, es) in enumerate(outputs)]
        locals_ += [local for bundle in made for local in bundle]
        result = fw.Struct([fw.Struct([fw.Reference(n, e.type_signature) for n, e in bundle]) for bundle in made])
        body = fw.Lambda(inputs.name, inputs.type_signature, fw.Block(locals_, result))
        return Program(bundles, tuple(name for name, _ in outputs), body)


def _partial(call: fw.Call) -> fw.Call:
    """An aggregation that does not report: it gives a group's sums, to be merged with those of other groups."""
    value, zero, accumulate, merge, _ = call.argument
    identity = factory.create_identity(merge.type_signature.result)
    return factory.create_federated_aggregate(value, zero, accumulate, merge, identity)


def _fold(merge, report, count: int) -> fw.Lambda:
    """<s_0, s_1, …> -> report(merge(merge(s_0, s_1), s_2)…)."""
    sums = merge.type_signature.result
    parameter = fw.Reference("partials", tff.StructType([sums] * count))
    total = fw.Selection(parameter, index=0)
    for number in range(1, count):
        total = fw.Call(merge, fw.Struct([total, fw.Selection(parameter, index=number)]))
    return fw.Lambda(parameter.name, parameter.type_signature, fw.Call(report, total))
