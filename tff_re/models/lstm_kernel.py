"""An LSTM for training on a CPU: Keras' own function and weights, its gradient written out."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap


@tf.keras.utils.register_keras_serializable("tff_re")
class SequenceLSTM(tf.keras.layers.Layer):
    """[B, T, d] -> the states at all steps, [T, B, units].

    Weights, gates and initialisers are those of tf.keras.layers.LSTM.

    Keras' layer lets TensorFlow differentiate a loop over the steps, which keeps and sums a weight gradient per step.
    Here the states come from TensorFlow's fused kernel, and the backward loop carries only the two states' gradients:
    the weights' gradients are one product each after it. No mask: sequences are padded on the right, and what comes
    after a sentence's end does not reach its last state.
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


@RegisterPFor("BlockLSTMV2")
def _side_by_side(pfor_input):
    """The fused kernel where a graph computes examples side by side: they are one batch of it."""
    steps, (x, stacked) = pfor_input.unstacked_input(0), pfor_input.input(1)[:2]
    if not stacked:
        x = tf.broadcast_to(x[tf.newaxis], tf.concat([[pfor_input.pfor.loop_len_vector[0]], tf.shape(x)], 0))
    count, _, batch, width = tf.unstack(tf.shape(x))

    def of_all(index):
        start, stacked = pfor_input.input(index)[:2]
        shape = [count * batch, start.shape[-1]]
        return tf.reshape(start, shape) if stacked else tf.reshape(tf.tile(start, [count, 1]), shape)

    output = tf.raw_ops.BlockLSTMV2(
        seq_len_max=steps,
        x=tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [-1, count * batch, width]),
        cs_prev=of_all(2),
        h_prev=of_all(3),
        **{name: pfor_input.unstacked_input(4 + i) for i, name in enumerate(("w", "wci", "wcf", "wco", "b"))},
        cell_clip=pfor_input.get_attr("cell_clip"),
        use_peephole=pfor_input.get_attr("use_peephole"),
    )
    units = output.h.shape[-1]
    apart = [tf.transpose(tf.reshape(values, [-1, count, batch, units]), [1, 0, 2, 3]) for values in output]
    return [wrap(values, True) for values in apart]


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
    x = tf.transpose(x, [1, 0, 2])
    zero, none = tf.zeros([batch, units], x.dtype), tf.zeros([units], x.dtype)
    i, cells, f, o, g, squashed, states = tf.raw_ops.BlockLSTMV2(
        seq_len_max=tf.cast(steps, tf.int64),
        x=x,
        cs_prev=zero,
        h_prev=zero,
        w=tf.concat([kernel, recurrent], 0),
        wci=none,
        wcf=none,
        wco=none,
        b=bias,
        cell_clip=0.0,
    )

    def gradient(upstream):
        previous_cells = tf.concat([zero[tf.newaxis], cells[:-1]], 0)
        previous_states = tf.concat([zero[tf.newaxis], states[:-1]], 0)
        # What a step multiplies the cell's gradient (first three parts) and the state's (the last) with.
        factors = tf.concat(
            [g * i * (1 - i), previous_cells * f * (1 - f), i * (1 - tf.square(g)), squashed * o * (1 - o)], -1
        )
        pre = _backward(upstream, o * (1 - tf.square(squashed)), f, factors, recurrent, zero, steps)
        flat = tf.reshape(pre, [-1, 4 * units])
        d_x = tf.transpose(tf.reshape(tf.matmul(flat, kernel, transpose_b=True), [steps, batch, width]), [1, 0, 2])
        d_kernel = tf.matmul(tf.reshape(x, [-1, width]), flat, transpose_a=True)
        d_recurrent = tf.matmul(tf.reshape(previous_states, [-1, units]), flat, transpose_a=True)
        return d_x, d_kernel, d_recurrent, tf.reduce_sum(flat, 0)

    return states, gradient


UNROLLED = 5
"""Steps in one turn of the backward loop: what the loop itself costs is paid once for them."""


def _backward(upstream, through_output, forget, factors, recurrent, zero, steps):
    """Gradients of the gates' inputs, [T, B, 4u]."""
    turns, batch = -(-steps // UNROLLED), tf.shape(zero)[0]
    recurrent = tf.transpose(recurrent)

    def in_turns(values):
        """[T, B, n] -> [turns, UNROLLED, B, n], padded with zeros, which add nothing."""
        padded = tf.pad(values, [[0, turns * UNROLLED - steps], [0, 0], [0, 0]])
        return tf.reshape(padded, [turns, UNROLLED, batch, values.shape[2]])

    by_turn = [in_turns(values) for values in (upstream, through_output, forget, factors)]

    def turn(t, d_state, d_cell, pre):
        steps_of_turn, gradients = [tf.unstack(tf.gather(values, t), UNROLLED) for values in by_turn], []
        for d_output, through, forgets, factor in reversed(list(zip(*steps_of_turn, strict=True))):
            d_state = d_state + d_output
            d_cell = d_cell + d_state * through
            gradients.append(tf.concat([d_cell, d_cell, d_cell, d_state], -1) * factor)
            d_state, d_cell = tf.matmul(gradients[-1], recurrent), d_cell * forgets
        return t - 1, d_state, d_cell, pre.write(t, tf.stack(gradients[::-1]))

    pre = tf.TensorArray(zero.dtype, size=turns, element_shape=[UNROLLED, None, factors.shape[-1]])
    *_, pre = tf.while_loop(lambda t, *_: t >= 0, turn, (turns - 1, zero, zero, pre), maximum_iterations=turns)
    return tf.reshape(pre.stack(), [turns * UNROLLED, batch, factors.shape[-1]])[:steps]
