"""document_encoder: windows, the last layer's attention, localized contexts and the bilinear classifier."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import transformers

from computations import algorithms
from computations.errors import CompositionError
from computations.local_model import LocalModel, zero_initialisers
from computations.randomness import step_seed
from tests.models.documents_for_tests import CLS, RELATIONS, SEP, blank, documents, inputs, select_rows, write_document
from tests.models.encoders_for_tests import KINDS, LAYERS, POSITIONS, WIDTH
from tests.models.encoders_for_tests import encoder as saved
from tests.models.trained_models import assert_two_rounds_train_and_repeat
from tff_re.errors import UserError
from tff_re.models.document_encoder import MODEL, Options
from tff_re.models.document_layers import (
    EntityPooling,
    GroupedBilinear,
    LocalizedContext,
)
from tff_re.models.document_windows import cut
from tff_re.models.pretrained import policy

BLOCK, LONG = 4, 150


def options(kind="bert", layers=1, **settings):
    return Options(encoder=str(saved(kind, layers)), block_size=BLOCK, **settings)


def local(settings=None, model_inputs=None):
    settings, model_inputs = settings or options(), model_inputs or inputs()
    return LocalModel(
        build=lambda: MODEL.build(settings, model_inputs, 2),
        input_spec={**model_inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        num_classes=2,
        initialise=MODEL.initialise(settings, model_inputs),
        **MODEL.local_parts(settings, None),
    )


def made(settings=None, model_inputs=None, seed=3):
    return local(settings, model_inputs).initial_model(seed)


def outputs(model, arrays, training=False):
    features = {name: tf.constant(value) for name, value in arrays.items() if name != "y"}
    return {name: value.numpy() for name, value in model(features, training=training).items()}


def close(actual, expected, tolerance=2e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# Windows.


def held(lengths, window, overlap, longest=None):
    """(document, source places that count) of each window."""
    mask = np.arange(longest or max(lengths)) < np.array(lengths)[:, np.newaxis]
    windows = cut(tf.constant(mask, tf.int32), window, overlap)
    assert (windows.counted.numpy() <= windows.mask.numpy()).all()
    assert (windows.mask.numpy().sum(axis=1) <= window).all()
    rows = zip(windows.document.numpy(), windows.source.numpy(), windows.counted.numpy(), strict=True)
    return [(int(d), list(s[c])) for d, s, c in rows]


def test_a_longer_document_is_two_windows_and_the_last_ends_with_it():
    assert held([5, 8, 2], 8, 2) == [(0, [0, 1, 2, 3, 4]), (1, list(range(8))), (2, [0, 1])], "all fit"
    # 6 pieces fit beside [CLS] and [SEP]; a document of 7 pieces and these two is 9 long.
    assert held([9], 8, 2) == [(0, [0, 1, 2, 3, 4, 5, 6]), (0, [2, 3, 4, 5, 6, 7, 8])]
    assert held([12, 4], 8, 2) == [(0, [0, *range(1, 7)]), (0, [*range(5, 11), 11]), (1, [0, 1, 2, 3])]


@pytest.mark.parametrize("length", [2, 3, 8, 9, 12, 13, 16, 17, 40])
@pytest.mark.parametrize("overlap", [0, 1, 4])
def test_windows_cover_a_document_and_share_what_they_must(length, overlap):
    windows = [places for _, places in held([length], 8, overlap)]
    assert sorted(set().union(*windows)) == list(range(length))
    assert len(windows) == max(1, int(np.ceil((length - 2 - overlap) / (6 - overlap))))
    for window, next_window in itertools.pairwise(windows):
        assert len(set(window) & set(next_window)) >= overlap and next_window[0] <= window[-1] + 1


def test_what_a_window_reads_begins_and_ends_as_a_document_does():
    arrays = documents(1, seed=2, length=LONG, longest=LONG)
    windows = cut(tf.constant(arrays["attention_mask"]), 32, 8)
    assert len(windows.document) > 4
    ids = windows.of_documents(tf.constant(arrays["input_ids"])).numpy()
    for row, mask in zip(ids, windows.mask.numpy(), strict=True):
        assert (row[0], row[mask.sum() - 1]) == (CLS, SEP)


# The encoder's outputs and its last attention.


def reference(kind, ids, source=None):
    """(outputs [l, d], last attention [h, l, l]) of transformers itself, without dropout."""
    output = _loaded(str(source or saved(kind, 1)))(tf.constant([ids]), training=False)
    return output.last_hidden_state[0].numpy(), output.attentions[-1][0].numpy()


@functools.cache
def _loaded(source):
    with policy("float32"):
        return transformers.TFAutoModel.from_pretrained(source, output_attentions=True)


def pieces_of(model):
    return model.get_layer("encoder")


def encoded(model, arrays):
    names = ("input_ids", "attention_mask", "mention_place")
    output = pieces_of(model)({name: tf.constant(arrays[name]) for name in names}, training=False)
    return output["outputs"].numpy(), output["attention"].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_attention_are_the_last_layers(kind):
    arrays = documents(3, seed=1)
    vectors, attention = encoded(made(options(kind, LAYERS)), arrays)
    for row in range(3):
        length = arrays["attention_mask"][row].sum()
        h, a = reference(kind, arrays["input_ids"][row, :length], saved(kind, LAYERS))
        close(vectors[row, :length], h)
        for m, position in enumerate(arrays["mention_place"][row]):
            expected = a[:, position] if position >= 0 else np.zeros_like(a[:, 0])
            close(attention[row, :length, :, m].T, expected)
            assert not attention[row, length:, :, m].any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["electra", "roberta"])
def test_other_encoders_whose_attention_is_known(tmp_path, kind):
    name = {"electra": "Electra", "roberta": "Roberta"}[kind]
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": WIDTH, "intermediate_size": 32}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=80, max_position_embeddings=POSITIONS + 2, initializer_range=0.5, **sizes
    )
    with policy("float32"):
        model = getattr(transformers, f"TF{name}Model")(config)
        model.build_in_name_scope()
    model.save_pretrained(tmp_path, safe_serialization=True)
    arrays = documents(2, seed=1)
    vectors, attention = encoded(made(Options(encoder=str(tmp_path), block_size=BLOCK)), arrays)
    for row in range(2):
        length = arrays["attention_mask"][row].sum()
        h, a = reference(kind, arrays["input_ids"][row, :length], tmp_path)
        close(vectors[row, :length], h)
        close(attention[row, :length, :, 0].T, a[:, arrays["mention_place"][row, 0]])


def test_a_long_document_is_its_windows_averaged_by_hand():
    """Outputs are the mean over windows; a mention's attention is the mean over its windows, scaled to a sum of one."""
    arrays = documents(2, seed=5, length=LONG, longest=LONG)
    model = made(options(window=32, overlap=8), inputs(LONG))
    vectors, attention = encoded(model, arrays)
    for row in range(2):
        ids = arrays["input_ids"][row, : arrays["attention_mask"][row].sum()]
        length, room = len(ids), 30
        starts = [*range(0, max(length - 2 - room, 0), room - 8), max(length - 2 - room, 0)]
        assert len(starts) >= 2
        h, counts = np.zeros([length, WIDTH]), np.zeros([length, 1])
        rows = np.zeros([2, arrays["mention_place"].shape[1], length])
        for k, start in enumerate(starts):
            places = np.arange(start + 1, min(start + room, length - 2) + 1)
            out, a = reference("bert", [ids[0], *ids[places], ids[-1]])
            local_places, doc_places = np.arange(1, len(places) + 1), places
            if k == 0:
                local_places, doc_places = np.r_[0, local_places], np.r_[0, doc_places]
            if k == len(starts) - 1:
                local_places, doc_places = np.r_[local_places, len(places) + 1], np.r_[doc_places, length - 1]
            h[doc_places] += out[local_places]
            counts[doc_places] += 1
            for m, position in enumerate(arrays["mention_place"][row]):
                if position in places:
                    rows[:, m, doc_places] += a[:, position - start][:, local_places]
        close(vectors[row, :length], h / counts)
        sums = rows.sum(axis=-1, keepdims=True)
        close(attention[row, :length].transpose(1, 2, 0), rows / np.where(sums > 0, sums, 1))


def test_no_attention_of_all_pieces_is_asked_of_the_encoder(monkeypatch):
    model, results = made(), []
    main = type(pieces_of(model).main)
    call = main.call
    monkeypatch.setattr(main, "call", lambda *args, **options: results.append(call(*args, **options)) or results[-1])
    encoded(model, documents(2, seed=1))
    assert results and all(getattr(result, "attentions", None) is None for result in results)


def test_attention_at_the_mentions_has_no_dropout_of_its_own():
    """In training it changes with the dropout below alone: without any there it is that of inference."""
    arrays = documents(2, seed=1)
    features = {name: tf.constant(value) for name, value in arrays.items() if name != "y"}
    quiet, noisy = made(options(encoder_dropout=0.0)), made(options(encoder_dropout=0.4))
    with step_seed(tf.constant([1, 2])):
        again = pieces_of(quiet)(features, training=True)["attention"]
        other = pieces_of(noisy)(features, training=True)["attention"].numpy()
    close(again.numpy(), pieces_of(quiet)(features, training=False)["attention"].numpy(), 1e-6)
    sums = other.sum(axis=1)
    close(sums, np.broadcast_to((arrays["mention_place"] >= 0)[:, np.newaxis], sums.shape), 1e-5)


every_kind = pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])
"""Fast for one kind of encoder: that outputs and attention are those of the other, too, is tested above."""


@every_kind
def test_recomputing_gives_the_same_loss_and_gradients(kind, monkeypatch):
    """The masks of dropout too are those of the first time: the values that are kept give the same gradients."""
    arrays = documents(3, seed=4)
    features = {name: tf.constant(value) for name, value in arrays.items() if name != "y"}
    settings, steps = options(kind, encoder_dropout=0.3, recompute=True), []
    for twice in (True, False):
        if not twice:
            monkeypatch.setattr(tf, "custom_gradient", lambda function: lambda states: function(states)[0])
        model, losses = made(settings), MODEL.local_parts(settings, None)["losses"]

        @tf.function
        def step(model=model, losses=losses):
            with step_seed(tf.constant([5, 6])), tf.GradientTape() as tape:
                loss = tf.reduce_mean(losses(None, model(features, training=True)))
            return loss, tape.gradient(loss, model.trainable_variables)

        steps.append(step())
    assert float(steps[0][0]) == pytest.approx(float(steps[1][0]), rel=1e-5)
    for recomputed, stored in zip(steps[0][1], steps[1][1], strict=True):
        close(tf.convert_to_tensor(recomputed), tf.convert_to_tensor(stored), 1e-4)


def before(operation):
    """What runs before an operation of a graph."""
    earlier_ones, open_ones = set(), [operation]
    while open_ones:
        current = open_ones.pop()
        earlier = {tensor.op for tensor in current.inputs} | set(current.control_inputs)
        open_ones += earlier - earlier_ones
        earlier_ones |= earlier
    return earlier_ones


@every_kind
@pytest.mark.parametrize("recompute", [True, False])
def test_what_is_recomputed_waits_for_the_gradient(kind, recompute):
    """In a graph as TFF makes it. What does not wait runs at once, and is then kept like the first time's."""
    settings = options(kind, LAYERS, encoder_dropout=0.3, recompute=recompute)
    with tf.Graph().as_default() as graph:
        with zero_initialisers():
            model = MODEL.build(settings, inputs(), 2)
        features = {name: tf.constant(value) for name, value in documents(2, seed=4).items() if name != "y"}
        with step_seed(tf.constant([1, 2])), tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(features, training=True)["logits"])
        known = set(graph.get_operations())
        tape.gradient(loss, model.trainable_variables)
        random, softmax = "StatelessRandomUniformV2", "Softmax"
        again = [o for o in graph.get_operations() if o not in known and o.type in (random, softmax)]
    assert [o.type for o in again].count(softmax) == (LAYERS if recompute else 0)
    # The tanh of the pairs' representations is behind the encoder; only the gradient leads from it to a layer.
    assert all("Tanh" in {earlier.type for earlier in before(o)} for o in again)


def test_recomputing_is_for_longer_documents_unless_said():
    for settings, expected in (({}, False), ({"window": 32}, True), ({"window": 32, "recompute": False}, False)):
        assert pieces_of(MODEL.build(options(**settings), inputs(), 2)).recompute is expected


# Entities, contexts, pairs.


def tensors(**arrays):
    return {n: tf.constant(v, tf.int32 if np.asarray(v).dtype.kind == "i" else tf.float32) for n, v in arrays.items()}


def test_logsumexp_of_large_numbers_is_finite_and_so_is_its_gradient():
    outputs_ = 1000 * tf.constant([[[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [-1.0, 1.0]]])
    with tf.GradientTape() as tape:
        tape.watch(outputs_)
        places = {"mention_place": np.array([[1, 2, 3, -1]]), "mention_entity": np.array([[0, 0, 1, -1]])}
        rest = tensors(attention=np.zeros([1, 4, 2, 4]), **places)
        entities = EntityPooling()({"outputs": outputs_, **rest})["entities"]
    close(entities, [[[3000.0, 2000.0], [-1000.0, 1000.0]]])
    assert np.isfinite(tape.gradient(entities, outputs_)).all()


def test_entities_that_attend_to_nothing_in_common_have_a_finite_gradient():
    attention = tf.constant([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    pairs = tensors(pair_head=np.array([[0]]), pair_tail=np.array([[1]]))
    with tf.GradientTape() as tape:
        tape.watch(attention)
        context = LocalizedContext()({"outputs": tf.ones([1, 2, 3]), "attention": attention, **pairs})
    assert not context.numpy().any() and np.isfinite(tape.gradient(context, attention)).all()


@pytest.mark.parametrize("relations", [1, 3, 5])
def test_the_grouped_bilinear_form_in_loops(relations):
    """In both orders of multiplication: at most a block of relations, and more."""
    generator = np.random.default_rng(0)
    z = generator.normal(size=[4, 12])
    layer = GroupedBilinear(relations, 3)
    layer(tf.constant(z, tf.float32))
    kernel, bias = generator.normal(size=[2, 3, 3, relations]), generator.normal(size=[relations])
    layer.set_weights([kernel, bias])
    expected = np.zeros([4, relations])
    for n in range(4):
        for r in range(relations):
            groups = [z[n, 3 * i : 3 * i + 3] @ kernel[i, :, :, r] @ z[n, 6 + 3 * i : 9 + 3 * i] for i in range(2)]
            expected[n, r] = sum(groups) + bias[r]
    close(layer(tf.constant(z, tf.float32)), expected)


@pytest.mark.parametrize("loss", ["bce", "adaptive_threshold"])
def test_the_whole_model_in_numpy(loss):
    arrays = documents(2, seed=7)
    model = made(options(loss=loss, width=8))
    computed = outputs(model, arrays)
    pairs, bilinear = model.get_layer("pairs"), model.get_layer("classifier")
    ws, wo, c1, c2 = (d.kernel.numpy() for d in (*pairs.of_entity, *pairs.of_context))
    kernel, bias = bilinear.get_weights()
    n = 0
    for row in range(2):
        document = select_rows(arrays, row)
        h, a = reference("bert", document["input_ids"][: document["attention_mask"].sum()])
        for head, tail, labels in zip(
            document["pair_head"], document["pair_tail"], document["pair_labels"], strict=True
        ):
            if head < 0:
                continue
            entity, attention = {}, {}
            for e in (head, tail):
                places = document["mention_place"][document["mention_entity"] == e]
                entity[e] = np.log(np.exp(h[places].astype(float)).sum(axis=0))
                attention[e] = a[:, places].mean(axis=1)
            q = (attention[head] * attention[tail]).sum(axis=0)
            context = (q / q.sum()) @ h
            zs, zo = np.tanh(entity[head] @ ws + context @ c1), np.tanh(entity[tail] @ wo + context @ c2)
            scores = np.einsum("gi,gijr,gj->r", zs.reshape(2, 4), kernel, zo.reshape(2, 4)) + bias
            close(computed["context"][n], context)
            close(computed["features"][n], np.r_[zs, zo])
            close(computed["logits"][n], scores[1:] - scores[0] if loss == "adaptive_threshold" else scores)
            np.testing.assert_array_equal(computed["pair_labels"][n], labels)
            n += 1
    assert n == len(computed["logits"]) == (arrays["pair_head"] >= 0).sum()


def test_a_document_alone_is_what_it_is_among_longer_ones():
    arrays = documents(5, seed=9, length=LONG, longest=LONG)
    small = documents(1, seed=10, length=LONG, longest=20)
    together = {name: np.concatenate([arrays[name], small[name]]) for name in arrays}
    model = made(options(window=32, overlap=8), inputs(LONG))
    whole, counts = outputs(model, together), (together["pair_head"] >= 0).sum(axis=1)
    for row, end in enumerate(np.cumsum(counts)):
        alone = outputs(model, select_rows(together, [row]))
        for name in whole:
            close(whole[name][end - counts[row] : end], alone[name])


def test_documents_without_pairs_give_no_rows():
    arrays = blank(2)
    write_document(arrays, 0, pieces=[7, 8, 9], mentions=[(1, 0)], pairs=[])
    computed = outputs(made(), arrays)
    assert {name: value.shape for name, value in computed.items()} == {
        "logits": (0, RELATIONS),
        "features": (0, 2 * WIDTH),
        "context": (0, WIDTH),
        "pair_labels": (0, RELATIONS),
    }


# What cannot be.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": POSITIONS + 1}, "lower model.window"),
        ({"window": 20, "overlap": 18}, "lower model.overlap"),
        ({"frozen_layers": 3}, "frozen_layers is 3"),
    ],
)
def test_what_does_not_fit_the_encoder_is_one_line(settings, message):
    with pytest.raises(UserError, match=message) as error:
        MODEL.build(options(**settings), inputs(), 2)
    assert "\n" not in str(error.value)


def test_an_encoder_whose_attention_is_not_known_is_refused(tmp_path):
    config = transformers.MPNetConfig(
        vocab_size=80, num_hidden_layers=1, num_attention_heads=2, hidden_size=8, intermediate_size=8
    )
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="'mpnet' computes its attention"):
        MODEL.build(Options(encoder=str(tmp_path), pretrained=False), inputs(), 2)


# Federated.


@pytest.fixture(scope="module")
def data():
    model = local()
    return [model.arrange(documents(count, seed=count)) for count in (5, 7)]


# The contrast of the second round stands in its loss, which falls all the same if it counts little. A run of FedLCC by
# recipe is among the quick tests.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedlcc", {"mu": 1e-3}),
        ("fedavgs", {}),
        ("moon", {"weight": 1e-3}),
    ],
)
def test_two_rounds_train_and_repeat(runtime, data, name, settings):
    chosen, model = algorithms.find(name), local(options(encoder_dropout=0.1))
    algorithm = chosen.build(model, chosen.options(learning_rate=0.003, local_epochs=2, batch_size=3, **settings))
    assert_two_rounds_train_and_repeat(algorithm, model, data)


@pytest.mark.parametrize("name", ["fedrs", "feded"])
def test_algorithms_of_single_labels_are_refused_in_one_line(runtime, name):
    chosen = algorithms.find(name)
    with pytest.raises(CompositionError, match=f"{name}: needs examples with one class"):
        chosen.build(local(), chosen.options(**({"num_server_examples": 3} if name == "feded" else {})))
