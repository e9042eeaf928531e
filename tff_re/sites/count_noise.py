"""Integer noise for counts, drawn exactly: no rounding of floating-point numbers tells what the count was.

After Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithms 1 and 2.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction

Below = Callable[[int], int]
"""n -> an integer from 0 to n - 1, all equally likely."""


def discrete_laplace(scale: Fraction, below: Below = secrets.randbelow) -> int:
    """Draw an integer x with a probability proportional to exp(-|x| / scale).

    A count that one text changes by at most d is then (d / scale)-differentially private.
    """
    numerator, denominator = scale.numerator, scale.denominator
    while True:
        part = below(numerator)
        if not _is_exp(Fraction(part, numerator), below):
            continue
        whole = 0
        while _is_exp(Fraction(1), below):
            whole += 1
        size = (part + numerator * whole) // denominator
        negative = bool(below(2))
        if size or not negative:
            return -size if negative else size


def deviation(scale: float) -> float:
    """Return the standard deviation of `discrete_laplace`."""
    ratio = math.exp(-1 / scale)
    return math.sqrt(2 * ratio) / (1 - ratio)


def _is_exp(exponent: Fraction, below: Below) -> bool:
    """Draw true with probability exp(-exponent), for an exponent from 0 to 1."""
    number = 1
    while below(exponent.denominator * number) < exponent.numerator:
        number += 1
    return number % 2 == 1
