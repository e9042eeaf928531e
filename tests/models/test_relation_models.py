"""pcnn and lstm on texts with two marked mentions."""

import itertools
import warnings

import attrs
import numpy as np
import pytest
import tensorflow as tf

from computations.aggregators import mean
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy
from computations.client_work.optimizers import SelfAdam
from computations.federated_algorithm import compose
from computations.local_model import LocalModel
from computations.randomness import step_seed
from computations.server_updates import gradient_step
from tests.models.trained_models import (
    assert_same_order_and_names,
    assert_stock_layers,
    assert_two_rounds_train_and_repeat,
    lstm_by_hand,
    randomised,
)
from tff_re.models.inputs import RelationInput
from tff_re.models.lstm import MODEL as LSTM
from tff_re.models.pcnn import MODEL as PCNN_MODEL
from tff_re.models.pcnn import piecewise_max

LENGTH, WORDS, CLASSES = 9, 13, 3
FILTERS, LIMIT, WINDOW = 4, 3, 3
VECTORS = np.random.default_rng(0).normal(size=[WORDS, 5]).astype(np.float32)
PCNN = {"filters": FILTERS, "position_limit": LIMIT, "window": WINDOW, "embedding_width": 6, "position_width": 2}
KINDS = {
    "pcnn": (PCNN_MODEL, PCNN_MODEL.Options(**PCNN)),
    "lstm": (LSTM, LSTM.Options(units=5, embedding_width=6, dropout=0.5)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_forms = pytest.mark.parametrize("form", ["build", "build_plain"])

# (tokens in the text, head's opening marker, tail's opening marker)
PLACES = {
    "inside": (9, 2, 5),
    "reversed": (9, 5, 2),
    "at_the_borders": (9, 0, 8),
    "at_the_borders_reversed": (9, 8, 0),
    "adjacent": (9, 3, 4),
    "overlapping": (9, 3, 5),  # <e1> a <e2> b </e1> c </e2>
    "at_one_place": (9, 4, 4),
    "padded": (6, 1, 3),
    "padded_reversed": (6, 3, 1),
    "last_token_before_padding": (6, 2, 5),
    "one_token": (1, 0, 0),
    "empty": (0, 0, 0),
}


def texts(places, max_length=LENGTH, seed=0, padding=0):
    """Arrays of texts with these (length, head_start, tail_start), ids at random, 0 among them."""
    lengths, heads, tails = (np.array(column, np.int32) for column in zip(*places, strict=True))
    indices = np.arange(max_length)
    mask = (indices < lengths[:, None]).astype(np.int32)
    ids = np.random.default_rng(seed).integers(0, WORDS, [len(places), LENGTH])
    ids = np.pad(ids, [(0, 0), (0, max_length - LENGTH)])
    return {
        "input_ids": np.where(mask == 1, ids, padding).astype(np.int32),
        "attention_mask": mask,
        "head_mask": (indices == heads[:, None] + 1) * mask,
        "tail_mask": (indices == tails[:, None] + 1) * mask,
        "head_start": heads,
        "tail_start": tails,
    }


def tensors(arrays):
    return {name: tf.constant(array, tf.int32) for name, array in arrays.items()}


def outputs(model, arrays, training=False):
    return {name: value.numpy() for name, value in model(tensors(arrays), training=training).items()}


def made(kind, form="build", max_length=LENGTH, vectors=None, **changed):
    module, options = KINDS[kind]
    options = module.Options(**{**attrs.asdict(options), **changed})
    return randomised(getattr(module, form)(options, RelationInput(WORDS, max_length, vectors=vectors), CLASSES))


@pytest.fixture(scope="module", params=[None, VECTORS], ids=["learned_vectors", "given_vectors"])
def pairs(request):
    """name -> (the model, its plain form with the same weights)."""
    return {kind: tuple(made(kind, form, vectors=request.param) for form in ("build", "build_plain")) for kind in KINDS}


# Segments and positions.


def segments(values, length, start, other):
    """The maxima of the three segments of one text [length, d], zeros for none."""
    first, second = sorted([start, other])
    parts = [values[: first + 1], values[first + 1 : second + 1], values[second + 1 :]]
    starts = [0, first + 1, second + 1]
    parts = [part[: max(length - begin, 0)] for part, begin in zip(parts, starts, strict=True)]
    return np.concatenate([part.max(axis=0) if len(part) else np.zeros(values.shape[1]) for part in parts])


def pooled(values, places):
    mask = texts(places)["attention_mask"]
    _, starts, others = (tf.constant(column, tf.int32) for column in zip(*places, strict=True))
    return piecewise_max(values, tf.constant(mask), starts, others)


@pytest.mark.parametrize("shift", [-100, 0, 100], ids=["all_below_zero", "around_zero", "all_above_zero"])
def test_the_maximum_of_each_segment(shift):
    """Zeros for a segment without tokens."""
    values = np.random.default_rng(2).normal(size=[len(PLACES), LENGTH, 5]).astype(np.float32) + np.float32(shift)
    for row, (length, *_) in enumerate(PLACES.values()):
        values[row, length:] = 1e6  # padding, which never wins
    maxima = pooled(tf.constant(values), list(PLACES.values())).numpy()
    expected = [segments(v, *places) for v, places in zip(values, PLACES.values(), strict=True)]
    np.testing.assert_array_equal(maxima, expected)


def test_each_maximum_has_the_gradient_and_nothing_else_has():
    values = tf.constant(np.random.default_rng(4).normal(size=[len(PLACES), LENGTH, 2]).astype(np.float32))
    weights = np.random.default_rng(5).normal(size=[len(PLACES), 6]).astype(np.float32)
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = tf.reduce_sum(pooled(values, list(PLACES.values())) * weights)
    expected = np.zeros(values.shape, np.float32)
    for row, (length, *starts) in enumerate(PLACES.values()):
        borders = [0, min(starts) + 1, max(starts) + 1, LENGTH]
        for part, (begin, end) in enumerate(itertools.pairwise(borders)):
            tokens = values[row, begin : min(end, length)].numpy()
            for column in range(2 if len(tokens) else 0):
                best = begin + tokens[:, column].argmax()
                expected[row, best, column] = weights[row, 2 * part + column]
    np.testing.assert_array_equal(tape.gradient(total, values), expected)


# The models as functions.


@pytest.mark.parametrize("window", [1, 2, 3, 11])
def test_pcnn_by_hand(window):
    model = made("pcnn", window=window)
    words, heads, tails, kernel, bias, classifier, classifier_bias = model.get_weights()
    assert kernel.shape == (window, 6 + 2 + 2, FILTERS) and len(heads) == len(tails) == 2 * LIMIT + 1
    arrays = texts(list(PLACES.values()))
    computed = outputs(model, arrays)
    for row, (length, head, tail) in enumerate(PLACES.values()):
        seen = [
            np.concatenate(
                [words[word], heads[np.clip(i - head, -LIMIT, LIMIT) + LIMIT], tails[np.clip(i - tail, -3, 3) + 3]]
            )
            for i, word in enumerate(arrays["input_ids"][row, :length])
        ]
        before = (window - 1) // 2
        convolved = np.tile(bias, [length, 1])
        for i in range(length):
            for j in range(window):
                if 0 <= i + j - before < length:
                    convolved[i] += seen[i + j - before] @ kernel[j]
        features = np.tanh(segments(convolved, length, head, tail))
        np.testing.assert_allclose(computed["features"][row], features, atol=2e-6)
        np.testing.assert_allclose(computed["logits"][row], features @ classifier + classifier_bias, atol=5e-6)


def test_lstm_by_hand():
    """The mask says what is text: id 0 is a word like others."""
    model = made("lstm")
    words, kernel, recurrent, bias, *_ = model.get_weights()

    arrays = texts(list(PLACES.values()))
    lengths = [length for length, *_ in PLACES.values()]
    assert any((arrays["input_ids"][row, :length] == 0).any() for row, length in enumerate(lengths))
    features = outputs(model, arrays)["features"]
    for row, length in enumerate(lengths):
        expected = lstm_by_hand(words[arrays["input_ids"][row, :length]], kernel, recurrent, bias)
        np.testing.assert_allclose(features[row], expected, atol=2e-6)


@every_kind
def test_the_plain_form_is_the_same_function(pairs, kind):
    arrays = texts(list(PLACES.values()))
    model, plain = (outputs(m, arrays) for m in pairs[kind])
    assert model["logits"].shape == (len(PLACES), CLASSES) and model["logits"].dtype == np.float32
    assert model["features"].shape == (len(PLACES), 3 * FILTERS if kind == "pcnn" else 5)
    for name in ("logits", "features"):
        assert np.isfinite(model[name]).all()
        np.testing.assert_allclose(plain[name], model[name], rtol=0, atol=2e-6)


@every_kind
def test_weights_have_the_same_order_and_names_in_the_plain_form(pairs, kind):
    assert_same_order_and_names(*pairs[kind])


@every_kind
def test_the_plain_form_has_stock_layers_alone(pairs, kind):
    assert_stock_layers(pairs[kind][1])


@every_kind
def test_padding_makes_no_difference(kind):
    """The same texts alone, beside a longer one, in wider rows, and with another id in the padding."""
    model, wide = made(kind), made(kind, max_length=LENGTH + 4)
    short = [(5, 1, 3), (4, 3, 0)]
    expected = outputs(model, texts(short))["logits"]
    assert np.abs(expected[0] - expected[1]).max() > 1e-3
    for computed in (
        outputs(model, texts([*short, (9, 2, 5)])),
        outputs(wide, texts(short, LENGTH + 4)),
        outputs(model, texts(short, padding=7)),
    ):
        np.testing.assert_allclose(computed["logits"][:2], expected, rtol=0, atol=2e-6)


@every_kind
@both_forms
def test_all_features_of_the_task_are_taken_without_a_warning(kind, form):
    module, options = KINDS[kind]
    inputs = RelationInput(WORDS, LENGTH)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = getattr(module, form)(options, inputs, CLASSES)
        model(tensors(texts([(9, 2, 5)])), training=False)
    assert set(model.input) == set(inputs.specs)
    assert model.get_layer("classifier").units == CLASSES


@every_kind
def test_the_model_can_be_saved_and_loaded(kind, tmp_path):
    model, arrays = made(kind, "build_plain"), texts(list(PLACES.values()))
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    expected, reloaded = outputs(model, arrays), outputs(loaded, arrays)
    for name in ("logits", "features"):
        np.testing.assert_array_equal(reloaded[name], expected[name])


# Weights and options.


@every_kind
def test_all_trainable_weights_get_a_gradient(kind):
    model = made(kind, vectors=VECTORS, train_vectors=True)
    assert not model.non_trainable_weights
    labels = np.arange(len(PLACES)) % CLASSES
    with tf.GradientTape() as tape:
        logits = model(tensors(texts(list(PLACES.values()))), training=True)["logits"]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True):
        assert gradient is not None, weight.name
        dense = tf.convert_to_tensor(gradient).numpy()
        assert np.isfinite(dense).all() and np.abs(dense).max() > 1e-4, weight.name


@every_kind
@both_forms
@pytest.mark.parametrize("train_vectors", [False, True])
def test_given_vectors_are_loaded_and_trained_on_demand(kind, form, train_vectors):
    module = KINDS[kind][0]
    inputs = RelationInput(WORDS, LENGTH, vectors=VECTORS)
    model = getattr(module, form)(module.Options(train_vectors=train_vectors), inputs, CLASSES)
    layer = model.get_layer("word_vectors")
    np.testing.assert_array_equal(layer.get_weights()[0], VECTORS)
    assert len(layer.trainable_weights) == len(layer.weights) * train_vectors
    assert len(model.non_trainable_weights) == (not train_vectors)


def test_pcnn_has_the_published_sizes_and_trains_given_vectors_by_default():
    model = PCNN_MODEL.build(PCNN_MODEL.Options(), RelationInput(WORDS, LENGTH), CLASSES)
    shapes = [tuple(w.shape) for w in model.trainable_weights]
    assert shapes == [(WORDS, 50), (201, 5), (201, 5), (3, 60, 230), (230,), (690, CLASSES), (CLASSES,)]
    assert model.get_layer("dropout").rate == 0.5
    with_vectors = PCNN_MODEL.build(PCNN_MODEL.Options(), RelationInput(WORDS, LENGTH, vectors=VECTORS), CLASSES)
    assert not with_vectors.non_trainable_weights and with_vectors.get_layer("convolution").kernel.shape == (3, 15, 230)


@both_forms
def test_the_classifier_of_pcnn_may_have_no_bias(form):
    model, arrays = made("pcnn", form, bias=False), texts([(9, 2, 5)])
    (kernel,) = model.get_layer("classifier").get_weights()
    computed = outputs(model, arrays)
    np.testing.assert_allclose(computed["logits"], computed["features"] @ kernel, atol=2e-6)


# Training.


@every_kind
def test_dropout_is_for_training_alone_and_comes_from_the_steps_seed(kind):
    model, arrays = made(kind), texts([(9, 2, 5), (6, 3, 1), (9, 5, 2), (8, 1, 2)])
    whole = outputs(model, arrays)["features"]

    def trained(seed):
        with step_seed(tf.constant(seed, tf.int32)):
            return outputs(model, arrays, training=True)

    first, again, other = trained([3, 4]), trained([3, 4]), trained([3, 5])
    for name in ("logits", "features"):
        np.testing.assert_array_equal(first[name], again[name])
    dropped = first["features"] == 0
    assert (whole != 0).all() and 0 < dropped.sum() < dropped.size
    np.testing.assert_allclose(first["features"][~dropped], 2 * whole[~dropped], rtol=1e-6)
    assert (dropped != (other["features"] == 0)).any()
    with step_seed(tf.constant([3, 4], tf.int32)):
        np.testing.assert_array_equal(outputs(model, arrays)["features"], whole)


def client(count, seed):
    """Texts of several lengths; class 0: the head first, 1: the tail first, 2: the first word is the word 1."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(4, LENGTH + 1, count)
    pairs = np.array([generator.choice(length, 2, replace=False) for length in lengths])
    arrays = texts([(n, *p) for n, p in zip(lengths, pairs, strict=True)], seed=seed)
    arrays["input_ids"][:, 0] = np.where(generator.random(count) < 0.3, 1, 2)
    rows = np.arange(count)
    arrays["input_ids"][rows, arrays["head_start"]] = 3
    arrays["input_ids"][rows, arrays["tail_start"]] = 4
    labels = np.where(arrays["input_ids"][:, 0] == 1, 2, pairs[:, 0] > pairs[:, 1])
    return {**arrays, "y": labels.astype(np.int32)}


@pytest.mark.slow  # runs of pcnn by recipe are among the quick tests, and that all weights have gradients
@pytest.mark.parametrize("kind, vectors", [("pcnn", None), ("lstm", VECTORS)], ids=KINDS)
def test_two_federated_rounds(runtime, kind, vectors):
    module, options = KINDS[kind]
    inputs = RelationInput(WORDS, LENGTH, vectors=vectors)
    model = LocalModel(
        lambda: module.build(options, inputs, CLASSES),
        {**inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        CLASSES,
        "classifier",
    )
    assert model.feature_width == (3 * FILTERS if kind == "pcnn" else 5)
    work = build_local_training(
        model, objective=CrossEntropy(), optimizer=SelfAdam(0.03), training=LocalTraining(local_epochs=4, batch_size=5)
    )
    algorithm = compose(model, client_work=work, aggregator=mean(), finalizer=gradient_step(model))
    data = [model.arrange(client(count, seed)) for seed, count in enumerate([23, 12])]
    start, weights = assert_two_rounds_train_and_repeat(algorithm, model, data)
    frozen = [VECTORS] if kind == "lstm" and vectors is not None else []
    for fixed, expected in zip(weights.non_trainable, frozen, strict=True):
        np.testing.assert_array_equal(fixed, expected)

    def loss(held):
        logits = model.keras_model(held)(tensors({k: v for k, v in data[0].items() if k != "y"}))["logits"]
        return float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(data[0]["y"], logits)))

    assert loss(weights) < loss(start)
