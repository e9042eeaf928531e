"""Models that give each token of a text a tag: layers, losses, and entities found and missed, in the graph.

Such a model's outputs have a row per token of its texts, N in all, as `LocalModel.rows` says: `logits` [N, T] and
`features` [N, d]; and for its losses and statistics `lengths` int32 [B], the rows of each text, `unrepresented` and
`annotated` int32 [B, K] as `inputs.Tagged` has them, and with a CRF the scores of a `Chain` by name. Tags are numbered
as in `datasets.entities.tags`: 0 is outside, a type has a block of 2 tags (BIO) or 4 (BIOES).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from computations.local_model import GLOBAL
from tff_re.models.crf import (
    LEFT_OUT,
    Chain,
    expected_scores,
    log_likelihood,
    log_partition,
    marginals,
    viterbi,
    with_allowed,
)
from tff_re.models.inputs import Tagged

Outputs = Mapping[str, tf.Tensor]


@tf.keras.utils.register_keras_serializable("tff_re")
class TrimTagged(tf.keras.layers.Layer):
    """The arrays of a TaggedTokenInput, a TaggedPieceInput or a HiddenInput of one, cut to the batch's longest text.

    `hidden` stays in its type. Arrays without a place for each token stay as they are.
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, inputs):
        present = inputs["attention_mask"] if "attention_mask" in inputs else inputs["tokens"]
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(present, 0), tf.int32), axis=-1)
        longest = tf.maximum(tf.reduce_max(lengths), 1)
        trimmed = {name: tf.identity(value) for name, value in inputs.items()}
        for name in ("tokens", "input_ids", "attention_mask", "tags", "hidden"):
            if name in inputs:
                in_windows = inputs[name].shape.rank == 4
                trimmed[name] = inputs[name][:, :, :longest] if in_windows else inputs[name][:, :longest]
        return trimmed


@tf.keras.utils.register_keras_serializable("tff_re")
class TokenRows(tf.keras.layers.Layer):
    """{`outputs` [B, l, d], `tags` [B, l]} -> {`rows` [N, d], `lengths` int32 [B]}.

    `rows` are those of the tokens.
    """

    def call(self, inputs):
        tokens = inputs["tags"] >= 0
        return {
            "rows": tf.gather_nd(inputs["outputs"], tf.where(tokens)),
            "lengths": tf.reduce_sum(tf.cast(tokens, tf.int32), axis=-1),
        }


@tf.keras.utils.register_keras_serializable("tff_re")
class TokenTags(tf.keras.layers.Layer):
    """A model's outputs and its input `tags` [B, L] -> `probabilities_and_tags`, by name."""

    def call(self, inputs):
        outputs = {name: value for name, value in inputs.items() if name != "tags"}
        probabilities, tags = probabilities_and_tags(outputs, inputs["tags"])
        return {"probabilities": probabilities, "tags": tags}


def padded(rows: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """[N, ...] -> [B, L, ...]: each text's rows, followed by zeros.

    L is at least 1.

    Args:
      rows: of the texts, one after the other.
      lengths: int32 [B], rows of each text.
    """
    longest = tf.maximum(tf.reduce_max(tf.concat([lengths, [1]], 0)), 1)
    return at_tokens(rows, tf.sequence_mask(lengths, longest, dtype=tf.bool))


def unpadded(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """[B, L, ...] -> [N, ...], the reverse of `padded`."""
    return tf.boolean_mask(values, tf.sequence_mask(lengths, tf.shape(values)[1]))


def allowed_tags(annotated: tf.Tensor, num_tags: int) -> tf.Tensor:
    """bool [B, T]: outside, and the tags of the types that a text is annotated with."""
    block = (num_tags - 1) // annotated.shape[-1]
    return tf.pad(tf.repeat(annotated > 0, block, axis=-1), [[0, 0], [1, 0]], constant_values=True)


def tag_losses(labels: tf.Tensor, outputs: Outputs) -> tf.Tensor:
    """The loss of each row, float32 [N]: -log p(tag).

    With a CRF it is its text's -log p(tags) over the number of its rows.

    The probability is among the tags of types that the text is annotated with, and outside; a tag of another type
    counts as outside, as it would stand in a text that is not annotated with the type. With the global model's outputs
    the loss is `_expected_losses`.

    Args:
      labels: int32 [N], the tags.
      outputs: see above.
    """
    logits, lengths = tf.cast(outputs["logits"], tf.float32), outputs["lengths"]
    if f"{GLOBAL}logits" in outputs:
        return _expected_losses(labels, logits, outputs)
    allowed = allowed_tags(outputs["annotated"], logits.shape[-1])
    text = _text_of(lengths)
    of_rows = tf.gather(allowed, text)
    labels = _outside_unless(of_rows, labels)
    if "transitions" not in outputs:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.where(of_rows, logits, LEFT_OUT))
    emissions = with_allowed(padded(logits, lengths), allowed)
    of_texts = -log_likelihood(padded(labels, lengths), emissions, lengths, _chain(outputs))
    return tf.gather(tf.math.divide_no_nan(of_texts, tf.cast(lengths, tf.float32)), text)


def _expected_losses(labels: tf.Tensor, logits: tf.Tensor, outputs: Outputs) -> tf.Tensor:
    """The mean of -log p(tag) over tags that the annotation leaves possible, float32 [N].

    With a CRF it is a text's over the number of its rows, as `tag_losses` has it.

    An annotated entity has its tag. Elsewhere outside and the types that the text is not annotated with are possible,
    with the probabilities that the round's global model gives them there (the q of Jie et al. 2019, "Better Modeling of
    Incomplete Annotations for Named Entity Recognition", NAACL, whose models are those of cross-validation). A text
    that is annotated with all types has the loss of its tags.
    """
    lengths, num_tags = outputs["lengths"], logits.shape[-1]
    text = _text_of(lengths)
    of_rows = tf.gather(allowed_tags(outputs["annotated"], num_tags), text)
    labels = _outside_unless(of_rows, labels)
    outside = tf.equal(tf.range(num_tags), 0)
    possible = tf.where((labels > 0)[:, tf.newaxis], tf.one_hot(labels, num_tags) > 0, outside | ~of_rows)
    expected = tf.where(possible, outputs[f"{GLOBAL}logits"], LEFT_OUT)
    if "transitions" not in outputs:
        return tf.nn.softmax_cross_entropy_with_logits(tf.stop_gradient(tf.nn.softmax(expected)), logits)
    emissions, chain = padded(logits, lengths), _chain(outputs)
    reference = Chain(*(outputs[f"{GLOBAL}{name}"] for name in Chain._fields))
    scores = expected_scores(emissions, lengths, chain, padded(expected, lengths), reference)
    of_texts = log_partition(emissions, lengths, chain) - scores
    return tf.gather(tf.math.divide_no_nan(of_texts, tf.cast(lengths, tf.float32)), text)


def tag_statistics(labels: tf.Tensor, outputs: Outputs) -> dict[str, tf.Tensor]:
    """Counts over texts, float32 [K] each except for the last.

    Of a text, only the types that it is annotated with count.

    - `true_positives`: predicted entities with the start, the end and the type of an annotated one;
    - `predicted`; `actual`: annotated ones, those that tags do not represent included;
    - `overlapping_predicted`: predicted entities that share a token with an annotated one of their type;
      `overlapping_actual`: annotated ones that share a token with a predicted one of their type (one that tags do not
      represent has no tokens, so it does not);
    - `correct_tags` [1]: rows whose tag is right; of a type that is not annotated as outside.

    Entities are those of the most likely tag of each token, with a CRF of the most likely tagging among all.

    Args: as `tag_losses`.
    """
    lengths, annotated = outputs["lengths"], outputs["annotated"]
    num_types, num_tags = annotated.shape[-1], outputs["logits"].shape[-1]
    of_rows = tf.gather(allowed_tags(annotated, num_tags), _text_of(lengths))
    tags, gold_tags = (_outside_unless(of_rows, values) for values in (best_tags(outputs), labels))
    predicted, gold = (spans(values, lengths, num_types, num_tags) for values in (tags, gold_tags))
    same_type = tf.equal(predicted.type, gold.type) & (gold.type >= 0)
    exact = predicted.begins & gold.begins & same_type & tf.equal(predicted.end, gold.end)

    def by_type(entities: Spans, counted: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(counted, tf.float32), entities.type, num_types)

    missing = tf.cast(outputs["unrepresented"] * tf.cast(annotated > 0, tf.int32), tf.float32)
    return {
        "true_positives": by_type(gold, exact),
        "predicted": by_type(predicted, predicted.begins),
        "actual": by_type(gold, gold.begins) + tf.reduce_sum(missing, axis=0),
        "overlapping_predicted": by_type(predicted, predicted.begins & _touches(predicted, same_type)),
        "overlapping_actual": by_type(gold, gold.begins & _touches(gold, same_type)),
        "correct_tags": tf.reduce_sum(tf.cast(tf.equal(tags, gold_tags), tf.float32))[tf.newaxis],
    }


class Spans(NamedTuple):
    """The entities that tags mean, by rows, [N] each, as `datasets.entities.tags.spans_of` decodes them.

    Attributes:
      type: int32, of the entity that a row belongs to, from 0; -1: of none.
      begins: bool, whether an entity begins at the row.
      end: int32, where one begins, the row after its last; else 0.
    """

    type: tf.Tensor
    begins: tf.Tensor
    end: tf.Tensor


def spans(tags: tf.Tensor, lengths: tf.Tensor, num_types: int, num_tags: int) -> Spans:
    """The entities of texts.

    Args:
      tags: int32 [N], of the texts' tokens, one text after the other; any tagging means some entities.
      lengths: int32 [B], tokens of each text.
      num_types, num_tags: K and T.
    """
    block = (num_tags - 1) // num_types
    inside = tags > 0
    types = tf.where(inside, (tags - 1) // block, -1)
    letters = tf.where(inside, (tags - 1) % block, -1)  # B, I, E, S
    text = _text_of(lengths)
    # The token before is of the same text and type, and ends no entity.
    follows = tf.equal(_before(text, -1), text) & tf.equal(_before(types, -1), types) & (_before(letters, -1) < 2)
    begins = inside & ~(follows & (tf.equal(letters, 1) | tf.equal(letters, 2)))
    goes_on = inside & ~begins
    ends = inside & ~tf.pad(goes_on, [[0, 1]], constant_values=False)[1:]
    # As many entities end as begin, in the same order.
    ends_behind = tf.cast(tf.where(ends)[:, 0], tf.int32) + 1
    return Spans(types, begins, tf.scatter_nd(tf.cast(tf.where(begins), tf.int32), ends_behind, tf.shape(tags)))


def best_tags(outputs: Outputs) -> tf.Tensor:
    """The most likely tag of each row, int32 [N], or with a CRF the text's most likely tagging."""
    logits, lengths = tf.cast(outputs["logits"], tf.float32), outputs["lengths"]
    if "transitions" not in outputs:
        return tf.argmax(logits, axis=-1, output_type=tf.int32)
    return unpadded(viterbi(padded(logits, lengths), lengths, _chain(outputs)), lengths)


def probabilities_and_tags(outputs: Outputs, tags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(the probability of each tag at each token, float32 [B, L, T], and their `best_tags`, int32 [B, L]).

    The probabilities are a CRF's marginals, else a softmax. Where there is no token they are 0, and the tag is -1.

    Args:
      outputs: of a model.
      tags: its input of that name, int32 [B, L]: not negative where there is a token.
    """
    logits, lengths = tf.cast(outputs["logits"], tf.float32), outputs["lengths"]
    if "transitions" in outputs:
        probabilities = unpadded(marginals(padded(logits, lengths), lengths, _chain(outputs)), lengths)
    else:
        probabilities = tf.nn.softmax(logits)
    present = tags >= 0
    return at_tokens(probabilities, present), at_tokens(best_tags(outputs) + 1, present) - 1


def at_tokens(rows: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    """[N, ...] -> [B, L, ...]: the rows at the tokens, and zero elsewhere.

    `present`, bool [B, L], says where there are tokens.
    """
    shape = tf.concat([tf.shape(present), tf.shape(rows)[1:]], 0)
    values = tf.scatter_nd(tf.cast(tf.where(present), tf.int32), rows, shape)
    return tf.ensure_shape(values, [*present.shape, *rows.shape[1:]])


def local_parts(inputs: Tagged, crf: bool) -> dict[str, Any]:
    """Fields of a `LocalModel` of tokens."""
    parts = {
        "classifier": "classifier",
        "losses": tag_losses,
        "statistics": tag_statistics,
        "rows": "tags",
        "row_labels": "tags",
    }
    if inputs.unannotated == "global_model":
        parts |= {"global_rows": ("logits",), "global_parts": Chain._fields if crf else ()}
    return parts


def _chain(outputs: Outputs) -> Chain:
    return Chain(*(tf.cast(outputs[name], tf.float32) for name in Chain._fields))


def _text_of(lengths: tf.Tensor) -> tf.Tensor:
    """int32 [N]: which text each row is of."""
    return tf.repeat(tf.range(tf.size(lengths)), lengths)


def _outside_unless(allowed: tf.Tensor, tags: tf.Tensor) -> tf.Tensor:
    """The tags int32 [N], or outside for those that are not among `allowed`, bool [N, T]."""
    return tf.where(tf.gather(allowed, tags, batch_dims=1), tags, 0)


def _before(values: tf.Tensor, first) -> tf.Tensor:
    """Of each row the value of the one before it, [N], and for the first row `first`."""
    return tf.pad(values, [[1, 0]], constant_values=first)[:-1]


def _touches(entities: Spans, rows: tf.Tensor) -> tf.Tensor:
    """bool [N]: whether the entity that begins at a row has one of these rows, bool [N]."""
    before = tf.pad(tf.cumsum(tf.cast(rows, tf.int32)), [[1, 0]])
    return tf.gather(before, entities.end) > before[:-1]
