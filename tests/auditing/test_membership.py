"""Membership: the attacks' measures against hand-worked numbers, and shadow models with a planted signal."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from tff_re.auditing.membership import judge, likelihood_ratios


def test_scores_that_tell_members_and_scores_that_tell_nothing():
    perfect = judge(np.arange(100.0) + 1000, np.arange(100.0), seed=0)
    assert perfect.auc == 1.0 and perfect.auc_interval == pytest.approx((1.0, 1.0))
    assert all(rate == 1.0 and interval[0] > 0.96 for rate, interval in perfect.rates.values())
    draw = np.random.default_rng(5)
    blind = judge(draw.normal(size=3000), draw.normal(size=3000), seed=0)
    assert blind.auc_interval[0] < 0.5 < blind.auc_interval[1] and abs(blind.auc - 0.5) < 0.03
    for rate, (value, (low, high)) in blind.rates.items():
        assert low < value < high or value == 0
        assert abs(value - rate) < 0.01


def test_a_threshold_lets_no_more_others_pass_than_allowed():
    """Of 200 others one percent are two: the threshold is the third highest; of 0.1 percent none."""
    others = np.arange(200.0)
    members = np.array([0.0, 197.0, 197.5, 198.5, 199.5])
    attack = judge(members, others, seed=0)
    assert attack.rates[0.01][0] == pytest.approx(3 / 5)
    assert attack.rates[0.001][0] == pytest.approx(1 / 5)
    low, high = attack.rates[0.01][1]
    assert (low, high) == pytest.approx((0.1466, 0.9473), abs=1e-4)  # Clopper and Pearson's of 3 in 5
    x, y = attack.curve
    assert x[0] == y[0] == 0 and x[-1] == y[-1] == 1 and (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()


def test_ties_are_no_members():
    attack = judge(np.ones(10), np.ones(10), seed=0)
    assert attack.auc == 0.5 and all(rate == 0 for rate, _ in attack.rates.values())


def test_the_likelihood_ratio_by_hand():
    """One example: in at 3 and 5, out at 0 and 2; another: in at 1 and 3, out at 1 and 1."""
    shadows = np.array([[3.0, 1.0], [5.0, 1.0], [0.0, 1.0], [2.0, 3.0]])
    inside = np.array([[True, True], [True, False], [False, False], [False, True]])
    inside_std, outside_std = np.sqrt((2 + 2) / 2), np.sqrt((2 + 0) / 2)
    expected = [
        norm.logpdf(4, 4, inside_std) - norm.logpdf(4, 1, outside_std),
        norm.logpdf(0, 2, inside_std) - norm.logpdf(0, 1, outside_std),
    ]
    assert likelihood_ratios(np.array([4.0, 0.0]), shadows, inside) == pytest.approx(expected, abs=1e-4)


def test_shadow_models_tell_hard_examples_from_members():
    """Examples differ in how hard they are, by more than a member gains: a threshold on the loss tells little."""
    draw = np.random.default_rng(1)
    hard = draw.normal(0, 5, size=2000)
    inside = np.argsort(draw.random([8, 2000]), axis=0) < 4
    shadows = hard + 1.5 * inside + draw.normal(0, 0.5, size=[8, 2000])
    members = np.arange(2000) < 1000
    target = hard + 1.5 * members + draw.normal(0, 0.5, size=2000)
    plain = judge(target[members], target[~members], seed=0)
    ratios = likelihood_ratios(target, shadows, inside)
    attacked = judge(ratios[members], ratios[~members], seed=0)
    assert plain.auc < 0.65 and attacked.auc > 0.93
    assert attacked.rates[0.01][0] > 5 * plain.rates[0.01][0]
