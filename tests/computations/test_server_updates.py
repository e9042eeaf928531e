import itertools

import numpy as np
import pytest

from computations.server_updates import gradient_step
from tests.computations import toolbox
from tests.computations.toolbox import linear_model, model_weights

START = toolbox.start_weights()
UPDATE = [np.full([3, 3], 0.5, np.float32), np.array([1.0, -2.0, 4.0], np.float32)]


def stepped(process, rounds, state=None, update=UPDATE, start=START):
    """The weights after each of some rounds with the same update."""
    state = process.initialize() if state is None else state
    weights, history = model_weights(*start), []
    for _ in range(rounds):
        output = process.next(state, weights, update)
        state, weights = output.state, output.result
        history.append([np.asarray(t) for t in weights.trainable])
    return history


@pytest.mark.parametrize(
    "settings, gone",
    [
        ({}, (1, 2)),
        ({"step_size": 2.5}, (2.5, 5)),
        # Velocity u, 1.5 u, 1.75 u: the weights have gone 1, 2.5 and 4.25 steps of 0.1.
        ({"step_size": 0.1, "momentum": 0.5}, (0.1, 0.25, 0.425)),
    ],
    ids=str,
)
def test_steps_go_against_the_pseudo_gradient(model, settings, gone):
    for steps, after in zip(gone, stepped(gradient_step(model, **settings), len(gone)), strict=True):
        toolbox.assert_close(after, [s - steps * u for s, u in zip(START, UPDATE, strict=True)], 1e-6)


def test_step_size_zero_leaves_the_weights(model):
    assert toolbox.bits(stepped(gradient_step(model, step_size=0.0, momentum=0.9), 2)[-1]) == toolbox.bits(START)


# Noise.


@pytest.fixture(scope="module")
def wide():
    """A model with enough weights to measure noise on."""
    return linear_model(400, 50)


@pytest.fixture(scope="module")
def noise(wide):
    """Function (scale, seed) -> the noise of three rounds, each [kernel, bias], with update zero."""

    def draw(scale, seed):
        start = [np.zeros([400, 50], np.float32), np.zeros([50], np.float32)]
        process = gradient_step(wide, noise_scale=scale, noise_seed=seed)
        history = [start, *stepped(process, 3, update=start, start=start)]
        return [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(history)]

    return draw


def test_noise_has_mean_zero_and_the_given_deviation(noise):
    rounds = noise(0.001, 3)
    for number, (kernel, _) in enumerate(rounds):
        assert abs(kernel.mean()) < 5 * 0.001 / np.sqrt(kernel.size), number
        np.testing.assert_allclose(kernel.std(), 0.001, rtol=0.03)
    np.testing.assert_allclose(noise(0.01, 3)[0][0], 10 * rounds[0][0], rtol=1e-4, atol=1e-7)
    assert toolbox.bits(rounds) == toolbox.bits(noise(0.001, 3)), "the same for the same seed"


def correlation(a, b):
    return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_noise_differs_between_rounds_seeds_and_weights(noise):
    rounds = noise(0.001, 3)
    first, second, third = (kernel for kernel, _ in rounds)
    other = noise(0.001, 4)[0][0]
    limit = 5 / np.sqrt(first.size)
    for pair in ((first, second), (first, third), (second, third), (first, other)):
        assert correlation(*pair) < limit
    kernel, bias = rounds[0]
    assert np.abs(kernel.ravel()[: bias.size] - bias).min() > 0


def test_noise_is_added_to_the_stepped_weights(model):
    quiet = stepped(gradient_step(model, step_size=2.0, momentum=0.5), 2)
    noisy = stepped(gradient_step(model, step_size=2.0, momentum=0.5, noise_scale=1e-4, noise_seed=1), 2)
    gap = max(np.abs(a - b).max() for a, b in zip(quiet[1], noisy[1], strict=True))
    assert 1e-5 < gap < 2e-3


def test_noise_goes_on_after_a_state_was_stored(model):
    process = gradient_step(model, noise_scale=0.1, noise_seed=1)
    through = process.next(process.initialize(), model_weights(*START), UPDATE)
    again = process.next(through.state, through.result, UPDATE)
    assert through.state["round"] == 1 and again.state["round"] == 2
    assert toolbox.bits(again.result.trainable) == toolbox.bits(stepped(process, 2)[-1])
