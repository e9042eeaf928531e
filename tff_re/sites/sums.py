"""What a site's sums of a stage may be, checked for each site before the sums are merged.

A sum is refused that is not of its type, not finite, too large to be merged, or beyond what the number of the site's
clients and of their examples allows. What an entry of a sum means is declared by its name in `_RANGES`; the names are
those that `computations` gives (see `computations.named`). An entry without such a name has the general bounds alone.

What these checks cannot tell: a wrong sum within the bounds. Against it there are the rules of [aggregation].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from computations import federated as tff
from computations.aggregation_rules import AggregationOptions
from computations.client_work import LocalTraining
from tff_re.recipes.reading import Recipe
from tff_re.runs.experiment import Experiment
from tff_re.runtime.in_process.expressions import Scope
from tff_re.runtime.in_process.stages import Aggregation, Stage
from tff_re.sites.program import arrays_of, leaves, value_of

MAX_SUM = 2.0**60
"""The largest number of a sum in float32: any number of sites of this size add up to less than the largest float32,
2^128, and so does the square of one, which optimizers of the server take. Honest sums are far below: 2^60 is a million
updates of a norm of 10^12."""

MAX_WIDE_SUM = MAX_SUM**2
"""The same in float64, in which squares are added up."""

ROUNDING = 1e-3
"""Relative error of a sum in float32 over many clients; no honest sum is off by more."""

EXACT = 1 << 24
"""Up to here float32 counts exactly."""


class BadSums(Exception):
    """Sums that a site cannot have, described in one line without the site's name."""


@dataclass(frozen=True)
class Bounds:
    """What is known of the clients that one site adds up in one call.

    Attributes:
      clients: how many.
      sites: how many answer in the call.
      weight: the largest sum of their weights.
      rows: of their examples in the call's split.
      counted: whether each example is a row of an evaluation.
      seen: the most examples that they train on, epochs counted.
      steps: the most steps that they make.
      indices: of the clients among all of the run.
      norm: of a client's clipped update; None: updates are not clipped to a fixed norm.
    """

    clients: int
    sites: int
    weight: float
    rows: int
    counted: bool
    seen: float
    steps: float
    indices: tuple[int, ...]
    norm: float | None


Range = tuple[float, float]

_COUNTS = (
    *("counted", "non_finite", "trusted", "screened", "holders", "seen", "steps", "selected", "all"),
    *("examples", "confusion"),
)
"""Entries that are counts, exact in float32 up to `EXACT`."""

_OF_CLIENTS = ("counted", "non_finite", "trusted", "score", "screened", "holders", "total", "squares")
"""Entries to which a client adds a number from 0 to 1: flags, shares of attention and their squares."""

_RANGES: dict[str, Callable[[Bounds], Range]] = {
    **dict.fromkeys(_OF_CLIENTS, lambda b: (0, b.clients)),
    "weight": lambda b: (0, b.weight),
    "weights": lambda b: (0, b.weight),
    "squares_of_weights": lambda b: (0, b.weight**2),
    "histogram": lambda b: (0, b.weight),
    "seen": lambda b: (0, b.seen),
    "steps": lambda b: (0, b.steps),
    "selected": lambda b: (0, b.rows),
    "all": lambda b: (b.rows, b.rows),
    "normaliser": lambda b: (0, MAX_SUM),
    "within": lambda b: (-b.clients / 2, b.clients / 2),
    "norms": lambda b: (0, MAX_SUM if b.norm is None else b.norm),
    "examples": lambda b: (b.rows, b.rows) if b.counted else (0, MAX_SUM),
    "confusion": lambda b: (0, b.rows) if b.counted else (0, MAX_SUM),
    **dict.fromkeys(("true_positives", "predicted", "actual"), lambda b: (0, MAX_SUM)),
    **dict.fromkeys(("overlapping_predicted", "overlapping_actual", "correct_tags"), lambda b: (0, MAX_SUM)),
}

PLATFORMS = "platforms"
"""The entry whose numbers are indices of clients, or its neutral number."""

_PARTS = {
    "true_positives": ("predicted", "actual", "overlapping_predicted", "overlapping_actual"),
    "overlapping_predicted": ("predicted",),
    "overlapping_actual": ("actual",),
    "correct_tags": ("examples",),
}
"""Counts of a part, with the counts that are at least as large, number by number."""

_CLIPPED = {"sums": "weight", "attended": None, "values": None}
"""Entries that are sums of clipped updates, with the entry that has the sum of the factors; None: each is at most 1."""


@dataclass(frozen=True)
class Limits:
    """What a run's recipe says about the bounds of a client's part of a sum.

    Attributes:
      training: of the clients.
      counted: whether each example is a row of an evaluation.
      factor: the most by which a rule multiplies a weight.
      norm: to which updates are clipped; None: to none that is fixed.
    """

    training: LocalTraining
    counted: bool = True
    factor: float = 1.0
    norm: float | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> Limits:
        """Return the limits of an experiment."""
        aggregation, recipe = experiment.recipe.aggregation or AggregationOptions(), experiment.recipe
        return cls(
            training=experiment.algorithm.client_work.training,
            counted=experiment.model.rows is None,
            factor=1.0 if (rule := aggregation.chosen_rule) is None else rule.largest_factor(aggregation),
            norm=_norm(recipe, aggregation),
        )

    def bounds(self, sizes: Sequence[int], indices: Sequence[int], sites: int) -> Bounds:
        """Return the bounds of one site.

        Args:
          sizes: examples of each of its clients in the call.
          indices: of these clients among all of the run.
          sites: how many answer.
        """
        training, clients = self.training, len(sizes)
        weight = sum(sizes) if training.weighting == "examples" else clients
        return Bounds(
            clients=clients,
            sites=sites,
            weight=self.factor * weight,
            rows=sum(sizes),
            counted=self.counted,
            seen=sum(_seen(training, size) for size in sizes),
            steps=sum(_steps(training, size) for size in sizes),
            indices=tuple(indices),
            norm=self.norm,
        )


def _norm(recipe: Recipe, aggregation: AggregationOptions) -> float | None:
    # A code changes norms after the clipping.
    if aggregation.clip is not None and aggregation.clip_quantile is None and aggregation.compression == "none":
        return aggregation.clip
    privacy = recipe.privacy
    if recipe.privacy_unit == "client" and privacy.clip_quantile is None:
        return privacy.clip
    return None


def _steps(training: LocalTraining, size: int) -> int:
    return training.local_steps or training.local_epochs * max(math.ceil(size / training.batch_size), 1)


def _seen(training: LocalTraining, size: int) -> int:
    if training.example_privacy is None and training.local_steps is None:
        return training.local_epochs * size
    # A Poisson sample may be of all examples.
    return _steps(training, size) * (size if training.example_privacy else min(size, training.batch_size))


def checked(scope: Scope, stage: Stage, arrays: Sequence[np.ndarray], bounds: Bounds) -> list[object]:
    """Return a site's sums of a stage as values, after checking them.

    Args:
      scope: of the server, for the aggregations' neutral elements.
      stage: what was asked.
      arrays: the site's answer.
      bounds: of the site.

    Raises:
      BadSums: they are not of their type or beyond the bounds.
    """
    remaining = iter(arrays)
    values = []
    for aggregation in stage.sums:
        try:
            values.append(_value(scope, aggregation, remaining, bounds))
        except TypeError as error:
            raise BadSums(f"its sums are not of their type ({error})") from None
    if next(remaining, None) is not None:
        raise BadSums("its sums are not of their type (more arrays than sums)")
    return values


def _value(scope: Scope, aggregation: Aggregation, remaining: Iterator[np.ndarray], bounds: Bounds):
    named = list(leaves(aggregation.type))
    arrays = [array for _, array in zip(named, remaining, strict=False)]
    value = value_of(aggregation.type, iter(arrays))  # of the declared types from here on
    of_name: dict[str | None, list[np.ndarray]] = {}
    for (name, kind), array, neutral in zip(named, arrays, neutral_of(aggregation, scope), strict=True):
        of_name.setdefault(name, []).append(array)
        _check_rows(kind, array, bounds)
        _check_general(name, array, neutral, bounds)
        if name == PLATFORMS:
            _check_platforms(array, neutral, bounds)
        elif name in _RANGES:
            _check_range(name, array, neutral, _RANGES[name](bounds))
    _check_clipped(of_name, bounds)
    _check_parts(of_name)
    if "examples" in of_name and "confusion" in of_name and bounds.counted:
        _check_total(of_name["confusion"][0], bounds.rows)
    return value


def neutral_of(aggregation: Aggregation, scope: Scope) -> list[float | int]:
    """Return for each tensor the neutral number: 0 for a sum, the lowest or -inf for a maximum."""
    if aggregation.neutral is None:
        aggregation.neutral = [
            array.flat[0].item() if array.size else 0 for array in arrays_of(aggregation.zero(scope))
        ]
    return aggregation.neutral


def _check_rows(kind: tff.TensorType, array: np.ndarray, bounds: Bounds) -> None:
    """Check that there is at most one update for each client."""
    if kind.shape and kind.shape[0] is None and len(array) > bounds.clients:
        raise BadSums(f"its sums have {len(array)} updates of {bounds.clients} clients")


def _check_general(name: str | None, array: np.ndarray, neutral: float | int, bounds: Bounds) -> None:
    if array.dtype.kind == "f":
        known = array[array != neutral] if neutral else array
        if np.isnan(known).any():
            raise BadSums("its sums hold NaN")
        largest = MAX_WIDE_SUM if array.dtype.itemsize > 4 else MAX_SUM
        _check_size(name, known, largest)
    elif array.dtype.kind in "iu" and not neutral:
        _check_size(name, array, np.iinfo(array.dtype).max // bounds.sites)


def _check_size(name: str | None, array: np.ndarray, largest: float) -> None:
    least, greatest = (array.min().item(), array.max().item()) if array.size else (0, 0)
    if max(-least, greatest) > largest:
        entry = f" for '{name}'" if name else ""
        raise BadSums(
            f"its sums hold {greatest if greatest > largest else least:.3g}{entry}, beyond the bound {largest:.3g}"
        )


def _check_range(name: str, array: np.ndarray, neutral: float | int, range_: Range) -> None:
    known = array[array != neutral] if neutral else array
    if not known.size:
        return
    lowest, highest = range_
    size = max(abs(lowest), abs(highest))
    slack = 0 if name in _COUNTS and size <= EXACT else ROUNDING * size
    least, greatest = float(known.min()), float(known.max())
    # Rounding makes no sum of numbers from zero on negative.
    too_low = least < lowest - (slack if lowest else 0)
    if too_low or greatest > highest + slack:
        wanted = f"{lowest:.9g} is" if lowest == highest else f"{lowest:.9g} to {highest:.9g} are"
        raise BadSums(f"its sums hold {least if too_low else greatest:.9g} for '{name}', and {wanted} possible")


def _check_platforms(array: np.ndarray, neutral: int, bounds: Bounds) -> None:
    known = array[array != neutral]
    if not np.isin(known, bounds.indices).all():
        raise BadSums(f"its sums hold a number for '{PLATFORMS}' that is not one of its clients")


def _check_clipped(of_name: dict[str | None, list[np.ndarray]], bounds: Bounds) -> None:
    """Check that norms are within what clipping and weights allow.

    If no client counts, the sums must be zero.
    """
    for name, factors in _CLIPPED.items():
        if name not in of_name or not all(array.dtype.kind == "f" for array in of_name[name]):
            continue
        if factors is not None and factors not in of_name:
            continue
        factor = float(bounds.clients) if factors is None else float(of_name[factors][0])
        if factor == 0 and any(array.any() for array in of_name[name]):
            raise BadSums(f"its sums hold numbers for '{name}' of a weight of 0")
        if bounds.norm is None:
            continue
        norm = math.sqrt(sum(float(np.sum(np.square(array, dtype=np.float64))) for array in of_name[name]))
        largest = bounds.norm * factor
        if norm > largest * (1 + ROUNDING):
            raise BadSums(f"its sums hold updates of a norm of {norm:.3g} for '{name}', and {largest:.3g} is possible")


def _check_parts(of_name: dict[str | None, list[np.ndarray]]) -> None:
    for name, wholes in _PARTS.items():
        for whole in wholes:
            if name not in of_name or whole not in of_name:
                continue
            part, largest = of_name[name][0], of_name[whole][0]
            slack = np.where(largest > EXACT, ROUNDING * largest, 0)
            if (part > largest + slack).any():
                raise BadSums(f"its sums hold more for '{name}' than for '{whole}'")


def _check_total(confusion: np.ndarray, rows: int) -> None:
    total = float(confusion.sum(dtype=np.float64))
    if abs(total - rows) > (ROUNDING * rows if rows > EXACT else 0):
        raise BadSums(f"its sums hold {total:.9g} examples in 'confusion', and {rows} is possible")
