import random

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.local_model import LocalModel, assign_weights
from tff_re.models import MODELS
from tff_re.models.inputs import DenseInput, TokenInput

VECTORS = np.random.default_rng(0).normal(size=[11, 5]).astype(np.float32)


def text_model(vectors=None):
    inputs = TokenInput(11, 6, vectors)
    spec = {"tokens": tf.TensorSpec([None, 6], tf.int32), "y": tf.TensorSpec([None], tf.int32)}
    options = MODELS["lstm"].Options(units=8, embedding_width=7, dropout=0.5)
    return LocalModel(lambda: MODELS["lstm"].build(options, inputs, 4), spec, 4, "classifier")


def dense_model():
    spec = {"x": tf.TensorSpec([None, 3], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
    return LocalModel(
        lambda: MODELS["logistic_regression"].build(MODELS["logistic_regression"].Options(), DenseInput(3), 4),
        spec,
        4,
        "classifier",
    )


@pytest.fixture(scope="module", params=["dense", "text", "text_given_vectors"])
def model(request):
    return {"dense": dense_model, "text": text_model}.get(request.param, lambda: text_model(VECTORS))()


def flat(weights):
    return [*weights.trainable, *weights.non_trainable]


def shapes_and_types(weights):
    return [[(w.shape, w.dtype) for w in group] for group in (weights.trainable, weights.non_trainable)]


def test_the_weights_type_is_that_of_the_weights(model):
    weights = model.initial_weights(3)
    of_type = [
        [(tuple(t.shape), np.dtype(t.dtype)) for t in group.children()]
        for group in (model.weights_type.trainable, model.weights_type.non_trainable)
    ]
    assert of_type == shapes_and_types(weights)
    assert model.weights_type.python_container is tff.learning.models.ModelWeights


def test_given_vectors_are_among_the_initial_weights():
    np.testing.assert_array_equal(text_model(VECTORS).initial_weights(7).non_trainable[0], VECTORS)


def test_weight_names_follow_the_weights():
    assert dense_model().weight_names == ["classifier/kernel", "classifier/bias"]
    assert len(text_model().weight_names) == 6


def test_initial_weights_depend_on_the_seed_alone(model):
    tf.random.set_seed(1), np.random.seed(1), random.seed(1)
    here = model.initial_weights(3)
    tf.random.set_seed(2), np.random.seed(2), random.seed(2), tf.random.uniform([])
    again = model.initial_weights(3)
    other = model.initial_weights(4)
    for a, b in zip(flat(here), flat(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(here.trainable, other.trainable, strict=True))


@pytest.mark.parametrize("work", ["initial_weights", "weights_type"])
def test_no_global_random_state_is_disturbed(work):
    def draw():
        of_keras = tf.keras.initializers.RandomUniform()([1])
        return random.random(), np.random.random(), float(tf.random.uniform([])), float(of_keras[0])

    def drawn(between):
        tf.keras.utils.set_random_seed(11)
        first = draw()
        between()
        return first, draw()

    def disturb():
        fresh = dense_model()
        return fresh.initial_weights(3) if work == "initial_weights" else fresh.weights_type

    assert drawn(disturb) == drawn(lambda: None)


def test_keras_model_holds_the_weights(model):
    weights = model.initial_weights(5)
    keras_model = model.keras_model(weights)
    variables = keras_model.trainable_variables + keras_model.non_trainable_variables
    for variable, value in zip(variables, flat(weights), strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_weights_of_another_model_are_refused():
    other = tff.learning.models.ModelWeights([np.zeros([3, 4], np.float32)], [])
    with pytest.raises(ValueError):
        assign_weights(dense_model().build(), other)


def test_a_model_without_a_label_is_refused():
    with pytest.raises(ValueError, match="'y'"):
        LocalModel(lambda: None, {"x": tf.TensorSpec([None, 3], tf.float32)}, 4)


def test_examples_are_arranged_by_name_and_type():
    arranged = dense_model().arrange({"y": [1, 2], "x": np.ones([2, 3], np.float64), "id": ["a", "b"]})
    assert list(arranged) == ["x", "y"] == tff.structure.name_list(dense_model().examples_type)
    assert arranged["x"].dtype == np.float32 and arranged["y"].dtype == np.int32
    with pytest.raises(KeyError, match="x"):
        dense_model().arrange({"y": [1, 2]})
