"""Suppression by brute force: all rows of small counts, and what each output leaves open to who knows the algorithm."""

from __future__ import annotations

import collections
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tff_re.sites.count_noise import deviation, discrete_laplace
from tff_re.sites.suppression import protected_row, protected_shares


def outputs(row, least):
    """Every output of a row, whatever is drawn."""
    drawn = []
    first = protected_row(row, least, lambda larger: drawn.extend(larger) or larger[0])
    return {first} | {protected_row(row, least, lambda larger, index=index: index) for index in drawn}


def rows_of(width, total):
    """Every row of counts with this sum."""
    for bars in itertools.combinations(range(total + width - 1), width - 1):
        ends = (-1, *bars, total + width - 1)
        yield tuple(second - first - 1 for first, second in itertools.pairwise(ends))


def possible_rows(width, total, least):
    """Output -> the rows that have it."""
    possible = collections.defaultdict(list)
    for row in rows_of(width, total):
        for output in outputs(row, least):
            possible[output].append(row)
    return possible


@pytest.mark.parametrize(("least", "largest"), [(2, 9), (3, 13), (4, 13), (5, 16)])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_hidden_count_may_have_any_small_value(width, least, largest):
    for total in range(least, largest):
        for output, rows in possible_rows(width, total, least).items():
            for index, shown in enumerate(output):
                values = {row[index] for row in rows}
                if shown is None:
                    assert values >= set(range(1, least)), (output, total, index)
                else:
                    assert values == {shown} and (shown == 0 or shown >= least)


def test_the_check_finds_what_can_be_computed():
    """What hides single counts, or the smallest one in addition, is found out by the same search."""

    def narrow(hide, total):
        possible = collections.defaultdict(list)
        for row in rows_of(3, total):
            possible[hide(row)].append(row)
        return [
            output
            for output, rows in possible.items()
            for index, shown in enumerate(output)
            if shown is None and not {row[index] for row in rows} >= {1, 2}
        ]

    def only_small(row):
        return tuple(None if 0 < count < 3 else count for count in row)

    def smallest_too(row):
        return protected_row(row, 3, lambda larger: min(larger, key=lambda index: row[index]))

    assert narrow(only_small, 9) and narrow(smallest_too, 9)


def test_a_row_without_small_counts_is_shown():
    assert protected_row((0, 5, 90), 5) == (0, 5, 90)
    assert protected_row((4, 4, 90), 5) == (None, None, 90)
    assert protected_row((2, 2, 1), 5) == (None, None, None)
    assert protected_row((3, 0), 5) == (None, None)
    row = protected_row((1, 0, 20, 30), 5)
    assert row[:2] == (None, 0) and sorted(map(str, row[2:])) in (["20", "None"], ["30", "None"])


def test_the_drawn_count_differs():
    assert len({protected_row((1, 20, 30), 5) for _ in range(100)}) == 2


@pytest.mark.parametrize("least", [2, 3, 5])
def test_shares_hide_both_sides(least):
    for total in range(least, 4 * least):
        possible = collections.defaultdict(set)
        for count in range(total + 1):
            possible[protected_shares([count], total, least)].add(count)
        for (shown,), counts in possible.items():
            small = set(range(1, least))
            if shown is None:
                assert counts >= small and {total - count for count in counts} >= small
            else:
                assert counts == {shown} and not {shown, total - shown} & small


def test_the_noise_has_its_distribution():
    rng = np.random.default_rng(3)
    for scale in (Fraction(1, 2), Fraction(7, 3), Fraction(10)):
        drawn = np.array([discrete_laplace(scale, lambda n: int(rng.integers(n))) for _ in range(4000)])
        ratio = math.exp(-1 / scale)
        for value in range(-2, 3):
            expected = (1 - ratio) / (1 + ratio) * ratio ** abs(value)
            assert (drawn == value).mean() == pytest.approx(expected, abs=5 * math.sqrt(expected / 4000))
        assert drawn.std() == pytest.approx(deviation(float(scale)), rel=0.12)
