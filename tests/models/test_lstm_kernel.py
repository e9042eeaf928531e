"""SequenceLSTM against Keras' LSTM: states, gradients of everything, weights that fit."""

import numpy as np
import pytest
import tensorflow as tf

from tff_re.models.lstm_kernel import SequenceLSTM

BATCH, STEPS, WIDTH, UNITS = 4, 7, 5, 3


@pytest.fixture(scope="module")
def layers():
    keras_layer = tf.keras.layers.LSTM(UNITS, return_sequences=True)
    keras_layer(tf.zeros([1, 1, WIDTH]))
    rng = np.random.default_rng(0)
    keras_layer.set_weights([rng.normal(size=w.shape) for w in keras_layer.get_weights()])
    ours = SequenceLSTM(UNITS)
    ours.build([None, None, WIDTH])
    ours.set_weights(keras_layer.get_weights())
    return ours, keras_layer


def inputs():
    return tf.Variable(np.random.default_rng(1).normal(size=(BATCH, STEPS, WIDTH)).astype(np.float32))


@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_states_are_those_of_keras(layers, steps):
    ours, keras_layer = layers
    x = inputs()[:, :steps]
    np.testing.assert_allclose(tf.transpose(ours(x), [1, 0, 2]), keras_layer(x), atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "tf.function"])
def test_gradients_are_those_of_keras(layers, compiled):
    ours, keras_layer = layers
    x = inputs()
    weighting = tf.constant(np.random.default_rng(2).normal(size=(BATCH, STEPS, UNITS)).astype(np.float32))

    def gradients(layer, time_major):
        with tf.GradientTape() as tape:
            states = layer(x)
            states = tf.transpose(states, [1, 0, 2]) if time_major else states
            loss = tf.reduce_sum(tf.square(states) * weighting)  # every state counts, each in another way
        return tape.gradient(loss, [*layer.trainable_variables, x])

    wrap = tf.function if compiled else lambda function: function
    mine = wrap(lambda: gradients(ours, True))()
    theirs = wrap(lambda: gradients(keras_layer, False))()
    assert len(mine) == 4
    for got, expected in zip(mine, theirs, strict=True):
        assert float(tf.reduce_max(tf.abs(expected))) > 0.1
        np.testing.assert_allclose(got, expected, atol=2e-5, rtol=2e-5)


def test_initial_weights_have_the_form_of_keras():
    ours, keras_layer = SequenceLSTM(UNITS), tf.keras.layers.LSTM(UNITS)
    ours.build([None, None, WIDTH])
    keras_layer(tf.zeros([1, 1, WIDTH]))
    assert [w.shape for w in ours.weights] == [w.shape for w in keras_layer.weights]
    np.testing.assert_array_equal(ours.bias, keras_layer.get_weights()[2])
    recurrent = ours.recurrent_kernel.numpy()
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(UNITS), atol=1e-5)  # orthogonal rows


def test_what_lies_behind_the_end_does_not_reach_the_last_state(layers):
    ours, _ = layers
    x = inputs().numpy()
    changed = x.copy()
    changed[:, 4:] = 100.0
    np.testing.assert_array_equal(ours(x)[3], ours(changed)[3])
