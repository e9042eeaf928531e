import numpy as np
import pytest
import tensorflow as tf

from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy, Proximal
from computations.client_work.optimizers import SGD, LibraryAdam, PAdam, SelfAdam
from tests.computations import toolbox
from tests.computations.toolbox import assert_close

SHAPES = ([4, 3], [3], [])


def random_gradients(steps, scale=1.0, seed=0):
    generator = np.random.default_rng(seed)
    return [[(scale * generator.normal(size=s)).astype(np.float32) for s in SHAPES] for _ in range(steps)]


def random_weights(seed=1):
    return random_gradients(1, seed=seed)[0]


def applied(optimizer, start, gradients, rate=None, global_weights=None):
    """The weights after each step, through `bind(...).apply` in eager mode."""
    variables = [tf.Variable(w) for w in start]
    bound = optimizer.bind(variables)
    global_weights = [tf.constant(w) for w in (start if global_weights is None else global_weights)]
    rate = tf.constant(optimizer.learning_rate if rate is None else rate, tf.float32)
    history = []
    for g in gradients:
        g = g([v.numpy() for v in variables]) if callable(g) else g
        bound.apply(
            [x if isinstance(x, tf.IndexedSlices) else tf.constant(x, tf.float32) for x in g], global_weights, rate
        )
        history.append([v.numpy() for v in variables])
    return history


def expected(rule, start, gradients, mu=0.0, global_weights=None):
    weights = [w.astype(float) for w in start]
    global_weights = weights if global_weights is None else global_weights
    history = []
    for g in gradients:
        g = g(weights) if callable(g) else g
        g = [gi + mu * (w - a) for gi, w, a in zip(g, weights, global_weights, strict=True)]
        weights = rule.step(weights, g)
        history.append(weights)
    return history


def assert_same_history(actual, wanted, tolerance):
    assert len(actual) == len(wanted)
    for a, w in zip(actual, wanted, strict=True):
        assert_close(a, w, tolerance)


def test_padam_follows_equations_21_to_27_on_random_gradients():
    start, gradients = random_weights(), random_gradients(10)
    global_weights = random_weights(seed=2)  # far from the start, so that the proximal term shows from the first step
    actual = applied(PAdam(0.05, mu=0.7), start, gradients, global_weights=global_weights)
    assert_same_history(actual, expected(toolbox.Adam(0.05), start, gradients, 0.7, global_weights), 1e-6)
    without = expected(toolbox.Adam(0.05), start, gradients)
    assert np.abs(actual[-1][0] - without[-1][0]).max() > 1e-2


def test_padam_first_two_steps_by_hand():
    # w = a = 1, g = 2, rate 0.1: m_hat = 2, v_hat = 4, so w1 = 1 - 0.1 * 2/2 = 0.9.
    # Step 2, g = 2, mu = 5: perturbed 2 + 5 * (0.9 - 1) = 1.5; m_hat = (0.9*0.2 + 0.1*1.5) / 0.19 = 0.33/0.19;
    # v_hat = (0.999*0.004 + 0.001*2.25) / 0.001999 = 0.006246/0.001999; w2 = 0.9 - 0.1 * 1.7368421 / 1.7676431.
    start = [np.float32(1.0)]
    first, second = applied(PAdam(0.1, mu=5.0), start, [[np.float32(2.0)]] * 2)
    np.testing.assert_allclose(first[0], 0.9, atol=1e-6)
    np.testing.assert_allclose(second[0], 0.9 - 0.1 * 1.7368421 / 1.7676431, atol=1e-6)


# The library's epsilon stands beside the uncorrected root, so with gradients as small as 1e-3 even 1e-8 shows (1e-4 of
# a step); without it the two are the same at every scale.
@pytest.mark.parametrize("scale, epsilon", [(1.0, 1e-8), (1e3, 1e-8), (1e-3, 1e-14), (1.0, 1e-14)])
def test_self_adam_is_the_librarys_adam_step_for_step(scale, epsilon):
    start, gradients = random_weights(), random_gradients(25, scale)
    self_adam = applied(SelfAdam(0.01, epsilon=epsilon), start, gradients)
    library = applied(LibraryAdam(0.01, epsilon=epsilon), start, gradients)
    for a, b in zip(self_adam, library, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-6)
    assert np.abs(self_adam[-1][0] - start[0]).max() > 1e-2


@pytest.mark.parametrize("settings", [{}, {"epsilon": 1e-2}, {"beta_1": 0.5, "beta_2": 0.9}], ids=str)
def test_self_adam_follows_equations_15_to_20(settings):
    """Epsilon is added to the corrected root."""
    start, gradients = random_weights(), random_gradients(20, scale=0.02)
    actual = applied(SelfAdam(0.05, **settings), start, gradients)
    assert_same_history(actual, expected(toolbox.Adam(0.05, **settings), start, gradients), 1e-6)


def test_the_large_epsilon_tells_the_two_places_apart():
    start, gradients = random_weights(), random_gradients(20, scale=0.02)
    actual = applied(SelfAdam(0.05, epsilon=1e-2), start, gradients)
    library = applied(LibraryAdam(0.05, epsilon=1e-2), start, gradients)  # epsilon beside the uncorrected root
    assert np.abs(actual[-1][0] - library[-1][0]).max() > 1e-2


@pytest.mark.parametrize("optimizer", [SGD(0.1), SelfAdam(0.1), PAdam(0.1), LibraryAdam(0.1)], ids=repr)
def test_the_rounds_rate_counts_and_not_the_settings(optimizer):
    start, gradients = random_weights(), random_gradients(1)
    whole, half = (applied(optimizer, start, gradients, rate=r)[0] for r in (0.1, 0.05))
    for w, h, s in zip(whole, half, start, strict=True):
        np.testing.assert_allclose(w - s, 2 * (h - s), rtol=1e-4, atol=1e-6)


def test_sgd_with_dense_gradients():
    start, gradients = random_weights(), random_gradients(5)
    assert_same_history(applied(SGD(0.3), start, gradients), expected(toolbox.Sgd(0.3), start, gradients), 1e-6)


SLICES = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]]), tf.constant([2, 0, 2]), [4, 2])
DENSE = np.array([[3.0, 4.0], [0.0, 0.0], [11.0, 22.0], [0.0, 0.0]], np.float32)


def test_sgd_adds_up_duplicate_indices():
    start = [np.arange(8, dtype=np.float32).reshape(4, 2)]
    (after,) = applied(SGD(0.5), start, [[SLICES]])
    np.testing.assert_array_equal(after[0], [[-1.5, -1.0], [2.0, 3.0], [-1.5, -6.0], [6.0, 7.0]])


@pytest.mark.parametrize("optimizer", [SelfAdam(0.1), PAdam(0.1, mu=0.5), LibraryAdam(0.1)], ids=repr)
def test_adam_takes_looked_up_rows_as_the_dense_gradient(optimizer):
    start = [np.arange(8, dtype=np.float32).reshape(4, 2)]
    sparse = applied(optimizer, start, [[SLICES]] * 3)
    dense = applied(optimizer, start, [[DENSE]] * 3)
    assert toolbox.bits(sparse) == toolbox.bits(dense)
    assert not np.array_equal(dense[-1][0], start[0])


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_impossible_settings_are_refused(value):
    for kind in (SGD, SelfAdam, PAdam, LibraryAdam):
        with pytest.raises(ValueError, match="learning_rate"):
            kind(value)
    for kind in (Proximal, lambda mu: PAdam(0.1, mu=mu)):
        with pytest.raises(ValueError, match="mu"):
            kind(value)


@pytest.mark.parametrize("optimizer", [SelfAdam(0.1), PAdam(0.1, mu=0.5), LibraryAdam(0.1)], ids=repr)
def test_moments_start_anew_in_every_local_training(model, optimizer):
    work = build_local_training(
        model,
        objective=CrossEntropy(),
        optimizer=optimizer,
        training=LocalTraining(local_steps=3, batch_size=10),
    )
    x, y = toolbox.examples(10, seed=1)
    weights = toolbox.start_weights()
    state = work.initialize(toolbox.model_weights(*weights))
    carried = toolbox.Adam(0.1)
    mu = getattr(optimizer, "mu", 0.0)
    for number in range(2):
        output = work.next(state, [toolbox.model_weights(*weights)], [toolbox.client(x, y)])
        local = toolbox.train(weights, x, y, [range(10)] * 3, toolbox.Adam(0.1), mu)
        assert_close(output["update"][0], toolbox.difference(weights, local), 5e-6)
        continued = toolbox.train(weights, x, y, [range(10)] * 3, carried, mu)
        if number == 1:  # the check has teeth: moments carried over would show
            assert np.abs(continued[0] - local[0]).max() > 1e-2
        state = output["state"]
        weights = [w.astype(np.float32) for w in local]
