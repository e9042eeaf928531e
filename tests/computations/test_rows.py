"""Algorithms on examples of which each makes several rows of one class each, as the tokens of a text do.

On texts of two tokens every algorithm has to give the numbers that it gives on the tokens as examples of their own:
batches hold all of a client's examples, so both take the mean over the same rows.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.client_work.client_updates import Predictions
from computations.evaluation import build_evaluation
from computations.local_model import LocalModel
from tests.computations import toolbox
from tests.computations.built import NAMES, initial_client_states, options_of
from tests.computations.cases import STEPS, case

pytestmark = pytest.mark.xdist_group("algorithms")

WIDTH, CLASSES, LENGTH = 3, 3, 5
SIZES = (4, 6)

TOKENS = [name for name in NAMES if not case(name).bags]


@tf.keras.utils.register_keras_serializable("tests")
class Rows(tf.keras.layers.Layer):
    """(x [n, L, d], tags [n, L]) -> x of the tokens that have a tag, [N, d]."""

    def call(self, inputs):
        x, tags = inputs
        return tf.ensure_shape(tf.boolean_mask(x, tags >= 0), [None, x.shape[-1]])


def tagger():
    """Softmax regression on each token, with the weights of `toolbox.linear_model`."""

    def build():
        inputs = {"x": tf.keras.Input([LENGTH, WIDTH], name="x"), "tags": tf.keras.Input([LENGTH], dtype=tf.int32)}
        features = Rows(name="rows")([inputs["x"], inputs["tags"]])
        logits = tf.keras.layers.Dense(CLASSES, name="classifier")(features)
        return tf.keras.Model(inputs, {"logits": logits, "features": features, "context": features})

    spec = {
        "x": tf.TensorSpec([None, LENGTH, WIDTH], tf.float32),
        "tags": tf.TensorSpec([None, LENGTH], tf.int32),
        "y": tf.TensorSpec([None], tf.int32),
    }
    return LocalModel(build, spec, CLASSES, "classifier", rows="tags", row_labels="tags")


def texts(x, tags, seed):
    """Two tokens a text, at places that differ, among padding that must not count."""
    generator = np.random.default_rng(seed)
    number = len(tags) // 2
    arrays = {
        "x": generator.normal(size=[number, LENGTH, WIDTH]).astype(np.float32),
        "tags": np.full([number, LENGTH], -1, np.int32),
        "y": np.zeros([number], np.int32),
    }
    for text in range(number):
        places = np.sort(generator.choice(LENGTH, 2, replace=False))
        arrays["x"][text, places], arrays["tags"][text, places] = (
            x[2 * text : 2 * text + 2],
            tags[2 * text : 2 * text + 2],
        )
    return collections.OrderedDict(sorted(arrays.items()))


DATA = [toolbox.examples(2 * size, seed=size) for size in SIZES]
SERVER = toolbox.examples(8, seed=41)


def value(examples, seed):
    return collections.OrderedDict(examples=examples, seed=np.array(seed, np.int32))


def trained(name, model, form, **options):
    """The weights after two rounds; `form`: (x, y, seed) -> examples."""
    chosen = {"local_steps": STEPS, "learning_rate": 0.1, **case(name).options, **options, "batch_size": 50}
    algorithm = algorithms.find(name).build(model, options_of(name, **chosen))
    clients = [form(x, y, k) for k, (x, y) in enumerate(DATA)]
    state, states = algorithm.initialize(toolbox.model_weights(*toolbox.start_weights())), None
    for number in range(2):
        values = [value(c, (number, k)) for k, c in enumerate(clients)]
        more = []
        if algorithm.client_work.client_state_type is not None:
            more.append(states or initial_client_states(algorithm, values))
        if algorithm.server_type is not None:
            more.append(value(form(*SERVER, 9), (number, 77)))
        output = algorithm.next(state, values, *more)
        state, states = output["state"], output.get("client_state")
    return state["weights"].trainable


def flat(x, y, seed):
    del seed
    return collections.OrderedDict(x=x, y=y)


ON_THE_MAIN_ROAD = ("fedpap", "feded")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ON_THE_MAIN_ROAD else pytest.mark.slow) for n in TOKENS]
)
def test_tokens_of_texts_train_as_examples_of_their_own(name):
    of_server = {"num_server_examples": 4, "num_server_rows": 8}, {"num_server_examples": 8}
    at_texts = trained(name, tagger(), texts, **of_server[0])
    at_tokens = trained(name, toolbox.linear_model(WIDTH, CLASSES), flat, **of_server[1])
    toolbox.assert_close(at_texts, at_tokens, 5e-6)


def test_an_algorithm_that_needs_one_class_takes_rows_with_one():
    pairs = LocalModel(tagger().build, tagger().input_spec, CLASSES, "classifier", rows="tags")
    assert tagger().one_label and not pairs.one_label
    with pytest.raises(ValueError, match="row_labels needs rows"):
        LocalModel(tagger().build, tagger().input_spec, CLASSES, row_labels="tags")


@pytest.mark.parametrize("weighting, tags", [("uniform", [[-1, 0, 0]]), ("agreement", [[-1, 2, 1]])])
def test_clients_of_an_ensemble_get_tags_only_with_labels(weighting, tags):
    """Without them they see where tokens are, not their classes."""
    update = Predictions(1, weighting=weighting, num_rows=2, row_labels="tags")
    sent = update.for_clients({"tags": tf.constant([[-1, 2, 1]]), "y": tf.constant([1])})
    assert sent["tags"].numpy().tolist() == tags
    assert ("y" in sent) == (weighting == "agreement")


def test_an_evaluation_counts_tokens():
    weights = toolbox.model_weights(*toolbox.start_weights())
    (counted,) = build_evaluation(tagger())(weights, [texts(*DATA[0], 0)])
    (expected,) = build_evaluation(toolbox.linear_model(WIDTH, CLASSES))(weights, [flat(*DATA[0], 0)])
    assert float(counted["examples"]) == 2 * SIZES[0]
    np.testing.assert_array_equal(counted["confusion"], expected["confusion"])
    np.testing.assert_allclose(counted["loss"], expected["loss"], rtol=1e-5)


WITH_A_LOSS_OF_THEIR_OWN = ("fedrs", "fedlc", "fedetf", "moon", "feddecorr")


@pytest.mark.parametrize(
    "name",
    ["fedavg", "fedcmc", "feded", *(pytest.param(n, marks=pytest.mark.slow) for n in WITH_A_LOSS_OF_THEIR_OWN)],
)
def test_a_batch_of_texts_without_tokens_counts_nothing(name):
    """Such a step is one of a loss of zero, not of NaN, which would leave the client out."""
    examples = texts(*DATA[0], 0)
    empty = collections.OrderedDict((n, a[:1].copy()) for n, a in examples.items())
    empty["tags"][:] = -1
    both = collections.OrderedDict((n, np.concatenate([examples[n], empty[n]])) for n in examples)
    options = options_of(name, batch_size=1, local_epochs=1, num_server_examples=4, num_server_rows=8)
    algorithm = algorithms.find(name).build(tagger(), options)
    state = algorithm.initialize(toolbox.model_weights(*toolbox.start_weights()))
    values, more = [value(both, (0, 0))], []
    if algorithm.client_work.client_state_type is not None:
        more.append(initial_client_states(algorithm, values))
    if algorithm.server_type is not None:
        more.append(value(texts(*SERVER, 9), (0, 77)))
    metrics = algorithm.next(state, values, *more)["metrics"]
    work = metrics["work"]
    assert work["clients/counted"] == 1 and np.isfinite(work["local/loss"])
