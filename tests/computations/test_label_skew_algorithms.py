"""MOON, FedRS, FedLC, SCAFFOLD and FedCMC over rounds, against a second writing of them without the project's code.

The second writing keeps whole models where the project keeps less: MOON's previous model of every client, the list of
all clients' classifiers of FedCMC, and SCAFFOLD's control variates in one place.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations import algorithms
from computations.traffic import round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.test_attention import ALLOWED, fits_one_model, what_the_server_gathers
from tests.computations.toolbox import assert_close, bits, client, model_weights

WIDTH, HIDDEN, CLASSES = 3, 5, 4
PLAIN_SGD = {"learning_rate": 0.3, "local_epochs": 2, "batch_size": 4}
OPTIONS = {**PLAIN_SGD, "optimizer": "sgd", "weighting": "examples"}


@pytest.fixture(scope="module")
def encoder():
    """x [3] -> tanh encoder [5] -> four classes, the classifier with a bias."""
    return toolbox.encoder_model(WIDTH, HIDDEN, CLASSES)


@pytest.fixture(scope="module")
def build(encoder):
    """Function (name, **options) -> the algorithm on the encoder, built once."""
    built = {}

    def get(name, **options):
        entry = algorithms.find(name)
        key = (name, entry.options(**options))
        if key not in built:
            built[key] = entry.build(encoder, key[1])
        return built[key]

    return get


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


def clients_of(number, data=DATA):
    return [client(x, y, seed_of(number, k)) for k, (x, y) in enumerate(data)]


def bad_client(number):
    x, y = skewed([0, 1, 2, 3, 0], 9)
    x[3, 1] = np.nan
    return client(x, y, (number, 99))


def begin(algorithm, weights=None):
    return algorithm.initialize(model_weights(*(weights or start_weights())))


def initial_client_states(algorithm, data=DATA):
    return [algorithm.client_work.initial_client_state({"y": y}) for _, y in data]


def first_round(algorithm, clients, weights=None):
    """Output of a round in which all these clients are new."""
    client_states = [algorithm.client_work.initial_client_state(c["examples"]) for c in clients]
    return algorithm.next(begin(algorithm, weights), clients, client_states)


def play(algorithm, rounds, data=DATA, clients=clients_of, state=None, client_states=None):
    """(state, client states) of each round."""
    state = begin(algorithm) if state is None else state
    keeps_state = algorithm.client_work.client_state_type is not None
    client_states = initial_client_states(algorithm, data) if keeps_state and client_states is None else client_states
    history = []
    for number in rounds:
        output = algorithm.next(state, clients(number, data), *([client_states] if keeps_state else []))
        state, client_states = output["state"], output["client_state"] if keeps_state else None
        history.append((state, client_states))
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


def second_writing(rounds, loss_of, weights=None, data=DATA, after=lambda models: None):
    """Global weights of each round; loss_of(k, y of the client, global weights) -> loss(weights, x, y)."""
    weights = [w.astype(float) for w in (weights or start_weights())]
    history = []
    for number in rounds:
        models = [
            train_locally(weights, x, y, seed_of(number, k), loss_of(k, y, weights))[0] for k, (x, y) in enumerate(data)
        ]
        weights = average(models, [len(y) for _, y in data])
        after(models)
        history.append(weights)
    return history


def assert_same_rounds(history, expected, tolerance=1e-5):
    for (state, _), weights in zip(history, expected, strict=True):
        assert_close(state["weights"].trainable, weights, tolerance)


def far_apart(one, other, least=1e-3):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) > least


@pytest.fixture(scope="module")
def fedavg():
    """Three rounds of FedAvg, for comparison."""
    return second_writing(range(3), lambda k, y, start: plain_loss)


# FedRS and FedLC.


LOGITS = {
    # Of absent classes by a half; lowered by n^(-1/4), of absent classes by 2.5.
    "fedrs": ({}, lambda z, counts: z * np.where(counts > 0, 1.0, 0.5)),
    "fedlc": ({"tau": 0.7, "absent_factor": 2.5}, lambda z, n: z - [0.7 * (c**-0.25 if c else 2.5) for c in n]),
}


@pytest.mark.parametrize("name", LOGITS)
def test_logits_by_class_counts_over_three_rounds(build, fedavg, name):
    options, changed = LOGITS[name]

    def loss_of(k, y, start):
        counts = np.bincount(y, minlength=CLASSES)
        return lambda w, x, labels: cross_entropy(changed(outputs(w, x)[1], counts), labels)

    expected = second_writing(range(3), loss_of)
    assert_same_rounds(play(build(name, **OPTIONS, **options), range(3)), expected)
    assert far_apart(expected[0], fedavg[0])


# Bytes beyond FedAvg's (up, down): a second model; C vectors of d numbers, C scores, and up C counts.
SECOND_MODEL = 4 * (WIDTH * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
VECTORS = 4 * (CLASSES * HIDDEN + CLASSES)
EXTRA_TRAFFIC = {
    "fedrs": (OPTIONS, (0, 0)),
    "fedlc": (OPTIONS, (0, 0)),
    "moon": (OPTIONS, (0, 0)),
    "scaffold": ({**PLAIN_SGD, "num_clients": 3}, (SECOND_MODEL, SECOND_MODEL)),
    "fedcmc": (OPTIONS, (VECTORS + 4 * CLASSES, VECTORS)),
}


@pytest.mark.parametrize("name", EXTRA_TRAFFIC)
def test_traffic_to_the_byte(build, name):
    """Label counts and representations stay at the client."""
    options, extra = EXTRA_TRAFFIC[name]
    plain, ours = round_traffic(build("fedavg", **PLAIN_SGD).next), round_traffic(build(name, **options).next)
    assert (ours.up - plain.up, ours.down - plain.down) == extra
    if extra == (0, 0):
        assert build(name, **options).client_work.initialize.type_signature.result.member == tff.types.to_type(
            collections.OrderedDict(round=np.int32)
        )


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


def test_moon_with_representations_is_moon_with_the_previous_model(build, fedavg):
    """So is what clients keep: their local model's representations of all of their examples."""
    loss_of, after = moon_in_whole_models(weight=3.0, tau=0.4)
    local = []
    expected = second_writing(range(3), loss_of, after=lambda models: (after(models), local.append(models)))
    history = play(build("moon", **OPTIONS, weight=3.0, tau=0.4), range(3))
    assert_same_rounds(history, expected)
    for (_, client_states), models in zip(history, local, strict=True):
        wanted = [outputs(m, x.astype(float))[0].numpy() for m, (x, _) in zip(models, DATA, strict=True)]
        assert_close([s["representations"] for s in client_states], wanted, 1e-5)
        assert all(s["trained"] for s in client_states)
    assert not far_apart(expected[0], fedavg[0], 1e-9), "the first round has no contrast"
    assert far_apart(expected[1], fedavg[1])


def test_a_client_that_moon_has_not_seen_has_no_contrast(build):
    """The first client joins in the second round; the other two have their contrast."""
    algorithm = build("moon", **OPTIONS, weight=3.0)
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


def scaffold_in_one_place(num_clients, participants, rate_of=lambda number: 0.3):
    """(weights, c, [c_i]) of each round: Algorithm 1 with option II, as printed."""
    weights = [w.astype(float) for w in start_weights()]
    server, own = [np.zeros_like(w) for w in weights], [[np.zeros_like(w) for w in weights] for _ in DATA]
    history = []
    for number, chosen in enumerate(participants):
        models, changes = [], []
        for place, k in enumerate(chosen):
            x, y = DATA[k]
            correction = [c - ci for c, ci in zip(server, own[k], strict=True)]
            rate = rate_of(number)
            model, steps = train_locally(weights, x, y, seed_of(number, place), plain_loss, correction, rate)
            new = [
                ci - c + (w - v) / (steps * rate) for ci, c, w, v in zip(own[k], server, weights, model, strict=True)
            ]
            changes.append([n - o for n, o in zip(new, own[k], strict=True)])
            own[k] = new
            models.append(model)
        weights = average(models, [1] * len(models))
        share = len(models) / num_clients
        server = [c + share * np.mean(d, axis=0) for c, d in zip(server, zip(*changes, strict=True), strict=True)]
        history.append((weights, server, list(own)))
    return history


def assert_same_variates(history, expected, tolerance=1e-5):
    for (state, client_states), (weights, server, own) in zip(history, expected, strict=True):
        assert_close(state["weights"].trainable, weights, tolerance)
        assert_close(state["client_work"]["shared"], server, tolerance)
        for found, wanted in zip(client_states, own, strict=True):
            assert_close(found, wanted, tolerance)


@pytest.mark.parametrize(
    "num_clients, participants, decay",
    [(3, [[0, 1, 2]] * 3, 0.0), (3, [[0, 1, 2]] * 3, 1.0), (5, [[0, 1], [1, 2], [2, 0]], 0.0)],
    ids=["all", "all at a falling rate", "some, and two that never come"],
)
def test_scaffold_over_three_rounds(build, num_clients, participants, decay):
    """c is the sum of all c_i over N; option II divides by the rate of the round."""
    algorithm = build("scaffold", **PLAIN_SGD, num_clients=num_clients, learning_rate_decay=decay)
    state, client_states, history = begin(algorithm), initial_client_states(algorithm), []
    for number, chosen in enumerate(participants):
        clients = [client(*DATA[k], seed_of(number, place)) for place, k in enumerate(chosen)]
        output = algorithm.next(state, clients, [client_states[k] for k in chosen])
        state = output["state"]
        for place, k in enumerate(chosen):
            client_states[k] = output["client_state"][place]
        history.append((state, list(client_states)))
        total = [sum(layer) for layer in zip(*client_states, strict=True)]
        assert_close(state["client_work"]["shared"], [t / num_clients for t in total], 2e-6)
    expected = scaffold_in_one_place(num_clients, participants, lambda number: 0.3 / (1 + decay * number))
    assert_same_variates(history, expected)
    uncorrected = scaffold_in_one_place(10**12, participants)  # a c that stays zero
    assert far_apart(uncorrected[1][0], expected[1][0])


def test_scaffold_must_know_the_number_of_clients(build):
    """A run counts them (tests/runs/test_sentence_relations.py); who builds the algorithm without a run gives them."""
    options = algorithms.find("scaffold").options
    assert options().num_clients is None and options(num_clients=7).weighting == "uniform"
    with pytest.raises(ValueError, match="num_clients must be given"):
        build("scaffold")
    with pytest.raises(ValueError, match="'num_clients' must be >= 1: 0"):
        options(num_clients=0)


# FedCMC.


def similarities(classifier):
    """Eq. 10, one pair at a time: classifier [C, d]."""
    unit = [v / np.linalg.norm(v) for v in classifier]
    others = range(CLASSES)
    return np.array([sum(unit[c] @ unit[i] for i in others if i != c) / (CLASSES - 1) for c in others])


def fedcmc_in_whole_models(mu, sign=1.0, weights=None):
    """(loss_of, after, vectors of each round): the server has all clients' classifiers."""
    vectors = [(weights or start_weights())[2].T.astype(float)]

    def loss_of(k, y, start):
        elected = vectors[-1]

        def loss(w, x, labels):
            h, logits = outputs(w, x)
            return cross_entropy(logits, labels) + mu * cross_entropy(h @ elected.T, labels)

        return loss

    def after(models):
        classifiers = [m[2].T for m in models]
        scores = np.array([sign * similarities(c) for c in classifiers])
        vectors.append(np.array([classifiers[scores[:, c].argmin()][c] for c in range(CLASSES)]))

    return loss_of, after, vectors


@pytest.mark.parametrize("kind, sign", [("major", 1.0), ("minor", -1.0)])
def test_fedcmc_over_three_rounds(build, fedavg, kind, sign):
    """Clients keep the similarities of their own local classifiers, zeros before the first round."""
    algorithm = build("fedcmc", **OPTIONS, mu=1.5, vectors=kind)
    initial = begin(algorithm)["client_work"]["shared"]
    assert bits(initial) == bits(np.ascontiguousarray(start_weights()[2].T))
    assert algorithm.client_work.shown == ("similarity",)
    for client_state in initial_client_states(algorithm):
        assert bits(client_state) == bits({"similarity": np.zeros(CLASSES, np.float32)})
    local, (loss_of, after, vectors) = [], fedcmc_in_whole_models(1.5, sign)
    expected = second_writing(range(3), loss_of, after=lambda models: (after(models), local.append(models)))
    history = play(algorithm, range(3))
    assert_same_rounds(history, expected)
    for (state, client_states), wanted, models in zip(history, vectors[1:], local, strict=True):
        assert_close([state["client_work"]["shared"]], [wanted], 1e-5)
        assert_close([m["similarity"] for m in client_states], [similarities(m[2].T) for m in models], 1e-5)
    assert far_apart(expected[0], fedavg[0])


def test_a_client_that_does_not_count_is_not_elected(build):
    """All classifiers are about alike, so that every real similarity is above the zero of a wiped upload."""
    weights = start_weights()
    weights[2] = (5.0 + 0.1 * weights[2]).astype(np.float32)
    algorithm = build("fedcmc", **OPTIONS)
    alone = first_round(algorithm, clients_of(0), weights)
    empty = client(np.zeros([0, WIDTH]), np.zeros([0]))
    together = first_round(algorithm, [bad_client(0), *clients_of(0), empty], weights)
    vectors = alone["state"]["client_work"]["shared"]
    assert similarities(vectors.astype(float)).min() > 0.1
    assert bits(together["state"]["client_work"]["shared"]) == bits(vectors)
    assert together["metrics"]["work"]["clients/counted"] == 3


def random_vectors(build, number):
    """(vectors, the clients' classifiers) of a round from the start weights."""
    algorithm = build("fedcmc", **OPTIONS, mu=0.0, vectors="random")
    output = first_round(algorithm, clients_of(number))
    models = [train_locally(start_weights(), x, y, seed_of(number, k), plain_loss)[0] for k, (x, y) in enumerate(DATA)]
    return output["state"]["client_work"]["shared"], [m[2].T for m in models]


def test_random_vectors_are_some_clients_and_others_in_other_rounds(build):
    winners = []
    for number in range(6):
        vectors, classifiers = random_vectors(build, number)
        gaps = np.array([np.abs(vectors - c).max(axis=1) for c in classifiers])
        assert gaps.min(axis=0).max() < 1e-5
        winners.append(tuple(gaps.argmin(axis=0)))
    again, _ = random_vectors(build, 0)
    assert bits(again) == bits(random_vectors(build, 0)[0])
    assert len(set(winners)) > 1 and any(len(set(w)) > 1 for w in winners)
    assert {k for w in winners for k in w} == {0, 1, 2}


def test_without_vectors_fedcmc_is_fedavg(build):
    none = build("fedcmc", **OPTIONS, vectors="none")
    plain = build("fedavg", **PLAIN_SGD)
    assert round_traffic(none.next) == round_traffic(plain.next)
    one, other = (play(a, range(2))[-1][0]["weights"].trainable for a in (none, plain))
    assert bits(one) == bits(other)


@pytest.mark.parametrize("name", ["fedcmc", "scaffold"])
def test_no_client_model_is_collected(build, encoder, name):
    uris, gathered = what_the_server_gathers(build(name, **EXTRA_TRAFFIC[name][0]).next)
    assert uris <= ALLOWED and "federated_aggregate" in uris
    assert gathered and fits_one_model(gathered, type_bytes(encoder.weights_type) + 4)


# Clients at the edge.


@pytest.mark.parametrize("name", EXTRA_TRAFFIC)
def test_clients_of_one_example_and_a_class_that_nobody_has(build, name):
    """Three clients with an example each, none of class 3; an empty one beside them changes nothing."""
    data = [skewed([c], seed=c) for c in range(3)]
    algorithm = build(name, **EXTRA_TRAFFIC[name][0])
    empty = (np.zeros([0, WIDTH], np.float32), np.zeros([0], np.int32))
    without, with_empty = play(algorithm, range(2), data), play(algorithm, range(2), [*data, empty])
    state = without[-1][0]
    assert all(np.isfinite(t).all() for t in tf.nest.flatten(state))
    assert far_apart(state["weights"].trainable, start_weights())
    assert_close(with_empty[-1][0]["weights"].trainable, state["weights"].trainable, 1e-6)
    if with_empty[-1][1] is not None:
        assert bits(with_empty[-1][1][3]) == bits(algorithm.client_work.initial_client_state({"y": []}))


@pytest.mark.parametrize("name", ["fedrs", "fedlc"])
def test_the_client_optimizer_is_an_option(build, name):
    """With one step Adam moves every weight that has a gradient by its rate; MOON, FedCMC: the conformance suite."""
    one_step = {**OPTIONS, "optimizer": "adam", "learning_rate": 0.05, "local_steps": 1, "batch_size": 50}
    moved = play(build(name, **one_step), range(1), DATA[:1])[0][0]["weights"].trainable
    assert_close(
        [np.abs(a - b) for a, b in zip(moved, start_weights(), strict=True)],
        [np.full_like(w, 0.05) for w in start_weights()],
        1e-4,
    )
