"""What the models share whose encoder reads long texts in windows."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import attrs
import numpy as np
import tensorflow as tf
from attrs.validators import ge, optional

from tff_re.models.document_windows import max_windows
from tff_re.models.encoders import EncoderModel, EncoderOptions, adapter_arguments, made
from tff_re.models.frozen_layers import assign_lower
from tff_re.models.inputs import HiddenInput, pieces_of
from tff_re.models.pretrained import load_config, main_layer, positions, require_vocabulary, source_of
from tff_re.models.text_layers import keras_inputs
from tff_re.models.windowed_layers import (
    LARGEST_WINDOW,
    LowerWindowedPieces,
    UpperWindowedPieces,
    WindowedPieces,
    window_sizes,
)


@attrs.frozen(kw_only=True)
class WindowOptions(EncoderOptions):
    """Attributes:
    window: most pieces that the encoder reads at once; what it can read, and at most 512, if not set.
    overlap: the fewest pieces that two windows of a longer text share; a quarter of the window if not set.
    recompute: whether training computes the inner values of the encoder's layers once more for the gradient, in place
      of keeping them, which takes more time and far less memory; if not set, where the task's texts can be longer than
      a window.
    """

    window: int | None = attrs.field(default=None, validator=optional(ge(4)))
    overlap: int | None = attrs.field(default=None, validator=optional(ge(0)))
    recompute: bool | None = None


class WindowedEncoderModel(EncoderModel):
    """A model whose layer `encoder` reads texts in windows.

    Attributes:
      whole_layer, upper_layer: classes of that layer, of all the encoder's layers and of those above frozen ones.
      inference_batch: texts at once where no gradients are taken.
    """

    whole_layer: type[WindowedPieces] = WindowedPieces
    upper_layer: type[UpperWindowedPieces] = UpperWindowedPieces
    inference_batch: int

    def in_windows(self, options: WindowOptions, pieces) -> bool:
        """Whether texts of these inputs are read in windows.

        If not, they are read like by any other EncoderModel.
        """
        return True

    def cached_layers(self, config, frozen_layers: int) -> int:
        """How many frozen layers run once.

        `config` is the encoder's as a dict.
        """
        return frozen_layers

    def encoder_layer(self, options: WindowOptions, inputs) -> WindowedPieces | UpperWindowedPieces:
        """The layer `encoder` for these inputs.

        Raises UserError if the options do not fit the encoder.
        """
        source = source_of(options, pieces_of(inputs))
        config = load_config(source)
        if isinstance(inputs, HiddenInput):
            cls, arguments = self.upper_layer, window_of(options, source)
        else:
            if options.pretrained and inputs.tokenizer is not None:
                require_vocabulary(config, source, inputs.vocabulary_size, inputs.new_pieces)
            cls, arguments = self.whole_layer, (options.window, options.overlap)
        size = () if isinstance(inputs, HiddenInput) else (max(inputs.vocabulary_size, config.vocab_size),)
        return made(
            source,
            cls,
            config.to_dict(),
            *size,
            options.encoder_dropout,
            options.frozen_layers,
            *arguments,
            _recomputes(options, pieces_of(inputs).max_length),
            **adapter_arguments(options, inputs),
            dtype=options.precision,
            name="encoder",
        )

    def precompute(self, options: WindowOptions, inputs, seed: int):
        """As `EncoderModel.precompute`. Texts' windows are run through the frozen layers a few texts at once."""
        if isinstance(inputs, HiddenInput) or not options.frozen_layers or not self.in_windows(options, inputs):
            return super().precompute(options, inputs, seed)
        whole = self.frozen_encoder(options, inputs, seed)
        lower = self._lower_layers(options, whole)
        window = min(lower.window, inputs.max_length)
        windows = max_windows(inputs.max_length, lower.window, lower.overlap)
        shape = (windows, window, whole.main.config.hidden_size)
        hidden_of = tf.function(
            lambda ids, mask: lower({"input_ids": ids, "attention_mask": mask}), reduce_retracing=True
        )

        def run(arrays):
            ids, mask = arrays["input_ids"], arrays["attention_mask"]
            hidden = np.zeros((len(ids), *shape), np.float16)
            for start in range(0, len(ids), self.inference_batch):
                rows = slice(start, start + self.inference_batch)
                longest = max(2, int(mask[rows].sum(axis=1).max()))
                output = hidden_of(tf.constant(ids[rows, :longest]), tf.constant(mask[rows, :longest])).numpy()
                hidden[rows, : output.shape[1], : output.shape[2]] = output
            return {"hidden": hidden, **{name: array for name, array in arrays.items() if name != "input_ids"}}

        return self.hidden_input(options, inputs, shape, seed, whole), run

    def whole_form(
        self, options: WindowOptions, inputs, trained: tf.keras.Model, merged: bool = False
    ) -> tf.keras.Model:
        if not isinstance(inputs, HiddenInput) or not self.in_windows(options, inputs.pieces):
            return super().whole_form(options, inputs, trained, merged)
        trained, whole = self.upper_form(options, inputs, trained, merged)
        arrays = keras_inputs(inputs.pieces)
        lower = self._lower_layers(options, whole)
        hidden = lower({name: arrays[name] for name in ("input_ids", "attention_mask")})
        outputs = trained({**{n: arrays[n] for n in inputs.specs if n != "hidden"}, "hidden": hidden})
        return tf.keras.Model(arrays, outputs, name=trained.name)

    def _lower_layers(self, options: WindowOptions, whole: WindowedPieces) -> LowerWindowedPieces:
        """The frozen layers of the whole encoder that run once."""
        config = copy.deepcopy(whole.main.config)
        config.num_hidden_layers = self.cached_layers(config.to_dict(), options.frozen_layers)
        lower = LowerWindowedPieces(
            config.to_dict(),
            config.vocab_size,
            options.encoder_dropout,
            config.num_hidden_layers,
            whole.window,
            whole.overlap,
            dtype=options.precision,
            name="frozen_layers",
        )
        lower({name: tf.zeros([1, 2], tf.int32) for name in ("input_ids", "attention_mask")})
        assign_lower(lower, whole)
        return lower


def windowed_inputs(inputs) -> Mapping[str, tf.Tensor]:
    """`keras_inputs`, in which texts after frozen layers may have any number of windows and pieces."""
    arrays = keras_inputs(inputs)
    if isinstance(inputs, HiddenInput) and len(inputs.shape) == 3:
        arrays["hidden"] = tf.keras.Input([None, None, inputs.shape[-1]], dtype=tf.float16, name="hidden")
    return arrays


def window_of(options: WindowOptions, source: str) -> tuple[int, int]:
    """(pieces in a window, the fewest that two share). UserError where they do not fit the encoder."""
    config = load_config(source)
    return made(source, window_sizes, positions(main_layer(config), config), options.window, options.overlap)


def _recomputes(options: WindowOptions, max_length: int | None) -> bool:
    if options.recompute is None:
        return max_length is not None and max_length > (options.window or LARGEST_WINDOW)
    return max_length is not None and options.recompute
