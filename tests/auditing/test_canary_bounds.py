"""Epsilon from canaries: against the Gaussian mechanism, whose epsilon is known."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.special import log_ndtr

from tff_re.auditing.epsilon_bounds import (
    epsilon_lower_bound,
    epsilon_of_normals,
    estimate,
    log_tail,
)

DELTA = 1e-3


@functools.cache
def epsilon_of_gaussian(noise):
    """Of one release of a sum with Gaussian noise of this multiple of the sensitivity."""
    mechanism = GaussianPrivacyLoss(noise)
    return brentq(lambda epsilon: mechanism.get_delta_for_epsilon(epsilon) - DELTA, 0, 200)


def density(x, mean=0.0, std=1.0):
    return np.exp(-(((x - mean) / std) ** 2) / 2) / std / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_two_normals_of_one_width_are_the_gaussian_mechanism(noise):
    expected = epsilon_of_gaussian(noise)
    for mean in (0.3, -0.3):
        assert epsilon_of_normals(0.0, 0.3 * noise, mean, 0.3 * noise, DELTA) == pytest.approx(expected, rel=1e-4)


def test_nothing_between_equal_normals():
    assert epsilon_of_normals(0.0, 1.0, 0.0, 1.0, DELTA) == 0.0
    assert epsilon_of_normals(0.0, 1.0, 1e-6, 1.0, DELTA) == 0.0


@pytest.mark.parametrize(("mean", "std"), [(1.0, 0.5), (1.0, 2.0), (0.0, 1.3)])
def test_two_widths_by_integration(mean, std):
    """delta(epsilon) is the integral of max(0, p - e^epsilon q), of the direction where that is larger."""
    epsilon = epsilon_of_normals(0.0, 1.0, mean, std, DELTA)
    x = np.linspace(-40, 40, 2_000_001)
    p, q = density(x), density(x, mean, std)
    deltas = [trapezoid(np.maximum(0, a - np.exp(epsilon) * b), x) for a, b in ((p, q), (q, p))]
    assert max(deltas) == pytest.approx(DELTA, rel=1e-3)


@pytest.mark.parametrize("dimension", [3, 50])
def test_the_tail_of_a_cosine(dimension):
    vectors = np.random.default_rng(0).normal(size=[200_000, dimension])
    cosines = vectors[:, 0] / np.linalg.norm(vectors, axis=1)
    for threshold in (0.0, 0.1, 0.3):
        assert np.exp(log_tail(threshold, dimension)) == pytest.approx((cosines > threshold).mean(), abs=5e-3)
    assert np.exp(log_tail(0.4, 3)) == pytest.approx(0.3)  # on a sphere, (1 - t) / 2
    assert -1.5e6 < log_tail(0.5, 10**7) < -1.4e6  # 10^7 / 2 ln(1 - 0.25): too small for a float
    # Where the exact tail just fits into a float, and where its bound takes over.
    assert log_tail(0.82, 1000) == pytest.approx(-561.5976, abs=1e-3)
    assert log_tail(0.84, 1000) == pytest.approx(-614.9952, abs=1e-3)


def tail(threshold):
    return log_ndtr(-np.asarray(threshold))


def test_the_bound_holds_as_often_as_it_says():
    """Canaries shifted by 1 / noise against a standard normal; of 300 audits at most some 5 % are above the truth."""
    draw = np.random.default_rng(3)
    for noise in (0.5, 2.0):
        truth = epsilon_of_gaussian(noise)
        bounds = [epsilon_lower_bound(draw.normal(1 / noise, 1, 60), tail, DELTA) for _ in range(300)]
        assert np.mean(np.array(bounds) > truth) <= 0.05
        assert 0 < np.mean(bounds) < truth


def test_without_noise_the_bound_is_above_zero_and_with_much_it_is_not():
    draw = np.random.default_rng(4)
    seen = draw.normal(8, 1, 60)
    estimated = estimate(seen, (0.0, 1.0), tail, DELTA, seed=0)
    assert estimated.lower > 10 and estimated.interval[0] < estimated.epsilon < estimated.interval[1]
    assert estimated.lower < epsilon_of_gaussian(1 / 8)
    nothing = estimate(draw.normal(0, 1, 60), (0.0, 1.0), tail, DELTA, seed=0)
    assert nothing.lower < 0.2


def test_an_audit_finds_a_false_claim():
    """A mechanism said to have noise 4 that adds noise 0.25: the bound contradicts the claim."""
    claimed = epsilon_of_gaussian(4.0)
    seen = np.random.default_rng(5).normal(4, 1, 60)
    assert epsilon_lower_bound(seen, tail, DELTA) > claimed
