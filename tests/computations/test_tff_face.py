"""Our algorithms in TFF's simulation loops and programs, and our optimizers in TFF's own algorithms."""

import asyncio
import doctest

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations import algorithms, federated_algorithm
from computations.client_work.optimizers import PAdam
from computations.errors import CompositionError
from computations.learning_process import as_learning_process
from tests.computations import toolbox
from tests.computations.toolbox import assert_close, bits, client, examples, model_weights, start_weights

DATA = [examples(n, seed=n) for n in (6, 15)]


def clients_of_round(number):
    return [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(DATA)]


def build(name, model, **options):
    entry = algorithms.find(name)
    return entry.build(model, entry.options(**options))


@pytest.fixture(scope="module")
def fedpap(model):
    """Attention and PAdam, with a momentum at the server that lasts over rounds."""
    return build("fedpap", model, local_epochs=2, batch_size=4, learning_rate=0.05, server_momentum=0.5)


def by_hand(algorithm, rounds):
    """(state, metrics of each round) of `rounds` calls of next."""
    state, metrics = algorithm.initialize(model_weights(*start_weights())), []
    for number in range(1, rounds + 1):
        output = algorithm.next(state, clients_of_round(number))
        state = output["state"]
        metrics.append(output["metrics"])
    return state, metrics


@pytest.fixture
def event_loop():
    """The thread's, for which tff.simulation asks."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


def test_a_simulation_loop_gives_the_numbers_of_next(fedpap, tmp_path, event_loop):
    """tff.simulation's loop, ended after two rounds and started again on its checkpoint: four rounds of next."""
    process = as_learning_process(fedpap, model_weights(*start_weights()))
    saved, released = tff.program.FileProgramStateManager(tmp_path), tff.program.MemoryReleaseManager()
    for rounds in (2, 4):
        state = tff.simulation.run_training_process(
            process, clients_of_round, rounds, program_state_manager=saved, metrics_managers=[released]
        )
    expected, metrics = by_hand(fedpap, 4)
    assert bits(state) == bits(expected)
    assert sorted(released.values()) == [1, 2, 3, 4]
    for number, wanted in enumerate(metrics, start=1):
        row = released.values()[number]
        assert bits([row[key] for key in wanted]) == bits(list(wanted.values()))
        assert row[tff.simulation.ROUND_NUMBER_KEY] == number
    assert bits(process.get_model_weights(state)) == bits(expected["weights"])


def test_model_weights_are_read_and_set(fedpap):
    state, _ = by_hand(fedpap, 1)
    assert bits(fedpap.get_model_weights(state)) == bits(state["weights"])
    other = model_weights(*start_weights(seed=6))
    changed = fedpap.set_model_weights(state, other)
    assert bits(changed["weights"]) == bits(other)
    assert {key for key in state if bits(changed[key]) != bits(state[key])} == {"weights"}
    tf.nest.assert_same_structure(changed, state)
    assert bits(fedpap.next(changed, clients_of_round(2))) != bits(fedpap.next(state, clients_of_round(2)))


@pytest.mark.parametrize(
    "name, options, reason",
    [
        ("moon", {}, "its clients keep state between rounds"),
        ("feded", {"num_server_examples": 12}, "its server holds examples"),
    ],
)
def test_what_a_learning_process_cannot_carry_is_refused(model, name, options, reason):
    with pytest.raises(CompositionError, match=reason):
        as_learning_process(build(name, model, **options), model_weights(*start_weights()))


def in_batches(number, local_epochs, batch_size):
    """The batches of `clients_of_round(number)`, a list per client, which TFF takes for a tf.data.Dataset."""
    return [
        [(x[rows], y[rows]) for rows in toolbox.batches((number, k), len(y), batch_size, local_epochs)]
        for k, (x, y) in enumerate(DATA)
    ]


def test_our_optimizers_in_tffs_federated_averaging(model):
    """Two rounds of build_weighted_fed_avg with PAdam, which is Self-Adam on another gradient, are two of FedProxP."""
    spec = (tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.int32))

    def model_fn():
        kernel, bias = (tf.constant_initializer(w) for w in start_weights())
        layer = tf.keras.layers.Dense(3, kernel_initializer=kernel, bias_initializer=bias, input_shape=[3])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(tf.keras.Sequential([layer]), loss, input_spec=spec)

    ours = build("fedproxp", model, local_epochs=2, batch_size=3, learning_rate=0.1, mu=0.8)
    optimizer = PAdam(0.1, mu=0.8)
    theirs = tff.learning.algorithms.build_weighted_fed_avg(model_fn, client_optimizer_fn=optimizer)
    state, mine = theirs.initialize(), ours.initialize(model_weights(*start_weights()))
    for number in range(2):
        state, _ = theirs.next(state, in_batches(number, 2, 3))
        mine = ours.next(mine, clients_of_round(number))["state"]
        assert_close(theirs.get_model_weights(state).trainable, mine["weights"].trainable, 2e-6)
    assert np.abs(mine["weights"].trainable[0] - start_weights()[0]).max() > 0.1


def test_an_optimizers_hyperparameters_are_read_and_set():
    """Their names are TFF's own; `next` takes them from the state."""
    optimizer, weights = PAdam(0.1, mu=0.5), (tf.constant([1.0, 2.0]),)
    state = optimizer.initialize((tf.TensorSpec([2], tf.float32),))
    hparams = optimizer.get_hparams(state)
    assert dict(hparams) == {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8, "mu": 0.5}
    still = optimizer.set_hparams(state, {**hparams, "learning_rate": 0.0})
    gradients = (tf.constant([1.0, -2.0]),)
    assert bits(optimizer.next(still, weights, gradients)[1]) == bits(weights)
    # The first step of Adam is the rate, whatever the gradient; a gradient of None moves nothing.
    assert_close(optimizer.next(state, weights, gradients)[1], [[0.9, 2.1]], 1e-6)
    assert bits(optimizer.next(state, weights, (None,))[1]) == bits(weights)


def test_the_toy_in_the_docstring_runs():
    outcome = doctest.testmod(federated_algorithm)
    assert outcome.attempted > 10 and not outcome.failed
