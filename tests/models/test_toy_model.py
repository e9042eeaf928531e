"""A further model is one file: from a recipe to a trained, exported and predicting model."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import tensorflow as tf
from attrs.validators import ge

from tests.upper_floors import tiny
from tff_re import api, load_export
from tff_re.errors import UserError
from tff_re.models import MODELS
from tff_re.models.inputs import DenseInput
from tff_re.models.model import Model


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    units: of the hidden layer.
    """

    units: int = attrs.field(default=4, validator=ge(1))


class Perceptron(Model):
    """One hidden layer, of stock Keras layers."""

    Options = Options
    takes = (DenseInput,)

    def build(self, options, inputs, num_classes):
        x = tf.keras.Input([inputs.width], name="x")
        features = tf.keras.layers.Dense(options.units, activation="relu", name="hidden")(x)
        logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": features}, name="perceptron")


MODEL = Perceptron()


@pytest.fixture
def perceptron():
    MODELS.add("perceptron", MODEL)
    yield
    MODELS.remove("perceptron")


def test_a_further_model_goes_all_the_way(perceptron, tmp_path):
    run, recipe = tmp_path / "run", tiny("model={name='perceptron', units=6}")
    result = api.train(recipe, run, runtime="in-process")
    assert [array.shape for array in result.weights.trainable] == [(5, 6), (6,), (6, 3), (3,)]
    predictor = load_export(api.export(run, runtime="in-process"))
    x = np.random.default_rng(0).normal(size=[4, 5]).astype(np.float32)
    first, second = (np.asarray(array) for array in result.weights.trainable[::2])
    shift, bias = (np.asarray(array) for array in result.weights.trainable[1::2])
    logits = np.maximum(x @ first + shift, 0) @ second + bias
    wanted = [predictor.labels[n] for n in logits.argmax(axis=1)]
    assert [prediction.label for prediction in predictor.predict_vectors(x)] == wanted
    keras = tf.keras.models.load_model(run / "model.keras", safe_mode=True)
    np.testing.assert_allclose(keras({"x": x})["logits"], logits, atol=1e-5)


def test_its_keys_are_checked(perceptron):
    with pytest.raises(UserError, match=r"'model\.units' must be at least 1, got 0"):
        tiny("model={name='perceptron', units=0}")


def test_a_model_that_is_not_registered_is_refused():
    with pytest.raises(UserError, match="there is no model 'perceptron'"):
        tiny("model={name='perceptron'}")
