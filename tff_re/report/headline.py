"""What a run's numbers say, in a sentence: its test metric, and whether a model without training has the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_QUALITIES = ("micro_f1", "f1", "auc", "accuracy")
"""Of the first that a run has on test its sentence is; accuracy on relations would count "no relation"."""

_SHOWN = {"micro_f1": "micro-F1", "f1": "F1", "auc": "area under the precision-recall curve", "accuracy": "accuracy"}

_TRIVIAL = {
    "trivial: largest class": "always predicting the most frequent class",
    "trivial: every pair positive": "predicting every pair as positive",
    "trivial: every pair the most frequent relation": "predicting the most frequent relation for every pair",
    "trivial: by the types of a pair, from dev": "predicting from the types of a pair",
    "ranking by chance": "a random ranking",
    "trivial: dictionary of the training entities": "a dictionary of the training entities",
}
"""Row of `references` in summary.json -> what it stands for, of those that need no training."""

_ROUNDING = 1e-9


def main_metric(metrics: Mapping[str, Any]) -> str | None:
    """The test metric that says how good a run is, or None if it has none."""
    names = (f"test/{quality}" for quality in _QUALITIES)
    return next((name for name in names if _is_number(metrics.get(name))), None)


def of_run(summary: Mapping[str, Any]) -> str:
    """A sentence on the run of a summary.json: its algorithm, its main metric on test and the best trivial value."""
    name, values, rounds = *_result(summary), int(summary["rounds"])
    ended = f"after {rounds} round{'s' if rounds != 1 else ''}"
    if summary.get("chosen"):
        ended = f"in round {int(summary['chosen']['round'])} of {rounds}, chosen on dev"
    if name is None:
        return (
            f"{summary['algorithm']} was trained for {rounds} round{'s' if rounds != 1 else ''}. There are no "
            "test examples."
        )
    quality = _SHOWN[name.partition("/")[2]]
    said = f"{summary['algorithm']} reaches a test {quality} of {100 * values[name]:.2f} % {ended}"
    trivial = _best_trivial(summary, name)
    if trivial is None:
        return f"{said}."
    row, value = trivial
    return f"{said}; {_TRIVIAL[row]} gives {100 * value:.2f} %."


def no_better(summary: Mapping[str, Any]) -> str | None:
    """A sentence if the run's main metric on test does not exceed that of a model without training, else None."""
    name, values = _result(summary)
    trivial = None if name is None else _best_trivial(summary, name)
    if trivial is None or values[name] > trivial[1] + _ROUNDING:
        return None
    return f"The model is no better than {_TRIVIAL[trivial[0]]}."


def _result(summary: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """(the main metric, the metrics of the run's result): those of the chosen round, if there is one with test."""
    for values in (summary.get("chosen") or {}, summary["final"]):
        if (name := main_metric(values)) is not None:
            return name, values
    return None, {}


def _best_trivial(summary: Mapping[str, Any], name: str) -> tuple[str, float] | None:
    references = summary.get("references") or {}
    values = [
        (row, float(of_reference[name]))
        for row, of_reference in references.items()
        if row in _TRIVIAL and name in of_reference
    ]
    return max(values, key=lambda pair: pair[1], default=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
