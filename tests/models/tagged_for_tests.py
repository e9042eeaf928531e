"""Small texts whose tokens have tags, as the data side encodes them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from computations.local_model import LocalModel
from tests.models.encoders_for_tests import PIECES

TYPES = ("drug", "disease")


def local(model, options, inputs, initialise=True) -> LocalModel:
    """A LocalModel of a model of tokens, as a task makes it."""
    return LocalModel(
        build=lambda: model.build(options, inputs, 2),
        input_spec={**inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        num_classes=getattr(inputs, "pieces", inputs).num_tags,
        initialise=model.initialise(options, inputs) if initialise else None,
        **model.local_parts(options, getattr(inputs, "pieces", inputs)),
    )


def tagged(tokens, num_tags, seed=0):
    """`tags`, `unrepresented`, `annotated` and `y` for tokens bool [n, L].

    Tags follow from the token's place in its text, so that a few steps learn some of them.
    """
    random = np.random.default_rng(seed)
    drawn = np.where(random.random(tokens.shape) < 0.7, np.arange(tokens.shape[1]) % num_tags, 0)
    count = len(tokens)
    return {
        "tags": np.where(tokens, drawn, -1).astype(np.int32),
        "unrepresented": np.zeros([count, len(TYPES)], np.int32),
        "annotated": np.ones([count, len(TYPES)], np.int32),
        "y": np.zeros(count, np.int32),
    }


def words(count, length, vocabulary, num_tags, seed=0):
    """Arrays of a TaggedTokenInput; the last text has the full length, the second none."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length, count)
    lengths[-1], lengths[1] = length, 0
    tokens = np.where(np.arange(length) < lengths[:, np.newaxis], random.integers(1, vocabulary, [count, length]), 0)
    return {"tokens": tokens.astype(np.int32), **tagged(tokens > 0, num_tags, seed)}


def features(arrays):
    """What a model takes of arrays, as tensors."""
    return {name: tf.constant(value) for name, value in arrays.items() if name != "y"}


def labels_of(arrays):
    """int32 [N], the tags of the tokens."""
    return tf.constant(arrays["tags"][arrays["tags"] >= 0])


def pieces(count, length, num_tags, seed=0, shortest=2):
    """Arrays of a TaggedPieceInput: [CLS], pieces, [SEP]; the last text has the full length.

    A piece in eight is no token of its own.
    """
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, length, count)
    lengths[-1] = length
    column = np.arange(length)
    present = column < lengths[:, np.newaxis]
    ids = np.where(present, random.integers(5, len(PIECES), [count, length]), PIECES.index("[PAD]"))
    ids[:, 0] = PIECES.index("[CLS]")
    ids[np.arange(count), lengths - 1] = PIECES.index("[SEP]")
    tokens = (column > 0) & (column < lengths[:, np.newaxis] - 1) & (random.random([count, length]) < 7 / 8)
    arrays = {"input_ids": ids, "attention_mask": present}
    return {**{n: a.astype(np.int32) for n, a in arrays.items()}, **tagged(tokens, num_tags, seed)}
