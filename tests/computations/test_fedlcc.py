"""FedLCC's contrast on a small model of pairs, against NumPy: the loss, its gradient, and what a client keeps."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import Batch, Client, LocalizedContextContrast
from computations.client_work.objectives.moon import output_rows, representations
from computations.client_work.optimizers import SGD
from computations.errors import CompositionError
from computations.local_model import LocalModel
from computations.privacy.example_gradients import ExamplePrivacy
from tests.computations import toolbox
from tff_re.models.pairs import binary_losses, pair_statistics

WIDTH, PLACES = 3, 4


@tf.keras.utils.register_keras_serializable("tests")
class Valid(tf.keras.layers.Layer):
    def call(self, inputs):
        values, head = inputs
        return tf.gather_nd(values, tf.where(head >= 0))


def pairs_model():
    """Context tanh(x W) and logits of it, for every pair of an example."""

    def build():
        arrays = {
            "x": tf.keras.Input([PLACES, WIDTH], name="x"),
            "head": tf.keras.Input([PLACES], dtype=tf.int32, name="head"),
            "pair_labels": tf.keras.Input([PLACES, 1], name="pair_labels"),
        }
        x = Valid()([arrays["x"], arrays["head"]])
        context = tf.keras.layers.Dense(2, activation="tanh", use_bias=False, name="context")(x)
        logits = tf.keras.layers.Dense(1, use_bias=False, name="classifier")(context)
        labels = Valid()([arrays["pair_labels"], arrays["head"]])
        outputs = {"logits": logits, "features": context, "context": context, "pair_labels": labels}
        return tf.keras.Model(arrays, outputs)

    spec = {
        "x": tf.TensorSpec([None, PLACES, WIDTH], tf.float32),
        "head": tf.TensorSpec([None, PLACES], tf.int32),
        "pair_labels": tf.TensorSpec([None, PLACES, 1], tf.float32),
        "y": tf.TensorSpec([None], tf.int32),
    }
    return LocalModel(build, spec, 2, losses=binary_losses, statistics=pair_statistics, rows="head", inference_batch=2)


def examples(count, seed):
    """Pairs stand anywhere among the places, and some examples have none."""
    generator = np.random.default_rng(seed)
    head = np.where(generator.random([count, PLACES]) < 0.5, 0, -1)
    head[0], head[-1] = -1, [-1, 0, 1, -1]
    labels = generator.integers(0, 2, [count, PLACES, 1])
    x = generator.normal(size=[count, PLACES, WIDTH])
    return pairs_model().arrange({"x": x, "head": head, "pair_labels": labels, "y": labels.max(axis=(1, 2))})


def contexts(weights, data, rows=None):
    """NumPy: [N, 2] of the pairs of the examples at `rows`, in their order."""
    rows = range(len(data["y"])) if rows is None else rows
    parts = [np.tanh(data["x"][r][data["head"][r] >= 0].astype(float) @ weights[0]) for r in rows]
    return np.concatenate(parts)


def loss_of(weights, data, rows, glob, prev, mu, tau):
    """NumPy: Eq. 13 on a batch; `glob` and `prev` are the weights of the global and the previous model."""

    def cosine(a, b):
        return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    z = contexts(weights, data, rows)
    labels = np.concatenate([data["pair_labels"][r][data["head"][r] >= 0] for r in rows])
    p = 1 / (1 + np.exp(-z @ weights[1]))
    plain = -np.where(labels > 0, np.log(p), np.log(1 - p)).mean()
    if prev is None:
        return plain
    near = np.exp(cosine(z, contexts(glob, data, rows)) / tau)
    far = np.exp(cosine(z, contexts(prev, data, rows)) / tau)
    return plain - mu * np.log(near / (near + far)).mean()


def draw(seed):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape).astype(np.float32) for shape in ([WIDTH, 2], [2, 1])]


def a_client(model, data, weights, client_state=()):
    # The widths before the model: Keras does not take a layer that is older than a graph's.
    assert model.output_widths == {"logits": 1, "features": 2, "context": 2, "pair_labels": 1}
    keras_model = model.build()
    keras_model.set_weights(weights)
    tensors = {name: tf.constant(value) for name, value in data.items()}
    return Client(keras_model, model, tensors, (), tf.constant(0.1), tf.constant([0, 0]), client_state=client_state)


def test_rows_of_outputs_by_hand():
    model = pairs_model()
    data = model.arrange(
        {
            "x": np.zeros([4, PLACES, WIDTH]),
            "head": [[0, -1, -1, 2], [-1] * 4, [1, 0, 1, -1], [-1, -1, -1, 0]],
            "pair_labels": np.zeros([4, PLACES, 1]),
            "y": np.zeros([4]),
        }
    )
    assert model.num_rows(data) == 6 and list(model.row_counts(data).numpy()) == [2, 0, 3, 1]
    client = a_client(model, data, draw(0))
    for rows, expected in (([0, 1, 2, 3], range(6)), ([3, 0], [5, 0, 1]), ([2, 1], [2, 3, 4]), ([1], []), ([], [])):
        assert list(output_rows(client, tf.constant(rows, tf.int32)).numpy()) == list(expected)


@pytest.mark.parametrize("count", [2, 5])
def test_contexts_of_all_pairs_are_kept_and_no_others(count):
    model, data = pairs_model(), examples(count, seed=1)
    client = a_client(model, data, draw(0))
    stored = tf.function(lambda: representations(client, "context"))()
    np.testing.assert_allclose(stored, contexts(draw(0), data), atol=1e-6)
    blank = LocalizedContextContrast().initial_client_state(model, data)
    assert blank["representations"].shape == stored.shape and not blank["trained"]


def contexts_read_by(client):
    return tf.function(lambda: representations(client, "context"))()


def test_examples_of_like_length_are_read_together():
    """In batches of two in order of length; the rows come back in the examples' order."""
    lengths, read = [3, 0, 2, 1, 3, 2], []

    class Recording(Valid):
        def call(self, inputs):
            tf.py_function(lambda values: read.append(values.numpy()[:, 0, 0].tolist()), [inputs[0]], [])
            return super().call(inputs)

    def build():
        arrays = {"x": tf.keras.Input([PLACES, 1], name="x"), "mask": tf.keras.Input([3], dtype=tf.int32, name="mask")}
        arrays["head"] = tf.keras.Input([PLACES], dtype=tf.int32, name="head")
        context = Recording()([arrays["x"], arrays["head"]])
        return tf.keras.Model(arrays, {"logits": context, "features": context, "context": context})

    spec = {
        "x": tf.TensorSpec([None, PLACES, 1], tf.float32),
        "mask": tf.TensorSpec([None, 3], tf.int32),
        "head": tf.TensorSpec([None, PLACES], tf.int32),
        "y": tf.TensorSpec([None], tf.int32),
    }
    model = LocalModel(build, spec, 2, rows="head", inference_batch=2, mask="mask")
    generator = np.random.default_rng(0)
    x, head = generator.normal(size=[6, PLACES, 1]), generator.integers(-1, 1, [6, PLACES])
    mask = np.arange(3) < np.array(lengths)[:, np.newaxis]
    data = model.arrange({"x": x, "mask": mask, "head": head, "y": np.zeros(6)})
    assert model.output_widths["context"] == 1  # before the model, as in `a_client`
    for count, batches in ((6, [[1, 3], [2, 5], [0, 4]]), (1, [[0]]), (0, [])):
        read.clear()
        tensors = {name: tf.constant(value[:count]) for name, value in data.items()}
        client = Client(build(), model, tensors, (), tf.constant(0.1), tf.constant([0, 0]))
        rows_read = contexts_read_by(client)
        np.testing.assert_array_equal(rows_read, data["x"][:count][data["head"][:count] >= 0])
        assert read == [data["x"][rows, 0, 0].tolist() for rows in batches]
    with pytest.raises(ValueError, match="mask is 'length', but input_spec names"):
        LocalModel(build, spec, 2, mask="length")


def loss_and_gradient(objective, data, rows, local, glob, prev):
    """Of a batch under the weights `local`, in TensorFlow."""
    client_state = {"representations": tf.constant(contexts(prev, data), tf.float32), "trained": tf.constant(True)}
    client = a_client(pairs_model(), data, glob, client_state)
    prepared = objective.prepare(client)
    client.model.set_weights(local)
    features = {name: tf.gather(value, rows) for name, value in client.examples.items() if name != "y"}
    with tf.GradientTape() as tape:
        outputs = client.model(features, training=True)
        batch = Batch(features, tf.zeros([len(rows)], tf.int32), outputs, tf.constant(rows))
        loss = objective.loss(client, prepared, batch)
    return float(loss), tape.gradient(loss, client.model.trainable_variables)


def test_the_loss_and_its_gradient():
    data, rows, local, glob, prev = examples(6, seed=2), [4, 0, 5, 2], draw(1), draw(2), draw(3)
    loss, gradient = loss_and_gradient(LocalizedContextContrast(0.7, 0.4), data, rows, local, glob, prev)
    expected = loss_of(local, data, rows, glob, prev, 0.7, 0.4)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert abs(expected - loss_of(local, data, rows, glob, None, 0.7, 0.4)) > 0.1
    wanted = toolbox.numeric_gradient(
        lambda weights: loss_of(weights, data, rows, glob, prev, 0.7, 0.4), [w.astype(float) for w in local]
    )
    toolbox.assert_close(gradient, wanted, 2e-5)


def test_a_batch_without_pairs_has_no_loss():
    loss, gradient = loss_and_gradient(LocalizedContextContrast(), examples(3, seed=2), [0], draw(1), draw(1), draw(3))
    assert loss == 0 and not any(np.asarray(g).any() for g in gradient)


def test_the_stored_contexts_are_the_stored_model():
    """The loss of a third round in which nothing moves is that with each client's model of the round before."""
    model, chosen = pairs_model(), algorithms.find("fedlcc")
    settings = {"optimizer": "sgd", "local_epochs": 1, "batch_size": 50}
    data = [examples(n, seed=n) for n in (4, 6)]

    def clients(number):
        return [collections.OrderedDict(examples=d, seed=np.array([number, k], np.int32)) for k, d in enumerate(data)]

    algorithm = chosen.build(model, chosen.options(learning_rate=0.5, **settings))
    state = algorithm.initialize(model.initial_weights(0))
    client_states = [algorithm.client_work.initial_client_state(d) for d in data]
    for number in range(2):
        # Alone, a client's model at the end of the round is the next global one.
        alone = [
            algorithm.next(state, clients(number)[k : k + 1], client_states[k : k + 1])["state"]["weights"].trainable
            for k in range(2)
        ]
        output = algorithm.next(state, clients(number), client_states)
        state, client_states = output["state"], output["client_state"]
    frozen = chosen.build(model, chosen.options(learning_rate=0.0, **settings))
    loss = frozen.next(state, clients(2), client_states)["metrics"]["work"]["local/loss"]
    now, total = [np.asarray(w).astype(float) for w in state["weights"].trainable], 0.0
    for d, previous, client_state in zip(data, alone, client_states, strict=True):
        np.testing.assert_allclose(client_state["representations"], contexts(previous, d), atol=1e-5)
        total += len(d["y"]) * loss_of(now, d, range(len(d["y"])), now, previous, 0.1, 0.5)
    assert loss == pytest.approx(total / sum(len(d["y"]) for d in data), rel=1e-5)


def after_a_round(previous, batch_size, learning_rate=0.5, **options):
    """(global weights, the client's data, its stored contexts) after one round of one client with six examples."""
    model, chosen, data = pairs_model(), algorithms.find("fedlcc"), examples(6, seed=6)
    settings = {"optimizer": "sgd", "local_epochs": 1, "batch_size": batch_size, "learning_rate": learning_rate}
    algorithm = chosen.build(model, chosen.options(previous=previous, **settings, **options))
    state = algorithm.initialize(model.initial_weights(0))
    weights = [np.asarray(w).astype(float) for w in state["weights"].trainable]
    states = [algorithm.client_work.initial_client_state(data)]
    client = [collections.OrderedDict(examples=data, seed=np.array([0, 0], np.int32))]
    output = algorithm.next(state, client, states)
    return weights, data, output


def test_contexts_of_the_steps_are_kept_in_place_of_a_reading():
    # One step of all examples: it computes them with the global model, before it moves.
    weights, data, output = after_a_round("steps", 50)
    (state,) = output["client_state"]
    np.testing.assert_allclose(state["representations"], contexts(weights, data), atol=1e-5)
    assert state["trained"]
    _, _, read = after_a_round("model", 50)
    trained = [np.asarray(w).astype(float) for w in read["state"]["weights"].trainable]
    np.testing.assert_allclose(read["client_state"][0]["representations"], contexts(trained, data), atol=1e-5)
    assert np.abs(contexts(trained, data) - contexts(weights, data)).max() > 0.01
    # The first round has no contrast, so that both train the same model.
    for left, right in zip(output["state"]["weights"].trainable, read["state"]["weights"].trainable, strict=True):
        assert np.array_equal(left, right)


def test_contexts_of_steps_of_a_model_that_does_not_move_are_those_of_a_reading():
    for batch_size in (1, 4):
        _, _, passed = after_a_round("steps", batch_size, learning_rate=0.0)
        _, _, read = after_a_round("model", batch_size, learning_rate=0.0)
        pair = [output["client_state"][0]["representations"] for output in (passed, read)]
        np.testing.assert_allclose(*pair, atol=1e-6)


def test_an_example_that_no_step_had_keeps_its_contexts():
    _, data, output = after_a_round("steps", 2, local_steps=1)
    rows = output["client_state"][0]["representations"]
    places = (data["head"] >= 0).sum(axis=1)
    zero = [not part.any() for part in np.split(rows, np.cumsum(places)[:-1]) if len(part)]
    assert 0 < sum(zero) < len(zero)


def test_contexts_of_steps_are_refused_where_examples_are_private():
    chosen = algorithms.find("fedlcc")
    privacy = ExamplePrivacy(clip=1.0, noise_multiplier=1.0)
    with pytest.raises(CompositionError, match="keeps what steps computed from their batches"):
        build_local_training(
            pairs_model(),
            objective=LocalizedContextContrast(remembers=True),
            optimizer=SGD(0.1),
            training=LocalTraining(example_privacy=privacy),
        )
    assert chosen.options().previous == "model"


def test_a_model_without_contexts_is_refused_in_one_line():
    chosen = algorithms.find("fedlcc")
    with pytest.raises(CompositionError, match="'context', but the model gives features, logits"):
        chosen.build(toolbox.encoder_model(), chosen.options())
