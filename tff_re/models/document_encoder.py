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
    DocumentPieces,
    EntityPooling,
    GroupedBilinear,
    LocalizedContext,
    PairLabels,
    PairRepresentations,
    TrimDocuments,
    UpperDocumentPieces,
    cached_layers,
)
from tff_re.models.entity_types import EntityTypes
from tff_re.models.inputs import DocumentInput, HiddenInput, pieces_of
from tff_re.models.pairs import adaptive_threshold_losses, binary_losses, pair_statistics
from tff_re.models.pretrained import load_config, source_of
from tff_re.models.windowed_encoders import WindowedEncoderModel, WindowOptions, windowed_inputs

INFERENCE_BATCH = 2
"""Documents at once where no gradients are taken. With more of them the padding costs more than it saves in calls."""


@attrs.frozen(kw_only=True)
class Options(WindowOptions):
    """Attributes:
    width: of a pair's two representations z (FedLCC, Eqs. 6 and 7); the encoder's if not set.
    block_size: numbers in a group of the bilinear classifier; divides the width.
    type_embedding: width of a vector for an entity's type, which is joined to the entity's representation; 0: the
      model is not told the types.
    loss: `bce`: every relation on its own (FedLCC, Eq. 11), predicted from the threshold that is best on dev;
      `adaptive_threshold`: ATLOP's, with a threshold class, predicted where it scores higher than that class.
    """

    width: int | None = attrs.field(default=None, validator=optional(ge(1)))
    block_size: int = attrs.field(default=64, validator=ge(1))
    type_embedding: int = attrs.field(default=0, validator=ge(0))
    loss: Literal["bce", "adaptive_threshold"] = "bce"


class DocumentEncoder(WindowedEncoderModel):
    Options = Options
    takes = (DocumentInput,)
    whole_layer, upper_layer = DocumentPieces, UpperDocumentPieces
    inference_batch = INFERENCE_BATCH

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
        arrays = windowed_inputs(inputs)
        trimmed = TrimDocuments(name="trim")(arrays)
        first = "input_ids" if pieces is inputs else "hidden"
        encoded = self.encoder_layer(options, inputs)(
            {name: trimmed[name] for name in (first, "attention_mask", "mention_place")}
        )
        mentions = {name: trimmed[name] for name in ("mention_place", "mention_entity")}
        pairs = {name: trimmed[name] for name in ("pair_head", "pair_tail")}
        of_entities = EntityPooling(name="entities")({**encoded, **mentions})
        context = LocalizedContext(name="context")(
            {"outputs": encoded["outputs"], "attention": of_entities["attention"], **pairs}
        )
        entities, width = of_entities["entities"], _width(options, source, load_config(source))
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
        """The model for documents of any number of pieces, mentions and pairs, which takes no gradients."""
        free = dataclasses.replace(inputs, max_length=None, max_mentions=None, max_pairs=None, max_entities=None)
        return self.build(attrs.evolve(options, recompute=False), free, inputs.num_relations)

    def cached_layers(self, config, frozen_layers: int) -> int:
        return cached_layers(config, frozen_layers)

    def local_parts(self, options: Options, inputs: Any) -> dict[str, Any]:
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
        """As `WindowedEncoderModel.precompute`. A model that reads types gets them with its inputs.

        Raises:
          UserError: the model reads types and the task's entities have none.
        """
        if options.type_embedding and not pieces_of(inputs).typed:
            inputs = _typed(inputs)
            return super().precompute(options, inputs, seed) or (inputs, None)
        return super().precompute(options, inputs, seed)


MODEL = DocumentEncoder()


def _typed(inputs: DocumentInput) -> DocumentInput:
    """The inputs with the entities' types. Raises UserError where the task does not tell any."""
    if not inputs.num_types:
        raise UserError("model.type_embedding needs entities with types, but the data have none; set it to 0")
    return dataclasses.replace(inputs, typed=True)


def _width(options: Options, source: str, config) -> int:
    """The width of z.

    Raises UserError unless groups of the block size make it up.
    """
    width = config.hidden_size if options.width is None else options.width
    if width % options.block_size:
        raise UserError(
            f"encoder {source}: its width {width} is not a multiple of model.block_size, {options.block_size}; "
            "change model.block_size, or set model.width"
        )
    return width
