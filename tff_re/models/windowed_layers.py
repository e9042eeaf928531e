"""Encoders that read texts of any length, longer ones in windows that overlap."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from computations.randomness import next_seed, step_seed
from tff_re.models.document_windows import Windows, cut
from tff_re.models.frozen_layers import UpperLayers
from tff_re.models.pretrained import PieceEncoder, positions, stack_of, unconverted

LARGEST_WINDOW = 512
"""Pieces in a window, unless said otherwise: attention takes memory with the square of them."""


@tf.keras.utils.register_keras_serializable("tff_re")
class WindowedPieces(PieceEncoder):
    """{`input_ids`, `attention_mask`} int32 [B, l] of texts of any length -> the last layer's outputs.

    They are float32 [B, l, d]. A text longer than a window is read in several, and outputs are averaged where windows
    overlap.
    """

    def __init__(
        self,
        config,
        vocabulary_size,
        dropout,
        frozen_layers,
        window: int | None = None,
        overlap: int | None = None,
        recompute: bool = False,
        **kwargs,
    ):
        """Args:
          config, vocabulary_size, dropout, frozen_layers: as PieceEncoder's.
          window, overlap: as in `document_windows.cut`; None: what the encoder reads, at most LARGEST_WINDOW, and a
            quarter of the window.
          recompute: whether the gradient computes a layer's inner values once more, in place of keeping them.

        Raises:
          ValueError: as PieceEncoder's; the encoder does not read a window.
        """
        super().__init__(config, vocabulary_size, dropout, frozen_layers, **kwargs)
        self.recompute = recompute
        if recompute:
            for layer in stack_of(self.main).layer:
                layer.call = recomputed(layer.call)
        self.window, self.overlap = window_sizes(positions(self.main, self.main.config), window, overlap)

    def call(self, inputs, training=None):
        output, windows = self.run(inputs, training)
        return windows.mean(tf.cast(output.last_hidden_state, tf.float32), inputs["attention_mask"])

    def run(self, inputs, training, **more) -> tuple[Any, Windows]:
        """(what `transformers` gives for the windows of the texts, the windows)."""
        windows = cut(inputs["attention_mask"], self.window, self.overlap)
        output = unconverted(self.main, self.main.config.model_type)(
            input_ids=tf.where(windows.mask, windows.of_documents(inputs["input_ids"]), 0),
            attention_mask=tf.cast(windows.mask, tf.int32),
            training=training,
            **more,
        )
        return output, windows

    def get_config(self):
        options = {"window": self.window, "overlap": self.overlap, "recompute": self.recompute}
        return {**super().get_config(), **options}


@tf.keras.utils.register_keras_serializable("tff_re")
class LowerWindowedPieces(WindowedPieces):
    """`input_ids`, `attention_mask` [B, l] -> `hidden` float16 [B, V, w, d] for UpperWindowedPieces.

    Padding is zero.

    Its encoder has only the frozen layers.
    """

    def call(self, inputs, training=None):
        output, windows = self.run(inputs, False)
        states = tf.cast(output.last_hidden_state, tf.float16) * tf.cast(windows.mask, tf.float16)[..., tf.newaxis]
        places = tf.stack([windows.document, windows.index], axis=-1)
        count = tf.reduce_max(tf.concat([windows.index, [0]], 0)) + 1
        shape = tf.concat([[tf.shape(inputs["input_ids"])[0], count], tf.shape(states)[1:]], 0)
        return tf.ensure_shape(tf.scatter_nd(places, states, shape), [None, None, None, states.shape[-1]])


@tf.keras.utils.register_keras_serializable("tff_re")
class UpperWindowedPieces(UpperLayers):
    """What WindowedPieces gives, from the outputs of its frozen layers in place of `input_ids`.

    Takes `hidden` [B, V, w, d], the outputs in each of a text's windows.
    """

    def __init__(self, config, dropout, frozen_layers, window: int, overlap: int, recompute: bool = False, **kwargs):
        """Args: as WindowedPieces', with the `window` and `overlap` that its frozen layers ran with."""
        # Not cast as a whole: many texts have fewer windows than the longest.
        super().__init__(config, dropout, frozen_layers, autocast=False, **kwargs)
        self.window, self.overlap, self.recompute = window, overlap, recompute
        if recompute:
            for layer in self.stack.layer:
                layer.call = recomputed(layer.call)

    def call(self, inputs, training=None):
        output, windows = self.run_windows(inputs, training)
        return windows.mean(tf.cast(output.last_hidden_state, tf.float32), inputs["attention_mask"])

    def run_windows(self, inputs, training, **more) -> tuple[Any, Windows]:
        """(what `transformers` gives for the windows of the texts, the windows)."""
        windows = cut(inputs["attention_mask"], self.window, self.overlap)
        hidden = tf.gather_nd(inputs["hidden"], tf.stack([windows.document, windows.index], axis=-1))
        hidden = tf.cast(hidden[:, : tf.shape(windows.mask)[1]], self.compute_dtype)
        return self.run(hidden, windows.mask, training, **more), windows

    def get_config(self):
        options = {"window": self.window, "overlap": self.overlap, "recompute": self.recompute}
        return {**super().get_config(), **options}


def window_sizes(readable: int | None, window: int | None, overlap: int | None) -> tuple[int, int]:
    """(pieces in a window, the fewest that two share).

    Args:
      readable: pieces that the encoder reads at once; None: any number.
      window, overlap: as WindowedPieces'.

    Raises:
      ValueError: the encoder does not read a window, or two windows share all.
    """
    fits = LARGEST_WINDOW if readable is None else min(readable, LARGEST_WINDOW)
    window = fits if window is None else window
    if readable is not None and window > readable:
        raise ValueError(f"reads at most {readable} word pieces, but a window has {window}; lower model.window")
    overlap = window // 4 if overlap is None else overlap
    if overlap > window - 3:
        raise ValueError(
            f"with an overlap of {overlap} a window of {window} word pieces adds nothing new; lower model.overlap"
        )
    return window, overlap


def recomputed(call):
    """A transformer layer's `call` of which training keeps the inputs alone and computes the rest twice.

    Its random layers draw from a seed that is drawn here, so that they draw the same both times. This is not
    tf.recompute_grad: in the graphs that TFF makes, its second time does not wait for the gradient, so that all layers'
    values are there together after all.
    """

    def lean(*args, training=None, **kwargs):
        if not training:
            return call(*args, training=training, **kwargs)
        seed = next_seed()
        seeds = () if seed is None else (seed,)
        # The states come first, or by this name; all else of a layer's arguments has no gradient.
        states = kwargs.pop("hidden_states") if "hidden_states" in kwargs else args[0]

        def run(states, *seeds):
            with step_seed(*seeds) if seeds else contextlib.nullcontext():
                return call(states, *args[1:], training=training, **kwargs)[0]

        @tf.custom_gradient
        def lean_run(states):
            def gradient(upstream, variables=()):
                with tf.control_dependencies([upstream]):
                    later, *later_seeds = map(tf.identity, (states, *seeds))
                with tf.GradientTape() as tape:
                    tape.watch(later)
                    outputs = run(later, *later_seeds)
                to_states, *to_variables = tape.gradient(
                    outputs,
                    [later, *variables],
                    upstream,
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                return to_states, to_variables

            return run(states, *seeds), gradient

        return (lean_run(states),)

    return lean
