"""What a model is fed with, as far as building it needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from datasets.entities.tags import tag_names

if TYPE_CHECKING:  # a recipe's keys are checked without TensorFlow
    import tensorflow as tf

    from tff_re.models.fixed_weights import FixedWeights


def _spec(kind: str, *shape: int | None) -> tf.TensorSpec:
    import tensorflow as tf

    return tf.TensorSpec([None, *shape], kind)


@dataclass(frozen=True)
class DenseInput:
    """Feature vectors `x`, float32 [B, width]."""

    width: int

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        return {"x": _spec("float32", self.width)}


@dataclass(frozen=True)
class TokenInput:
    """Word or character ids `tokens`, int32 [B, max_length], right-padded with 0.

    Id 1 is out of vocabulary.

    `vectors` float32 [vocabulary_size, d] are the initial word vectors; None: the model learns its own.
    """

    vocabulary_size: int
    max_length: int
    vectors: np.ndarray | None = field(default=None, repr=False)

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        return {"tokens": _spec("int32", self.max_length)}


@dataclass(frozen=True)
class PieceInput:
    """A text as word pieces: `input_ids`, `attention_mask` int32 [B, max_length], as RelationInput's without markers.

    Attributes:
      vocabulary_size: Ids lie in [0, vocabulary_size).
      max_length: Width of a row.
      tokenizer: Folder or hub id of the word pieces' tokenizer.
      new_pieces: How many of the last ids the encoder's checkpoint does not know.
      fixed: Of the encoder with an adapter; None: no encoder is chosen yet, or it has none.
    """

    vocabulary_size: int
    max_length: int
    tokenizer: str | None = None
    new_pieces: int = 0
    fixed: FixedWeights | None = None

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        return {name: _spec("int32", self.max_length) for name in ("input_ids", "attention_mask")}


@dataclass(frozen=True)
class Tagged:
    """What tagged texts have in addition to their tokens, for K types, all int32:

    - `tags` [B, max_length]: a token's tag as `datasets.entities.tags` numbers them, -1 where there is no token. Models
      read where there are tokens; the tags themselves are for the loss;
    - `unrepresented` [B, K]: entities of each type that the tags do not hold;
    - `annotated` [B, K]: 1 where the text is annotated with the type.

    Attributes:
      vocabulary_size: Token ids lie in [0, vocabulary_size).
      max_length: Width of a row.
      entity_types: The types, in the order of their tags.
      scheme: `BIO` or `BIOES`.
      unannotated: What is trained where a text is not annotated with a type: the type is `left_out` of the loss, or
        expected as the round's `global_model` has it.
    """

    vocabulary_size: int
    max_length: int | None
    entity_types: tuple[str, ...]
    scheme: str
    unannotated: Literal["left_out", "global_model"] = field(default="left_out", kw_only=True)

    @property
    def tag_names(self) -> tuple[str, ...]:
        """The T tags: `O`, and 2 or 4 for each type."""
        return tag_names(self.entity_types, self.scheme)

    @property
    def num_tags(self) -> int:
        """T."""
        return len(self.tag_names)

    @property
    def tag_specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of the arrays above."""
        types = len(self.entity_types)
        return {
            "tags": _spec("int32", self.max_length),
            "unrepresented": _spec("int32", types),
            "annotated": _spec("int32", types),
        }


@dataclass(frozen=True)
class TaggedTokenInput(Tagged):
    """Words or characters that each get a tag: `tokens` as TokenInput's, and the arrays of Tagged.

    Attributes:
      vectors: As TokenInput's.
    """

    vectors: np.ndarray | None = field(default=None, repr=False)

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        return {"tokens": _spec("int32", self.max_length), **self.tag_specs}


@dataclass(frozen=True)
class TaggedPieceInput(Tagged):
    """Word pieces that each get a tag: `input_ids`, `attention_mask` as PieceInput's, and the arrays of Tagged.

    Attributes:
      tokenizer, new_pieces, fixed: As PieceInput's.
    """

    tokenizer: str | None = None
    new_pieces: int = 0
    fixed: FixedWeights | None = None

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        return {**{name: _spec("int32", self.max_length) for name in ("input_ids", "attention_mask")}, **self.tag_specs}


@dataclass(frozen=True)
class RelationInput:
    """A text with two marked mentions, all int32, as `datasets.text.relation_encoding` makes it.

    - `input_ids`, `attention_mask` [B, max_length]: `[CLS]`, pieces (or words) and markers, `[SEP]`, padding; the mask
      is 1 on all but the padding, which stands on the right;
    - `head_mask`, `tail_mask` [B, max_length]: 1 on what belongs to the mention, its markers not;
    - `head_start`, `tail_start` [B]: where the opening markers stand.

    Attributes:
      vocabulary_size: Ids lie in [0, vocabulary_size); markers included.
      max_length: Width of a row.
      tokenizer: Folder or hub id of the word pieces' tokenizer; None for words.
      vectors: float32 [vocabulary_size, d], initial word vectors; None: a model learns its own or brings them.
      new_pieces, fixed: As PieceInput's.
    """

    vocabulary_size: int
    max_length: int
    tokenizer: str | None = None
    vectors: np.ndarray | None = field(default=None, repr=False)
    new_pieces: int = 0
    fixed: FixedWeights | None = None

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        rows = ("input_ids", "attention_mask", "head_mask", "tail_mask")
        return {
            **{name: _spec("int32", self.max_length) for name in rows},
            **{name: _spec("int32") for name in ("head_start", "tail_start")},
        }


@dataclass(frozen=True)
class HiddenInput:
    """Inputs of word pieces after an encoder's frozen layers, which need not run again in every round.

    `hidden` float16 [B, *shape] in place of `input_ids`: the outputs of the highest frozen layer.

    Attributes:
      pieces: What the frozen layers read; `fixed` is of an adapter in the layers above them.
      shape: [max_length, width of the encoder] of texts; of those read in windows, as documents are, [windows, pieces
        in a window, width].
      seed: Of the run, which drew what the encoder's checkpoint does not have (the markers' vectors).
      new_rows: With an adapter, the vectors of the new pieces, float32 [new_pieces, d]: drawn, or its file's.
    """

    pieces: PieceInput | RelationInput | DocumentInput | TaggedPieceInput
    shape: tuple[int, ...]
    seed: int = field(compare=False)
    new_rows: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        specs = {name: spec for name, spec in self.pieces.specs.items() if name != "input_ids"}
        return {"hidden": _spec("float16", *self.shape), **specs}


@dataclass(frozen=True)
class BagInput:
    """Sentences in bags, as an exported model takes them.

    A model in training gets only the sentences.

    `bag` int32 [n], next to the arrays of the n sentences, says which bag each belongs to.

    Attributes:
      sentences: What a sentence is to the model.
      pooling: From the sentences' logits to a bag's scores, see `computations.bag_evaluation.build_bag_scores`.
    """

    sentences: RelationInput | HiddenInput
    pooling: str


@dataclass(frozen=True)
class DocumentInput:
    """Documents with their entities, mentions and candidate pairs, int32 except for the labels.

    - `input_ids`, `attention_mask` [B, max_length]: `[CLS]`, pieces and markers of the whole document, `[SEP]`,
      padding; the mask is 1 on all but the padding, which stands on the right;
    - `mention_place`, `mention_entity` [B, max_mentions]: where a mention's opening marker stands, and of which entity
      it is; -1 is padding. A mention of several entities stands once for each;
    - `pair_head`, `pair_tail` [B, max_pairs]: entities of a pair that is to be classified; -1 is padding. Entities of
      pairs have mentions;
    - `pair_labels` float32 [B, max_pairs, num_relations]: 1 where the relation holds of the pair. The model passes
      them on with its outputs, for the loss; it does not read them.
    - `entity_type` int32 [B, max_entities], for models that read types: each entity's, -1 where it has none.

    Attributes:
      vocabulary_size: Ids lie in [0, vocabulary_size); markers included.
      max_length, max_mentions, max_entities, max_pairs: Of a document.
      num_relations: R, relations that a pair may have, each on its own.
      tokenizer: Folder or hub id of the word pieces' tokenizer.
      new_pieces, fixed: As PieceInput's.
      num_types: How many types entities have.
      typed: Whether the model reads them.
    """

    vocabulary_size: int
    max_length: int
    max_mentions: int
    max_entities: int
    max_pairs: int
    num_relations: int
    tokenizer: str | None = None
    new_pieces: int = 0
    fixed: FixedWeights | None = None
    num_types: int = 0
    typed: bool = False

    @property
    def specs(self) -> Mapping[str, tf.TensorSpec]:
        """Name -> TensorSpec of a batch."""
        widths = {
            **dict.fromkeys(("input_ids", "attention_mask"), self.max_length),
            **dict.fromkeys(("mention_place", "mention_entity"), self.max_mentions),
            **dict.fromkeys(("pair_head", "pair_tail"), self.max_pairs),
            **({"entity_type": self.max_entities} if self.typed else {}),
        }
        return {
            **{name: _spec("int32", width) for name, width in widths.items()},
            "pair_labels": _spec("float32", self.max_pairs, self.num_relations),
        }


def unread_specs(inputs) -> Mapping[str, tf.TensorSpec]:
    """Name -> TensorSpec of a batch of what examples have and the model does not read: types of entities."""
    pieces = pieces_of(inputs)
    if not isinstance(pieces, DocumentInput) or pieces.typed or not pieces.num_types:
        return {}
    return {name: s for name, s in replace(pieces, typed=True).specs.items() if name not in pieces.specs}


def trained_in_parts(inputs) -> bool:
    """Whether the model in training is a part of the whole: after frozen layers, or with fixed weights."""
    return isinstance(inputs, HiddenInput) or getattr(inputs, "fixed", None) is not None


def pieces_of(inputs):
    """The word pieces of inputs, before any frozen layers."""
    return inputs.pieces if isinstance(inputs, HiddenInput) else inputs
