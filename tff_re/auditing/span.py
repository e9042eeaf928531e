"""Which word pieces of a sentence the gradient of an encoder's first query projection tells (DAGER, Petrov et al. 2024,
"DAGER: Exact Gradient Inversion for Large Language Models", Section 4).

The projection is Q = X W with X [l, d] the embeddings of a sentence's pieces, so that its gradient is X^T dQ: its
columns are sums of the pieces' embeddings. Where its rank is below d, almost no other vector lies in their span, and
whoever knows the public embeddings tries all pieces at all places, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from computations.local_model import LocalModel
from tff_re.models.inputs import DocumentInput, HiddenInput, PieceInput, RelationInput, TaggedPieceInput

QUERIES = ("query/kernel", "q_lin/kernel")
"""The end of the query projection's name, BERT's and DistilBERT's."""

RANK_TOLERANCE = 1e-5
"""Singular values below this share of the largest one are rounding errors of float32."""

DISTANCE = 1e-2
"""A vector lies in the span where its distance to it is at most this share of its length."""


@dataclass(frozen=True)
class Spanned:
    """What one gradient told.

    Attributes:
      pieces: (place, piece) pairs that there were.
      right: those of them that lie in the span.
      wrong: other (place, piece) pairs that do.
      tried: all (place, piece) pairs that were tried.
      rank: of the gradient.
      width: d; a rank of d tells nothing.
    """

    pieces: int
    right: int
    wrong: int
    tried: int
    rank: int
    width: int


def not_applicable(inputs, model: LocalModel) -> str | None:
    """Why the check says nothing of a model, or None."""
    if isinstance(inputs, HiddenInput):
        return (
            "the lowest trained layer reads the outputs of frozen layers, which depend on the whole sentence, so "
            "word pieces cannot be tested one by one; whole guessed sentences could still be tested"
        )
    if isinstance(inputs, DocumentInput):
        return "documents are read in overlapping windows, which the check does not support"
    if isinstance(inputs, TaggedPieceInput):
        return "each word piece has a tag, but the check supports only texts with one label"
    if not isinstance(inputs, PieceInput | RelationInput) or inputs.tokenizer is None:
        return "the model has no pretrained encoder"
    if inputs.fixed is not None:
        return (
            "an adapter is trained: the gradients of its matrices A and B have at most as many dimensions as its "
            "rank, fewer than a sentence has word pieces, so no single piece's vector lies in their span; B starts "
            "at zero, and so does A's gradient"
        )
    if _query(model) is None:
        return "the encoder's first query projection was not found among the trained weights"
    return None


def _query(model: LocalModel) -> int | None:
    """The place of the lowest layer's query projection among the trained weights."""
    return next((i for i, name in enumerate(model.weight_names) if name.endswith(QUERIES)), None)


def query_change(model: LocalModel, update) -> np.ndarray:
    """The part of an update [d, d] that the check reads."""
    return np.asarray(update[_query(model)])


def query_gradient(model: LocalModel, keras: tf.keras.Model, examples) -> np.ndarray:
    """The gradient [d, d] of the mean loss of examples, without dropout: the attacker's best case."""
    features = {name: tf.constant(value) for name, value in examples.items() if name != "y"}
    variable = keras.trainable_variables[_query(model)]
    with tf.GradientTape() as tape:
        losses = model.losses(tf.constant(examples["y"]), keras(features, training=False))
        loss = tf.reduce_mean(losses)
    return np.asarray(tape.gradient(loss, variable))


def column_space(gradient: np.ndarray) -> np.ndarray:
    """An orthonormal basis [d, r] of a gradient's columns."""
    vectors, values, _ = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    if not values.size or values[0] == 0:
        return vectors[:, :0]
    return vectors[:, values > RANK_TOLERANCE * values[0]]


def in_span(basis: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """bool [n]: which of the vectors [n, d] lie in the span of a basis [d, r]."""
    inside = np.linalg.norm(vectors @ basis, axis=1)
    lengths = np.linalg.norm(vectors, axis=1)
    distances = np.sqrt(np.maximum(lengths**2 - inside**2, 0))
    return (distances <= DISTANCE * lengths) & (lengths > 0)


def check(gradients: list[np.ndarray], present: list[set[tuple[int, int]]], vectors: Callable) -> list[Spanned]:
    """Tries every piece at every place against each gradient.

    Args:
      gradients: each [d, d].
      present: of each, the (place, piece) pairs that there are; others are tried at the same places.
      vectors: place -> [pieces, d], the embeddings of all pieces there.
    """
    bases = [column_space(gradient) for gradient in gradients]
    right, wrong, tried = (np.zeros(len(bases), np.int64) for _ in range(3))
    num_positions = [max((position for position, _ in pairs), default=-1) + 1 for pairs in present]
    for position in range(max(num_positions, default=0)):
        candidates = vectors(position).astype(np.float64)
        for number, (basis, pairs) in enumerate(zip(bases, present, strict=True)):
            if position >= num_positions[number]:
                continue
            accepted = set(np.flatnonzero(in_span(basis, candidates)))
            there = {piece for at, piece in pairs if at == position}
            right[number] += len(accepted & there)
            wrong[number] += len(accepted - there)
            tried[number] += len(candidates)
    return [
        Spanned(len(pairs), int(right[n]), int(wrong[n]), int(tried[n]), basis.shape[1], basis.shape[0])
        for n, (basis, pairs) in enumerate(zip(bases, present, strict=True))
    ]


def pieces_at_places(examples) -> set[tuple[int, int]]:
    """(place, piece) of the examples' pieces, padding left out."""
    rows, places = np.nonzero(np.asarray(examples["attention_mask"]))
    return set(zip(places.tolist(), np.asarray(examples["input_ids"])[rows, places].tolist(), strict=True))


def embeddings_of(keras: tf.keras.Model, size: int) -> Callable[[int], np.ndarray]:
    """place -> float [size, d], what an encoder's first layer reads for each piece there."""
    layer = keras.get_layer("encoder").main.embeddings
    ids = tf.range(size)[:, tf.newaxis]
    return lambda position: layer(input_ids=ids, position_ids=tf.constant([[position]]), training=False).numpy()[:, 0]


def batches(examples, rows: Iterator[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The examples of each array of rows."""
    return [{name: np.asarray(value)[indices] for name, value in examples.items()} for indices in rows]
