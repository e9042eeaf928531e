"""What is written of models of sentence relations, for encoders of word pieces and for models of words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.errors import DataError
from datasets.relations.records import RelationMention
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.relation_layout import with_inline_markers
from datasets.text.tokenizer_tables import TokenizerTables, tables_of
from tff_re.exporting.forms import HALF_TOLERANCE, Core, Form, Probes, require_same, softmax_of, traced_once
from tff_re.exporting.in_graph.marked_text import MarkedText
from tff_re.exporting.kinds.relations import PIECES, WORDS, span_inputs
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.exporting.quantised import signature_of
from tff_re.models.inputs import HiddenInput, RelationInput, pieces_of
from tff_re.models.text_layers import forget_initial_values, is_stock

BATCH = 64
"""Texts at once where texts are encoded to compare them."""

MOST_PROBES = 64
"""Texts whose predictions are compared; the pieces of all of them are."""


class RelationForm(Form):
    """A model of sentence relations: raw text in, tokenized in the graph.

    Signatures, all with `probabilities` float32 [B, C] out, and with blinding `head_type` and `tail_type`, string [B],
    behind the others in:

    - `serving_default`: `text`, string [B], each of the markers <e1> </e1> <e2> </e2> in it once;
    - `spans`: `text`, `head` and `tail`, int32 [B, 2], start and end in code points;
    - `encoded`: the arrays of a RelationInput;

    and `encode`, which gives these arrays for what `spans` takes.
    """

    inputs = (RelationInput,)

    def __init__(self, trained, plain, inputs, encoding, probes):
        relation, tables = pieces_of(inputs), _tables(encoding)
        if relation is not inputs:
            self.tolerance = HALF_TOLERANCE
        self._encoding = encoding
        self._probes = [*_made_up(encoding), *(probe for probe in probes if isinstance(probe, RelationMention))]
        self._marked_text = MarkedText(encoding, tables)
        self._expected = softmax_of(trained)
        served = plain if relation.fixed is not None else trained  # an adapter is merged into its encoder
        kind = WORDS if tables.prefix is None else PIECES
        self.source = {
            "name": "text",
            "kind": kind,
            "max_length": encoding.max_length,
            "vocabulary": len(tables.pieces),
            "blind": encoding.blind,
            "markers": list(encoding.markers),
            "stock": is_stock(plain),
        }
        self.encoding_json = _as_json(encoding, tables, kind)
        forget_initial_values(plain)
        arrays = {name: tf.keras.Input(s.shape[1:], dtype=s.dtype, name=name) for name, s in relation.specs.items()}
        probabilities = tf.keras.layers.Softmax(dtype="float32", name="probabilities")(plain(arrays)["logits"])
        self.keras_model = tf.keras.Model(arrays, {"probabilities": probabilities}, name=plain.name)
        self.core, self.small_core = softmax_of(served), softmax_of(plain)
        self.core_specs = relation.specs
        self.tables = [self._marked_text]
        self.resources = [served, *self.tables]

    @staticmethod
    def check(inputs: RelationInput | HiddenInput, encoding) -> None:
        if not isinstance(encoding, RelationEncoding):
            raise ExportError(NEEDED.format("sentence relations"))
        relation, tables = pieces_of(inputs), _tables(encoding)
        largest = max(int(tables.ids.max()), *tables.marker_ids)
        if relation.max_length != encoding.max_length or relation.vocabulary_size <= largest:
            raise ExportError(MISFIT)

    def endpoints(self, core: Core) -> dict[str, Callable]:
        text = tf.TensorSpec([None], tf.string, "text")
        names = ("head_type", "tail_type") if self._encoding.blind else ()
        types = [tf.TensorSpec([None], tf.string, name) for name in names]
        with_spans = [text, *(tf.TensorSpec([None, 2], tf.int32, name) for name in ("head", "tail")), *types]
        from_spans = traced_once(self._marked_text.from_spans)

        @tf.function(input_signature=[text, *types], autograph=False)
        def serve(text, *types):
            return {"probabilities": core(self._marked_text.from_markers(text, types))}

        @tf.function(input_signature=with_spans, autograph=False)
        def serve_spans(text, head, tail, *types):
            return {"probabilities": core(from_spans(text, head, tail, types))}

        @tf.function(input_signature=with_spans, autograph=False)
        def encode(text, head, tail, *types):
            return from_spans(text, head, tail, types)

        of_arrays = signature_of(core, self.core_specs)
        return {DEFAULT_SIGNATURE: serve, "spans": serve_spans, "encoded": of_arrays, "encode": encode}

    def probes(self) -> Probes:
        # Evenly over all; each kind of made-up text is among them.
        chosen = self._probes[:: max(1, len(self._probes) // MOST_PROBES)][: 2 * MOST_PROBES]
        chosen = [probe for probe in chosen if not any(marker in probe.text for marker in self._encoding.markers)]
        arrays = self.arrays(chosen)
        calls = self._inputs(chosen)
        inline = {name: value for name, value in calls.items() if name not in ("head", "tail")}
        inline["text"] = [with_inline_markers(probe, self._encoding.markers) for probe in chosen]
        expected = self._expected({name: tf.constant(value) for name, value in arrays.items()}).numpy()
        return Probes(arrays, arrays, {DEFAULT_SIGNATURE: inline, "spans": calls, "encoded": arrays}, expected)

    def check_ids(self, keras_model, signatures) -> None:
        if signatures is None:
            return
        for start in range(0, len(self._probes), BATCH):
            part = self._probes[start : start + BATCH]
            found = signatures["encode"](**{name: tf.constant(value) for name, value in self._inputs(part).items()})
            require_same(found, self.arrays(part), "the exported graph")

    def arrays(self, samples: Sequence[RelationMention]) -> dict[str, np.ndarray]:
        arrays = self._encoding.encode(samples).arrays
        return {name: arrays[name] for name in self.core_specs}

    def _inputs(self, probes: Sequence[RelationMention]) -> dict[str, Any]:
        return span_inputs(probes, self._encoding.blind)


def _tables(encoding: RelationEncoding) -> TokenizerTables:
    problem = None
    try:
        return tables_of(encoding)
    except DataError as error:
        problem = str(error)
    raise ExportError(f"the model cannot be exported with its tokenizer in the graph: {problem}")


def _as_json(encoding: RelationEncoding, tables: TokenizerTables, kind: str) -> str:
    """All that another implementation needs to encode alike."""
    normalizer = json.loads(encoding.tokenizer.backend_tokenizer.to_str())["normalizer"]
    value = {
        "encoding": kind,
        "version": 1,
        "max_length": encoding.max_length,
        "blind": encoding.blind,
        "type_texts": dict(encoding.type_texts or {}),
        "markers": dict(zip(encoding.markers, tables.marker_ids, strict=True)),
        "special": {
            "cls": tables.cls_id,
            "sep": tables.sep_id,
            "padding": tables.pad_id,
            "unknown": tables.unknown_id,
        },
        "normalizer": normalizer,
        "prefix": tables.prefix,
        "max_characters": tables.max_characters,
        "vocabulary": dict(zip(tables.pieces, tables.ids.tolist(), strict=True)),
    }
    return json.dumps(value, ensure_ascii=False)


_HARD = (
    "[SEP] [CLS] [UNK] [MASK] ##ing",
    "na\u00efve e\u0301 \u0130\u03a3\u03c3\u03c2 \u00df \ufb01 \u01c4",
    "\u4e2d\u6587 \ud55c\uad6d\uc5b4 \u3000 \u200d\u200b\x00\x07\ufffd",
    "a\tb\nc\r\nd\u00a0e\u2028f",
    "TNF-\u03b1/\u03b2 (p<0.05), 5\u2032-UTR; x_1 ~ $3.14^2$",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U00020bb7 \ue000",
    "w" * 100 + " " + "w" * 101 + " " + "\u03b1" * 60,
)


def _made_up(encoding: RelationEncoding) -> list[RelationMention]:
    """Texts that are hard for a tokenizer, with mentions in every position to each other, short and too long."""
    texts = [*_HARD, " ".join(_HARD), " ".join(_HARD) * 4, "a", "a b", "a  b c" * encoding.max_length]
    random = np.random.default_rng(0)
    result = []
    for text in texts:
        for _ in range(4):
            spans = []
            for _ in (0, 1):
                start = int(random.integers(0, len(text)))
                longest = len(text) if random.random() < 0.2 else min(len(text), start + 8)
                spans.append((start, int(random.integers(start, longest)) + 1))
            head, tail = spans if random.random() < 0.8 else (spans[0], spans[0])
            result.append(RelationMention(f"probe-{len(result)}", "probe", text, head, tail, "drug", "Gene X", "-", 0))
    return result
