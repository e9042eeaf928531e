"""What is written of models whose texts are tokenized in the graph: whole texts, and texts with mentions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from datasets.errors import DataError
from datasets.text.tokenizer_tables import TokenizerTables, tables_of
from tff_re.exporting.forms import HALF_TOLERANCE, Core, Form, Probes, logits_of, require_same, softmax_of
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.exporting.quantised import signature_of
from tff_re.models.inputs import pieces_of
from tff_re.models.text_layers import forget_initial_values

BATCH = 64
"""Texts at once where texts are encoded to compare them."""

MOST_PROBES = 64
"""Texts whose predictions are compared; the pieces of all of them are."""


class TokenizedForm(Form):
    """A model of texts: raw text in, tokenized in the graph. A subclass sets `source`, `encoding_json` and `tables`.

    Its signatures have `probabilities` float32 [B, C] out, but for `encode`, which gives the arrays of the model's
    inputs; `encoded` takes these.

    Attributes:
      encoding_class: of the encoding.
      what: the model is of, in words.
    """

    encoding_class: ClassVar[type]
    what: ClassVar[str]

    def __init__(self, trained: tf.keras.Model, plain: tf.keras.Model, inputs: Any, encoding: Any, probes: Sequence):
        pieces = pieces_of(inputs)
        if pieces is not inputs:
            self.tolerance = HALF_TOLERANCE
        self._encoding, self._probes, self._expected = encoding, list(probes), softmax_of(trained)
        self.tokenizer = encoding.tokenizer
        served = plain if pieces.fixed is not None else trained  # an adapter is merged into its encoder
        forget_initial_values(plain)
        arrays = {name: tf.keras.Input(s.shape[1:], dtype=s.dtype, name=name) for name, s in pieces.specs.items()}
        probabilities = tf.keras.layers.Softmax(dtype="float32", name="probabilities")(plain(arrays)["logits"])
        self.keras_model = tf.keras.Model(arrays, {"probabilities": probabilities}, name=plain.name)
        self.core, self.small_core, self.logits = softmax_of(served), softmax_of(plain), logits_of(plain)
        self.core_specs = pieces.specs
        self.resources = [served]

    @classmethod
    def check(cls, inputs: Any, encoding: Any) -> None:
        if not isinstance(encoding, cls.encoding_class):
            raise ExportError(NEEDED.format(cls.what))
        pieces, tables = pieces_of(inputs), tables_in_graph(encoding)
        largest = max(int(tables.ids.max()), *tables.marker_ids, 0)
        if pieces.max_length != encoding.max_length or pieces.vocabulary_size <= largest:
            raise ExportError(MISFIT)

    def encoded(self, core: Core) -> Callable:
        """The signature that takes the model's arrays."""
        return signature_of(core, self.core_specs)

    def raw(self, probes: Sequence[Any]) -> dict[str, Any]:
        """What the signature `encode` takes for probes, by name."""
        raise NotImplementedError

    def chosen_probes(self, probes: Sequence[Any], calls: Mapping[str, Mapping[str, Any]]) -> Probes:
        """The Probes of these, with calls of the signatures other than `encoded`."""
        arrays = self.arrays(probes)
        expected = self._expected({name: tf.constant(value) for name, value in arrays.items()}).numpy()
        return Probes(arrays, arrays, {**calls, "encoded": arrays}, expected)

    def some_probes(self) -> list[Any]:
        """Some of the probes, spread evenly over all of them.

        Each kind of made-up text is among them.
        """
        return self._probes[:: max(1, len(self._probes) // MOST_PROBES)][: 2 * MOST_PROBES]

    def check_ids(self, keras_model, signatures) -> None:
        if signatures is None:
            return
        for start in range(0, len(self._probes), BATCH):
            part = self._probes[start : start + BATCH]
            encoded = signatures["encode"](**{name: tf.constant(value) for name, value in self.raw(part).items()})
            require_same(encoded, self.arrays(part), "the exported graph")

    def arrays(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        arrays = self._encoding.encode(samples).arrays
        return {name: arrays[name] for name in self.core_specs}


def tables_in_graph(encoding: Any) -> TokenizerTables:
    """The tables of an encoding's tokenizer. Raises ExportError where the graph cannot hold it."""
    problem = None
    try:
        return tables_of(encoding)
    except DataError as error:
        problem = str(error)
    raise ExportError(f"the model cannot be exported with its tokenizer in the graph: {problem}")


HARD_TEXTS = (
    "[SEP] [CLS] [UNK] [MASK] ##ing",
    "na\u00efve e\u0301 \u0130\u03a3\u03c3\u03c2 \u00df \ufb01 \u01c4",
    "\u4e2d\u6587 \ud55c\uad6d\uc5b4 \u3000 \u200d\u200b\x00\x07\ufffd",
    "a\tb\nc\r\nd\u00a0e\u2028f",
    "TNF-\u03b1/\u03b2 (p<0.05), 5\u2032-UTR; x_1 ~ $3.14^2$",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U00020bb7 \ue000",
    "w" * 100 + " " + "w" * 101 + " " + "\u03b1" * 60,
)
"""Texts that are hard for a tokenizer."""
