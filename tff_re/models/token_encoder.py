"""A pretrained transformer that gives each word piece of a text a tag, optionally with a CRF.

Long texts are read in windows.
"""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tff_re.models.crf import LinearChain
from tff_re.models.encoders import classified, last_outputs
from tff_re.models.inputs import HiddenInput, TaggedPieceInput, pieces_of
from tff_re.models.pretrained import source_of
from tff_re.models.tagging import TokenRows, TrimTagged, local_parts
from tff_re.models.windowed_encoders import WindowedEncoderModel, WindowOptions, window_of, windowed_inputs

INFERENCE_BATCH = 16
"""Texts at once where no gradients are taken; they may be long."""


@attrs.frozen(kw_only=True)
class Options(WindowOptions):
    """Attributes:
    crf: whether a linear-chain CRF decides on the tags of a text together; else each piece's tag is decided by itself.
    """

    crf: bool = False


class TokenEncoder(WindowedEncoderModel):
    Options = Options
    takes = (TaggedPieceInput,)
    inference_batch = INFERENCE_BATCH

    def in_windows(self, options: Options, pieces: TaggedPieceInput) -> bool:
        """Texts that fit a window are read as `text_encoder` does."""
        longest, _ = window_of(options, source_of(options, pieces))
        return pieces.max_length is None or pieces.max_length > longest or bool(options.recompute)

    def build(self, options: Options, inputs: TaggedPieceInput | HiddenInput, num_classes: int) -> tf.keras.Model:
        """The transformer's outputs at the pieces with a tag, logits W h + b, in the form of `tagging`.

        For a HiddenInput only what lies above the frozen layers. The number of classes is that of the task's labels;
        the tags are the inputs'.

        Raises:
          UserError: there is no such encoder, or the options do not fit it.
        """
        del num_classes
        pieces = pieces_of(inputs)
        arrays = windowed_inputs(inputs)
        trimmed = TrimTagged(name="trim")(arrays)
        if self.in_windows(options, pieces):
            first = "input_ids" if inputs is pieces else "hidden"
            read = self.encoder_layer(options, inputs)({name: trimmed[name] for name in (first, "attention_mask")})
        else:
            read = last_outputs(options, inputs, trimmed)
        rows = TokenRows(dtype="float32", name="rows")({"outputs": read, "tags": trimmed["tags"]})
        outputs = classified(options, inputs, pieces.num_tags, rows["rows"], bias=True)
        outputs |= {"lengths": rows["lengths"], **{name: trimmed[name] for name in ("unrepresented", "annotated")}}
        if options.crf:
            outputs |= LinearChain(pieces.num_tags, name="chain")(rows["lengths"])
        return tf.keras.Model(arrays, outputs, name="token_encoder")

    def local_parts(self, options: Options, inputs: Any) -> dict[str, Any]:
        return {
            **local_parts(pieces_of(inputs), options.crf),
            "inference_batch": INFERENCE_BATCH,
            "mask": "attention_mask",
        }


MODEL = TokenEncoder()
