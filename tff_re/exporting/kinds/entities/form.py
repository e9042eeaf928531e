"""What is written of models of entity recognition: raw text in, the tag and the offsets of each token out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from datasets.encoding_files import tagged_encoding_to_json
from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.records import EntitySample
from datasets.entities.scoring import score_spans
from datasets.entities.tags import NO_TOKEN, spans_of
from datasets.text.encoding import CharacterEncoding
from tff_re.exporting.forms import HALF_TOLERANCE, Core, Form, Probes, require_same, traced_once
from tff_re.exporting.in_graph.located_tokens import TOKEN_MASK, LocatedPieces, LocatedWords
from tff_re.exporting.kinds.entities import CHARACTERS, PIECES, WORDS
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.exporting.quantised import HalfCore
from tff_re.exporting.tokenized_form import BATCH, HARD_TEXTS, MOST_PROBES, tables_in_graph
from tff_re.models.inputs import TaggedPieceInput, TaggedTokenInput, pieces_of
from tff_re.models.model import Model
from tff_re.models.tagging import TokenTags, at_tokens, probabilities_and_tags
from tff_re.models.text_layers import forget_initial_values

CHAIN = "chain"
"""The layer of a CRF."""

MOST_MEASURED = 500
"""Texts that a quantised form is measured on."""


class EntityForm(Form):
    """A model of entity recognition: B texts of up to L tokens, T tags. Its signatures:

    - `serving_default`: `text`, string [B] -> `probabilities` float32 [B, L, T], `tags`, `starts` and `ends` int32
      [B, L], -1 where there is no token;
    - `encoded`: `tokens`, or of word pieces `input_ids`, `attention_mask` and `token_mask`, int32 [B, L] ->
      `probabilities` and `tags`;
    - `encode`: `text` -> what `encoded` takes, `starts` and `ends`.

    Texts of words are words joined by blanks. Offsets are code points of `text`. L is free, also where training padded
    all texts to one length; longer texts than that are cut.
    """

    inputs = (TaggedTokenInput, TaggedPieceInput)
    for_tflite = False
    measure, unit, sample_unit = "f1", "texts", "texts"

    def __init__(self, trained, plain, inputs, encoding, probes):
        pieces = pieces_of(inputs)
        if pieces is not inputs:
            self.tolerance = HALF_TOLERANCE
        self._encoding, self._inputs, self._trained = encoding, pieces, trained
        self.tokenizer = getattr(encoding, "tokenizer", None)
        forget_initial_values(plain)
        located, self.source = _located(encoding)
        self.encoding_json = tagged_encoding_to_json(encoding)
        self._texts = [*_made_up(encoding), *(p if isinstance(p, str) else p.text for p in probes)]
        self._encode = traced_once(located)
        names = ("tokens",) if isinstance(pieces, TaggedTokenInput) else ("input_ids", "attention_mask", TOKEN_MASK)
        self.core_specs = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        chains = [layer for layer in plain.layers if layer.name == CHAIN]
        self.source["crf"] = bool(chains)
        if chains:
            self.no_onnx = "its CRF decides on the tags of a text together"
        self._chain = chains[0] if chains else None
        arrays = {name: tf.keras.Input([None], dtype=tf.int32, name=name) for name in names}
        complete = self._complete(arrays)
        outputs = {name: value for name, value in plain(complete).items() if name in _READ}
        tagged = TokenTags(name="entities")({**outputs, "tags": complete["tags"]})
        self.keras_model = tf.keras.Model(arrays, tagged, name=f"{plain.name}_of_texts")
        self._rows = traced_once(lambda arrays: plain(self._complete(arrays), training=False)["logits"])
        self.core = self.small_core = _Tagger(self._rows, self._chain)
        self.logits = lambda arrays: at_tokens(self._rows(arrays), _present(arrays) > 0)
        self.tables = [located, *chains]
        self.resources = [plain, *self.tables]

    @staticmethod
    def check(inputs: Any, encoding: Any) -> None:
        pieces = pieces_of(inputs)
        of_tokens = isinstance(pieces, TaggedTokenInput)
        if not isinstance(encoding, TaggedTokenEncoding if of_tokens else TaggedPieceEncoding):
            raise ExportError(NEEDED.format("entities"))
        fits = (encoding.entity_types, encoding.scheme) == (pieces.entity_types, pieces.scheme)
        if of_tokens:
            text_encoding = encoding.text_encoding
            fits &= len(text_encoding.vocabulary) == pieces.vocabulary_size
            fits &= text_encoding.max_length == pieces.max_length
        else:
            tables = tables_in_graph(encoding)
            fits &= pieces.vocabulary_size > int(tables.ids.max())
            fits &= encoding.max_length in (None, pieces.max_length)
            if not json.loads(encoding.tokenizer.backend_tokenizer.to_str())["normalizer"]["clean_text"]:
                raise ExportError(
                    "the model cannot be exported with its tokenizer in the graph: the tokenizer keeps control "
                    "characters (clean_text); use an encoder with BERT's own tokenizer"
                )
        if not fits:
            raise ExportError(MISFIT)

    @staticmethod
    def plain(model: Model, options: Any, inputs: Any, classes: int) -> tf.keras.Model:
        return model.build_plain(options, dataclasses.replace(inputs, max_length=None), classes)

    @staticmethod
    def plain_whole(model: Model, options: Any, inputs: Any, trained: tf.keras.Model, weights: Any) -> tf.keras.Model:
        pieces = pieces_of(inputs)
        whole = model.finished(options, inputs, pieces.num_tags, weights)
        free = dataclasses.replace(pieces, max_length=None, fixed=None)
        plain = model.build(attrs.evolve(options, adapter=None), free, pieces.num_tags)
        plain.set_weights(whole.get_weights())
        return plain

    def halved(self) -> tuple[Core, tf.Module]:
        # Weights are taken out of the tokens' logits: out of a CRF's loops they cannot be.
        half = HalfCore(self._rows, self.core_specs)
        return _Tagger(half, self._chain), half

    def endpoints(self, core: _Tagger) -> dict[str, Callable]:
        text = [tf.TensorSpec([None], tf.string, "text")]

        @tf.function(input_signature=text, autograph=False)
        def serve(text):
            encoded = self._encode(text)
            return {**core.answer(encoded), **{name: tf.identity(encoded[name]) for name in ("starts", "ends")}}

        specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in self.core_specs.items()]

        @tf.function(input_signature=specs, autograph=False)
        def encoded(*arrays):
            return core.answer(dict(zip(self.core_specs, arrays, strict=True)))

        encode = tf.function(lambda text: self._encode(text), input_signature=text, autograph=False)
        return {DEFAULT_SIGNATURE: serve, "encoded": encoded, "encode": encode}

    def with_logits(self, arrays: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = self.logits(arrays)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits) * _present(arrays)[..., tf.newaxis]}

    def probes(self) -> Probes:
        texts = self._chosen_texts()
        arrays = self._arrays(texts)
        width = next(iter(arrays.values())).shape[1]
        fillers = {"input_ids": getattr(self.tokenizer, "pad_token_id", 0)}
        padding = [[0, 0], [0, self._inputs.max_length - width]]
        as_trained = {
            name: tf.constant(np.pad(array, padding, constant_values=fillers.get(name, 0)))
            for name, array in arrays.items()
        }
        complete = self._complete(as_trained)
        outputs = self._trained(complete, training=False)
        expected = probabilities_and_tags(outputs, complete["tags"])[0].numpy()[:, :width]
        calls = {DEFAULT_SIGNATURE: {"text": [self._raw(text) for text in texts]}, "encoded": arrays}
        return Probes(arrays, arrays, calls, expected)

    def check_ids(self, keras_model, signatures) -> None:
        if signatures is None:
            return
        for start in range(0, len(self._texts), BATCH):
            texts = self._texts[start : start + BATCH]
            encoded = signatures["encode"](text=tf.constant([self._raw(text) for text in texts]))
            arrays, offsets = self._located_arrays(texts)
            if self.source["kind"] == WORDS:
                offsets = _in_joined_words(offsets)
            require_same(encoded, {**arrays, "starts": offsets[..., 0], "ends": offsets[..., 1]}, "the exported graph")

    def arrays(self, samples: Sequence[EntitySample]) -> dict[str, np.ndarray]:
        return self._arrays([sample.text for sample in samples])

    def measured(self, samples: Sequence[EntitySample]) -> Sequence[EntitySample]:
        return samples[:MOST_MEASURED]

    def graded(self, probabilities, samples, labels, threshold) -> tuple[float, int]:
        """Strict F1 of the entities that the most probable tag of each token means, also where a CRF decodes others."""
        types, scheme = self._encoding.entity_types, self._encoding.scheme
        _, offsets = self._located_arrays([sample.text for sample in samples])
        predicted = []
        for tags, places in zip(probabilities.argmax(-1), offsets, strict=True):
            tokens = places[:, 0] >= 0
            predicted.append(spans_of(tags[tokens].tolist(), places[tokens].tolist(), types, scheme))
        return score_spans([sample.spans for sample in samples], predicted, types).micro.f1, len(samples)

    def _complete(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Adds to the tokens the inputs that a model takes in training: every type is annotated."""
        if "tokens" in arrays:
            tags = tf.where(tf.not_equal(arrays["tokens"], 0), 0, NO_TOKEN)
        else:
            tags = arrays[TOKEN_MASK] - 1
        of_types = tf.repeat(
            tf.zeros_like(arrays["attention_mask" if "tokens" not in arrays else "tokens"][:, :1]),
            len(self._encoding.entity_types),
            axis=1,
        )
        of_model = {name: array for name, array in arrays.items() if name != TOKEN_MASK}
        return {**of_model, "tags": tags, "unrepresented": of_types, "annotated": of_types + 1}

    def _raw(self, text: str) -> str:
        """The text as the SavedModel takes it."""
        return text if self.tokenizer is not None else self._encoding.text_encoding.prepare(text)

    def _arrays(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        return self._located_arrays(texts)[0]

    def _located_arrays(self, texts: Sequence[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """(inputs of `encoded`, the tokens' offsets [n, L, 2]).

        L is the length of the longest text, at least 1.
        """
        arrays, offsets = self._encoding.encode_texts(texts)
        if self.tokenizer is not None:
            arrays = {**arrays, TOKEN_MASK: (offsets[..., 0] >= 0).astype(np.int32)}
        lengths = (arrays["tokens"] != 0 if self.tokenizer is None else arrays["attention_mask"] != 0).sum(axis=1)
        width = max(1, int(lengths.max(initial=0)))
        return {name: array[:, :width] for name, array in arrays.items()}, offsets[:, :width]

    def _chosen_texts(self) -> list[str]:
        """Texts whose predictions are compared, spread evenly over all.

        None is longer than the texts seen in training.
        """
        fits = self._texts
        if self.tokenizer is not None and self._encoding.max_length is None:
            fits = [text for text in fits if self._arrays([text])["input_ids"].shape[1] <= self._inputs.max_length]
        return fits[:: max(1, len(fits) // MOST_PROBES)][: 2 * MOST_PROBES]


class _Tagger:
    """A core: the function that all signatures share around the logits of tokens.

    Args:
      rows: what `encoded` takes -> logits float32 [N, T] of all tokens.
      chain: the layer with a CRF's scores; None: there is no CRF.
    """

    def __init__(self, rows: Callable[[Mapping[str, tf.Tensor]], tf.Tensor], chain: tf.keras.layers.Layer | None):
        self._rows, self._chain = rows, chain
        self._answer = traced_once(self._compute)

    def __call__(self, arrays: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self.answer(arrays)["probabilities"]

    def answer(self, arrays: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`probabilities` float32 [B, L, T] and `tags` int32 [B, L]."""
        return self._answer({name: arrays[name] for name in arrays if name not in ("starts", "ends")})

    def _compute(self, arrays):
        present = _present(arrays)
        lengths = tf.reduce_sum(tf.cast(present, tf.int32), axis=-1)
        outputs = {"logits": self._rows(arrays), "lengths": lengths}
        if self._chain is not None:
            outputs |= self._chain(lengths)
        probabilities, tags = probabilities_and_tags(outputs, tf.cast(present, tf.int32) - 1)
        return {"probabilities": probabilities, "tags": tags}


_READ = ("logits", "lengths", "transitions", "start", "end")
"""The outputs of a model that make probabilities and tags."""


def _present(arrays: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """float32 [B, L]: 1 where there is a token."""
    return tf.cast(tf.not_equal(arrays["tokens"] if "tokens" in arrays else arrays[TOKEN_MASK], 0), tf.float32)


def _located(encoding: TaggedTokenEncoding | TaggedPieceEncoding) -> tuple[tf.Module, dict[str, Any]]:
    """(the encoding in the graph, `input` of export.json)."""
    if isinstance(encoding, TaggedPieceEncoding):
        tables = tables_in_graph(encoding)
        located, kind = LocatedPieces(encoding, tables), PIECES
        length, size = encoding.max_length, len(tables.pieces)
    else:
        text_encoding = encoding.text_encoding
        characters = isinstance(text_encoding, CharacterEncoding)
        located, kind = LocatedWords(text_encoding, characters=characters), CHARACTERS if characters else WORDS
        length, size = text_encoding.max_length, len(text_encoding.vocabulary.words)
    source = {"name": "text", "kind": kind, "max_length": length, "vocabulary": size, "scheme": encoding.scheme}
    return located, source


def _in_joined_words(offsets: np.ndarray) -> np.ndarray:
    """Offsets [n, L, 2] of words in a text -> in the words joined by blanks."""
    present = offsets[..., 0] >= 0
    sizes = np.where(present, offsets[..., 1] - offsets[..., 0], 0)
    ends = (sizes + 1).cumsum(axis=1) - 1
    return np.where(present[..., np.newaxis], np.stack([ends - sizes, ends], axis=-1), NO_TOKEN)


def _made_up(encoding: TaggedTokenEncoding | TaggedPieceEncoding) -> list[str]:
    """Texts that are hard to tokenize or to count characters in, among them an empty one and long ones."""
    joined, known = " ".join(HARD_TEXTS), ""
    if isinstance(encoding, TaggedTokenEncoding):
        words = encoding.text_encoding.vocabulary.words
        known = (" " if not isinstance(encoding.text_encoding, CharacterEncoding) else "").join(words[:64])
    return [
        "",
        " ",
        "a",
        *HARD_TEXTS,
        joined,
        joined * 4,
        "宝宝\r\n咳嗽，\U0001f468\u200d\U0001f469 发烧3天了？",
        known,
        known * 4,
    ]
