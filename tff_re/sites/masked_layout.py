"""Which computations have sums that can be masked, and how these sums are encoded."""

from __future__ import annotations

import numpy as np

from computations.errors import CompositionError
from computations.traffic import words_bits
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.in_process.expressions import CANCELLATION, Scope
from tff_re.runtime.in_process.leaves import Cancellation
from tff_re.runtime.in_process.stages import Aggregation
from tff_re.sites.masks import Layout
from tff_re.sites.program import Program, SiteStage, arrays_of, leaves, value_of
from tff_re.sites.sums import neutral_of


def layouts_of(stage: SiteStage) -> list[Layout]:
    """Return the layouts of the arrays of a stage's sums, in their order."""
    return [layout for aggregation in stage.sums for layout in _layouts(aggregation)]


def _layouts(aggregation: Aggregation) -> list[Layout]:
    return [
        Layout(np.dtype(kind.dtype), tuple(map(int, kind.shape)), words_bits(name))
        for name, kind in leaves(aggregation.type)
    ]


def require_sums(program: Program) -> None:
    """Raise an error unless the computation only adds, which is all that masks allow.

    Raises:
      CompositionError: updates of single clients leave sites, or two partial sums are joined in another way than by
        adding them; names the entries.
    """
    if program.collects:
        raise CompositionError(
            "aggregation.secure = 'masks' adds numbers up, and this rule collects each client's update; take another "
            "aggregation.rule"
        )
    for number, stage in enumerate(program.stages):
        for aggregation in stage.sums:
            if not _adds(program, aggregation):
                names = ", ".join(dict.fromkeys(repr(name) for name, _ in leaves(aggregation.type) if name))
                raise CompositionError(
                    f"aggregation.secure = 'masks' adds numbers up, and stage {number} of this algorithm takes a "
                    f"maximum or minimum over clients ({names or 'unnamed'}); take another algorithm, or set "
                    "aggregation.secure = 'none'"
                )


class _Constants(dict):
    """Values of steps that need neither clients nor weights, computed when they are read."""

    def __init__(self, program: Program):
        super().__init__({CANCELLATION: Cancellation()})
        self._program = program
        self._steps = {step.name: step for step in program.steps if isinstance(step, Step)}

    def __missing__(self, name):
        value = self[name] = self._program.compute(self._steps[name], Scope(self))
        return value


def _adds(program: Program, aggregation: Aggregation) -> bool:
    """Return whether partial sums are added, tested on numbers that floats add exactly."""
    scope, layouts = Scope(_Constants(program)), _layouts(aggregation)
    if any(neutral_of(aggregation, scope)):
        return False
    generator = np.random.default_rng(0)

    def drawn() -> list[np.ndarray]:
        return [generator.integers(1, 1 << 10, layout.shape).astype(layout.dtype) for layout in layouts]

    left, right = drawn(), drawn()
    both = tuple(value_of(aggregation.type, iter(arrays)) for arrays in (left, right))
    total = arrays_of(aggregation.merge(scope)(both))
    sums = [(a + b) % (1 << f.bits) if f.bits else a + b for a, b, f in zip(left, right, layouts, strict=True)]
    return all(np.array_equal(ours, expected) for ours, expected in zip(total, sums, strict=True))
