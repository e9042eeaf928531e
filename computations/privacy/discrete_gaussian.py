"""Exact samples of the discrete Gaussian (Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential
Privacy", NeurIPS), drawn from words of random bits.

The discrete Gaussian of variance parameter s gives the integer x the probability exp(-x^2 / 2s) / sum_y exp(-y^2 / 2s).
A candidate of a discrete Laplace distribution is accepted with a probability that is an exponential. It is compared in
floating point with a random word; where rounding could matter, it is compared in as many digits and random bits as the
decision needs. So samples have this distribution exactly if the words are uniform. How long drawing takes depends on
the samples.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from fractions import Fraction

import numpy as np

Words = Callable[[int], np.ndarray]
"""Number of words -> uniform words, uint64."""

MAX_VARIANCE = 1 << 60
"""So that a candidate is far below 2^63."""

MARGIN = 2.0**-40
"""Where a word is nearer than this to a probability, the comparison is exact. Rounding errors are below 2^-45."""

_CHUNK = 1 << 17
"""Samples that are drawn at once."""

_ONE_WORD = 2.0**-64


def discrete_gaussian(count: int, variance: int, words: Words, *, margin: float = MARGIN) -> np.ndarray:
    """Return independent samples, int64 [count].

    Args:
      count: how many.
      variance: s, an integer from 1 to `MAX_VARIANCE`. The samples' variance is at most s, and nearly s from s = 1 on.
      words: the random bits. The same words give the same samples.
      margin: see `MARGIN`; a larger one takes longer and gives the same samples.

    Raises:
      ValueError: for another variance.
    """
    if not 1 <= variance <= MAX_VARIANCE:
        raise ValueError(f"variance must be an integer from 1 to {MAX_VARIANCE}, got {variance}")
    samples = np.empty(count, np.int64)
    for begin in range(0, count, _CHUNK):
        part, filled = samples[begin : begin + _CHUNK], 0
        while filled < part.size:
            accepted = _candidates(part.size - filled, variance, words, margin)
            part[filled : filled + accepted.size] = accepted
            filled += accepted.size
    return samples


def _candidates(count: int, variance: int, words: Words, margin: float) -> np.ndarray:
    """Return the accepted ones of `count` candidates.

    Algorithms 2 and 3 of the paper with their acceptances joined into one: x = u + t v with u uniform below t, v
    geometric, t = floor(sqrt(s)) + 1, is accepted with probability exp(-u/t - (x - s/t)^2 / 2s). It gets a random
    sign, and a negative zero is rejected.
    """
    scale = int(variance**0.5)  # of the proposal: any does, this one accepts most
    scale = max(scale - (scale * scale > variance), 1) + 1
    uniform, negative = _uniform(count, scale, words)
    blocks = _geometric(count, words)
    size = uniform + scale * blocks
    exponent = uniform / scale + np.square(size - variance / scale) / (2.0 * variance)

    def exact(index: int) -> Fraction:
        x = int(size[index]) * scale - variance
        return Fraction(int(uniform[index]), scale) + Fraction(x * x, 2 * variance * scale * scale)

    accepted = _below_exponential(words(count), np.exp(-exponent), exact, words, margin)
    accepted &= ~(negative & (size == 0))
    return np.where(negative, -size, size)[accepted]


def _uniform(count: int, below: int, words: Words) -> tuple[np.ndarray, np.ndarray]:
    """Return uniform integers below a number, and uniform signs: the remainders and the last bits of words."""
    limit = np.uint64((1 << 63) // below * below)
    drawn = words(count)
    while (beyond := np.flatnonzero(drawn >> np.uint64(1) >= limit)).size:
        drawn[beyond] = words(beyond.size)
    return (drawn >> np.uint64(1)).astype(np.int64) % below, (drawn & np.uint64(1)).astype(bool)


def _geometric(count: int, words: Words) -> np.ndarray:
    """Return integers v with probability (1 - 1/e) e^-v."""
    drawn, going = np.zeros(count, np.int64), np.arange(count)
    while going.size:
        probabilities = np.full(going.size, np.exp(-1.0))
        going = going[_below_exponential(words(going.size), probabilities, lambda _: Fraction(1), words, MARGIN)]
        drawn[going] += 1
    return drawn


def _below_exponential(
    drawn: np.ndarray, approximate: np.ndarray, exponent: Callable[[int], Fraction], words: Words, margin: float
) -> np.ndarray:
    """Return whether uniform numbers in [0, 1) are below exp(-exponent).

    Args:
      drawn: the first 64 bits of each.
      approximate: exp(-exponent), with an error below `margin`.
      exponent: index -> the exponent.
      words: for further bits.
      margin: see `MARGIN`.
    """
    difference = drawn * _ONE_WORD - approximate
    below = difference < 0
    for index in np.flatnonzero(np.abs(difference) <= margin):
        below[index] = _is_below(int(drawn[index]), exponent(int(index)), words)
    return below


def _is_below(word: int, exponent: Fraction, words: Words) -> bool:
    """Return whether a uniform number with these first 64 bits is below exp(-exponent), exactly."""
    if exponent == 0:
        return True
    numerator, bits, digits = word, 64, 40
    while True:
        low, high = _exponential(exponent, digits)
        if Fraction(numerator + 1, 1 << bits) <= low:
            return True
        if Fraction(numerator, 1 << bits) >= high:
            return False
        numerator, bits, digits = (numerator << 64) + int(words(1)[0]), bits + 64, digits + 20


def _exponential(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return numbers below and above exp(-exponent), which are near with many digits."""
    context = decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    quotient = context.divide(decimal.Decimal(exponent.numerator), decimal.Decimal(exponent.denominator))
    # The exponential is correctly rounded; the quotient has a relative error of at most 10^(1-digits).
    value = Fraction(context.exp(quotient.copy_negate()))
    error = (exponent + 1) * Fraction(2, 10 ** (digits - 1))
    return value * (1 - error), value * (1 + error)
