"""Assertions shared by tests of models: on a model and its stock Keras model, and on two federated rounds."""

from __future__ import annotations

import collections

import numpy as np

from computations.stack import KERAS_MODULE


def assert_same_order_and_names(model, plain) -> None:
    """Asserts that both models have the same weights in the same order, with the same names and shapes."""

    def named(weights):  # Keras puts the LSTM's cell into the name only sometimes
        return [(w.name.split("/")[0], w.name.split("/")[-1], w.shape) for w in weights]

    assert named(model.weights) == named(plain.weights)
    assert named(model.trainable_weights) == named(plain.trainable_weights)


def assert_stock_layers(plain) -> None:
    """Asserts that all layers are Keras' own."""
    assert all(type(layer).__module__.startswith(f"{KERAS_MODULE}.src.") for layer in plain.layers)


def assert_two_rounds_train_and_repeat(algorithm, model, data):
    """In two rounds of all clients the loss falls, all trainable weights move, and a rerun gives the same bits.

    Args:
      algorithm: a FederatedAlgorithm of `model`.
      model: a LocalModel.
      data: the clients' examples, arranged.

    Returns:
      (weights at the start, weights at the end).
    """
    start, initial_client_state = model.initial_weights(7), algorithm.client_work.initial_client_state

    def rounds():
        state, losses = algorithm.initialize(start), []
        client_states = [initial_client_state(d) for d in data] if initial_client_state else None
        for number in range(2):
            clients = [
                collections.OrderedDict(examples=d, seed=np.array([number, k], np.int32)) for k, d in enumerate(data)
            ]
            output = algorithm.next(state, clients, *([client_states] if initial_client_state else []))
            state, client_states = output["state"], output["client_state"] if initial_client_state else None
            metrics = output["metrics"]["work"]
            assert metrics["clients/counted"] == 2 and metrics["clients/non_finite"] == 0
            losses.append(float(metrics["local/loss"]))
        return state["weights"], losses

    weights, losses = rounds()
    assert losses[1] < losses[0]
    for before, after, name in zip(start.trainable, weights.trainable, model.weight_names, strict=True):
        assert np.isfinite(after).all() and (np.asarray(after) != before).any(), name
    repeated, repeated_losses = rounds()
    assert repeated_losses == losses
    for first, second in zip(weights.trainable, repeated.trainable, strict=True):
        np.testing.assert_array_equal(first, second)
    return start, weights


def randomised(model, seed=1):
    """The model with random weights without zeros."""
    generator = np.random.default_rng(seed)
    model.set_weights([generator.normal(size=w.shape, scale=0.5).astype(np.float32) for w in model.get_weights()])
    return model


def lstm_by_hand(vectors, kernel, recurrent, bias):
    """The last state of an LSTM on vectors [l, d]."""

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    h, c = np.zeros(len(recurrent)), np.zeros(len(recurrent))
    for vector in vectors:
        i, f, g, o = np.split(vector @ kernel + h @ recurrent + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h
