"""What a compiled computation does at the server and at the clients, and its dependencies.

TFF's native form (`computations.native_form`) is flat: a list of calls, each with a name, and a result that refers to
these names. A *step* is one such call, a part of the argument, or a part of the result.

Steps are grouped in *stages*, cut at the aggregations. Stage 0 is all that clients compute before the server knows
anything of them; an aggregation of stage s collects what the clients computed up to stage s; a step at the clients that
needs an aggregate of stage s belongs to stage s + 1. Aggregations that do not depend on one another share a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from computations import federated as tff

fw = tff.framework

Name = str | tuple[int, ...]
"""Of a step: its name in the computation, or, for a part of the argument, the places in nested structures."""


@dataclass(frozen=True)
class Step:
    """A value at the server (or without placement), one for all clients, or one for each client.

    Attributes:
      name: see `Name`.
      expression: what computes it.
      needs: the steps that the expression refers to.
      per_client: whether there is a value for each client.
      aggregates: whether values of clients become a value at the server.
      stage: at clients and for an aggregation, the stage that it belongs to; else the number of stages that have to be
        over before it can be computed.
    """

    name: Name
    expression: fw.ComputationBuildingBlock
    needs: tuple[Name, ...]
    per_client: bool
    aggregates: bool
    stage: int

    @property
    def is_argument(self) -> bool:
        """Return whether the step is a part of the argument."""
        return isinstance(self.name, tuple)

    @property
    def type_signature(self) -> tff.Type:
        return self.expression.type_signature


@dataclass(frozen=True)
class CompiledForm:
    """The steps that a computation's result needs.

    Attributes:
      parameter: what the steps' expressions refer to as the argument, or None.
      steps: by name, in an order in which they can be computed.
      result: the steps that are the parts of the result (`parts`), depth first.
      result_type: of the computation.
      stages: how many of them end with an aggregation.
    """

    parameter: fw.Reference | None
    steps: dict[Name, Step]
    result: tuple[str, ...]
    result_type: tff.Type
    stages: int

    def at_clients(self, stage: int) -> list[Step]:
        """Return what each client computes in a stage, without the parts of the argument."""
        return [s for s in self.steps.values() if s.per_client and s.stage == stage and not s.is_argument]

    def aggregations(self, stage: int) -> list[Step]:
        """Return the aggregations that end a stage."""
        return [s for s in self.steps.values() if s.aggregates and s.stage == stage]

    def needed_after(self, stage: int) -> set[Name]:
        """Return what later stages' clients and aggregations refer to, and the parts of the result."""
        later = (s for s in self.steps.values() if (s.per_client or s.aggregates) and s.stage > stage)
        return {*self.result, *(name for step in later for name in step.needs)}

    def stored(self, stage: int) -> list[str]:
        """Return what each client computes in a stage and must store, for a later stage or as a part of the result."""
        needed = self.needed_after(stage)
        return [step.name for step in self.at_clients(stage) if step.name in needed]


def compiled_form(function: fw.ComputationBuildingBlock) -> CompiledForm:
    """Return the compiled form of a computation from its native form, a function with or without an argument."""
    function = tff.unique_names(function)  # so that no inner name hides an outer one
    parameter, body = _parameter_and_body(function)
    definitions: dict[Name, fw.ComputationBuildingBlock] = {}
    if parameter is not None:
        definitions.update((path, part) for part, path in parts(parameter))
    definitions.update(body.locals)
    result = {f"part {number} of the result": part for number, (part, _) in enumerate(parts(body.result))}
    definitions.update(result)
    name_of_parameter = None if parameter is None else parameter.name
    needs = {n: () if isinstance(n, tuple) else free_names(e, name_of_parameter) for n, e in definitions.items()}
    steps, over = {}, {}  # over: how many stages are over when a step's value is known
    for name in reachable(definitions, result, needs):
        expression = definitions[name]
        aggregates = _takes_clients_to_server(expression)
        stage = max((over[need] for need in needs[name]), default=0)
        over[name] = stage + aggregates
        per_client = one_for_each_client(expression.type_signature)
        steps[name] = Step(name, expression, needs[name], per_client, aggregates, stage)
    stages = max((step.stage + 1 for step in steps.values() if step.aggregates), default=0)
    return CompiledForm(parameter, steps, tuple(result), body.result.type_signature, stages)


def _parameter_and_body(function) -> tuple[fw.Reference | None, fw.Block]:
    if isinstance(function, fw.Lambda):
        name, type_signature, body = function.parameter_name, function.parameter_type, function.result
    else:
        name, type_signature = "argument", function.type_signature.parameter
        argument = None if type_signature is None else fw.Reference(name, type_signature)
        body = fw.Call(function, argument)
    parameter = None if type_signature is None else fw.Reference(name, type_signature)
    if not isinstance(body, fw.Block):  # else each part of it would compute all of it
        body = fw.Block([("the result", body)], fw.Reference("the result", body.type_signature))
    return parameter, body


def parts(expression, path: tuple[int, ...] = ()) -> Iterator[tuple[fw.ComputationBuildingBlock, tuple[int, ...]]]:
    """Return the parts of a structure that are not structures, or have a placement, with their index paths.

    The order is depth first.
    """
    type_signature = expression.type_signature
    if not isinstance(type_signature, tff.StructType):
        yield expression, path
        return
    for index in range(len(type_signature)):
        part = expression[index] if isinstance(expression, fw.Struct) else fw.Selection(expression, index=index)
        yield from parts(part, (*path, index))


def reachable(definitions: Iterable[Name], roots: Iterable[Name], needs: dict[Name, Iterable[Name]]) -> list[Name]:
    """Return the definitions that the roots need, in order.

    Each refers only to earlier ones, which are its `needs`.
    """
    wanted, names = set(roots), list(definitions)
    for name in reversed(names):
        if name in wanted:
            wanted.update(needs[name])
    return [name for name in names if name in wanted]


def free_names(expression, parameter: str | None = None) -> tuple[Name, ...]:
    """Return the names that an expression refers to without defining them.

    For `parameter` they are the parts that are used.
    """
    return tuple(dict.fromkeys(_references(expression, parameter)))


def selected_path(expression, parameter: str | None) -> tuple[int, ...] | None:
    """Return the index path of the argument's part that an expression selects, or None if it selects none."""
    path = ()
    while isinstance(expression, fw.Selection):
        path = (expression.as_index(), *path)
        expression = expression.source
    return path if isinstance(expression, fw.Reference) and expression.name == parameter else None


def _references(expression, parameter: str | None, bound: frozenset[str] = frozenset()) -> Iterator[Name]:
    path = selected_path(expression, parameter)
    if path is not None:
        yield from (reference for _, reference in parts(expression, path))
    elif isinstance(expression, fw.Reference):
        if expression.name not in bound:
            yield expression.name
    elif isinstance(expression, fw.Lambda):
        yield from _references(expression.result, parameter, bound | {expression.parameter_name})
    elif isinstance(expression, fw.Block):
        for name, value in expression.locals:
            yield from _references(value, parameter, bound)
            bound = bound | {name}
        yield from _references(expression.result, parameter, bound)
    else:
        for child in expression.children():
            yield from _references(child, parameter, bound)


def _takes_clients_to_server(expression) -> bool:
    if not isinstance(expression, fw.Call) or not isinstance(expression.function, fw.Intrinsic):
        return False
    called = expression.function.type_signature
    return _holds(called.parameter, tff.CLIENTS) and _holds(called.result, tff.SERVER)


def _holds(type_signature, placement) -> bool:
    return type_signature is not None and tff.types.contains(
        type_signature, lambda t: isinstance(t, tff.FederatedType) and t.placement is placement
    )


def one_for_each_client(type_signature: tff.Type) -> bool:
    """Return whether a value of this type is at the clients, with one value for each."""
    return (
        isinstance(type_signature, tff.FederatedType)
        and type_signature.placement is tff.CLIENTS
        and not type_signature.all_equal
    )
