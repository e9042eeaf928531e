"""The span check: gradients made by hand, and those of a tiny encoder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from computations.local_model import LABEL, LocalModel
from tests.models.encoders_for_tests import LAYERS, PIECES, WIDTH, encoder
from tff_re.auditing import span
from tff_re.models.inputs import HiddenInput, PieceInput, TokenInput
from tff_re.models.text_encoder import MODEL


def test_sums_of_vectors_span_them_and_no_others():
    """Five pieces of 100 at four places in 40 dimensions: found, and no other; with 50 vectors all pass."""
    draw = np.random.default_rng(0)
    table = draw.normal(size=[4, 100, 40])
    there = {(0, 3), (1, 7), (2, 99), (3, 0), (3, 1)}
    rows = np.stack([table[position, piece] for position, piece in there])
    few = rows.T @ draw.normal(size=[5, 40])
    many = draw.normal(size=[50, 40]).T @ draw.normal(size=[50, 40])
    exact, blind = span.check([few, many], [there, there], lambda position: table[position])
    assert (exact.pieces, exact.right, exact.wrong, exact.rank, exact.width) == (5, 5, 0, 5, 40)
    assert (blind.right, blind.wrong, blind.tried, blind.rank) == (5, 395, 400, 40)


def test_noise_hides_them():
    draw = np.random.default_rng(0)
    table = draw.normal(size=[1, 100, 40])
    gradient = table[0, :5].T @ draw.normal(size=[5, 40])
    (exact,) = span.check([gradient], [{(0, i) for i in range(5)}], lambda position: table[position])
    assert exact.right == 5
    gradient += draw.normal(size=gradient.shape)
    (noisy,) = span.check([gradient], [{(0, i) for i in range(5)}], lambda position: table[position])
    assert noisy.rank == 40 and noisy.wrong == 95  # full rank: everything passes, nothing is told


def test_no_gradient_spans_nothing():
    assert span.column_space(np.zeros([4, 4])).shape == (4, 0)
    assert not span.in_span(np.zeros([4, 0]), np.ones([2, 4])).any()


@pytest.fixture(scope="module")
def model():
    inputs = PieceInput(len(PIECES), 12, str(encoder()))
    options = MODEL.Options(dropout=0.0)
    local = LocalModel(
        build=lambda: MODEL.build(options, inputs, 2),
        input_spec={**inputs.specs, LABEL: tf.TensorSpec([None], tf.int32)},
        num_classes=2,
        initialise=MODEL.initialise(options, inputs),
    )
    assert local.weight_names and local.weights_type  # built in graphs, which Keras does not take between other models
    return local


def test_a_sentence_is_read_from_an_encoders_gradient(model):
    keras = model.initial_model(0)
    draw = np.random.default_rng(2)
    ids = np.zeros([20, 12], np.int32)
    ids[:, :8] = draw.integers(5, len(PIECES), size=[20, 8])
    examples = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32), "y": np.arange(20, dtype=np.int32) % 2}
    single, everything = span.batches(examples, [np.array([3]), np.arange(20)])
    assert len(span.pieces_at_places(single)) == 8
    gradients = [span.query_gradient(model, keras, part) for part in (single, everything)]
    assert gradients[0].shape == (WIDTH, WIDTH)
    present = [span.pieces_at_places(part) for part in (single, everything)]
    exact, blind = span.check(gradients, present, span.embeddings_of(keras, len(PIECES)))
    assert exact.rank == 8 and exact.right == 8 and exact.wrong == 0
    assert blind.rank >= WIDTH - 1 and blind.wrong / (blind.tried - blind.pieces) > 0.5
    # Of an update only the lowest layer's part is read.
    assert sum(name.endswith(span.QUERIES) for name in model.weight_names) == LAYERS
    update = [np.full(kind.shape, index) for index, kind in enumerate(model.weights_type.trainable)]
    assert "layer_._0" in model.weight_names[int(span.query_change(model, update)[0, 0])]


def test_where_it_says_nothing(model):
    pieces = PieceInput(10, 4, "encoder")
    fixed = PieceInput(10, 4, "encoder", fixed=SimpleNamespace())
    wanted = {
        "no pretrained encoder": TokenInput(10, 4),
        "the outputs of frozen layers": HiddenInput(pieces, (4, 16), 0),
        "an adapter is trained": fixed,
    }
    for reason, inputs in wanted.items():
        assert reason in span.not_applicable(inputs, model)
    assert span.not_applicable(pieces, model) is None
    assert "was not found" in span.not_applicable(pieces, SimpleNamespace(weight_names=["classifier/kernel"]))
