"""MOON, FedRS, FedLC, SCAFFOLD and FedCMC over rounds, against a second writing of them without the project's code.

The second writing keeps whole models where the project keeps less: MOON's previous model of every client, the list of
all clients' classifiers of FedCMC, and SCAFFOLD's control variates in one place.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from computations.server_updates import gradient_step
from computations.traffic import round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.cases import simplex
from tests.computations.test_attention import ALLOWED, fits_one_model, what_the_server_gathers
from tests.computations.toolbox import assert_close, bits, client, model_weights

WIDTH, HIDDEN, CLASSES = 3, 5, 4
PLAIN_SGD = {"learning_rate": 0.3, "local_epochs": 2, "batch_size": 4}
OPTIONS = {
    "fedavg": {},
    "fedrs": {"optimizer": "sgd"},
    "fedlc": {"optimizer": "sgd", "tau": 0.7, "absent_factor": 2.5},
    "moon": {"optimizer": "sgd", "weight": 3.0, "tau": 0.4},
    "scaffold": {"num_clients": 5, "learning_rate_decay": 1.0},
    "fedcmc": {"optimizer": "sgd", "mu": 1.5},
}
FURTHER = {"feddyn": {"alpha": 0.6, "num_clients": 5}, "fedetf": {"optimizer": "sgd", "scale": 4.0, "gamma": 1.5}}


@functools.cache
def build(name, **changed):
    """The algorithm on x [3] -> tanh encoder [5] -> four classes, the classifier with a bias; built once."""
    entry = algorithms.find(name)
    model = toolbox.encoder_model(WIDTH, HIDDEN, CLASSES)
    return entry.build(model, entry.options(**{**PLAIN_SGD, **{**OPTIONS, **FURTHER}[name], **changed}))


def start_weights(seed=5):
    generator = np.random.default_rng(seed)
    shapes = ([WIDTH, HIDDEN], [HIDDEN], [HIDDEN, CLASSES], [CLASSES])
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


def skewed(labels, seed):
    """(x, y) with these labels."""
    x = np.random.default_rng(seed).normal(size=[len(labels), WIDTH]) + np.eye(CLASSES, WIDTH)[labels]
    return x.astype(np.float32), np.array(labels, np.int32)


# Classes 2 and 3 are absent at the first, 0 at the second; the third has one example; class 3 is rare everywhere.
DATA = [skewed([0] * 6 + [1] * 3, 1), skewed([1, 2, 2, 2, 2, 3, 2], 2), skewed([2], 3)]


def seed_of(number, k):
    return (number, 10 + k)


def clients_of(number):
    return [client(x, y, seed_of(number, k)) for k, (x, y) in enumerate(DATA)]


def begin(algorithm, weights=None):
    return algorithm.initialize(model_weights(*(weights or start_weights())))


def initial_client_states(algorithm):
    return [algorithm.client_work.initial_client_state({"y": y}) for _, y in DATA]


def first_round(algorithm, clients, weights=None):
    """Output of a round in which all these clients are new."""
    client_states = [algorithm.client_work.initial_client_state(c["examples"]) for c in clients]
    return algorithm.next(begin(algorithm, weights), clients, client_states)


def play(algorithm):
    """(state, client states) of each of three rounds."""
    state, history = begin(algorithm), []
    states = [] if algorithm.client_work.client_state_type is None else [initial_client_states(algorithm)]
    for number in range(3):
        output = algorithm.next(state, clients_of(number), *states)
        state, states = output["state"], [output["client_state"]] if states else []
        history.append((state, *states))
    return history


# The second writing.


def outputs(weights, x):
    h = tf.tanh(x @ weights[0] + weights[1])
    return h, h @ weights[2] + weights[3]


def cross_entropy(logits, y):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def plain_loss(weights, x, y):
    return cross_entropy(outputs(weights, x)[1], y)


def cosine(a, b):
    return tf.reduce_sum(a * b, axis=1) / (tf.norm(a, axis=1) * tf.norm(b, axis=1))


def train_locally(weights, x, y, seed, loss, correction=None, rate=0.3):
    """Local weights in float64 after plain SGD on loss(weights, x, y), the gradient corrected by a constant."""
    weights = [tf.constant(w, tf.float64) for w in weights]
    x, steps = tf.constant(x, tf.float64), 0
    for rows in toolbox.batches(seed, len(y), 4, 2):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = loss(weights, tf.gather(x, rows), y[rows])
        gradients = tape.gradient(value, weights)
        gradients = [g + c for g, c in zip(gradients, correction or [0.0] * 4, strict=True)]
        weights = [w - rate * g for w, g in zip(weights, gradients, strict=True)]
        steps += 1
    return [w.numpy() for w in weights], steps


def average(models, sizes):
    return [np.average(layer, axis=0, weights=sizes) for layer in zip(*models, strict=True)]


def second_writing(loss_of, after=lambda models: None, start=None):
    """Global weights of three rounds; loss_of(k, y of the client, global weights) -> loss(weights, x, y)."""
    weights, history = [w.astype(float) for w in start or start_weights()], []
    for number in range(3):
        models = [
            train_locally(weights, x, y, seed_of(number, k), loss_of(k, y, weights))[0] for k, (x, y) in enumerate(DATA)
        ]
        weights = average(models, [len(y) for _, y in DATA])
        after(models)
        history.append(weights)
    return history


def assert_same_rounds(history, expected):
    for (state, *_), weights in zip(history, expected, strict=True):
        assert_close(state["weights"].trainable, weights, 1e-5)


def far_apart(left, right, least=1e-3):
    return max(np.abs(a - b).max() for a, b in zip(left, right, strict=True)) > least


@pytest.fixture(scope="module")
def fedavg():
    """Three rounds of FedAvg, for comparison."""
    return second_writing(lambda k, y, start: plain_loss)


# FedRS and FedLC.


LOGITS = {
    # Of absent classes by a half; lowered by n^(-1/4), of absent classes by 2.5.
    "fedrs": lambda z, counts: z * np.where(counts > 0, 1.0, 0.5),
    "fedlc": lambda z, counts: z - [0.7 * (c**-0.25 if c else 2.5) for c in counts],
}


@pytest.mark.parametrize("name", LOGITS)
def test_logits_by_class_counts_over_three_rounds(fedavg, name):
    def loss_of(k, y, start):
        counts = np.bincount(y, minlength=CLASSES)
        return lambda w, x, labels: cross_entropy(LOGITS[name](outputs(w, x)[1], counts), labels)

    expected = second_writing(loss_of)
    assert_same_rounds(play(build(name)), expected)
    assert far_apart(expected[0], fedavg[0])


# Bytes beyond FedAvg's (up, down): a second model; C vectors of d numbers, C scores, and up C counts.
SECOND_MODEL = 4 * (WIDTH * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
VECTORS = 4 * (CLASSES * HIDDEN + CLASSES)
EXTRA_TRAFFIC = {"scaffold": (SECOND_MODEL, SECOND_MODEL), "fedcmc": (VECTORS + 4 * CLASSES, VECTORS)}


@pytest.mark.parametrize("name", OPTIONS)
def test_traffic_to_the_byte(name):
    """Label counts and representations stay at the client."""
    plain, ours = round_traffic(build("fedavg").next), round_traffic(build(name).next)
    assert (ours.up - plain.up, ours.down - plain.down) == EXTRA_TRAFFIC.get(name, (0, 0))


# MOON.


def moon_in_whole_models(weight, tau):
    """(loss_of, after): the previous model of every client is kept, and both references are computed in the step."""
    previous = {}

    def loss_of(k, y, start):
        glob = [tf.constant(w, tf.float64) for w in start]
        prev = previous.get(k)

        def loss(w, x, labels):
            z, logits = outputs(w, x)
            if prev is None:
                return cross_entropy(logits, labels)
            near, far = (tf.exp(cosine(z, tf.stop_gradient(outputs(m, x)[0])) / tau) for m in (glob, prev))
            return cross_entropy(logits, labels) - weight * tf.reduce_mean(tf.math.log(near / (near + far)))

        return loss

    return loss_of, lambda models: previous.update(enumerate(models))


def test_moon_with_representations_is_moon_with_the_previous_model(fedavg):
    """So is what clients keep: their local model's representations of all of their examples."""
    loss_of, after = moon_in_whole_models(weight=3.0, tau=0.4)
    local = []
    expected = second_writing(loss_of, after=lambda models: (after(models), local.append(models)))
    history = play(build("moon"))
    assert_same_rounds(history, expected)
    for (_, client_states), models in zip(history, local, strict=True):
        wanted = [outputs(m, x.astype(float))[0].numpy() for m, (x, _) in zip(models, DATA, strict=True)]
        assert_close([s["representations"] for s in client_states], wanted, 1e-5)
        assert all(s["trained"] for s in client_states)
    assert not far_apart(expected[0], fedavg[0], 1e-9), "the first round has no contrast"
    assert far_apart(expected[1], fedavg[1])


def test_a_client_that_moon_has_not_seen_has_no_contrast():
    """The first client joins in the second round; the other two have their contrast."""
    algorithm = build("moon")
    state, client_states = begin(algorithm), initial_client_states(algorithm)
    output = algorithm.next(state, clients_of(0)[1:], client_states[1:])
    state, client_states = output["state"], [client_states[0], *output["client_state"]]
    start = [np.asarray(w) for w in state["weights"].trainable]
    output = algorithm.next(state, clients_of(1)[:1], client_states[:1])
    x, y = DATA[0]
    plain, _ = train_locally(start, x, y, seed_of(1, 0), plain_loss)
    assert_close(output["state"]["weights"].trainable, plain, 1e-5)
    assert output["client_state"][0]["trained"]


# SCAFFOLD.


def scaffold_by_hand(num_clients, participants, rate_of):
    """(weights, c, [c_i]) of each round: Algorithm 1 with option II, as printed."""
    weights = [w.astype(float) for w in start_weights()]
    server, variates = [np.zeros_like(w) for w in weights], [[np.zeros_like(w) for w in weights] for _ in DATA]
    history = []
    for number, chosen in enumerate(participants):
        models, changes = [], []
        for position, k in enumerate(chosen):
            x, y = DATA[k]
            correction = [c - ci for c, ci in zip(server, variates[k], strict=True)]
            rate = rate_of(number)
            model, steps = train_locally(weights, x, y, seed_of(number, position), plain_loss, correction, rate)
            new = [
                ci - c + (w - v) / (steps * rate)
                for ci, c, w, v in zip(variates[k], server, weights, model, strict=True)
            ]
            changes.append([n - o for n, o in zip(new, variates[k], strict=True)])
            variates[k] = new
            models.append(model)
        weights = average(models, [1] * len(models))
        share = len(models) / num_clients
        server = [c + share * np.mean(d, axis=0) for c, d in zip(server, zip(*changes, strict=True), strict=True)]
        history.append((weights, server, list(variates)))
    return history


def rounds_of(algorithm, participants):
    """Yields (the server's state, all client states) after each round; participants: who trains in each."""
    state, client_states = begin(algorithm), initial_client_states(algorithm)
    for number, chosen in enumerate(participants):
        clients = [client(*DATA[k], seed_of(number, position)) for position, k in enumerate(chosen)]
        output = algorithm.next(state, clients, [client_states[k] for k in chosen])
        state = output["state"]
        for position, k in enumerate(chosen):
            client_states[k] = output["client_state"][position]
        yield state, client_states


def test_scaffold_over_three_rounds():
    """c is the sum of all c_i over N, two of whom never come; option II divides by the round's rate, which falls."""
    algorithm, participants = build("scaffold"), [[0, 1], [1, 2], [2, 0]]
    expected = scaffold_by_hand(5, participants, lambda number: 0.3 / (1 + number))
    played = rounds_of(algorithm, participants)
    for (state, client_states), (weights, server, variates) in zip(played, expected, strict=True):
        assert_close(state["weights"].trainable, weights, 1e-5)
        assert_close(state["client_work"]["shared"], server, 1e-5)
        for actual, wanted in zip(client_states, variates, strict=True):
            assert_close(actual, wanted, 1e-5)
    uncorrected = scaffold_by_hand(10**12, participants, lambda number: 0.3 / (1 + number))  # c stays zero
    assert far_apart(uncorrected[1][0], expected[1][0])


def test_scaffold_must_know_the_number_of_clients():
    """A run counts them (tests/runs/test_sentence_relations.py); who builds the algorithm without a run gives them."""
    with pytest.raises(ValueError, match="num_clients must be given"):
        build("scaffold", num_clients=None)


# FedDyn.


def feddyn_by_hand(alpha, num_clients, participants):
    """(global weights, h, all g_k) of each round; h and g_k as Algorithm 1 has them."""
    weights = [w.astype(float) for w in start_weights()]
    h, gradients_of = [np.zeros_like(w) for w in weights], [[np.zeros_like(w) for w in weights] for _ in DATA]
    history = []
    for number, chosen in enumerate(participants):
        models = []
        for position, k in enumerate(chosen):

            def loss(w, x, labels, k=k, start=weights):
                linear = tf.add_n([tf.reduce_sum(g * v) for g, v in zip(gradients_of[k], w, strict=True)])
                distance = tf.add_n([tf.reduce_sum((v - s) ** 2) for v, s in zip(w, start, strict=True)])
                return plain_loss(w, x, labels) - linear + alpha / 2 * distance

            models.append(train_locally(weights, *DATA[k], seed_of(number, position), loss)[0])
        for k, model in zip(chosen, models, strict=True):
            gradients_of[k] = [g - alpha * (v - w) for g, v, w in zip(gradients_of[k], model, weights, strict=True)]
        gone = [sum(m[i] - w for m in models) for i, w in enumerate(weights)]
        h = [a - alpha / num_clients * b for a, b in zip(h, gone, strict=True)]
        weights = [np.mean(m, axis=0) - a / alpha for m, a in zip(zip(*models, strict=True), h, strict=True)]
        history.append((weights, h, list(gradients_of)))
    return history


def test_feddyn_over_three_rounds():
    """Two of five clients never come; h is the mean of all g_k; a round without clients changes nothing."""
    algorithm, participants = build("feddyn"), [[0, 1], [1, 2], [2, 0]]
    played, expected = rounds_of(algorithm, participants), feddyn_by_hand(0.6, 5, participants)
    for (state, client_states), (weights, h, gradients_of) in zip(played, expected, strict=True):
        assert_close(state["weights"].trainable, weights, 1e-5)
        assert_close(state["finalizer"], h, 1e-5)
        assert_close(state["finalizer"], [sum(g) / 5 for g in zip(*gradients_of, strict=True)], 1e-5)
        for actual, wanted in zip(client_states, gradients_of, strict=True):
            assert_close(actual, wanted, 1e-5)
    empty = client(np.zeros([0, WIDTH]), np.zeros([0]))
    after = algorithm.next(state, [empty], client_states[:1])
    assert bits(after["state"]["weights"].trainable) == bits(state["weights"].trainable)
    assert bits(after["state"]["finalizer"]) == bits(state["finalizer"]) and np.abs(state["finalizer"][0]).max() > 0.01


def test_feddyn_must_know_the_number_of_clients():
    with pytest.raises(CompositionError, match="num_clients must be given"):
        build("feddyn", num_clients=None)


# FedETF.


def test_fedetf_over_three_rounds(fedavg):
    """The encoder learns cosines with a simplex, balanced by class counts; the classifier stays what it was set to."""
    kernel = simplex(start_weights()[2])
    gram = kernel.T @ kernel
    np.testing.assert_allclose(gram, (CLASSES * np.eye(CLASSES) - 1) / (CLASSES - 1), atol=1e-12)

    def loss_of(k, y, start):
        counts = np.bincount(y, minlength=CLASSES)

        def loss(w, x, labels):
            h, logits = outputs(w, x)
            cosines = h / tf.norm(h, axis=1, keepdims=True) @ kernel
            weighed = counts**1.5 * tf.exp(4.0 * cosines)
            return -tf.reduce_mean(
                tf.math.log(tf.gather(weighed, labels, batch_dims=1) / tf.reduce_sum(weighed, axis=1))
            ) + 0.0 * tf.reduce_sum(logits)

        return loss

    algorithm = build("fedetf")
    begun = begin(algorithm)["weights"].trainable
    assert_close(begun[2:], [kernel, np.zeros(CLASSES)], 1e-6)
    noisy = recompose(algorithm, finalizer=gradient_step(algorithm.model, momentum=0.5, noise_scale=0.1))
    for variant in (algorithm, noisy):
        history = play(variant)
        assert all(bits(state["weights"].trainable[2:]) == bits(begun[2:]) for state, *_ in history)
        if variant is algorithm:
            expected = second_writing(loss_of, start=[*start_weights()[:2], kernel, np.zeros(CLASSES)])
            assert_same_rounds(history, expected)
    assert far_apart(expected[0], fedavg[0])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: toolbox.encoder_model(WIDTH, 3, CLASSES), "they have width 3"),
        (lambda: dataclasses.replace(toolbox.linear_model(5, 3), classifier=None), "a dense layer of its features"),
    ],
)
def test_models_that_fedetf_cannot_train_are_refused(model, reason):
    entry = algorithms.find("fedetf")
    with pytest.raises(CompositionError, match=reason):
        entry.build(model(), entry.options())


# FedCMC.


def similarities(classifier):
    """Eq. 10, one pair at a time: classifier [C, d]."""
    unit = [v / np.linalg.norm(v) for v in classifier]
    others = range(CLASSES)
    return np.array([sum(unit[c] @ unit[i] for i in others if i != c) / (CLASSES - 1) for c in others])


def fedcmc_in_whole_models(mu):
    """(loss_of, after, vectors of each round): the server has all clients' classifiers."""
    vectors = [start_weights()[2].T.astype(float)]

    def loss_of(k, y, start):
        elected = vectors[-1]

        def loss(w, x, labels):
            h, logits = outputs(w, x)
            return cross_entropy(logits, labels) + mu * cross_entropy(h @ elected.T, labels)

        return loss

    def after(models):
        classifiers = [m[2].T for m in models]
        scores = np.array([similarities(c) for c in classifiers])
        vectors.append(np.array([classifiers[scores[:, c].argmin()][c] for c in range(CLASSES)]))

    return loss_of, after, vectors


def test_fedcmc_over_three_rounds(fedavg):
    """Clients keep the similarities of their own local classifiers, zeros before the first round."""
    algorithm = build("fedcmc")
    initial = begin(algorithm)["client_work"]["shared"]
    assert bits(initial) == bits(np.ascontiguousarray(start_weights()[2].T))
    assert algorithm.client_work.recorded_state == ("similarity",)
    for client_state in initial_client_states(algorithm):
        assert bits(client_state) == bits({"similarity": np.zeros(CLASSES, np.float32)})
    local, (loss_of, after, vectors) = [], fedcmc_in_whole_models(1.5)
    expected = second_writing(loss_of, after=lambda models: (after(models), local.append(models)))
    history = play(algorithm)
    assert_same_rounds(history, expected)
    for (state, client_states), wanted, models in zip(history, vectors[1:], local, strict=True):
        assert_close([state["client_work"]["shared"]], [wanted], 1e-5)
        assert_close([m["similarity"] for m in client_states], [similarities(m[2].T) for m in models], 1e-5)
    assert far_apart(expected[0], fedavg[0])


def test_a_client_that_does_not_count_is_not_elected():
    """All classifiers are about alike, so that every real similarity is above the zero of a wiped upload."""
    weights = start_weights()
    weights[2] = (5.0 + 0.1 * weights[2]).astype(np.float32)
    algorithm = build("fedcmc")
    alone = first_round(algorithm, clients_of(0), weights)
    empty = client(np.zeros([0, WIDTH]), np.zeros([0]))
    x, y = skewed([0, 1, 2, 3, 0], 9)
    bad = client(np.where(np.arange(WIDTH) == 1, np.nan, x), y, (0, 99))
    together = first_round(algorithm, [bad, *clients_of(0), empty], weights)
    vectors = alone["state"]["client_work"]["shared"]
    assert similarities(vectors.astype(float)).min() > 0.1
    assert bits(together["state"]["client_work"]["shared"]) == bits(vectors)
    assert together["metrics"]["work"]["clients/counted"] == 3


def test_random_vectors_are_some_clients_and_others_in_other_rounds():
    algorithm, winners = build("fedcmc", mu=0.0, vectors="random"), []
    for number in range(6):
        vectors = first_round(algorithm, clients_of(number))["state"]["client_work"]["shared"]
        local = [train_locally(start_weights(), *data, seed_of(number, k), plain_loss) for k, data in enumerate(DATA)]
        gaps = np.array([np.abs(vectors - model[2].T).max(axis=1) for model, _ in local])
        assert gaps.min(axis=0).max() < 1e-5
        winners.append(tuple(gaps.argmin(axis=0)))
    assert len(set(winners)) > 1 and any(len(set(w)) > 1 for w in winners)
    assert {k for w in winners for k in w} == {0, 1, 2}


def test_without_vectors_fedcmc_is_fedavg():
    none = build("fedcmc", vectors="none")
    assert round_traffic(none.next) == round_traffic(build("fedavg").next)
    assert none.client_work.client_state_type is None


@pytest.mark.parametrize("name", ["fedcmc", "scaffold"])
def test_no_client_model_is_collected(name):
    algorithm = build(name)
    uris, gathered = what_the_server_gathers(algorithm.next)
    assert uris <= ALLOWED and "federated_aggregate" in uris
    assert gathered and fits_one_model(gathered, type_bytes(algorithm.model.weights_type) + 4)
