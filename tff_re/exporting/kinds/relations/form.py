"""What is written of models of sentence relations, for encoders of word pieces and for models of words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.relations.records import RelationMention
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.relation_layout import with_inline_markers
from datasets.text.tokenizer_tables import TokenizerTables
from tff_re.exporting.forms import Core, Probes, traced_once
from tff_re.exporting.in_graph.marked_text import MarkedText
from tff_re.exporting.kinds.relations import PIECES, WORDS, span_inputs
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.tokenized_form import HARD_TEXTS, TokenizedForm, tables_in_graph
from tff_re.models.inputs import RelationInput
from tff_re.models.text_layers import is_stock


class RelationForm(TokenizedForm):
    """A model of sentence relations: raw text in, tokenized in the graph.

    Signatures, all with `probabilities` float32 [B, C] out, and with blinding `head_type` and `tail_type`, string [B],
    behind the others in:

    - `serving_default`: `text`, string [B], each of the markers <e1> </e1> <e2> </e2> in it once;
    - `spans`: `text`, `head` and `tail`, int32 [B, 2], start and end in code points;
    - `encoded`: the arrays of a RelationInput;

    and `encode`, which gives these arrays for what `spans` takes.
    """

    inputs = (RelationInput,)
    encoding_class, what = RelationEncoding, "sentence relations"

    def __init__(self, trained, plain, inputs, encoding, probes):
        mentions = (probe for probe in probes if isinstance(probe, RelationMention))
        super().__init__(trained, plain, inputs, encoding, [*_made_up(encoding), *mentions])
        tables = tables_in_graph(encoding)
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
        marked_text = MarkedText(encoding, tables)
        self._from_markers, self._from_spans = map(traced_once, (marked_text.from_markers, marked_text.from_spans))
        self.tables = [marked_text]
        self.resources = [*self.resources, *self.tables]

    def endpoints(self, core: Core) -> dict[str, Callable]:
        text = tf.TensorSpec([None], tf.string, "text")
        names = ("head_type", "tail_type") if self._encoding.blind else ()
        types = [tf.TensorSpec([None], tf.string, name) for name in names]
        with_spans = [text, *(tf.TensorSpec([None, 2], tf.int32, name) for name in ("head", "tail")), *types]

        @tf.function(input_signature=[text, *types], autograph=False)
        def serve(text, *types):
            return {"probabilities": core(self._from_markers(text, types))}

        @tf.function(input_signature=with_spans, autograph=False)
        def serve_spans(text, head, tail, *types):
            return {"probabilities": core(self._from_spans(text, head, tail, types))}

        @tf.function(input_signature=with_spans, autograph=False)
        def encode(text, head, tail, *types):
            return self._from_spans(text, head, tail, types)

        return {DEFAULT_SIGNATURE: serve, "spans": serve_spans, "encoded": self.encoded(core), "encode": encode}

    def probes(self) -> Probes:
        markers = self._encoding.markers
        chosen = [probe for probe in self.some_probes() if not any(marker in probe.text for marker in markers)]
        calls = self.raw(chosen)
        inline = {name: value for name, value in calls.items() if name not in ("head", "tail")}
        inline["text"] = [with_inline_markers(probe, markers) for probe in chosen]
        return self.chosen_probes(chosen, {DEFAULT_SIGNATURE: inline, "spans": calls})

    def raw(self, probes: Sequence[RelationMention]) -> dict[str, Any]:
        return span_inputs(probes, self._encoding.blind)


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


def _made_up(encoding: RelationEncoding) -> list[RelationMention]:
    """Texts that are hard for a tokenizer, with mentions in every position to each other, short and too long."""
    texts = [*HARD_TEXTS, " ".join(HARD_TEXTS), " ".join(HARD_TEXTS) * 4, "a", "a b", "a  b c" * encoding.max_length]
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
