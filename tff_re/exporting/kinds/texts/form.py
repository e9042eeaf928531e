"""What is written of models of texts, from stock Keras layers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_re.exporting.forms import Core, Form, Probes, softmax_of, stock
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.models.inputs import TokenInput

_SPLITS = {"words": "whitespace", "characters": "character"}
_RESERVED = ("", "[UNK]")


class TextForm(Form):
    """A model of texts: `text`, string [B], words joined by blanks or (characters) untouched.

    The ids are found by Keras' TextVectorization.
    """

    inputs = (TokenInput,)

    def __init__(self, trained, plain, inputs, encoding, probes):
        self._trained, self._encoding, self._probes = trained, encoding, list(probes)
        self.source = {
            "name": "text",
            "kind": _kind(encoding),
            "max_length": inputs.max_length,
            "vocabulary": len(encoding.vocabulary),
        }
        self.encoding_json = encoding.to_json()
        padding = trained({"tokens": tf.zeros([1, inputs.max_length], tf.int32)}, training=False)["logits"][0].numpy()
        ids = tf.keras.Input([inputs.max_length], dtype=tf.int64, name="tokens")
        logits = plain({"tokens": ids})["logits"]
        # Keras' own mean under a mask divides by zero for a text without words; the answer to it is a constant.
        has_words = tf.reduce_any(tf.not_equal(ids, 0), axis=-1, keepdims=True)
        logits = tf.where(has_words, logits, [float(value) for value in padding])
        before_softmax = tf.keras.Model(ids, logits)
        known = tf.keras.Model(ids, tf.keras.layers.Softmax(name="probabilities")(logits), name=plain.name)
        text = tf.keras.Input([], dtype=tf.string, name="text")
        self._to_ids = tf.keras.layers.TextVectorization(
            standardize=None,
            split=_SPLITS[_kind(encoding)],
            vocabulary=list(encoding.vocabulary.words),
            output_sequence_length=encoding.max_length,
            name="ids",
        )
        outputs = {"probabilities": known(self._to_ids(text))}
        self.keras_model = stock(tf.keras.Model(text, outputs, name=plain.name + "_of_text"))
        self.core = self.small_core = lambda arrays: known(arrays["tokens"], training=False)
        self.logits = lambda arrays: before_softmax(arrays["tokens"], training=False)
        self.core_specs, self.tables = inputs.specs, [self._to_ids]
        self.resources = [self.keras_model]

    @staticmethod
    def check(inputs: TokenInput, encoding) -> None:
        if encoding is None:
            raise ExportError(NEEDED.format("texts"))
        words = encoding.vocabulary.words
        if inputs.max_length != encoding.max_length or inputs.vocabulary_size != len(words) + 2:
            raise ExportError(MISFIT)
        # Keras would take '[UNK]' for a word of its own and shift all ids after it.
        if len(set(words)) != len(words) or any(word in _RESERVED for word in words):
            raise ExportError("the vocabulary has a duplicate word, an empty word or '[UNK]'; build it without them")
        # Keras keeps its vocabulary in a NumPy array of strings, which drops trailing NULs.
        if any(word.endswith("\x00") for word in words):
            raise ExportError(
                "the vocabulary has a word that ends with a NUL character; remove NUL characters from the texts"
            )

    def endpoints(self, core: Core) -> dict[str, Callable]:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
        def serve(text):
            return {"probabilities": core({"tokens": tf.cast(self._to_ids(text), tf.int32)})}

        return {DEFAULT_SIGNATURE: serve}

    def probes(self) -> Probes:
        texts, ids = self._texts_and_ids()
        expected = softmax_of(self._trained)({"tokens": tf.constant(ids)}).numpy()
        return Probes({"tokens": ids}, tf.constant(texts), {DEFAULT_SIGNATURE: {"text": texts}}, expected)

    def check_ids(self, keras_model, signatures) -> None:
        layer = self._to_ids if keras_model is None else keras_model.get_layer("ids")
        texts, ids = self._texts_and_ids()
        words = self._encoding.vocabulary.words
        known = [layer(tf.constant(words[i : i + 2048])).numpy()[:, 0] for i in range(0, len(words), 2048)]
        for what, exported, expected in (
            ("a probe text", layer(tf.constant(texts)).numpy(), ids),
            ("a word of the vocabulary", np.concatenate(([], *known)), np.arange(2, len(words) + 2)),
        ):
            if not np.array_equal(exported, expected):
                raise ExportError(
                    f"the exported graph gives {what} a different id from the encoding, so the encoding cannot be "
                    "exported"
                )

    def arrays(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"tokens": self._encoding.encode([sample.text for sample in samples])}

    def _texts_and_ids(self) -> tuple[list[str], np.ndarray]:
        texts, ids = _known_texts(self._encoding)
        if self._probes:
            probe_texts = [probe if isinstance(probe, str) else probe.text for probe in self._probes]
            texts += [self._encoding.prepare(text) for text in probe_texts]
            ids = np.concatenate([ids, self._encoding.encode(probe_texts)])
        return texts, ids


def _kind(encoding) -> str:
    kind = json.loads(encoding.to_json()).get("encoding")
    if kind not in _SPLITS:
        raise ExportError(f"an encoding of kind {kind!r} cannot be exported; valid: {', '.join(sorted(_SPLITS))}")
    return kind


def _known_texts(encoding) -> tuple[list[str], np.ndarray]:
    """Prepared texts of the vocabulary's words and their ids, int32 [n, max_length]: empty, short, full, too long."""
    words, length = encoding.vocabulary.words, encoding.max_length
    unknown = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in words)  # private use: in no text
    blank = {"words": " ", "characters": ""}[_kind(encoding)]
    random = np.random.default_rng(0)
    texts, ids = [], np.zeros([12, length], np.int32)
    for row, count in zip(ids, [0, 1, length, length + 1, 4 * length, *random.integers(1, length + 1, 7)], strict=True):
        drawn = random.integers(1, len(words) + 2, count)
        texts.append(blank.join(unknown if i == 1 else words[i - 2] for i in drawn))
        row[: min(count, length)] = drawn[:length]
    return texts, ids
