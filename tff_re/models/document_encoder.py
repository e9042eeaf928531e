"""A pretrained transformer over whole documents, with localized contexts and a grouped bilinear classifier of pairs."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Literal

import attrs
import numpy as np
import tensorflow as tf
from attrs.validators import ge, optional

from computations.randomness import SeededDropout
from tff_re.errors import UserError
from tff_re.models.document_layers import (
    LARGEST_WINDOW,
    DocumentPieces,
    EntityPooling,
    GroupedBilinear,
    LocalizedContext,
    LowerDocumentPieces,
    PairLabels,
    PairRepresentations,
    TrimDocuments,
    UpperDocumentPieces,
    cached_layers,
    window_sizes,
)
from tff_re.models.document_windows import max_windows
from tff_re.models.encoders import EncoderModel, EncoderOptions, adapter_arguments, made
from tff_re.models.entity_types import EntityTypes
from tff_re.models.frozen_layers import assign_lower
from tff_re.models.inputs import DocumentInput, HiddenInput, pieces_of
from tff_re.models.pairs import adaptive_threshold_losses, binary_losses, pair_statistics
from tff_re.models.pretrained import load_config, main_layer, positions, require_vocabulary, source_of
from tff_re.models.text_layers import keras_inputs

INFERENCE_BATCH = 2
"""Documents at once where no gradients are taken. With more of them the padding costs more than it saves in calls."""


@attrs.frozen(kw_only=True)
class Options(EncoderOptions):
    """Attributes:
    width: of a pair's two representations z (FedLCC, Eqs. 6 and 7); the encoder's if not set.
    block_size: numbers in a group of the bilinear classifier; divides the width.
    type_embedding: width of a vector for an entity's type, which is joined to the entity's representation; 0: the
      model is not told the types.
    loss: `bce`: every relation on its own (FedLCC, Eq. 11), predicted from the threshold that is best on dev;
      `adaptive_threshold`: ATLOP's, with a threshold class, predicted where it scores higher than that class.
    window: most pieces that the encoder reads at once; what it can read, and at most 512, if not set.
    overlap: the fewest pieces that two windows of a longer document share; a quarter of the window if not set.
    recompute: whether training computes the inner values of the encoder's layers once more for the gradient, in place
      of keeping them, which takes more time and far less memory; if not set, where the task's documents can be longer
      than a window.
    """

    width: int | None = attrs.field(default=None, validator=optional(ge(1)))
    block_size: int = attrs.field(default=64, validator=ge(1))
    type_embedding: int = attrs.field(default=0, validator=ge(0))
    loss: Literal["bce", "adaptive_threshold"] = "bce"
    window: int | None = attrs.field(default=None, validator=optional(ge(4)))
    overlap: int | None = attrs.field(default=None, validator=optional(ge(0)))
    recompute: bool | None = None


class DocumentEncoder(EncoderModel):
    Options = Options
    takes = (DocumentInput,)

    def build(self, options: Options, inputs: DocumentInput | HiddenInput, num_classes: int) -> tf.keras.Model:
        """Documents -> a row for each of their N pairs, in their order (FedLCC, Section 3.2, Eqs. 1-10).

        `logits` [N, R]: of a relation (minus the threshold's, with the adaptive loss); it is predicted above zero;
        `features` [N, 2 w]: z_s and z_o, the classifier's input; `context` [N, d]: the localized context;
        `pair_labels` [N, R]. The number of classes is that of the task's labels; the relations are the inputs'.

        Raises:
          UserError: there is no such encoder, or the options do not fit it.
        """
        del num_classes
        pieces = pieces_of(inputs)
        source = source_of(options, pieces)
        config = load_config(source)
        arrays = keras_inputs(inputs)
        if pieces is inputs:
            first, encoder = "input_ids", _document_pieces(options, inputs, source, config)
        else:
            first, encoder = "hidden", _upper_layers(options, inputs, source, config)
            arrays["hidden"] = tf.keras.Input([None, None, inputs.shape[-1]], dtype=tf.float16, name="hidden")
        trimmed = TrimDocuments(name="trim")(arrays)
        encoded = encoder({name: trimmed[name] for name in (first, "attention_mask", "mention_place")})
        mentions = {name: trimmed[name] for name in ("mention_place", "mention_entity")}
        pairs = {name: trimmed[name] for name in ("pair_head", "pair_tail")}
        of_entities = EntityPooling(name="entities")({**encoded, **mentions})
        context = LocalizedContext(name="context")(
            {"outputs": encoded["outputs"], "attention": of_entities["attention"], **pairs}
        )
        entities, width = of_entities["entities"], _width(options, source, config)
        if options.type_embedding:
            types = EntityTypes(pieces.num_types, options.type_embedding, name="types")
            entities = types({"entities": entities, "entity_type": trimmed["entity_type"]})
        features = PairRepresentations(width, name="pairs")({"entities": entities, "context": context, **pairs})
        features = SeededDropout(options.dropout, name="dropout")(features)
        relations = pieces.num_relations
        if options.loss == "adaptive_threshold":
            scores = GroupedBilinear(relations + 1, options.block_size, name="classifier")(features)
            logits = scores[:, 1:] - scores[:, :1]
        else:
            logits = GroupedBilinear(relations, options.block_size, name="classifier")(features)
        labels = PairLabels(name="labels")({"pair_labels": trimmed["pair_labels"], "pair_head": trimmed["pair_head"]})
        outputs = {"logits": logits, "features": features, "context": context, "pair_labels": labels}
        return tf.keras.Model(arrays, outputs, name="document_encoder")

    def of_any_size(self, options: Options, inputs: DocumentInput) -> tf.keras.Model:
        """The model for documents of any number of pieces, mentions and pairs; it takes no gradients."""
        free = dataclasses.replace(inputs, max_length=None, max_mentions=None, max_pairs=None, max_entities=None)
        return self.build(attrs.evolve(options, recompute=False), free, inputs.num_relations)

    def local_parts(self, options: Options) -> dict[str, Any]:
        return {
            "classifier": None,  # not a dense layer, whose rows could stand for classes
            "losses": binary_losses if options.loss == "bce" else adaptive_threshold_losses,
            "statistics": pair_statistics,
            "rows": "pair_head",
            "inference_batch": INFERENCE_BATCH,
            "mask": "attention_mask",
            "threshold": None if options.loss == "bce" else 0.5,
        }

    def precompute(self, options: Options, inputs: DocumentInput, seed: int):
        """As `EncoderModel.precompute`. Documents' windows are run through the frozen layers one by one.

        A model that reads types gets them with its inputs.
        """
        if options.type_embedding and not pieces_of(inputs).typed:
            inputs = _typed(inputs)
            return self.precompute(options, inputs, seed) or (inputs, None)
        if isinstance(inputs, HiddenInput) or not options.frozen_layers:
            return super().precompute(options, inputs, seed)
        whole = self.frozen_encoder(options, inputs, seed)
        lower = _lower_layers(options, inputs, whole)
        window = min(lower.window, inputs.max_length)
        windows = max_windows(inputs.max_length, lower.window, lower.overlap)
        shape = (windows, window, whole.main.config.hidden_size)
        hidden_of = tf.function(
            lambda ids, mask: lower({"input_ids": ids, "attention_mask": mask}), reduce_retracing=True
        )

        def run(arrays):
            ids, mask = arrays["input_ids"], arrays["attention_mask"]
            hidden = np.zeros((len(ids), *shape), np.float16)
            for start in range(0, len(ids), INFERENCE_BATCH):
                rows = slice(start, start + INFERENCE_BATCH)
                longest = max(2, int(mask[rows].sum(axis=1).max()))
                output = hidden_of(tf.constant(ids[rows, :longest]), tf.constant(mask[rows, :longest])).numpy()
                hidden[rows, : output.shape[1], : output.shape[2]] = output
            return {"hidden": hidden, **{name: array for name, array in arrays.items() if name != "input_ids"}}

        return self.hidden_input(options, inputs, shape, seed, whole), run

    def whole_form(
        self, options: Options, inputs: DocumentInput | HiddenInput, trained: tf.keras.Model, merged: bool = False
    ) -> tf.keras.Model:
        if not isinstance(inputs, HiddenInput):
            return super().whole_form(options, inputs, trained, merged)
        trained, whole = self.upper_form(options, inputs, trained, merged)
        arrays = keras_inputs(inputs.pieces)
        lower = _lower_layers(options, inputs.pieces, whole)
        hidden = lower({name: arrays[name] for name in ("input_ids", "attention_mask")})
        outputs = trained({**{n: arrays[n] for n in inputs.specs if n != "hidden"}, "hidden": hidden})
        return tf.keras.Model(arrays, outputs, name=trained.name)


MODEL = DocumentEncoder()


def _typed(inputs: DocumentInput) -> DocumentInput:
    """The inputs with the entities' types. Raises UserError where the task does not tell any."""
    if not inputs.num_types:
        raise UserError("model.type_embedding needs entities with types, which the data do not have; set it to 0")
    return dataclasses.replace(inputs, typed=True)


def _lower_layers(options: Options, inputs: DocumentInput, whole: DocumentPieces) -> LowerDocumentPieces:
    """The frozen layers of the whole encoder that run once."""
    config = copy.deepcopy(whole.main.config)
    config.num_hidden_layers = cached_layers(config.to_dict(), options.frozen_layers)
    lower = LowerDocumentPieces(
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


def _upper_layers(options: Options, inputs: HiddenInput, source: str, config) -> UpperDocumentPieces:
    readable = positions(main_layer(config), config)
    window, overlap = made(source, window_sizes, readable, options.window, options.overlap)
    return made(
        source,
        UpperDocumentPieces,
        config.to_dict(),
        options.encoder_dropout,
        options.frozen_layers,
        window,
        overlap,
        _recomputes(options, inputs.pieces),
        **adapter_arguments(options, inputs),
        dtype=options.precision,
        name="encoder",
    )


def _recomputes(options: Options, inputs: DocumentInput) -> bool:
    if options.recompute is None:
        return inputs.max_length > (options.window or LARGEST_WINDOW)
    return options.recompute


def _document_pieces(options: Options, inputs: DocumentInput, source: str, config) -> DocumentPieces:
    if options.pretrained and inputs.tokenizer is not None:
        require_vocabulary(config, source, inputs.vocabulary_size, 0)
    return made(
        source,
        DocumentPieces,
        config.to_dict(),
        max(inputs.vocabulary_size, config.vocab_size),
        options.encoder_dropout,
        options.frozen_layers,
        options.window,
        options.overlap,
        inputs.max_length is not None and _recomputes(options, inputs),
        **adapter_arguments(options, inputs),
        dtype=options.precision,
        name="encoder",
    )


def _width(options: Options, source: str, config) -> int:
    """Of z; UserError unless groups of the block size make it up."""
    width = config.hidden_size if options.width is None else options.width
    if width % options.block_size:
        raise UserError(
            f"encoder {source}: a width of {width} is no multiple of model.block_size, {options.block_size}; change "
            "that, or set model.width"
        )
    return width
