"""The rule of the verdict: what paired differences over seeds say of two methods, and of a published gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tff_re.comparison.statistics import Difference, holm, p_against
from tff_re.runs.units import LEVEL

LEAST_SEEDS = 3
"""With fewer, everything is open: an interval of two differences rests on their being drawn from a normal distribution,
of which two cannot tell anything."""

WORDS = ("gain", "loss", "does not show", "no room", "open")
MADE_UP = "made up"
VERDICTS = (*WORDS, *(f"{MADE_UP}: {word}" for word in WORDS))


@dataclass(frozen=True)
class Contrast:
    """A method less a baseline, to be judged.

    Attributes:
      difference: paired by seed.
      published: what the paper reports for it, in the metric's own unit; None: nothing.
      room: what the best pooled or oracle row has on the baseline; None: there is no such row.
      higher_is_better: False for losses.
      made_up: whether the data were made up for the comparison; then the verdict says so.
    """

    difference: Difference
    published: float | None = None
    room: float | None = None
    higher_is_better: bool = True
    made_up: bool = False


def judge_all(contrasts: Sequence[Contrast]) -> list[tuple[float | None, str]]:
    """(p-value, verdict) of each contrast, both adjusted by Holm over all that are given.

    - `gain`, `loss`: the adjusted p-value of the paired t-test is below 1 - `LEVEL`.
    - `no room`: neither, and the room is smaller than the published gain.
    - `does not show`: none of these, the interval holds zero or less, and it is short of the published value, also
      after Holm's adjustment over the published values.
    - `open`: anything else, and everything with fewer than `LEAST_SEEDS` seeds.
    """
    adjusted = holm([contrast.difference.p for contrast in contrasts])
    short = holm([None if c.published is None else p_against(c.difference, c.published) for c in contrasts])
    judged = []
    for contrast, p, p_short in zip(contrasts, adjusted, short, strict=True):
        word = _word(contrast, p, p_short)
        judged.append((p, f"{MADE_UP}: {word}" if contrast.made_up else word))
    return judged


def _word(contrast: Contrast, adjusted: float | None, p_short: float | None) -> str:
    difference, published = contrast.difference, contrast.published
    if difference.n < LEAST_SEEDS or adjusted is None:
        return "open"
    better = 1 if contrast.higher_is_better else -1
    if adjusted < 1 - LEVEL and difference.mean != 0:
        return "gain" if difference.mean * better > 0 else "loss"
    if published is None:
        return "open"
    if published * better > 0 and contrast.room is not None and contrast.room * better < published * better:
        return "no room"
    if p_short is None or p_short >= 1 - LEVEL:
        return "open"
    towards = 1 if published > 0 else -1
    nearest, furthest = sorted((towards * difference.low, towards * difference.high))
    return "does not show" if nearest <= 0 and furthest < towards * published else "open"
