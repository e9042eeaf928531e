"""The messages by which sites train for themselves, and compare their own models with the federated one.

alone    -                               -> rounds that the site has trained alone
compare  the federated weights           -> what the site's policy lets it tell
"""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs
import numpy as np

from tff_re.sites.fields import MAX_ROUND, array, arrays, number
from tff_re.sites.questions import Answer, Question

NUMBERS = ("before", "after", "difference", "low", "high")
"""Of a comparison: the measure of both models, the second minus the first, and the interval of this difference."""


@attrs.frozen(kw_only=True, eq=False)
class AloneAnswer(Answer):
    """How many rounds the site has trained alone.

    Attributes:
      rounds: that it has trained.
      finished: whether this was the last one.
    """

    rounds: int = attrs.field(validator=number(0, MAX_ROUND))
    finished: bool


@attrs.frozen(kw_only=True, eq=False)
class Alone(Question):
    """Train alone for a while. The model stays at the site."""

    kind: ClassVar[str] = "alone"
    answer: ClassVar[type] = AloneAnswer


@attrs.frozen(kw_only=True, eq=False)
class CompareAnswer(Answer):
    """What a site tells of its comparison.

    Attributes:
      disclosed: `interval`: numbers and verdict; `direction`: the verdict; `nothing`.
      verdict: `gain` or `loss`: the interval is above or below zero; `open`: it is not, or there are few test units.
      numbers: float64 [5], see `NUMBERS`.
    """

    disclosed: Literal["interval", "direction", "nothing"]
    verdict: Literal["gain", "loss", "open"] | None = None
    numbers: np.ndarray | None = attrs.field(**array("f8", len(NUMBERS), optional=True))

    def __attrs_post_init__(self):
        if (self.verdict is None) != (self.disclosed == "nothing") or (self.numbers is None) != (
            self.disclosed != "interval"
        ):
            raise ValueError("'disclosed' must say what the answer has")
        if self.numbers is not None:
            before, after, difference, low, high = self.numbers.tolist()
            if not (0 <= before <= 1 and 0 <= after <= 1 and -1 <= low <= high <= 1):
                raise ValueError("'numbers' must be shares from 0 to 1, and an interval of their difference")
            if not abs(after - before - difference) <= 1e-6:  # NaN neither
                raise ValueError("'numbers' must have the difference of the first two")
            if (self.verdict == "gain" and low <= 0) or (self.verdict == "loss" and high >= 0):
                raise ValueError("'verdict' must be that of the interval")


@attrs.frozen(kw_only=True, eq=False)
class Compare(Question):
    """Which of two models is better on the site's own test examples?

    Attributes:
      what: `alone`: the model that the site trained alone, and the federated one; `tuned`: the federated one, and the
        same after fine-tuning at the site.
      arrays: the federated weights.
    """

    kind: ClassVar[str] = "compare"
    answer: ClassVar[type] = CompareAnswer
    what: Literal["alone", "tuned"]
    arrays: tuple[np.ndarray, ...] = attrs.field(**arrays())
