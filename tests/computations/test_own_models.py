"""Models and heads that stay at their clients, and fine-tuning: against single clients and training in NumPy."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.algorithms.fine_tuning import build_fine_tuning
from computations.algorithms.own_models import head_indices, trained_alone, with_local_heads
from computations.client_work import LocalTraining
from computations.client_work.optimizers import SGD
from computations.errors import CompositionError
from computations.traffic import round_traffic
from tests.computations.toolbox import client, encoder_model, examples, linear_model

MODEL = encoder_model(width=3, hidden=2, num_classes=3)
DATA = [examples(n, seed=n) for n in (7, 12, 5)]


def clients_of(round_num):
    return [client(x, y, (round_num, k)) for k, (x, y) in enumerate(DATA)]


def built(name="fedavgs", model=MODEL, **options):
    registered = algorithms.find(name)
    return registered.build(model, registered.options(learning_rate=0.05, local_epochs=2, batch_size=4, **options))


def arrays(weights):
    return [np.asarray(w) for w in weights.trainable]


def test_a_client_alone_is_a_federation_of_one(runtime):
    """Of FedPAP, whose attention and step nobody sees."""
    alone, federated = trained_alone(built("fedpap")), built("fedproxp", mu=0.03)
    initial = MODEL.initial_weights(1)
    state = alone.initialize(initial)
    states = [alone.client_work.initial_client_state(None, 1) for _ in DATA]
    singles = [federated.initialize(initial) for _ in DATA]
    for round_num in (1, 2):
        output = alone.next(state, clients_of(round_num), states)
        state, states = output["state"], output["client_state"]
        singles = [federated.next(s, [c])["state"] for s, c in zip(singles, clients_of(round_num), strict=True)]
    for mine, single in zip(states, singles, strict=True):
        for a, b in zip(mine.trainable, single["weights"].trainable, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    for a, b in zip(arrays(state["weights"]), arrays(initial), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(states[0].trainable[0], states[1].trainable[0])
    of_client = alone.own_models.of_client(state["weights"], states[1])
    assert of_client is states[1] and output["metrics"]["work"]["clients/counted"] == 3


def test_a_local_head_never_leaves_its_client(runtime):
    algorithm, whole = with_local_heads(built()), built()
    own_models = algorithm.own_models
    initial = MODEL.initial_weights(1)
    assert [w.shape for w in initial.trainable] == [(3, 2), (2,), (2, 3), (3,)] and head_indices(MODEL) == [2, 3]
    # What is broadcast and aggregated is the encoder alone: 8 numbers, and what goes beside the weights in both.
    for way in ("up", "down"):
        assert getattr(round_traffic(whole.next), way) - getattr(round_traffic(algorithm.next), way) == 9 * 4
    state = algorithm.initialize(own_models.sent(initial))
    heads = [algorithm.client_work.initial_client_state(None, 1) for _ in DATA]
    for round_num in (1, 2):
        before = state["weights"]
        output = algorithm.next(state, clients_of(round_num), heads)
        # By hand: every client trains the encoder under its own head; the encoders' mean weighs by examples.
        singles = []
        for head, at_client in zip(heads, clients_of(round_num), strict=True):
            begun = whole.initialize(own_models.of_client(before, head))
            singles.append(whole.next(begun, [at_client])["state"]["weights"])
        sizes = [len(y) for _, y in DATA]
        state, heads = output["state"], output["client_state"]
        for index in (0, 1):
            mean = np.average([single.trainable[index] for single in singles], axis=0, weights=sizes)
            np.testing.assert_allclose(state["weights"].trainable[index], mean, rtol=1e-5, atol=1e-6)
        for head, single in zip(heads, singles, strict=True):
            for a, b in zip(head, single.trainable[2:], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert len(state["weights"].trainable) == 2 and not np.allclose(heads[0][0], heads[1][0])


def test_a_local_head_goes_with_attention_and_the_servers_momentum(runtime):
    algorithm = with_local_heads(built("fedpap", server_momentum=0.5))
    state = algorithm.initialize(algorithm.own_models.sent(MODEL.initial_weights(1)))
    heads = [algorithm.client_work.initial_client_state(None, 1) for _ in DATA]
    before = arrays(state["weights"])
    output = algorithm.next(state, clients_of(1), heads)
    after = arrays(output["state"]["weights"])
    assert len(after) == 2 and all(
        np.isfinite(a).all() and not np.allclose(a, b) for a, b in zip(after, before, strict=True)
    )


@pytest.mark.parametrize("change", [trained_alone, with_local_heads])
def test_a_client_that_is_not_finite_is_named(change, runtime):
    algorithm = change(built())
    x, y = examples(4, seed=9)
    clients = [clients_of(1)[0], client(np.full_like(x, np.nan), y, (1, 9)), clients_of(1)[2]]
    state = algorithm.initialize(algorithm.own_models.sent(MODEL.initial_weights(1)))
    states = [algorithm.client_work.initial_client_state(None, 1) for _ in clients]
    assert list(algorithm.not_finite(state, clients, states)) == [0, 1, 0]
    after = algorithm.next(state, clients, states)["client_state"][1]
    assert all(np.array_equal(a, b) for a, b in zip(tf.nest.flatten(after), tf.nest.flatten(states[1]), strict=True))


def test_work_that_drops_an_output_is_refused():
    work = built().client_work

    @tff.federated_computation(work.next.type_signature.parameter)
    def less(inputs):
        output = work.next(inputs)
        return collections.OrderedDict((name, output[name]) for name in work.outputs if name != "not_finite")

    with pytest.raises(CompositionError, match="`next` has no output 'not_finite'"):
        dataclasses.replace(work, next=less)


@pytest.mark.parametrize("change", [trained_alone, with_local_heads])
@pytest.mark.parametrize(("name", "reason"), [("scaffold", "keep their own state"), ("feded", "server's examples")])
def test_algorithms_whose_clients_do_more_are_refused(name, reason, change):
    registered = algorithms.find(name)
    more = {"num_clients": 3} if name == "scaffold" else {"num_server_examples": 4}
    with pytest.raises(CompositionError, match=reason):
        change(registered.build(MODEL, registered.options(**more)))


def test_a_model_of_a_classifier_alone_shares_nothing():
    with pytest.raises(CompositionError, match="consists only of its classifier"):
        with_local_heads(built(model=linear_model(3, 3)))


# Fine-tuning


def numpy_loss(kernel, bias, x, y):
    logits = x @ kernel + bias
    logits -= logits.max(1, keepdims=True)
    return float((np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]).sum())


def tuned(model, indices, weights, epochs=3, batch=100):
    computation = build_fine_tuning(
        model,
        optimizer=SGD(0.5),
        training=LocalTraining(local_epochs=epochs, batch_size=batch),
        indices=frozenset(indices),
    )
    (x, y), (other, labels) = examples(9, seed=1), examples(6, seed=2)
    values = [client(x, y), client(x[:0], y[:0])]
    held = collections.OrderedDict(test=client(other, labels)["examples"], dev=client(x[:0], y[:0])["examples"])
    return computation(weights, values, [held, held]), (x, y), (other, labels)


def test_fine_tuning_is_gradient_descent_on_the_clients_own_examples(runtime):
    """With batches of all examples a step is the full gradient: softmax regression in NumPy."""
    model = linear_model(3, 3)
    weights = model.initial_weights(1)
    counted, (x, y), (other, labels) = tuned(model, [0, 1], weights)
    kernel, bias = (w.astype(np.float64) for w in arrays(weights))
    assert counted[0]["before"]["test"]["loss"] == pytest.approx(numpy_loss(kernel, bias, other, labels), rel=1e-5)
    for _ in range(3):
        logits = x @ kernel + bias
        shares = np.exp(logits - logits.max(1, keepdims=True))
        error = (shares / shares.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
        kernel, bias = kernel - 0.5 * x.T @ error, bias - 0.5 * error.sum(0)
    after = counted[0]["after"]["test"]
    assert after["loss"] == pytest.approx(numpy_loss(kernel, bias, other, labels), rel=1e-4)
    right = (other @ kernel + bias).argmax(1) == labels
    assert np.trace(after["confusion"]) == right.sum() and after["examples"] == 6
    assert counted[0]["after"]["dev"]["examples"] == 0
    # A client without training examples has the same before and after.
    tf.nest.map_structure(np.testing.assert_array_equal, counted[1]["before"], counted[1]["after"])


def test_fine_tuning_the_head_leaves_the_rest(runtime):
    """The head alone, over the encoder's outputs as they are, is a softmax regression."""
    weights = MODEL.initial_weights(1)
    indices = head_indices(MODEL)
    counted, (x, y), (other, labels) = tuned(MODEL, indices, weights)
    lower, offset, kernel, bias = (w.astype(np.float64) for w in arrays(weights))
    hidden, held = np.tanh(x @ lower + offset), np.tanh(other @ lower + offset)
    for _ in range(3):
        logits = hidden @ kernel + bias
        shares = np.exp(logits - logits.max(1, keepdims=True))
        error = (shares / shares.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
        kernel, bias = kernel - 0.5 * hidden.T @ error, bias - 0.5 * error.sum(0)
    assert counted[0]["after"]["test"]["loss"] == pytest.approx(numpy_loss(kernel, bias, held, labels), rel=1e-4)
