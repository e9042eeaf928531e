"""A pretrained transformer over whole documents, with localized contexts and a grouped bilinear classifier of pairs."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import attrs
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
    PairLabels,
    PairRepresentations,
    TrimDocuments,
)
from tff_re.models.inputs import DocumentInput
from tff_re.models.pairs import adaptive_threshold_losses, binary_losses, pair_statistics
from tff_re.models.pretrained import assign_pretrained, load_config, require_vocabulary, source_of
from tff_re.models.text_layers import keras_inputs
from tff_re.settings import BELOW_ONE

TAKES = (DocumentInput,)

INFERENCE_BATCH = 4
"""Documents at once where no gradients are taken."""


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    encoder: folder or hub id of a BERT, RoBERTa, DistilBERT or ELECTRA; the task's tokenizer if not set.
    pretrained: whether training starts from its weights; else from random ones of the same form.
    width: of a pair's two representations z (FedLCC, Eqs. 6 and 7); the encoder's if not set.
    block_size: numbers in a group of the bilinear classifier; divides the width.
    loss: `bce`: every relation on its own (FedLCC, Eq. 11); `adaptive_threshold`: ATLOP's, with a threshold class.
    encoder_dropout: rate inside of the encoder; its own configuration's if not set.
    dropout: rate on what the classifier sees.
    frozen_layers: if at least 1, the embeddings and so many of the lowest layers are not trained; they run in every
      step like the others.
    window: most pieces that the encoder reads at once; what it can read, and at most 512, if not set.
    overlap: the fewest pieces that two windows of a longer document share; a quarter of the window if not set.
    recompute: whether training computes the inner values of the encoder's layers once more for the gradient, in place
      of keeping them, which takes more time and far less memory; if not set, where the task's documents can be longer
      than a window.
    precision: of the encoder's arithmetic; weights, moments and all behind it are float32 in both.
    """

    encoder: str | None = None
    pretrained: bool = True
    width: int | None = attrs.field(default=None, validator=optional(ge(1)))
    block_size: int = attrs.field(default=64, validator=ge(1))
    loss: Literal["bce", "adaptive_threshold"] = "bce"
    encoder_dropout: float | None = attrs.field(default=None, validator=optional(BELOW_ONE))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    frozen_layers: int = attrs.field(default=0, validator=ge(0))
    window: int | None = attrs.field(default=None, validator=optional(ge(4)))
    overlap: int | None = attrs.field(default=None, validator=optional(ge(0)))
    recompute: bool | None = None
    precision: Literal["float32", "mixed_bfloat16"] = "float32"


def build(options: Options, inputs: DocumentInput, num_classes: int) -> tf.keras.Model:
    """Documents -> a row for each of their N pairs, in their order (FedLCC, Section 3.2, Eqs. 1-10).

    `logits` [N, R]: of a relation (minus the threshold's, with the adaptive loss), so that it is predicted above zero;
    `features` [N, 2 w]: z_s beside z_o, the classifier's input; `context` [N, d]: the localized context;
    `pair_labels` [N, R]. The number of classes is that of the task's labels; the relations are the inputs'.

    Raises:
      UserError: there is no such encoder, or the options do not fit it.
    """
    del num_classes
    source = source_of(options, inputs)
    config = load_config(source)
    arrays = keras_inputs(inputs)
    trimmed = TrimDocuments(name="trim")(arrays)
    encoder = _document_pieces(options, inputs, source, config)
    encoded = encoder({name: trimmed[name] for name in ("input_ids", "attention_mask", "mention_place")})
    mentions = {name: trimmed[name] for name in ("mention_place", "mention_entity")}
    pairs = {name: trimmed[name] for name in ("pair_head", "pair_tail")}
    of_entities = EntityPooling(name="entities")({**encoded, **mentions})
    context = LocalizedContext(name="context")(
        {"outputs": encoded["outputs"], "attention": of_entities["attention"], **pairs}
    )
    width = _width(options, source, config)
    features = PairRepresentations(width, name="pairs")(
        {"entities": of_entities["entities"], "context": context, **pairs}
    )
    features = SeededDropout(options.dropout, name="dropout")(features)
    relations = inputs.num_relations
    if options.loss == "adaptive_threshold":
        scores = GroupedBilinear(relations + 1, options.block_size, name="classifier")(features)
        logits = scores[:, 1:] - scores[:, :1]
    else:
        logits = GroupedBilinear(relations, options.block_size, name="classifier")(features)
    labels = PairLabels(name="labels")({"pair_labels": trimmed["pair_labels"], "pair_head": trimmed["pair_head"]})
    outputs = {"logits": logits, "features": features, "context": context, "pair_labels": labels}
    return tf.keras.Model(arrays, outputs, name="document_encoder")


def of_any_size(options: Options, inputs: DocumentInput) -> tf.keras.Model:
    """The model for documents of any number of pieces, mentions and pairs; it takes no gradients."""
    free = dataclasses.replace(inputs, max_length=None, max_mentions=None, max_pairs=None)
    return build(attrs.evolve(options, recompute=False), free, inputs.num_relations)


def build_plain(options: Options, inputs: DocumentInput, num_classes: int) -> tf.keras.Model:
    """The same model: a transformer has no form of stock Keras layers. Loading it takes this project's code."""
    return build(options, inputs, num_classes)


def local_parts(options: Options) -> dict[str, Any]:
    """What a LocalModel of this model has in place of a single-label classifier's."""
    return {
        "classifier": None,  # not a dense layer, whose rows could stand for classes
        "losses": binary_losses if options.loss == "bce" else adaptive_threshold_losses,
        "statistics": pair_statistics,
        "rows": "pair_head",
        "inference_batch": INFERENCE_BATCH,
    }


def initialise(options: Options, inputs: DocumentInput):
    """What brings a new model to its initial weights beyond its own initialisers: the pretrained encoder; or None."""
    if not options.pretrained:
        return None
    source = source_of(options, inputs)
    return lambda model: assign_pretrained(model.get_layer("encoder"), source)


def _document_pieces(options: Options, inputs: DocumentInput, source: str, config) -> DocumentPieces:
    if options.pretrained and inputs.tokenizer is not None:
        require_vocabulary(config, source, inputs.vocabulary_size, 0)
    try:
        return DocumentPieces(
            config.to_dict(),
            max(inputs.vocabulary_size, config.vocab_size),
            options.encoder_dropout,
            options.frozen_layers,
            options.window,
            options.overlap,
            inputs.max_length > (options.window or LARGEST_WINDOW) if options.recompute is None else options.recompute,
            dtype=options.precision,
            name="encoder",
        )
    except ValueError as error:
        raise UserError(f"encoder {source}: {error}") from None


def _width(options: Options, source: str, config) -> int:
    """Of z; UserError unless groups of the block size make it up."""
    width = config.hidden_size if options.width is None else options.width
    if width % options.block_size:
        raise UserError(
            f"encoder {source}: a width of {width} is no multiple of model.block_size, {options.block_size}; change "
            "that, or set model.width"
        )
    return width
