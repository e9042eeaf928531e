import numpy as np
import pytest
import tensorflow as tf

from tests.models.trained_models import assert_same_order_and_names, assert_stock_layers, lstm_by_hand, randomised
from tff_re import models
from tff_re.models import MODELS
from tff_re.models.inputs import DenseInput, TokenInput

LENGTH, WORDS, CLASSES = 6, 11, 4
VECTORS = np.random.default_rng(0).normal(size=[WORDS, 5]).astype(np.float32)
KINDS = {
    "logistic_regression": (MODELS["logistic_regression"], MODELS["logistic_regression"].Options(embedding_width=7)),
    "lstm": (MODELS["lstm"], MODELS["lstm"].Options(units=8, embedding_width=7)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)

SENTENCES = {
    "padded": [[3, 4, 5, 0, 0, 0], [9, 0, 0, 0, 0, 0], [2, 2, 2, 2, 2, 0]],
    "full_length": [[3, 4, 5, 6, 7, 8], [10, 2, 3, 4, 5, 6]],
    "full_and_padded": [[3, 4, 5, 6, 7, 8], [9, 8, 0, 0, 0, 0]],
    "out_of_vocabulary": [[1, 1, 5, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
    "empty": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    "empty_among_others": [[3, 4, 5, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6]],
}


@pytest.fixture(scope="module", params=[None, VECTORS], ids=["learned_vectors", "given_vectors"])
def pairs(request):
    """name -> (the model, its plain form with the same weights)."""
    inputs = TokenInput(WORDS, LENGTH, request.param)
    made = {}
    for name, (module, options) in KINDS.items():
        model, plain = randomised(module.build(options, inputs, CLASSES)), module.build_plain(options, inputs, CLASSES)
        plain.set_weights(model.get_weights())
        made[name] = model, plain
    return made


def outputs(model, tokens):
    return {k: v.numpy() for k, v in model({"tokens": tf.constant(tokens, tf.int32)}, training=False).items()}


@pytest.mark.parametrize("sentences", SENTENCES)
@every_kind
def test_the_plain_form_is_the_same_function(pairs, kind, sentences):
    model, plain = (outputs(m, SENTENCES[sentences]) for m in pairs[kind])
    for name in ("logits", "features"):
        assert np.isfinite(model[name]).all()
        np.testing.assert_allclose(plain[name], model[name], rtol=0, atol=1e-6)


@every_kind
def test_weights_have_the_same_order_and_names_in_the_plain_form(pairs, kind):
    assert_same_order_and_names(*pairs[kind])


@every_kind
def test_the_plain_form_has_stock_layers_alone(pairs, kind):
    assert_stock_layers(pairs[kind][1])


@every_kind
def test_padding_and_neighbours_make_no_difference(pairs, kind):
    """A sentence alone, and beside a longer one: it is trimmed to another length."""
    model = pairs[kind][0]
    alone = outputs(model, [[3, 4, 0, 0, 0, 0]])["logits"][0]
    together = outputs(model, [[3, 4, 0, 0, 0, 0], [5, 6, 7, 8, 9, 10]])["logits"][0]
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)
    other = outputs(model, [[3, 4, 1, 0, 0, 0]])["logits"][0]
    assert np.abs(other - alone).max() > 1e-3  # an unknown word is a word


def test_logistic_regression_by_hand(pairs):
    model = pairs["logistic_regression"][0]
    vectors, kernel, bias = model.get_layer("word_vectors").get_weights() + model.get_layer("classifier").get_weights()
    computed = outputs(model, SENTENCES["empty_among_others"])
    for row, sentence in enumerate(SENTENCES["empty_among_others"]):
        words = [w for w in sentence if w]
        features = vectors[words].mean(axis=0) if words else np.zeros(vectors.shape[1])
        np.testing.assert_allclose(computed["features"][row], features, atol=1e-6)
        np.testing.assert_allclose(computed["logits"][row], features @ kernel + bias, atol=2e-6)


def test_lstm_by_hand(pairs):
    model = pairs["lstm"][0]
    (vectors,) = model.get_layer("word_vectors").get_weights()
    kernel, recurrent, bias = model.get_layer("lstm").get_weights()

    features = outputs(model, SENTENCES["empty_among_others"])["features"]
    for row, sentence in enumerate(SENTENCES["empty_among_others"]):
        words = [w for w in sentence if w]
        np.testing.assert_allclose(features[row], lstm_by_hand(vectors[words], kernel, recurrent, bias), atol=1e-6)


def test_logistic_regression_of_vectors():
    model = randomised(
        MODELS["logistic_regression"].build(MODELS["logistic_regression"].Options(), DenseInput(3), CLASSES)
    )
    plain = MODELS["logistic_regression"].build_plain(MODELS["logistic_regression"].Options(), DenseInput(3), CLASSES)
    plain.set_weights(model.get_weights())
    x = np.random.default_rng(3).normal(size=[5, 3]).astype(np.float32)
    kernel, bias = model.get_weights()
    for m in (model, plain):
        computed = m({"x": x})
        np.testing.assert_allclose(computed["logits"], x @ kernel + bias, atol=1e-6)
        np.testing.assert_array_equal(computed["features"], x)


# Word vectors.


@pytest.mark.parametrize("train_vectors", [False, True])
@pytest.mark.parametrize("form", ["build", "build_plain"])
@every_kind
def test_given_vectors_are_loaded_and_trained_on_demand(kind, form, train_vectors):
    module = KINDS[kind][0]
    options = module.Options(train_vectors=train_vectors)
    model = getattr(module, form)(options, TokenInput(WORDS, LENGTH, VECTORS), CLASSES)
    layer = model.get_layer("word_vectors")
    np.testing.assert_array_equal(layer.get_weights()[0], VECTORS)
    assert len(layer.trainable_weights) == train_vectors
    assert [w.name for w in model.non_trainable_weights] == [w.name for w in layer.non_trainable_weights]


@pytest.mark.parametrize("train_vectors", [False, True])
@every_kind
def test_learned_vectors_are_always_trained(kind, train_vectors):
    module = KINDS[kind][0]
    options = module.Options(train_vectors=train_vectors, embedding_width=7)
    model = module.build(options, TokenInput(WORDS, LENGTH), CLASSES)
    assert model.get_layer("word_vectors").get_weights()[0].shape == (WORDS, 7)
    assert len(model.get_layer("word_vectors").trainable_weights) == 1 and not model.non_trainable_weights


def test_dropout_sits_before_the_classifier_and_leaves_inference_alone():
    inputs = TokenInput(WORDS, LENGTH)
    with_dropout = randomised(MODELS["lstm"].build(MODELS["lstm"].Options(units=8, dropout=0.5), inputs, CLASSES))
    without = MODELS["lstm"].build(MODELS["lstm"].Options(units=8), inputs, CLASSES)
    without.set_weights(with_dropout.get_weights())
    tokens = tf.constant(SENTENCES["padded"], tf.int32)
    np.testing.assert_array_equal(with_dropout({"tokens": tokens})["logits"], without({"tokens": tokens})["logits"])
    trained = with_dropout({"tokens": tokens}, training=True)["features"].numpy()
    whole = without({"tokens": tokens})["features"].numpy()
    assert 0 < (trained == 0).sum() < trained.size
    np.testing.assert_allclose(trained[trained != 0], 2 * whole[trained != 0], rtol=1e-6)


@pytest.mark.parametrize("name", models.MODELS)
def test_every_named_model_has_its_three_parts(name):
    module = models.MODELS[name]
    assert callable(module.build) and callable(module.build_plain) and module.Options()
