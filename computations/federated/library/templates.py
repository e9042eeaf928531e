"""Processes, each a state and a computation of the next state, with TFF's checks of their types."""

from __future__ import annotations

from typing import Any

import attrs

from computations.federated import core as tff


class TemplateError(TypeError):
    """The computations of a process do not fit together."""


@attrs.frozen(eq=False)
class MeasuredProcessOutput:
    """The result of a measured process's `next`."""

    state: object
    result: object
    measurements: object


class IterativeProcess:
    """`initialize: () -> S` and `next: <S, …> -> S` or `-> <S, …>`."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation):
        """Create the process.

        Raises TemplateError if the result of `next_fn` or `initialize_fn` is not a state that `next_fn` takes.
        """
        for function in (initialize_fn, next_fn):
            if not isinstance(function, tff.Computation):
                raise TypeError(f"a process is made of computations, not of a {type(function).__name__}")
        if initialize_fn.type_signature.parameter is not None:
            raise TemplateError(f"`initialize_fn` takes no argument, not {initialize_fn.type_signature.parameter}")
        self.initialize, self.next = initialize_fn, next_fn
        initial, parameter = initialize_fn.type_signature.result, next_fn.type_signature.parameter
        candidates = [parameter, *(list(parameter.children())[:1] if isinstance(parameter, tff.StructType) else [])]
        states = [t for t in candidates if t is not None and t.is_assignable_from(initial)]
        if not states:
            raise TemplateError(f"`initialize_fn` gives {initial}, but `next_fn` takes {parameter}")
        self.state_type: tff.Type = states[0]
        result = next_fn.type_signature.result
        results = [result, *(list(result.children())[:1] if isinstance(result, tff.StructType) else [])]
        if not any(self.state_type.is_assignable_from(t) for t in results):
            raise TemplateError(f"`next_fn` gives {result}, which does not begin with its state {self.state_type}")


class EstimationProcess(IterativeProcess):
    """An iterative process with `report: S -> E`, the estimate of a state."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation, report_fn: tff.Computation):
        super().__init__(initialize_fn, next_fn)
        taken = report_fn.type_signature.parameter
        if taken is None or not taken.is_assignable_from(self.state_type):
            raise TemplateError(f"`report_fn` takes {taken}, but the state is {self.state_type}")
        self.report = report_fn

    def map(self, map_fn: tff.Computation) -> EstimationProcess:
        """Return the process whose estimates are `map_fn` of this one's."""
        report = tff.federated_computation(lambda state: map_fn(self.report(state)), self.state_type)
        return EstimationProcess(self.initialize, self.next, report)


class MeasuredProcess(IterativeProcess):
    """`next: <S, …> -> MeasuredProcessOutput`."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation):
        super().__init__(initialize_fn, next_fn)
        output = next_fn.type_signature.result
        if not isinstance(output, tff.StructWithPythonType) or output.python_container is not MeasuredProcessOutput:
            raise TemplateError(f"`next_fn` returns a MeasuredProcessOutput, not {output}")


def check_placements(next_fn: tff.Computation, arguments: tuple, result: Any) -> None:
    """Raise TemplateError if arguments or results have other placements.

    Args:
      next_fn: of a measured process.
      arguments: the placements of the arguments that it has at least, the state's among them.
      result: the placement of the result; state and measurements are at the server.
    """
    parameter, output = next_fn.type_signature.parameter, next_fn.type_signature.result
    if not isinstance(parameter, tff.StructType) or len(parameter) < len(arguments):
        raise TemplateError(f"`next_fn` takes {len(arguments)} arguments, not {parameter}")
    members = [*zip(parameter.children(), arguments, strict=False)]
    members += [(output.state, tff.SERVER), (output.result, result), (output.measurements, tff.SERVER)]
    for member, placement in members:
        if not isinstance(member, tff.FederatedType) or member.placement is not placement:
            raise TemplateError(f"`next_fn` has {member} where a value placed at {placement} belongs")


class AggregationProcess(MeasuredProcess):
    """`next: <S@SERVER, V@CLIENTS[, W@CLIENTS]>`, whose result is at the server."""

    def __init__(self, initialize_fn: tff.Computation, next_fn: tff.Computation):
        super().__init__(initialize_fn, next_fn)
        check_placements(next_fn, (tff.SERVER, tff.CLIENTS), tff.SERVER)

    @property
    def is_weighted(self) -> bool:
        """Return whether `next` also takes weights."""
        return len(self.next.type_signature.parameter) == 3
