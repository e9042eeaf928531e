"""The exported files of models that read whole texts with a pretrained encoder's tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.encoding_files import piece_encoding_to_json
from datasets.text.piece_encoding import PieceEncoding
from tff_re.exporting.forms import Core, Probes, traced_once
from tff_re.exporting.in_graph.whole_text import WholeText
from tff_re.exporting.kinds.text_pieces import PIECES
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.tokenized_form import HARD_TEXTS, TokenizedForm, tables_in_graph
from tff_re.models.inputs import PieceInput


class TextPieceForm(TokenizedForm):
    """A model of texts: untouched text in, tokenized in the graph. Its signatures:

    - `serving_default`: `text`, string [B] -> `probabilities` float32 [B, C];
    - `encoded`: the arrays of a PieceInput -> the same;
    - `encode`: `text` -> these arrays.
    """

    inputs = (PieceInput,)
    encoding_class, what = PieceEncoding, "texts of word pieces"

    def __init__(self, trained, plain, inputs, encoding, probes):
        super().__init__(trained, plain, inputs, encoding, [*_made_up(encoding), *map(_text, probes)])
        tables = tables_in_graph(encoding)
        self.source = {
            "name": "text",
            "kind": PIECES,
            "max_length": encoding.max_length,
            "vocabulary": len(tables.pieces),
        }
        self.encoding_json = piece_encoding_to_json(encoding)
        whole_text = WholeText(encoding, tables)
        self._encode = traced_once(whole_text)
        self.tables = [whole_text]
        self.resources = [*self.resources, *self.tables]

    def endpoints(self, core: Core) -> dict[str, Callable]:
        text = [tf.TensorSpec([None], tf.string, "text")]

        @tf.function(input_signature=text, autograph=False)
        def serve(text):
            return {"probabilities": core(self._encode(text))}

        only_encode = tf.function(lambda text: self._encode(text), input_signature=text, autograph=False)
        return {DEFAULT_SIGNATURE: serve, "encoded": self.encoded(core), "encode": only_encode}

    def probes(self) -> Probes:
        chosen = self.some_probes()
        return self.chosen_probes(chosen, {DEFAULT_SIGNATURE: self.raw(chosen)})

    def raw(self, probes: Sequence[str]) -> dict[str, Any]:
        return {"text": list(probes)}

    def arrays(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        return super().arrays([_text(sample) for sample in samples])


def _text(sample: Any) -> str:
    return sample if isinstance(sample, str) else sample.text


def _made_up(encoding: PieceEncoding) -> list[str]:
    """Texts that are hard for a tokenizer, short and too long, and an empty one."""
    joined = " ".join(HARD_TEXTS)
    return ["", " ", "a", *HARD_TEXTS, joined, joined * 4, "宝宝咳嗽，发烧3天了？", "咳嗽" * encoding.max_length]
