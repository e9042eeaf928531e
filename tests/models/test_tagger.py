"""The tagger: both directions, its stock form, what padding reaches, and rounds of training."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.evaluation import build_evaluation
from computations.randomness import step_seed
from tests.models.tagged_for_tests import TYPES, features, labels_of, local, words
from tests.models.trained_models import (
    assert_same_order_and_names,
    assert_stock_layers,
    assert_two_rounds_train_and_repeat,
    lstm_by_hand,
    randomised,
)
from tff_re.models import MODELS
from tff_re.models.inputs import TaggedTokenInput
from tff_re.models.tagging import tag_losses, tag_statistics

WORDS, LENGTH = 11, 7
VECTORS = np.random.default_rng(0).normal(size=[WORDS, 5]).astype(np.float32)
INPUTS = TaggedTokenInput(WORDS, LENGTH, TYPES, "BIO")
MODEL = MODELS["tagger"]
ARRAYS = words(5, LENGTH, WORDS, INPUTS.num_tags)
every_kind = pytest.mark.parametrize("crf", [False, True], ids=["softmax", "crf"])


def options(**settings):
    return MODEL.Options(**{"units": 4, "embedding_width": 6, **settings})


def both(crf, inputs=INPUTS, **settings):
    """(the model in training, its plain form) with the same random weights."""
    settings = options(crf=crf, **settings)
    model, plain = randomised(MODEL.build(settings, inputs, 2)), MODEL.build_plain(settings, inputs, 2)
    plain.set_weights(model.get_weights())
    return model, plain


@pytest.mark.parametrize("vectors", [None, VECTORS], ids=["learned_vectors", "given_vectors"])
@every_kind
def test_the_plain_form_is_the_same_function(crf, vectors):
    inputs = TaggedTokenInput(WORDS, LENGTH, TYPES, "BIOES", vectors)
    model, plain = both(crf, inputs)
    arrays = features(words(5, LENGTH, WORDS, inputs.num_tags))
    ours, theirs = model(arrays), plain(arrays)
    assert ours.keys() == theirs.keys() and ours["logits"].shape == (ours["lengths"].numpy().sum(), inputs.num_tags)
    for name, value in ours.items():
        assert np.isfinite(value).all()
        np.testing.assert_allclose(theirs[name], value, rtol=0, atol=1e-6, err_msg=name)
    assert_same_order_and_names(model, plain)
    if not crf:
        assert_stock_layers(plain)


@every_kind
def test_the_plain_form_is_saved_and_loaded(crf, tmp_path):
    _, plain = both(crf)
    plain.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    for name, value in plain(features(ARRAYS)).items():
        np.testing.assert_array_equal(loaded(features(ARRAYS))[name], value)


def test_by_hand():
    """An LSTM over each text and one over the text from its end, side by side at each token."""
    model, _ = both(False)
    (vectors,) = model.get_layer("word_vectors").get_weights()
    weights = model.get_layer("lstm").get_weights()
    kernel, bias = model.get_layer("classifier").get_weights()
    rows = []
    for text in ARRAYS["tokens"]:
        read = vectors[text[text > 0]]
        left = [lstm_by_hand(read[: i + 1], *weights[:3]) for i in range(len(read))]
        right = [lstm_by_hand(read[i:][::-1], *weights[3:]) for i in range(len(read))]
        rows += [np.concatenate(pair) for pair in zip(left, right, strict=True)]
    outputs = model(features(ARRAYS))
    np.testing.assert_allclose(outputs["features"], rows, atol=1e-6)
    np.testing.assert_allclose(outputs["logits"], np.array(rows) @ kernel + bias, atol=2e-6)
    assert outputs["lengths"].numpy().tolist() == (ARRAYS["tokens"] > 0).sum(axis=1).tolist()


def test_a_text_is_read_alike_among_longer_ones():
    """No padding reaches the direction that begins at the text's end."""
    model, _ = both(False)
    together, first = model(features(ARRAYS))["logits"].numpy(), 0
    for row, length in enumerate((ARRAYS["tokens"] > 0).sum(axis=1)):
        single = {name: array[row : row + 1] for name, array in ARRAYS.items()}
        np.testing.assert_allclose(model(features(single))["logits"], together[first : first + length], atol=1e-6)
        first += length


@every_kind
def test_padding_gets_no_gradient(crf):
    model, _ = both(crf)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tag_losses(labels_of(ARRAYS), model(features(ARRAYS), training=True)))
    of_vectors, *rest = map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))
    read = np.unique(ARRAYS["tokens"])
    assert 0 in read and not of_vectors.numpy()[0].any()
    assert of_vectors.numpy()[read[1:]].any(axis=1).all()
    assert all(gradient.numpy().any() for gradient in rest)


def test_only_the_place_of_tags_is_read():
    model, _ = both(True)
    others = {**ARRAYS, "tags": np.minimum(ARRAYS["tags"], 0)}
    ours, theirs = model(features(ARRAYS)), model(features(others))
    for name, value in ours.items():
        np.testing.assert_array_equal(theirs[name], value)
    some = ARRAYS["tags"].copy()
    some[-1, 2:4] = -1  # tokens without a tag make no row, and are read all the same
    left_out = model(features({**ARRAYS, "tags": some}))["logits"].numpy()
    np.testing.assert_array_equal(left_out, np.delete(ours["logits"].numpy(), [-5, -4], axis=0))


def test_dropout_is_on_what_the_classifier_sees():
    model, plain = both(False, dropout=0.5)
    np.testing.assert_allclose(model(features(ARRAYS))["features"], plain(features(ARRAYS))["features"], atol=1e-6)
    with step_seed(tf.constant([1, 2])):
        dropped = model(features(ARRAYS), training=True)["features"].numpy()
    whole = plain(features(ARRAYS))["features"].numpy()
    assert 0 < (dropped == 0).sum() < dropped.size
    np.testing.assert_allclose(dropped[dropped != 0], 2 * whole[dropped != 0], rtol=1e-4)


@pytest.mark.parametrize("train_vectors", [False, True])
@pytest.mark.parametrize("form", ["build", "build_plain"])
def test_given_vectors_are_loaded_and_trained_on_demand(form, train_vectors):
    inputs = TaggedTokenInput(WORDS, LENGTH, TYPES, "BIO", VECTORS)
    model = getattr(MODEL, form)(options(train_vectors=train_vectors), inputs, 2)
    layer = model.get_layer("word_vectors")
    np.testing.assert_array_equal(layer.get_weights()[0], VECTORS)
    assert len(layer.trainable_weights) == train_vectors


@every_kind
def test_widths_and_rows_are_those_that_clients_ask_for(crf):
    model = local(MODEL, options(crf=crf), INPUTS)
    assert model.num_classes == model.output_widths["logits"] == 5 and model.feature_width == 8 and model.one_label
    assert model.num_rows(ARRAYS) == (ARRAYS["tokens"] > 0).sum()
    assert len(model.weight_names) == (12 if crf else 9)
    assert (model.losses, model.statistics) == (tag_losses, tag_statistics)


def names_of_algorithms():
    """A mean, a contrast that keeps a state, two that shift the logits."""
    return {"fedavgs": {}, "moon": {"weight": 1e-3}, "fedrs": {}, "fedlc": {}}


@pytest.mark.parametrize(
    ("crf", "name"),
    [
        pytest.param(*pair, marks=() if pair == (True, "fedavgs") else pytest.mark.slow)
        for pair in itertools.product((False, True), names_of_algorithms())
    ],
)
def test_two_rounds_train_and_repeat(runtime, crf, name):
    chosen, model = algorithms.find(name), local(MODEL, options(crf=crf, dropout=0.1), INPUTS)
    settings = {"learning_rate": 0.05, "local_epochs": 2, "batch_size": 2, **names_of_algorithms()[name]}
    algorithm = chosen.build(model, chosen.options(**settings))
    data = [model.arrange(words(count, LENGTH, WORDS, INPUTS.num_tags, seed=count)) for count in (4, 6)]
    assert_two_rounds_train_and_repeat(algorithm, model, data)


@every_kind
def test_it_learns_the_tags_of_a_few_texts(crf):
    model = local(MODEL, options(units=16, crf=crf), INPUTS).initial_model(0)
    optimizer, arrays, labels = tf.keras.optimizers.legacy.Adam(0.05), features(ARRAYS), labels_of(ARRAYS)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tag_losses(labels, model(arrays, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    losses = [float(step()) for _ in range(80)]
    assert losses[-1] < 0.05 < losses[0]
    counts = tag_statistics(labels, model(arrays))
    assert float(counts["correct_tags"][0]) == len(labels)
    np.testing.assert_array_equal(counts["true_positives"], counts["actual"])


@pytest.mark.parametrize("crf", [pytest.param(False, marks=pytest.mark.slow), True], ids=["softmax", "crf"])
def test_clients_count_what_they_find(runtime, crf):
    """In batches of two texts, added up: what one batch of all gives."""
    model = local(MODEL, options(crf=crf), INPUTS)
    keras_model = randomised(model.initial_model(0))
    weights = tff.learning.models.ModelWeights.from_model(keras_model)
    weights = tf.nest.map_structure(lambda v: v.numpy(), weights)
    outputs, labels = keras_model(features(ARRAYS)), labels_of(ARRAYS)
    expected = {name: value.numpy() for name, value in tag_statistics(labels, outputs).items()}
    (counts,) = build_evaluation(model, batch_size=2)(weights, [model.arrange(ARRAYS)])
    assert expected["predicted"].any()
    for name, value in expected.items():
        np.testing.assert_array_equal(counts[name], value, err_msg=name)
    assert counts["examples"] == len(labels)
    np.testing.assert_allclose(counts["loss"], tf.reduce_sum(tag_losses(labels, outputs)), rtol=1e-5)
