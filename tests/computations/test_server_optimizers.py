"""The adaptive optimizers of [server_optimizer] against a second writing, and what they compose with."""

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.aggregation_rules.rfa import GeometricMedianFactory
from computations.aggregators import with_noise_seed
from computations.algorithms.arranged import privatised
from computations.algorithms.server_optimizer import with_server_optimizer
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from computations.privacy.options import PrivacyOptions
from computations.server_updates import ServerOptimizerOptions, gradient_step, server_optimizer
from computations.server_updates.adaptive_step import AdaptiveServer
from tests.computations import toolbox
from tests.computations.built import DATA, begin, build, clients_of_round, play, worked_out_options
from tests.computations.cases import CASES, STEPS
from tests.computations.test_robust import geometric_median
from tests.computations.test_server_updates import UPDATE, stepped

pytestmark = pytest.mark.xdist_group("algorithms")  # whose builds are shared


def coordinate(rule, gradients, eta, beta_1, beta_2, tau, corrected):
    """How far one number has gone after each of these pseudo-gradients; Algorithm 2 in scalars."""
    m, v, gone = 0.0, 0.0 if corrected else tau**2, [0.0]
    for t, g in enumerate(gradients, 1):
        m = beta_1 * m + (1 - beta_1) * g
        if rule == "adagrad":
            v += g * g
        elif rule == "adam":
            v = beta_2 * v + (1 - beta_2) * g * g
        elif v > g * g:
            v -= (1 - beta_2) * g * g
        elif v < g * g:
            v += (1 - beta_2) * g * g
        m_hat, v_hat = (m / (1 - beta_1**t), v / (1 - beta_2**t)) if corrected else (m, v)
        gone.append(gone[-1] + eta * m_hat / (np.sqrt(v_hat) + tau))
    return gone[1:]


@pytest.mark.parametrize(
    ("rule", "corrected"), [("adam", False), ("adam", True), ("yogi", False), ("yogi", True), ("adagrad", False)]
)
def test_algorithm_2_number_by_number(rule, corrected):
    """Pseudo-gradients that grow, shrink, turn and vanish, so that Yogi's sign is each of the three."""
    series = np.float32([[0.5, -2.0, 1e-3], [-0.1, 2.0, 1e-3], [0.0, 0.3, -5.0], [1.0, -0.2, 0.02]])
    settings = {"beta_1": 0.8, "beta_2": 0.9, "tau": 0.05}
    optimizer = AdaptiveServer(rule, 0.3, **settings, bias_correction=corrected)
    start = [tf.constant([1.0, 2.0, 3.0])]
    state, weights, history = optimizer.initialize([tf.TensorSpec([3])]), start, []
    for g in series:
        state, weights = optimizer.next(state, weights, [tf.constant(g)])
        history.append((start[0] - weights[0]).numpy())
    wanted = [coordinate(rule, column, 0.3, *settings.values(), corrected) for column in series.T.astype(float)]
    np.testing.assert_allclose(np.array(history).T, wanted, rtol=2e-5, atol=1e-6)
    assert state["step"] == 4


def test_the_finalizer_is_the_optimizer_with_the_papers_settings(model):
    """beta_1 0.9, beta_2 0.99, tau 0.001, no correction; momentum is that of the gradient step."""
    process = server_optimizer(model, ServerOptimizerOptions(name="adam", learning_rate=0.1))
    for number, weights in enumerate(stepped(process, 2)):
        for before, after, u in zip(toolbox.start_weights(), weights, UPDATE, strict=True):
            gone = np.vectorize(lambda g, n=number: coordinate("adam", [g] * 2, 0.1, 0.9, 0.99, 1e-3, False)[n])
            np.testing.assert_allclose(before - after, gone(u.astype(float)), rtol=1e-4)
    plain, ours = gradient_step(model, momentum=0.9), server_optimizer(model, ServerOptimizerOptions(name="momentum"))
    assert toolbox.bits(stepped(ours, 3)) == toolbox.bits(stepped(plain, 3))


def test_an_update_that_is_not_finite_leaves_weights_and_moments(model):
    process = server_optimizer(model, ServerOptimizerOptions(name="yogi"))
    bad = [np.full_like(UPDATE[0], np.nan), UPDATE[1]]
    output = process.next(process.initialize(), toolbox.model_weights(*toolbox.start_weights()), bad)
    assert toolbox.bits(output.result.trainable) == toolbox.bits(toolbox.start_weights())
    assert toolbox.bits(output.state) == toolbox.bits(process.initialize())


# Whole rounds: what the clients do and the aggregation are the algorithm's.

ADAGRAD = ServerOptimizerOptions(name="adagrad", learning_rate=0.1, beta_1=0.5, tau=0.01)
DEFAULTS = algorithms.find("fedavg").options()


def after_a_round(algorithm, seed=None):
    """(the weights, the finalizer's state); noise of that seed."""
    state = begin(algorithm) if seed is None else with_noise_seed(begin(algorithm), seed)
    state, _, _ = play(algorithm, state, [0], clients_of_round)
    return [np.asarray(w, float) for w in state["weights"].trainable], state["finalizer"]


def assert_adagrad_of(result, updates):
    """The first step of ADAGRAD along an aggregated update; its moments are in the state."""
    weights, state = result
    for start, u, end in zip(toolbox.start_weights(), updates, weights, strict=True):
        np.testing.assert_allclose(end, start - 0.1 * 0.5 * u / (np.sqrt(1e-4 + u**2) + 0.01), atol=2e-5)
    toolbox.assert_close(tf.nest.flatten(state["first"]), [0.5 * u for u in updates], 1e-5)
    toolbox.assert_close(tf.nest.flatten(state["second"]), [1e-4 + u**2 for u in updates], 1e-5)


def test_attention_and_padam():
    """The update of the suite's own second writing, which goes 1.5 steps along it."""
    ours = with_server_optimizer(build("fedpap"), ADAGRAD, DEFAULTS)
    end = CASES["fedpap"].expected(toolbox.start_weights(), DATA, worked_out_options("fedpap"))
    updates = [(w - e) / 1.5 for w, e in zip(toolbox.start_weights(), end, strict=True)]
    assert_adagrad_of(after_a_round(ours), updates)


def test_the_geometric_median():
    robust = recompose(build("fedavg"), aggregator=GeometricMedianFactory())
    rate, start, of_clients = worked_out_options("fedavg").learning_rate, toolbox.start_weights(), []
    for x, y in DATA:
        local = toolbox.train(start, x, y, [np.arange(len(y))] * STEPS, toolbox.Sgd(rate))
        of_clients.append(np.concatenate([u.ravel() for u in toolbox.difference(start, local)]))
    middle = geometric_median(of_clients, [len(y) for _, y in DATA])
    updates = [middle[:9].reshape(3, 3), middle[9:]]
    assert_adagrad_of(after_a_round(with_server_optimizer(robust, ADAGRAD, DEFAULTS)), updates)


def test_noise_on_the_clients_sum():
    """It is drawn before the server's step, so that the moments see it and no other noise is needed."""
    noisy = privatised(build("fedavg"), PrivacyOptions(clip=1.0), expected_clients=2, noise_multiplier=0.5)
    plain, _ = after_a_round(recompose(noisy, finalizer=gradient_step(noisy.model)), seed=(1, 2))
    updates = [w - e for w, e in zip(toolbox.start_weights(), plain, strict=True)]
    assert_adagrad_of(after_a_round(with_server_optimizer(noisy, ADAGRAD, DEFAULTS), seed=(1, 2)), updates)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("feded", "FedED's server distils predictions instead"),
        ("fedavg_server_pass", "this server trains on its own examples"),
        ("feddyn", "has its own step, like FedDyn's"),
    ],
)
def test_servers_that_take_no_step_are_refused_by_name(name, reason):
    with pytest.raises(CompositionError, match=reason):
        with_server_optimizer(build(name), ADAGRAD, algorithms.find(name).options())


def test_options_of_the_step_that_it_replaces_are_refused():
    """fedpap's own default step is 1.2."""
    kind = algorithms.find("fedpap").options
    for options, key in ((kind(server_step=9.0), "server_step, which is 9; .* 1.2"), (kind(noise_scale=0.1), "noise_")):
        with pytest.raises(CompositionError, match=f"replaces algorithm.{key}"):
            with_server_optimizer(build("fedpap"), ADAGRAD, options)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": "momentum", "tau": 0.1}, "tau needs name = 'adam' or 'yogi' or 'adagrad'"),
        ({"name": "adagrad", "beta_2": 0.9}, "beta_2 needs name = 'adam' or 'yogi'"),
        ({"name": "adagrad", "bias_correction": True}, "bias_correction needs name = 'adam' or 'yogi'"),
        ({"name": "sgd"}, "name"),
        ({"name": "adam", "beta_1": 1.0}, "beta_1"),
        ({"name": "adam", "learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_impossible_server_optimizers(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        ServerOptimizerOptions(**wrong)
