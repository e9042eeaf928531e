"""The model of whole texts: what its classifier sees, and in graphs, where runs build it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.models.encoders_for_tests import CHINESE, WIDTH, chinese_encoder
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import PieceInput
from tff_re.models.text_encoder import MODEL, TextFeatures

LENGTH = 8
ROWS = {
    "input_ids": np.array([[2, 80, 81, 3, 0, 0, 0, 0], [2, 90, 91, 92, 93, 94, 95, 3]], np.int32),
    "attention_mask": np.array([[1, 1, 1, 1, 0, 0, 0, 0], [1] * 8], np.int32),
}


def inputs() -> PieceInput:
    return PieceInput(len(CHINESE), LENGTH, str(chinese_encoder()))


def made(pooling: str) -> tf.keras.Model:
    options = MODEL.Options(pooling=pooling)
    tf.keras.utils.set_random_seed(0)
    model = MODEL.build(options, inputs(), 3)
    MODEL.initialise(options, inputs())(model)
    return model


def test_pooling():
    layer = {pooling: TextFeatures(pooling) for pooling in ("cls", "mean")}
    outputs = np.arange(2 * LENGTH * 2, dtype=np.float32).reshape(2, LENGTH, 2)
    features = {"outputs": tf.constant(outputs), "attention_mask": ROWS["attention_mask"]}
    np.testing.assert_array_equal(layer["cls"](features), outputs[:, 0])
    np.testing.assert_allclose(layer["mean"](features), [outputs[0, :4].mean(axis=0), outputs[1].mean(axis=0)])
    assert not layer["mean"]({**features, "attention_mask": tf.zeros([2, LENGTH], tf.int32)}).numpy().any()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_nothing(pooling):
    model = made(pooling)
    together = model(ROWS)["features"].numpy()
    assert together.shape == (2, WIDTH) and np.ptp(together, axis=0).max() > 1e-2
    for number in (0, 1):
        alone = model({name: array[number : number + 1] for name, array in ROWS.items()})["features"]
        np.testing.assert_allclose(alone[0], together[number], atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_an_adapter_is_built_in_a_graph(precision):
    """As for TFF: fixed weights are no variables there."""
    options = MODEL.Options(adapter=AdapterOptions(rank=2), precision=precision)
    with_fixed, _ = MODEL.precompute(options, inputs(), 0)
    with tf.Graph().as_default():
        model = MODEL.build(options, with_fixed, 3)
        logits = model({name: tf.constant(array) for name, array in ROWS.items()})["logits"]
        names = [variable.name for variable in model.trainable_variables]
    assert logits.shape == (2, 3) and not model.non_trainable_variables
    assert all("lora" in name or "classifier" in name for name in names) and len(names) == 10
