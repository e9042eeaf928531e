"""A computation over clients, cut at its aggregations so that groups of clients can be computed apart.

TFF's mergeable form (`tff.backends.native.compile_to_mergeable_comp_form`) cuts a computation at one aggregation, and
what stays at clients is computed a second time after it. The staged form allows aggregations that depend on one another
(attention: a maximum, a broadcast, two sums), and keeps what a later stage needs of the clients where it is.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass

import tensorflow_federated as tff

from computations.errors import CompositionError

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
      partials_type: type of `partials`.
    """

    work: Program
    partials_type: tff.Type
    _aggregations: tuple[fw.Call, ...]

    PARTIALS = "partials"

    def merge(self, groups: int) -> Program:
        """From the groups' partials, inputs `partials 0`, `partials 1`, …, in this order, to what is aggregated."""
        names = tuple(f"{self.PARTIALS} {group}" for group in range(groups))
        parameter = fw.Reference("inputs", tff.StructType([self.partials_type] * groups))
        combined = []
        for place, call in enumerate(self._aggregations):
            _, _, _, merge, report = call.argument
            partials = [fw.Selection(fw.Selection(parameter, index=g), index=place) for g in range(groups)]
            combined.append(_at_server(_fold(merge, report, groups), partials))
        body = fw.Lambda(parameter.name, parameter.type_signature, fw.Struct([fw.Struct(combined)]))
        return Program(names, ("merged",), body)


@dataclass(frozen=True)
class ClientResult:
    """Where a part of the result that stays at clients is to be had: an element of a bundle."""

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


def staged_form(computation: tff.Computation) -> StagedForm:
    """The staged form of a computation in its native form (`computations.native_form`).

    Raises:
      CompositionError: values of clients reach the server in another way than by a `federated_aggregate`, so that
        groups of clients cannot be computed apart.
    """
    return _Cutter(computation.to_building_block()).cut()


class _Cutter:
    def __init__(self, function):
        if not isinstance(function, fw.Lambda) or function.parameter_type is None:
            raise CompositionError("only a computation with arguments can be computed in groups of clients")
        self._parameter = fw.Reference(function.parameter_name, function.parameter_type)
        body = function.result
        locals_, result = (body.locals, body.result) if isinstance(body, fw.Block) else ((), body)
        self._defined = dict(locals_)
        self._result_type = result.type_signature
        self._parts = []
        for number, part in enumerate(_parts(result)):
            name = f"part {number} of the result"
            self._defined[name] = part
            self._parts.append(name)
        self._level = {self._parameter.name: 0}
        for name, expression in self._defined.items():
            below = max((self._level[n] for n in _free(expression)), default=0)
            self._level[name] = below + _is_aggregation(expression)

    def cut(self) -> StagedForm:
        aggregations: dict[int, list[str]] = collections.defaultdict(list)
        for name, expression in self._defined.items():
            if _is_aggregation(expression):
                aggregations[self._level[name] - 1].append(name)
        last = len(aggregations)
        self._aggregations = aggregations
        self._kept: dict[int, list[str]] = collections.defaultdict(list)
        there = [n for n in self._parts if not _at_single_clients(self._defined[n])]
        here = [n for n in self._parts if _at_single_clients(self._defined[n])]
        for name in here:
            if name not in self._kept[self._level[name]]:
                self._kept[self._level[name]].append(name)
        # Twice, and from the end to the beginning, because what is kept of a stage is known from those behind it alone.
        for _ in range(2):
            at_clients = self._program(last, [(kept(last), self._kept[last])]) if self._kept[last] else None
            stages = [self._stage(number) for number in range(last - 1, -1, -1)][::-1]
        at_server = self._program(last + 1, [(SERVER_RESULT, there)]) if there else None
        result = []
        for name in self._parts:
            level = self._level[name]
            stays = ClientResult(kept(level), self._kept[level].index(name)) if name in here else there.index(name)
            result.append(stays)
        return StagedForm(
            parameter_type=self._parameter.type_signature,
            result_type=self._result_type,
            stages=tuple(stages),
            at_clients=at_clients,
            at_server=at_server,
            result=tuple(result),
            part_types=tuple(self._defined[name].type_signature for name in self._parts),
        )

    def _stage(self, number: int) -> Stage:
        calls = tuple(self._resolved(name) for name in self._aggregations[number])
        partials = {f"partial of {n}": _partial(c) for n, c in zip(self._aggregations[number], calls, strict=True)}
        self._defined.update(partials)
        outputs = [(Stage.PARTIALS, list(partials))]
        if self._kept[number]:
            outputs.append((kept(number), self._kept[number]))
        work = self._program(number, outputs)
        return Stage(work, work.body.result.result[0].type_signature, calls)

    def _resolved(self, name: str) -> fw.Call:
        """An aggregation, with what it merges and reports by in place of references to that."""
        call = self._defined[name]
        value, zero, accumulate, merge, report = call.argument
        functions = [self._function(f) for f in (merge, report)]
        return fw.Call(call.function, fw.Struct([value, zero, accumulate, *functions]))

    def _function(self, expression):
        while isinstance(expression, fw.Reference):
            expression = self._defined[expression.name]
        if _free(expression):
            raise CompositionError("an aggregation merges or reports by a value of its round; it cannot be cut")
        return expression

    def _program(self, stage: int, outputs: list[tuple[str, list[str]]]) -> Program:
        """What makes some bundles out of the argument, earlier aggregates, and what was kept of earlier stages."""
        bundles: dict[str, tff.Type] = {}
        outside: dict[str, tuple[str, int] | None] = {}
        inside: set[str] = set()

        def add(name: str) -> None:
            if name in inside or name in outside:
                return
            if name == self._parameter.name:
                outside[name] = (ARGUMENT, None)
                bundles[ARGUMENT] = self._parameter.type_signature
                return
            expression, level = self._defined[name], self._level.get(name, stage)
            if _is_aggregation(expression) and not name.startswith("partial of "):
                outside[name] = (merged(level - 1), self._aggregations[level - 1].index(name))
                members = [self._defined[n].type_signature for n in self._aggregations[level - 1]]
                bundles[merged(level - 1)] = tff.StructType(members)
            elif level < stage and _at_single_clients(expression):
                if name not in self._kept[level]:
                    self._kept[level].append(name)
                outside[name] = (kept(level), self._kept[level].index(name))
                bundles[kept(level)] = None  # its type is known at the end
            else:
                inside.add(name)
                for other in _free(expression):
                    add(other)

        for _, names in outputs:
            for name in names:
                add(name)
        inputs = tuple(sorted(bundles))
        types = [
            bundles[b] or tff.StructType([self._defined[n].type_signature for n in self._kept_of(b)]) for b in inputs
        ]
        parameter = fw.Reference("inputs", tff.StructType(types))
        locals_ = []
        for name, (bundle, place) in outside.items():
            source = fw.Selection(parameter, index=inputs.index(bundle))
            locals_.append((name, source if place is None else fw.Selection(source, index=place)))
        order = {name: number for number, name in enumerate(self._defined)}
        locals_ += [(name, self._defined[name]) for name in sorted(inside, key=order.__getitem__)]
        known = {name: expression.type_signature for name, expression in locals_}
        result = fw.Struct([fw.Struct([fw.Reference(n, known[n]) for n in names]) for _, names in outputs])
        body = fw.Lambda(parameter.name, parameter.type_signature, fw.Block(locals_, result))
        return Program(inputs, tuple(name for name, _ in outputs), body)

    def _kept_of(self, bundle: str) -> list[str]:
        return next(names for level, names in self._kept.items() if kept(level) == bundle)


def _parts(expression) -> Iterable:
    """The parts of a result that have a placement, or none and no parts; depth first."""
    type_signature = expression.type_signature
    if not isinstance(type_signature, tff.StructType):
        yield expression
    elif isinstance(expression, fw.Struct):
        for element in expression:
            yield from _parts(element)
    else:
        for index in range(len(type_signature)):
            yield from _parts(fw.Selection(expression, index=index))


def _free(expression, bound: frozenset[str] = frozenset()) -> list[str]:
    """Names that an expression refers to and does not define itself."""
    if isinstance(expression, fw.Reference):
        return [] if expression.name in bound else [expression.name]
    if isinstance(expression, fw.Lambda):
        return _free(expression.result, bound | {expression.parameter_name})
    if isinstance(expression, fw.Call):
        inner = [expression.function] + ([] if expression.argument is None else [expression.argument])
    elif isinstance(expression, fw.Selection):
        inner = [expression.source]
    elif isinstance(expression, fw.Struct):
        inner = list(expression)
    elif isinstance(expression, fw.Block):
        found = []
        for name, value in expression.locals:
            found += _free(value, bound)
            bound = bound | {name}
        return found + _free(expression.result, bound)
    else:
        return []
    return [name for part in inner for name in _free(part, bound)]


def _is_aggregation(expression) -> bool:
    """Whether a call takes values of clients to the server.

    Raises:
      CompositionError: it does so in a way that cannot be cut.
    """
    if not isinstance(expression, fw.Call) or not isinstance(expression.function, fw.Intrinsic):
        return False
    function = expression.function
    if function.uri == fw.FEDERATED_AGGREGATE.uri:
        return True
    if _holds(function.type_signature.parameter, tff.CLIENTS) and _holds(function.type_signature.result, tff.SERVER):
        raise CompositionError(
            f"{function.uri} needs all clients in one place; groups of them cannot be computed apart"
        )
    return False


def _holds(type_signature, placement) -> bool:
    return type_signature is not None and tff.types.contains(
        type_signature, lambda t: isinstance(t, tff.FederatedType) and t.placement is placement
    )


def _at_single_clients(expression) -> bool:
    """Whether a value is at clients, one of its own for each."""
    found = expression.type_signature
    return isinstance(found, tff.FederatedType) and found.placement is tff.CLIENTS and not found.all_equal


def _partial(call: fw.Call) -> fw.Call:
    """An aggregation that does not report: it gives what can be merged with the like of it."""
    value, zero, accumulate, merge, _ = call.argument
    sums = merge.type_signature.result
    identity = fw.Lambda("sums", sums, fw.Reference("sums", sums))
    argument = fw.Struct([value, zero, accumulate, merge, identity])
    signature = tff.FunctionType(argument.type_signature, tff.FederatedType(sums, tff.SERVER))
    return fw.Call(fw.Intrinsic(call.function.uri, signature), argument)


def _fold(merge, report, count: int) -> fw.Lambda:
    """<s_0, s_1, …> -> report(merge(merge(s_0, s_1), s_2)…)."""
    sums = merge.type_signature.result
    parameter = fw.Reference("partials", tff.StructType([sums] * count))
    total = fw.Selection(parameter, index=0)
    for number in range(1, count):
        total = fw.Call(merge, fw.Struct([total, fw.Selection(parameter, index=number)]))
    return fw.Lambda(parameter.name, parameter.type_signature, fw.Call(report, total))


def _at_server(function: fw.Lambda, values: list) -> fw.Call:
    """A function of several values at the server."""
    members = tff.StructType([v.type_signature.member for v in values])
    together = fw.Struct(values)
    zip_type = tff.FunctionType(together.type_signature, tff.FederatedType(members, tff.SERVER))
    zipped = fw.Call(fw.Intrinsic(fw.FEDERATED_ZIP_AT_SERVER.uri, zip_type), together)
    argument = fw.Struct([function, zipped])
    result = tff.FederatedType(function.type_signature.result, tff.SERVER)
    apply_type = tff.FunctionType(argument.type_signature, result)
    return fw.Call(fw.Intrinsic(fw.FEDERATED_APPLY.uri, apply_type), argument)
