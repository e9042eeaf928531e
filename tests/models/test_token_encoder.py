"""The tagger of word pieces: the encoder's outputs, windows, frozen layers, adapters, precision and rounds."""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import tensorflow as tf
import transformers

from computations import algorithms
from computations.registry import Choice
from tests.models.encoders_for_tests import KINDS, LAYERS, PIECES, POSITIONS, WIDTH, encoder
from tests.models.tagged_for_tests import TYPES, features, labels_of, local, pieces
from tests.models.trained_models import assert_two_rounds_train_and_repeat
from tff_re.errors import UserError
from tff_re.models import MODELS
from tff_re.models.adapter_files import CONFIG_FILE, contents, weights_of
from tff_re.models.adapters import AdapterOptions, LowRankDense
from tff_re.models.crf import Chain
from tff_re.models.fixed_weights import leaf_name
from tff_re.models.inputs import HiddenInput, PieceInput, TaggedPieceInput, TaggedTokenInput
from tff_re.models.pretrained import policy
from tff_re.models.tagging import tag_losses, tag_statistics
from tff_re.tasks.base import Prepared

MODEL = MODELS["token_encoder"]
LENGTH, LONG, WINDOW, OVERLAP = 12, 40, 16, 4
EXAMPLES = SimpleNamespace(label_names=("no entity", *TYPES))
HALF = 5e-3
"""Between two forms that both round to float16: a value in the middle of two such numbers may fall to either."""
every_form = pytest.mark.parametrize("crf", [False, True], ids=["softmax", "crf"])
every_length = pytest.mark.parametrize("long", [False, True], ids=["short", "in windows"])
mostly_windows = pytest.mark.parametrize(
    "long", [pytest.param(False, marks=pytest.mark.slow, id="short"), pytest.param(True, id="in windows")]
)


def inputs(long=False, of="bert", layers=LAYERS, scheme="BIO"):
    return TaggedPieceInput(len(PIECES), LONG if long else LENGTH, TYPES, scheme, str(encoder(of, layers)))


def options(long=False, **settings):
    windows = {"window": WINDOW, "overlap": OVERLAP} if long else {}
    return MODEL.Options(**{"encoder_dropout": 0.0, **windows, **settings})


def texts(long=False, count=4, seed=0):
    return pieces(count, LONG if long else LENGTH, inputs().num_tags, seed)


def moved(local_model, seed=3):
    """(weights with something added to each of the trained ones, the model that has them)."""
    weights, random = local_model.initial_weights(seed), np.random.default_rng(seed)
    trained = [w + random.normal(0, 0.1, w.shape).astype(np.float32) for w in weights.trainable]
    weights.trainable[:] = trained
    return weights, local_model.keras_model(weights)


def close(ours, theirs, tolerance=1e-5):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=0, atol=tolerance, err_msg=name)


@functools.cache
def reference(of):
    with policy("float32"):
        return transformers.TFAutoModel.from_pretrained(str(encoder(of, LAYERS)))


def outputs_at(of, ids):
    """[l, d] of transformers itself for one text."""
    return reference(of)(tf.constant([ids]), training=False).last_hidden_state[0].numpy()


def classified_by_hand(model, rows):
    kernel, bias = model.get_layer("classifier").get_weights()
    return rows @ kernel + bias


@pytest.mark.parametrize("of", KINDS)
def test_the_encoders_outputs_at_the_tokens(of):
    model, arrays = local(MODEL, options(), inputs(of=of)).initial_model(0), texts()
    rows = []
    for ids, mask, tags in zip(arrays["input_ids"], arrays["attention_mask"], arrays["tags"], strict=True):
        rows.append(outputs_at(of, ids[mask > 0])[tags[: mask.sum()] >= 0])
    outputs = model(features(arrays))
    np.testing.assert_allclose(outputs["features"], np.concatenate(rows), atol=2e-5)
    np.testing.assert_allclose(outputs["logits"], classified_by_hand(model, np.concatenate(rows)), atol=2e-5)
    assert outputs["lengths"].numpy().tolist() == (arrays["tags"] >= 0).sum(axis=1).tolist()
    assert outputs["logits"].shape == (len(labels_of(arrays)), 5)


def by_windows(ids):
    """The mean of a text's outputs over the windows that hold a piece, [l, d]; each begins and ends as the text."""
    length, room = len(ids), WINDOW - 2
    last = max(length - 2 - room, 0)
    starts = [*range(0, last, room - OVERLAP), last]
    summed, counts = np.zeros([length, WIDTH]), np.zeros([length, 1])
    for start in starts:
        columns = np.arange(start + 1, min(start + room, length - 2) + 1)
        read = outputs_at("bert", [ids[0], *ids[columns], ids[-1]])
        summed[columns] += read[1:-1]
        counts[columns] += 1
    return summed / np.maximum(counts, 1)


def test_longer_texts_are_read_in_windows_and_averaged():
    model, arrays = local(MODEL, options(long=True), inputs(long=True)).initial_model(0), texts(long=True)
    rows = []
    for ids, mask, tags in zip(arrays["input_ids"], arrays["attention_mask"], arrays["tags"], strict=True):
        rows.append(by_windows(ids[mask > 0])[tags[: mask.sum()] >= 0])
    assert arrays["attention_mask"].sum(axis=1).max() > 2 * WINDOW
    np.testing.assert_allclose(model(features(arrays))["features"], np.concatenate(rows), atol=2e-5)


def test_what_fits_a_window_is_read_alike_in_one():
    """Without windows, and with those that recomputing brings; windows are for longer texts only."""
    arrays, models = texts(), [local(MODEL, options(recompute=r), inputs()).initial_model(0) for r in (None, True)]
    assert [type(m.get_layer("encoder")).__name__ for m in models] == ["PieceEncoder", "WindowedPieces"]
    close(*(model(features(arrays)) for model in models))
    beyond = TaggedPieceInput(len(PIECES), POSITIONS + 1, TYPES, "BIO", str(encoder()))
    layer = MODEL.build(options(), beyond, 2).get_layer("encoder")
    assert (layer.window, layer.overlap) == (POSITIONS, POSITIONS // 4)


@every_length
@every_form
def test_a_text_is_read_alike_among_longer_ones(crf, long):
    model, arrays, first = local(MODEL, options(long, crf=crf), inputs(long)).initial_model(0), texts(long), 0
    together = model(features(arrays))
    for row, length in enumerate(together["lengths"].numpy()):
        single = model(features({name: array[row : row + 1] for name, array in arrays.items()}))
        np.testing.assert_allclose(single["logits"], together["logits"][first : first + length], atol=1e-5)
        first += length
    assert set(together) - set(Chain._fields) == {"logits", "features", "lengths", "unrepresented", "annotated"}
    assert ("transitions" in together) is crf


@every_length
def test_padding_gets_no_gradient(long):
    model, arrays = local(MODEL, options(long, crf=True), inputs(long)).initial_model(0), texts(long)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tag_losses(labels_of(arrays), model(features(arrays), training=True)))
    variables = model.trainable_variables
    gradients = dict(zip((v.name for v in variables), tape.gradient(loss, variables), strict=True))
    (of_words,) = (tf.convert_to_tensor(g).numpy() for n, g in gradients.items() if "word_embeddings" in n)
    read = np.unique(arrays["input_ids"][arrays["attention_mask"] > 0])
    assert not of_words[PIECES.index("[PAD]")].any() and of_words[read].any(axis=1).all()
    keys = [n for n in gradients if "key/bias" in n]  # whose gradient is zero but for rounding
    assert all(tf.convert_to_tensor(g).numpy().any() for n, g in gradients.items() if n not in keys)


# Frozen layers and adapters


@mostly_windows
@pytest.mark.parametrize("of", [KINDS[0], *(pytest.param(of, marks=pytest.mark.slow) for of in KINDS[1:])])
@pytest.mark.parametrize("frozen_layers", [1, pytest.param(LAYERS, marks=pytest.mark.slow)])
def test_frozen_layers_that_ran_before_give_what_they_give_in_each_step(frozen_layers, of, long):
    settings, whole_inputs = options(long, crf=True, frozen_layers=frozen_layers), inputs(long, of)
    hidden_inputs, run = MODEL.precompute(settings, whole_inputs, 3)
    assert isinstance(hidden_inputs, HiddenInput)
    arrays = texts(long, count=5)
    hidden = run(arrays)
    assert "input_ids" not in hidden and hidden["hidden"].dtype == np.float16
    assert hidden["hidden"].shape == (5, *hidden_inputs.shape)
    assert len(hidden_inputs.shape) == (3 if long else 2)
    apart = local(MODEL, settings, hidden_inputs)
    weights, trained = moved(apart)
    assert not weights.non_trainable
    together = MODEL.finished(settings, hidden_inputs, 2, weights)
    close(trained(features(hidden)), together(features(arrays)), 2e-2)  # float16 lies between
    close(trained(features(hidden)), MODEL.whole_form(settings, hidden_inputs, trained)(features(arrays)), HALF)
    # From the same weights, the layers inside and run in each step give the same loss and gradient.
    inside = local(MODEL, settings, whole_inputs).initial_model(3)
    inside.set_weights(together.get_weights())
    assert len(inside.trainable_variables) == len(trained.trainable_variables)
    gradients = []
    for model, values in ((trained, hidden), (inside, arrays)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tag_losses(labels_of(arrays), model(features(values), training=True)))
        gradients.append([tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)])
    for ours, theirs in zip(*gradients, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.02 * scale + 1e-4)


def adapter(kind):
    return AdapterOptions(kind=kind) if kind == "bitfit" else AdapterOptions(kind=kind, rank=4)


@pytest.mark.parametrize("frozen_layers", [pytest.param(0, marks=pytest.mark.slow), 1])
@mostly_windows
@pytest.mark.parametrize("kind", ["lora", *(pytest.param(k, marks=pytest.mark.slow) for k in ("ffa_lora", "bitfit"))])
def test_an_adapter_is_what_is_trained_and_computes_the_same_in_all_forms(kind, long, frozen_layers):
    """What clients train, the whole model with the adapter, and the encoder that it is merged into."""
    settings = options(long, crf=True, adapter=adapter(kind), frozen_layers=frozen_layers)
    trained_inputs, run = MODEL.precompute(settings, inputs(long), 3)
    arrays = texts(long)
    seen = features(arrays if run is None else run(arrays))
    model = local(MODEL, settings, trained_inputs)
    leaves = {"lora": {"lora_a", "lora_b"}, "ffa_lora": {"lora_b"}, "bitfit": {"bias", "beta"}}[kind]
    names = {name.rpartition("/")[2] for name in model.weight_names}
    assert names == leaves | {"kernel", "bias", *Chain._fields}
    weights, trained = moved(model)
    assert not weights.non_trainable
    if frozen_layers:
        assert not any("layer_._0" in name for name in model.weight_names)
    expected = trained(seen)
    close(expected, MODEL.adapted(settings, trained_inputs, trained)(seen), 1e-6)
    for merged in (False, True):
        whole = MODEL.whole_form(settings, trained_inputs, trained, merged)
        close(expected, whole(features(arrays)), HALF if frozen_layers else 1e-5)
        low_rank = any(isinstance(part, LowRankDense) for part in whole._flatten_layers())
        assert low_rank == (kind != "bitfit" and not merged)
    finished = MODEL.finished(settings, trained_inputs, 2, weights)
    close(expected, finished(features(arrays)), 2e-2 if frozen_layers else 1e-5)
    assert {leaf_name(v) for v in finished.weights}.isdisjoint({"lora_a", "lora_b"})


def test_training_starts_where_the_file_of_an_adapter_ends(tmp_path):
    settings = options(crf=True, adapter=adapter("lora"))
    trained_inputs, _ = MODEL.precompute(settings, inputs(), 0)
    _, trained = moved(local(MODEL, settings, trained_inputs))
    written = MODEL.adapted(settings, trained_inputs, trained)
    for name, content in contents(written, trained_inputs, settings.adapter, "an-encoder", ("O",)).items():
        (tmp_path / name).write_bytes(content)
    saved = json.loads((tmp_path / CONFIG_FILE).read_text("utf-8"))["modules_to_save"]
    assert saved == ["chain", "classifier"]
    again = attrs.evolve(settings, adapter=attrs.evolve(settings.adapter, path=str(tmp_path)))
    again_inputs, _ = MODEL.precompute(again, inputs(), 5)
    model = local(MODEL, again, again_inputs).initial_model(5)
    started = weights_of(MODEL.adapted(again, again_inputs, model), again_inputs)
    for name, value in weights_of(written, trained_inputs).items():
        np.testing.assert_array_equal(started[name], value)
    close(trained(features(texts())), model(features(texts())), 1e-6)


@every_length
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_an_adapter_is_built_in_a_graph(precision, long):
    """As for TFF: fixed weights are no variables there. A CRF's arithmetic is float32 in any precision."""
    settings = options(long, crf=True, adapter=adapter("lora"), precision=precision)
    with_fixed, _ = MODEL.precompute(settings, inputs(long), 0)
    with tf.Graph().as_default():
        model = MODEL.build(settings, with_fixed, 3)
        outputs = model(features(texts(long)))
        losses = tag_losses(labels_of(texts(long)), outputs)
        assert not model.non_trainable_variables
    floats = {name: value.dtype for name, value in outputs.items() if value.dtype.is_floating}
    assert set(floats.values()) == {tf.float32} and losses.dtype == tf.float32
    assert set(floats) == {"logits", "features", *Chain._fields}


@every_length
def test_in_mixed_precision_the_loss_is_near_that_in_float32(long):
    losses, arrays = [], texts(long)
    for precision in ("float32", "mixed_bfloat16"):
        model = local(MODEL, options(long, crf=True, precision=precision), inputs(long)).initial_model(0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tag_losses(labels_of(arrays), model(features(arrays), training=True)))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]
        assert all(g.dtype == tf.float32 and np.isfinite(g).all() for g in gradients)
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=0.02) and losses[0] != losses[1]


# Training, and what does not fit


def settings_of(name):
    """Keys of algorithms for a few steps that lower the loss."""
    return {"fedavgs": {}, "moon": {"weight": 1e-3}}[name]


SLOW = pytest.mark.slow
ROUNDS = (
    ("fedavgs", False, {"crf": True}),
    pytest.param("fedavgs", True, {"crf": True}, marks=SLOW),
    pytest.param("moon", False, {}, marks=SLOW),
    pytest.param("fedavgs", False, {"crf": True, "frozen_layers": 1}, marks=SLOW),
    pytest.param("fedavgs", True, {"adapter": adapter("lora"), "frozen_layers": 1}, marks=SLOW),
)


@pytest.mark.parametrize(("name", "long", "settings"), ROUNDS)
def test_two_rounds_train_and_repeat(runtime, name, long, settings):
    chosen, settings = algorithms.find(name), options(long, encoder_dropout=0.1, dropout=0.1, **settings)
    result = MODEL.precompute(settings, inputs(long), 7)
    trained_inputs, run = result or (inputs(long), None)
    model = local(MODEL, settings, trained_inputs)
    keys = {"learning_rate": 0.003, "local_epochs": 2, "batch_size": 3, **settings_of(name)}
    data = [texts(long, count, seed=count) for count in (5, 7)]
    data = [model.arrange(arrays if run is None else run(arrays)) for arrays in data]
    assert_two_rounds_train_and_repeat(chosen.build(model, chosen.options(**keys)), model, data)


def test_it_finds_what_it_was_shown():
    """Entities of a text that a few steps were taken on, and the counts of them."""
    model, arrays = local(MODEL, options(crf=True), inputs(layers=1)).initial_model(0), texts(count=2)
    optimizer, labels = tf.keras.optimizers.legacy.Adam(0.01), labels_of(arrays)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tag_losses(labels, model(features(arrays), training=True)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(40):
        step()
    counts = tag_statistics(labels, model(features(arrays)))
    assert counts["actual"].numpy().sum() > 2
    np.testing.assert_array_equal(counts["true_positives"], counts["actual"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"window": POSITIONS + 1},
            f"reads at most {POSITIONS} word pieces, but a window has {POSITIONS + 1}; lower model.window",
        ),
        ({"window": 8, "overlap": 6}, "with an overlap of 6 a window of 8 word pieces adds nothing new"),
        ({"frozen_layers": LAYERS + 1}, f"the encoder has {LAYERS} layers"),
    ],
)
def test_what_does_not_fit_the_encoder_is_one_line(settings, message):
    with pytest.raises(UserError, match=message) as caught:
        MODEL.build(options(**settings), inputs(long=True), 2)
    assert "\n" not in str(caught.value) and str(encoder()) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "of_task", "message"),
    [
        ("tagger", inputs(), r"'tagger' does not take .*, word pieces with tags; .*'token_encoder'.*task\.encoding"),
        ("token_encoder", TaggedTokenInput(9, 5, TYPES, "BIO"), r"words or characters with tags; .*'tagger'.*'pieces'"),
        ("text_encoder", inputs(), r"'text_encoder' does not take .*word pieces with tags; .*'token_encoder'"),
        ("lstm", TaggedTokenInput(9, 5, TYPES, "BIO"), r"'lstm' does not take .*with tags; .*'tagger'"),
        ("token_encoder", PieceInput(9, 5), r"'token_encoder' does not take .*word pieces of whole texts"),
    ],
)
def test_models_and_inputs_that_do_not_fit(name, of_task, message):
    prepared = Prepared(EXAMPLES, of_task, None, None)
    with pytest.raises(UserError, match=message):
        prepared.local_model(Choice(name, MODELS[name].Options()))


def test_a_local_model_has_a_class_for_each_tag():
    prepared = Prepared(EXAMPLES, inputs(scheme="BIOES"), None, None)
    model = prepared.local_model(Choice("token_encoder", options()))
    assert model.num_classes == model.output_widths["logits"] == 9 and model.row_labels == "tags"
