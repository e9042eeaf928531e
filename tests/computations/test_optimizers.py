import numpy as np
import pytest
import tensorflow as tf

from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy, Proximal
from computations.client_work.optimizers import SGD, LibraryAdam, PAdam, SelfAdam, accumulated
from tests.computations import toolbox
from tests.computations.toolbox import assert_close

SHAPES = ([4, 3], [3], [])


def random_gradients(steps, scale=1.0, seed=0):
    generator = np.random.default_rng(seed)
    return [[(scale * generator.normal(size=s)).astype(np.float32) for s in SHAPES] for _ in range(steps)]


START = random_gradients(1, seed=1)[0]
ELSEWHERE = random_gradients(1, seed=2)[0]


def applied(optimizer, start, gradients, rate=None, global_weights=None):
    """The weights after each step, in eager mode."""
    variables = [tf.Variable(w) for w in start]
    apply = optimizer.bind(variables)
    rate, history = tf.constant(rate or optimizer.learning_rate, tf.float32), []
    for g in gradients:
        g = [x if isinstance(x, tf.IndexedSlices) else tf.constant(x, tf.float32) for x in g]
        apply(g, [tf.constant(w) for w in global_weights or start], rate)
        history.append([v.numpy() for v in variables])
    return history


def expected(rule, gradients, mu=0.0):
    weights, history = [w.astype(float) for w in START], []
    for g in gradients:
        weights = rule.step(weights, [gi + mu * (w - a) for gi, w, a in zip(g, weights, ELSEWHERE, strict=True)])
        history.append(weights)
    return history


@pytest.mark.parametrize(
    "optimizer, rule, scale",
    [
        (SGD(0.3), toolbox.Sgd(0.3), 1.0),
        # Eqs. 15-20: epsilon is added to the corrected root.
        *(
            (SelfAdam(0.05, **settings), toolbox.Adam(0.05, **settings), 0.02)
            for settings in ({}, {"epsilon": 1e-2}, {"beta_1": 0.5, "beta_2": 0.9})
        ),
        # Eqs. 21-27; the global weights are far from the start, so that the proximal term shows from the first step.
        (PAdam(0.05, mu=0.7), toolbox.Adam(0.05), 1.0),
    ],
    ids=["sgd", "adam", "adam-epsilon", "adam-betas", "padam"],
)
def test_steps_follow_the_equations(optimizer, rule, scale):
    gradients = random_gradients(20, scale)
    actual = applied(optimizer, START, gradients, global_weights=ELSEWHERE)
    for weight, wanted in zip(actual, expected(rule, gradients, getattr(optimizer, "mu", 0.0)), strict=True):
        assert_close(weight, wanted, 1e-6)


class Momentum(toolbox.Sgd):
    """u <- 0.8 u + g, w <- w - rate * u."""

    velocity = 0.0

    def step(self, weights, gradients):
        before = [self.velocity] * len(weights) if isinstance(self.velocity, float) else self.velocity
        self.velocity = [0.8 * u + g for u, g in zip(before, gradients, strict=True)]
        return super().step(weights, self.velocity)


def test_momentum_of_sgd():
    gradients = random_gradients(4)
    for weight, wanted in zip(
        applied(SGD(0.1, 0.8), START, gradients), expected(Momentum(0.1), gradients), strict=True
    ):
        assert_close(weight, wanted, 1e-6)


@pytest.mark.parametrize("optimizer", [SGD(0.1), SGD(0.1, 0.8), SelfAdam(0.1)], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_size_that_fednova_divides_by(optimizer, steps):
    """With gradients of one everywhere the way is rate times the size; Adam divides them by their root, one."""
    gradients = [[np.ones(shape, np.float32) for shape in SHAPES]] * steps
    end = applied(optimizer, START, gradients)[-1] if steps else START
    size = accumulated(optimizer, tf.constant(float(steps))).numpy()
    for before, after in zip(START, end, strict=True):
        np.testing.assert_allclose(before - after, 0.1 * size, rtol=1e-4, atol=1e-6)


def test_padam_first_two_steps_by_hand():
    # w = a = 1, g = 2, rate 0.1: m_hat = 2, v_hat = 4, so w1 = 1 - 0.1 * 2/2 = 0.9.
    # Step 2, g = 2, mu = 5: perturbed 2 + 5 * (0.9 - 1) = 1.5; m_hat = (0.9*0.2 + 0.1*1.5) / 0.19 = 0.33/0.19;
    # v_hat = (0.999*0.004 + 0.001*2.25) / 0.001999 = 0.006246/0.001999; w2 = 0.9 - 0.1 * 1.7368421 / 1.7676431.
    first, second = applied(PAdam(0.1, mu=5.0), [np.float32(1.0)], [[np.float32(2.0)]] * 2)
    np.testing.assert_allclose([first[0], second[0]], [0.9, 0.9 - 0.1 * 1.7368421 / 1.7676431], atol=1e-6)


# The library's epsilon stands beside the uncorrected root, so with gradients as small as 1e-3 even 1e-8 shows (1e-4 of
# a step); without it the two are the same at every scale.
@pytest.mark.parametrize("scale, epsilon", [(1.0, 1e-8), (1e3, 1e-8), (1e-3, 1e-14), (1.0, 1e-14)])
def test_self_adam_is_the_librarys_adam_step_for_step(scale, epsilon):
    gradients = random_gradients(25, scale)
    self_adam, library = (applied(kind(0.01, epsilon=epsilon), START, gradients) for kind in (SelfAdam, LibraryAdam))
    for a, b in zip(self_adam, library, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-6)


def test_the_large_epsilon_tells_the_two_places_apart():
    gradients = random_gradients(20, scale=0.02)
    ours, library = (applied(kind(0.05, epsilon=1e-2), START, gradients) for kind in (SelfAdam, LibraryAdam))
    assert np.abs(ours[-1][0] - library[-1][0]).max() > 1e-2


@pytest.mark.parametrize("optimizer", [SGD(0.1), SelfAdam(0.1), PAdam(0.1), LibraryAdam(0.1)], ids=repr)
def test_the_rounds_rate_counts_and_not_the_settings(optimizer):
    whole, half = (applied(optimizer, START, random_gradients(1), rate=r)[0] for r in (0.1, 0.05))
    for w, h, s in zip(whole, half, START, strict=True):
        np.testing.assert_allclose(w - s, 2 * (h - s), rtol=1e-4, atol=1e-6)


SLICES = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]]), tf.constant([2, 0, 2]), [4, 2])
DENSE = np.array([[3.0, 4.0], [0.0, 0.0], [11.0, 22.0], [0.0, 0.0]], np.float32)


@pytest.mark.parametrize("optimizer", [SGD(0.5), SelfAdam(0.1), PAdam(0.1, mu=0.5), LibraryAdam(0.1)], ids=repr)
def test_looked_up_rows_are_the_dense_gradient(optimizer):
    """The rows of an index that occurs twice are added up."""
    start = [np.arange(8, dtype=np.float32).reshape(4, 2)]
    sparse, dense = (applied(optimizer, start, [[gradient]] * 3) for gradient in (SLICES, DENSE))
    assert_close(sparse[-1], dense[-1], 1e-6)
    assert not np.array_equal(dense[-1][0], start[0])


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_impossible_settings_are_refused(value):
    for kind in (SGD, SelfAdam, PAdam, LibraryAdam):
        with pytest.raises(ValueError, match="learning_rate"):
            kind(value)
    for kind in (Proximal, lambda mu: PAdam(0.1, mu=mu)):
        with pytest.raises(ValueError, match="mu"):
            kind(value)


@pytest.mark.parametrize("optimizer", [SelfAdam(0.1), LibraryAdam(0.1)], ids=repr)
def test_moments_start_anew_in_every_local_training(model, optimizer):
    training = LocalTraining(local_steps=3, batch_size=10)
    work = build_local_training(model, objective=CrossEntropy(), optimizer=optimizer, training=training)
    x, y = toolbox.examples(10, seed=1)
    weights = toolbox.start_weights()
    state, carried = work.initialize(toolbox.model_weights(*weights)), toolbox.Adam(0.1)
    for number in range(2):
        output = work.next(state, [toolbox.model_weights(*weights)], [toolbox.client(x, y)])
        local = toolbox.train(weights, x, y, [range(10)] * 3, toolbox.Adam(0.1))
        assert_close(output["update"][0], toolbox.difference(weights, local), 5e-6)
        continued = toolbox.train(weights, x, y, [range(10)] * 3, carried)
        if number == 1:  # moments carried over would show
            assert np.abs(continued[0] - local[0]).max() > 1e-2
        state, weights = output["state"], [w.astype(np.float32) for w in local]
