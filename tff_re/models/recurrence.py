"""An LSTM for training on a CPU: Keras' own function and weights, its gradient written out."""

from __future__ import annotations

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("tff_re")
class SequenceLSTM(tf.keras.layers.Layer):
    """[B, T, d] -> the states at all steps, [T, B, units]; weights, gates and initialisers are tf.keras.layers.LSTM's.

    Keras' layer multiplies by the kernel in every step and lets TensorFlow differentiate the loop, which keeps and
    sums a weight gradient per step. Here all steps' inputs are multiplied at once, and the backward loop carries the
    two states' gradients alone: the weights' gradients are one product each behind it. No mask: sequences are padded on
    the right, and what lies behind a sentence's end does not reach its last state.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        width, units = int(shape[-1]), self.units
        self.kernel = self.add_weight("kernel", [width, 4 * units], initializer="glorot_uniform")
        self.recurrent_kernel = self.add_weight("recurrent_kernel", [units, 4 * units], initializer="orthogonal")
        self.bias = self.add_weight("bias", [4 * units], initializer=_unit_forget_bias)
        super().build(shape)

    def call(self, inputs):
        return lstm_states(inputs, tf.identity(self.kernel), tf.identity(self.recurrent_kernel), tf.identity(self.bias))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def _unit_forget_bias(shape, dtype=None):
    units = shape[0] // 4
    return tf.concat([tf.zeros([units], dtype), tf.ones([units], dtype), tf.zeros([2 * units], dtype)], 0)


@tf.custom_gradient
def lstm_states(x, kernel, recurrent, bias):
    """States of an LSTM that starts from zero (Hochreiter and Schmidhuber 1997, with forget gates).

    Args:
      x: [B, T, d].
      kernel: [d, 4u], recurrent: [u, 4u], bias: [4u], gates in the order input, forget, candidate, output.

    Returns:
      [T, B, u].
    """
    units, width = recurrent.shape[0], kernel.shape[0]
    batch, steps = tf.shape(x)[0], tf.shape(x)[1]
    flat_x = tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, width])
    projected = tf.reshape(tf.matmul(flat_x, kernel) + bias, [steps, batch, 4 * units])
    # tanh(z) = 2 sigmoid(2z) - 1: with the candidate's part doubled, one sigmoid serves all four gates of a step.
    double = tf.concat([tf.ones([2 * units]), 2 * tf.ones([units]), tf.ones([units])], 0)
    projected, doubled_recurrent = projected * double, recurrent * double
    zero = tf.zeros([batch, units], x.dtype)
    gates, cells, states = _forward(projected, doubled_recurrent, zero, steps)

    def gradient(upstream):
        i, f, s, o = tf.split(gates, 4, axis=-1)
        g = 2 * s - 1
        previous_cells = tf.concat([zero[tf.newaxis], cells[:-1]], 0)
        previous_states = tf.concat([zero[tf.newaxis], states[:-1]], 0)
        squashed = tf.tanh(cells)
        through_output = o * (1 - tf.square(squashed))
        # What a step multiplies the cell's gradient (first three parts) and the state's (the last) with.
        factors = tf.concat(
            [g * i * (1 - i), previous_cells * f * (1 - f), i * (1 - tf.square(g)), squashed * o * (1 - o)], -1
        )
        pre = _backward(upstream, through_output, f, factors, recurrent, zero, steps)
        flat = tf.reshape(pre, [-1, 4 * units])
        d_x = tf.transpose(tf.reshape(tf.matmul(flat, kernel, transpose_b=True), [steps, batch, width]), [1, 0, 2])
        d_kernel = tf.matmul(flat_x, flat, transpose_a=True)
        d_recurrent = tf.matmul(tf.reshape(previous_states, [-1, units]), flat, transpose_a=True)
        return d_x, d_kernel, d_recurrent, tf.reduce_sum(flat, 0)

    return states, gradient


def _forward(projected, recurrent, zero, steps):
    """(gates [T, B, 4u], cells [T, B, u], states [T, B, u])."""

    def step(t, state, cell, gates, cells, states):
        gate = tf.sigmoid(projected[t] + tf.matmul(state, recurrent))
        i, f, s, o = tf.split(gate, 4, axis=-1)
        cell = f * cell + i * (2 * s - 1)
        state = o * tf.tanh(cell)
        return t + 1, state, cell, gates.write(t, gate), cells.write(t, cell), states.write(t, state)

    arrays = [
        tf.TensorArray(zero.dtype, size=steps, element_shape=[None, w])
        for w in (projected.shape[-1], *[zero.shape[-1]] * 2)
    ]
    *_, gates, cells, states = tf.while_loop(
        lambda t, *_: t < steps, step, (0, zero, zero, *arrays), maximum_iterations=steps
    )
    return gates.stack(), cells.stack(), states.stack()


def _backward(upstream, through_output, forget, factors, recurrent, zero, steps):
    """Gradients of the gates' inputs, [T, B, 4u]."""

    def step(t, d_state, d_cell, pre):
        d_state = d_state + upstream[t]
        d_cell = d_cell + d_state * through_output[t]
        d_pre = tf.concat([d_cell, d_cell, d_cell, d_state], -1) * factors[t]
        pre = pre.write(t, d_pre)
        return t - 1, tf.matmul(d_pre, recurrent, transpose_b=True), d_cell * forget[t], pre

    pre = tf.TensorArray(zero.dtype, size=steps, element_shape=[None, factors.shape[-1]])
    *_, pre = tf.while_loop(lambda t, *_: t >= 0, step, (steps - 1, zero, zero, pre), maximum_iterations=steps)
    return pre.stack()
