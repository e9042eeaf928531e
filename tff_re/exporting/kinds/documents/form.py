"""What is written of models of documents: pieces, mentions and pairs in, probabilities of relations out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import attrs
import numpy as np
import tensorflow as tf

from datasets.documents.corpus import DocumentCorpus, DocumentSample
from datasets.documents.encoding import DocumentEncoding, Widths, identified_pairs
from datasets.documents.pairs import PairRule, document_corpus
from datasets.documents.records import Document, EntityMention
from datasets.documents.scoring import gold_facts, score_pairs
from datasets.encoding_files import document_encoding_from_json, document_encoding_to_json
from tff_re.exporting.forms import HALF_TOLERANCE, Form, Probes, require_same, traced_once
from tff_re.exporting.layout import DEFAULT_SIGNATURE
from tff_re.exporting.places import MISFIT, NEEDED, ExportError
from tff_re.models.document_encoder import DocumentEncoder
from tff_re.models.document_layers import PairProbabilities
from tff_re.models.inputs import DocumentInput, HiddenInput, pieces_of

LABELS = "pair_labels"

MOST_PROBES = 6
"""Documents whose pairs are compared."""
MOST_MEASURED = 100
"""Documents that a quantised form is measured on."""


class DocumentForm(Form):
    """A model of whole documents: `serving_default` takes the arrays of a DocumentInput without the labels, all int32:
    `input_ids`, `attention_mask` [D, L], `mention_place`, `mention_entity` [D, M], `pair_head`, `pair_tail` [D, P], and
    `entity_type` [D, E] of a model that reads types. It gives `probabilities`, float32 [D, P, R]: of each relation on
    its own, 0 where there is no pair.

    D, L, M and P, and with `mention_entity` the number of entities, are free.
    """

    inputs = (DocumentInput,)
    for_onnx = for_tflite = False
    measure, unit, sample_unit = "f1", "documents", "documents"
    at_once = 4

    def __init__(self, trained, plain, inputs, encoding, probes):
        if isinstance(inputs, HiddenInput):
            self.tolerance = HALF_TOLERANCE
        inputs = pieces_of(inputs)
        if not inputs.typed:
            encoding = dataclasses.replace(encoding, types=())
        self._encoding, self._inputs, self._trained = encoding, inputs, trained
        self._probes = list(probes[:MOST_PROBES]) or _made_up(inputs.num_relations)
        self.source = {
            "name": "documents",
            "kind": "documents",
            "vocabulary": inputs.vocabulary_size,
            "relations": inputs.num_relations,
        }
        self.encoding_json = document_encoding_to_json(encoding)
        names = [name for name in inputs.specs if name != LABELS]
        self.core_specs = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        self.keras_model = _without_labels(plain, names, inputs.num_relations)
        self.core = self.small_core = traced_once(
            lambda arrays: self.keras_model(dict(arrays), training=False)["probabilities"]
        )
        self.resources = [self.keras_model]

    @staticmethod
    def check(inputs: DocumentInput | HiddenInput, encoding) -> None:
        if not isinstance(encoding, DocumentEncoding):
            raise ExportError(NEEDED.format("documents"))
        if pieces_of(inputs).vocabulary_size < len(encoding.tokenizer):
            raise ExportError(MISFIT)

    @staticmethod
    def plain(model: DocumentEncoder, options, inputs: DocumentInput, classes: int) -> tf.keras.Model:
        return model.of_any_size(options, inputs)

    @staticmethod
    def plain_whole(model: DocumentEncoder, options, inputs, trained: tf.keras.Model, weights) -> tf.keras.Model:
        whole = model.finished(options, inputs, pieces_of(inputs).num_relations, weights)
        pieces = dataclasses.replace(pieces_of(inputs), fixed=None)
        plain = model.of_any_size(attrs.evolve(options, adapter=None), pieces)
        plain.set_weights(whole.get_weights())
        return plain

    def probes(self) -> Probes:
        arrays = self.arrays(self._probes)
        # As in training: padded to the widths of all documents of the run.
        as_trained = self._encoded(self._encoding, self._probes, self._widths()).arrays
        tensors = {name: tf.constant(as_trained[name]) for name in self._inputs.specs}
        logits = self._trained(tensors, training=False)["logits"]
        expected = PairProbabilities()({"logits": logits, "pair_head": tensors["pair_head"]}).numpy()
        expected = expected[:, : arrays["pair_head"].shape[1]]
        return Probes(arrays, arrays, {DEFAULT_SIGNATURE: arrays}, expected)

    def check_ids(self, keras_model, signatures) -> None:
        stored = self._encoded(document_encoding_from_json(self.encoding_json), self._probes).arrays
        require_same(stored, self._encoded(self._encoding, self._probes).arrays, "the stored tokenizer")

    def arrays(self, samples: Sequence[DocumentSample]) -> dict[str, np.ndarray]:
        arrays = self._encoded(self._encoding, samples).arrays
        return {name: arrays[name] for name in self.core_specs}

    def measured(self, samples: Sequence[DocumentSample]) -> Sequence[DocumentSample]:
        return samples[:MOST_MEASURED]

    def graded(self, probabilities, samples, labels, threshold) -> tuple[float, int]:
        """F1 over the pairs of identifiers, as the task's scorer counts."""
        corpus = DocumentCorpus("measured", tuple(samples), tuple(labels))
        counted = score_pairs(probabilities, identified_pairs(samples), gold_facts(corpus), threshold)
        return counted.all.f1, len(samples)

    def _encoded(self, encoding, samples, widths: Widths | None = None):
        relations = tuple(f"relation {number}" for number in range(self._inputs.num_relations))
        return encoding.encode(DocumentCorpus("probes", tuple(samples), relations), widths=widths)

    def _widths(self) -> Widths:
        needed, inputs = self.arrays(self._probes), self._inputs
        names = ("input_ids", "mention_place", "pair_head", *(("entity_type",) if inputs.typed else ()))
        sizes = (inputs.max_length, inputs.max_mentions, inputs.max_pairs, inputs.max_entities)
        return Widths(*(max(needed[name].shape[1], size) for name, size in zip(names, sizes, strict=False)))


def _without_labels(model: tf.keras.Model, names: Sequence[str], relations: int) -> tf.keras.Model:
    """The model without its labels, which it hands on and does not read, and with a place for every pair."""
    arrays = {name: tf.keras.Input([None], dtype=tf.int32, name=name) for name in names}
    none = tf.zeros_like(tf.repeat(arrays["pair_head"][:, :, tf.newaxis], relations, axis=-1), tf.float32)
    logits = model({**arrays, LABELS: none})["logits"]
    probabilities = PairProbabilities(name="probabilities")({"logits": logits, "pair_head": arrays["pair_head"]})
    return tf.keras.Model(arrays, {"probabilities": probabilities}, name=f"{model.name}_of_pairs")


def _made_up(relations: int) -> list[DocumentSample]:
    """Two documents, of three and of four entities, every two of them a pair."""
    documents = []
    for number, words in enumerate((("a", "b", "c a"), ("a b", "c", "d", "e"))):
        text, mentions = "", []
        for entity, word in enumerate(words):
            for _ in range(1 + entity % 2):
                mentions.append(EntityMention(len(text), len(text) + len(word), "thing", (f"e{entity}",)))
                text += f"{word} and . "
        documents.append(Document(f"probe-{number}", text, 0, tuple(mentions), ()))
    names = tuple(f"relation {number}" for number in range(relations))
    return list(document_corpus(documents, PairRule((("thing", "thing"),), names), name="probes").samples)
