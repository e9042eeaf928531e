"""Rows of tokens: padding, losses, and entities against the decoder of the data side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from computations.local_model import GLOBAL
from datasets.entities.tags import SCHEMES, spans_of
from tff_re.models.crf import Chain
from tff_re.models.inputs import TaggedPieceInput, TaggedTokenInput
from tff_re.models.tagging import (
    TokenRows,
    TokenTags,
    TrimTagged,
    allowed_tags,
    best_tags,
    padded,
    probabilities_and_tags,
    spans,
    tag_losses,
    tag_statistics,
    unpadded,
)

TYPES = ("drug", "disease", "gene")
BLOCKS = {scheme: len(letters) for scheme, letters in SCHEMES.items()}
"""Scheme -> tags of a type."""


@st.composite
def tagged_texts(draw, taggings: int = 1):
    """(scheme, number of types, a list of the texts' tags for each of so many taggings of the same texts)."""
    scheme, types = draw(st.sampled_from(sorted(SCHEMES))), draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    tags = st.integers(0, types * BLOCKS[scheme])
    every = [[draw(st.lists(tags, min_size=n, max_size=n)) for n in lengths] for _ in range(taggings)]
    return scheme, types, every


def decoded(tags, types, scheme):
    """{(first token, token behind the last, type)} by the decoder of the data side."""
    tokens = [(i, i + 1) for i in range(len(tags))]
    return {(s.start, s.end, TYPES.index(s.type)) for s in spans_of(tags, tokens, TYPES[:types], scheme)}


def rows_of(texts):
    return tf.constant(list(itertools.chain(*texts)), tf.int32), tf.constant([len(t) for t in texts], tf.int32)


def outputs_of(texts, types, scheme, logits=None, annotated=None, unrepresented=None, **more):
    """A model's outputs for texts of these tags, which it gives the highest logits if none are said."""
    tags, lengths = rows_of(texts)
    of_types = np.ones([len(texts), types], np.int32)
    return {
        "logits": tf.one_hot(tags, 1 + types * BLOCKS[scheme]) if logits is None else tf.constant(logits),
        "lengths": lengths,
        "annotated": tf.constant(of_types if annotated is None else np.array(annotated, np.int32)),
        "unrepresented": tf.constant(0 * of_types if unrepresented is None else np.array(unrepresented, np.int32)),
        **more,
    }


@settings(deadline=None, max_examples=150)
@given(tagged_texts())
def test_entities_are_those_of_the_decoder(problem):
    scheme, types, (texts,) = problem
    tags, lengths = rows_of(texts)
    result = spans(tags, lengths, types, 1 + types * BLOCKS[scheme])
    of_type, begins, end = (array.numpy() for array in result)
    first = 0
    for text in texts:
        inside = range(first, first + len(text))
        entities = {(i - first, end[i] - first, of_type[i]) for i in inside if begins[i]}
        assert entities == decoded(text, types, scheme)
        covered = {i + first for start, stop, _ in entities for i in range(start, stop)}
        assert covered == {i for i in inside if of_type[i] >= 0}
        first += len(text)


def counted(gold, predicted, types, scheme, annotated, unrepresented):
    """The statistics in sets of spans, token by token."""
    counts = {
        name: np.zeros(types)
        for name in ("true_positives", "predicted", "actual", "overlapping_predicted", "overlapping_actual")
    }
    for row, (right, guess) in enumerate(zip(gold, predicted, strict=True)):
        theirs, ours = (
            {s for s in decoded(t, types, scheme) if annotated[row][s[2]]} for t in (right, guess)
        )  # both are of one tag a token, so that leaving a type out does not change the others
        for k in range(types):
            right, guess = ([s for s in side if s[2] == k] for side in (theirs, ours))
            counts["true_positives"][k] += len(set(right) & set(guess))
            counts["predicted"][k] += len(guess)
            counts["actual"][k] += len(right) + annotated[row][k] * unrepresented[row][k]
            for name, these, those in (("predicted", guess, right), ("actual", right, guess)):
                touching = [a for a in these if any(a[0] < b[1] and b[0] < a[1] for b in those)]
                counts[f"overlapping_{name}"][k] += len(touching)
    return counts


@settings(deadline=None, max_examples=150)
@given(tagged_texts(2), st.randoms(use_true_random=False))
def test_statistics_are_those_of_sets_of_spans(problem, random):
    scheme, types, (gold, predicted) = problem
    annotated = [[random.randint(0, 1) for _ in range(types)] for _ in gold]
    unrepresented = [[random.randint(0, 2) for _ in range(types)] for _ in gold]
    outputs = outputs_of(predicted, types, scheme, annotated=annotated, unrepresented=unrepresented)
    computed = tag_statistics(rows_of(gold)[0], outputs)
    for name, expected in counted(gold, predicted, types, scheme, annotated, unrepresented).items():
        assert computed[name].dtype == tf.float32
        np.testing.assert_array_equal(computed[name], expected, err_msg=name)
    block, right = BLOCKS[scheme], 0
    for row, (theirs, ours) in enumerate(zip(gold, predicted, strict=True)):
        known = [[t if t and annotated[row][(t - 1) // block] else 0 for t in side] for side in (theirs, ours)]
        right += sum(a == b for a, b in zip(*known, strict=True))
    np.testing.assert_array_equal(computed["correct_tags"], [right])


def test_statistics_by_hand():
    """A drug found, one found too long, a disease taken for a drug; one drug that tags do not hold."""
    gold = [[1, 2, 0, 1, 0, 3]]
    predicted = [[1, 2, 0, 1, 2, 1]]
    result = tag_statistics(rows_of(gold)[0], outputs_of(predicted, 2, "BIO", unrepresented=[[1, 0]]))
    expected = {
        "true_positives": [1, 0],
        "predicted": [3, 0],
        "actual": [3, 1],
        "overlapping_predicted": [2, 0],
        "overlapping_actual": [2, 0],
        "correct_tags": [4],
    }
    assert {name: value.numpy().tolist() for name, value in result.items()} == expected


def test_padding_and_back():
    rows = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    lengths = tf.constant([2, 0, 3, 1])
    expected = np.zeros([4, 3, 2])
    expected[0, :2], expected[2], expected[3, :1] = rows[:2], rows[2:5], rows[5:]
    np.testing.assert_array_equal(padded(rows, lengths), expected)
    np.testing.assert_array_equal(unpadded(padded(rows, lengths), lengths), rows)
    assert padded(rows[:0], tf.constant([0, 0])).shape == (2, 1, 2)
    assert unpadded(tf.zeros([2, 1, 2]), tf.constant([0, 0])).shape == (0, 2)


def test_trimming_and_rows():
    arrays = {
        "attention_mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]),
        "tags": np.array([[-1, 2, -1, -1, -1], [-1, 0, 1, -1, -1]]),
        "annotated": np.ones([2, 5]),
        "hidden": np.arange(20, dtype=np.float16).reshape(2, 5, 2),
    }
    trimmed = TrimTagged()({name: tf.constant(array) for name, array in arrays.items()})
    assert {n: v.shape[1] for n, v in trimmed.items()} == {"attention_mask": 4, "tags": 4, "annotated": 5, "hidden": 4}
    assert trimmed["hidden"].dtype == tf.float16
    rows = TokenRows()({"outputs": trimmed["hidden"], "tags": trimmed["tags"]})
    np.testing.assert_array_equal(rows["rows"], arrays["hidden"][[0, 1, 1], [1, 1, 2]])
    np.testing.assert_array_equal(rows["lengths"], [1, 2])
    windows = {"attention_mask": arrays["attention_mask"], "hidden": tf.zeros([2, 3, 5, 2])}
    assert TrimTagged()(windows)["hidden"].shape == (2, 3, 4, 2)
    words = TrimTagged()({"tokens": tf.constant([[4, 1, 0, 0]]), "tags": tf.constant([[0, 0, -1, -1]])})
    assert words["tokens"].shape == words["tags"].shape == (1, 2)
    assert TrimTagged()({"tokens": tf.zeros([2, 3], tf.int32)})["tokens"].shape == (2, 1)


# Losses


def chain_of(tags, seed=0, scale=1.0):
    random = np.random.default_rng(seed)
    shapes = [tags, tags], [tags], [tags]
    arrays = (tf.constant(scale * random.normal(size=shape), tf.float32) for shape in shapes)
    return dict(zip(Chain._fields, arrays, strict=True))


def drawn(texts, types, scheme, seed=0):
    return np.random.default_rng(seed).normal(size=[sum(map(len, texts)), 1 + types * BLOCKS[scheme]])


TEXTS = [[0, 1, 2], [], [3, 4, 0, 0], [1]]


def test_the_softmax_loss_of_each_row():
    logits = drawn(TEXTS, 2, "BIO")
    labels, _ = rows_of(TEXTS)
    losses = tag_losses(labels, outputs_of(TEXTS, 2, "BIO", logits.astype(np.float32)))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(losses, -np.log(shares[np.arange(len(labels)), labels]), rtol=1e-5)


def by_hand(text, logits, chain, allowed):
    """A text's -log p(tags) over its length, by all taggings of allowed tags."""
    transitions, start, end = (chain[name].numpy().astype(float) for name in Chain._fields)

    def score(tags):
        steps = sum(transitions[pair] for pair in itertools.pairwise(tags))
        return start[tags[0]] + end[tags[-1]] + steps + sum(logits[i, tag] for i, tag in enumerate(tags))

    every = np.array([score(tags) for tags in itertools.product(allowed, repeat=len(text))])
    return (np.log(np.exp(every).sum()) - score(text)) / len(text)


@pytest.mark.parametrize("annotated", [[1, 1], [1, 0]])
def test_the_loss_of_a_chain_is_its_texts_over_its_rows(annotated):
    logits, chain = drawn(TEXTS, 2, "BIO"), chain_of(5)
    labels = rows_of(TEXTS)[0]
    outputs = outputs_of(TEXTS, 2, "BIO", logits.astype(np.float32), annotated=[annotated] * 4, **chain)
    allowed = range(5) if all(annotated) else range(3)
    expected, first = [], 0
    for text in TEXTS:
        known = [tag if tag in allowed else 0 for tag in text]
        if text:
            expected += [by_hand(known, logits[first:], chain, allowed)] * len(text)
        first += len(text)
    np.testing.assert_allclose(tag_losses(labels, outputs), expected, rtol=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("crf", [False, True])
def test_types_that_a_text_is_not_annotated_with_are_left_out(scheme, crf):
    """Their logits change no loss and get no gradient; the other texts' do. Their tags count as outside."""
    texts, block = [[0, 1, 0], [0, 1, 1 + BLOCKS[scheme]]], BLOCKS[scheme]
    logits = tf.Variable(drawn(texts, 2, scheme).astype(np.float32))
    chain = chain_of(1 + 2 * block) if crf else {}
    labels, _ = rows_of(texts)

    def losses(logits, labels=labels):
        annotated = [[1, 0], [1, 1]]
        return tag_losses(labels, {**outputs_of(texts, 2, scheme, annotated=annotated, **chain), "logits": logits})

    with tf.GradientTape() as tape:
        computed = losses(tf.identity(logits))
    gradient = tape.gradient(computed, logits).numpy()
    assert not gradient[:3, 1 + block :].any() and (gradient[:3, : 1 + block] != 0).all()
    assert (gradient[3:] != 0).all()
    changed = logits.numpy()
    changed[:3, 1 + block :] += 100
    np.testing.assert_allclose(losses(tf.constant(changed))[:3], computed[:3], rtol=1e-6)
    outside = losses(logits, tf.tensor_scatter_nd_update(labels, [[1]], [1 + block]))
    again = losses(logits, tf.tensor_scatter_nd_update(labels, [[1]], [0]))
    np.testing.assert_array_equal(outside, again)
    assert np.isfinite(outside).all()


@pytest.mark.parametrize("crf", [False, True])
def test_what_is_not_annotated_is_expected_as_the_global_model_has_it(crf):
    """By all taggings: the first text is annotated with the first type only, the second with both."""
    texts, annotated = [[0, 1, 0], [0, 3, 4]], [[1, 0], [1, 1]]
    logits, others = (drawn(texts, 2, "BIO", seed=seed) for seed in (0, 7))
    chain, other_chain = (chain_of(5, seed=seed, scale=float(crf)) for seed in (0, 7))
    chain, other_chain = ({name: value.numpy() for name, value in one.items()} for one in (chain, other_chain))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # as in training
        outputs = outputs_of(texts, 2, "BIO", logits.astype(np.float32), annotated=annotated, **(chain if crf else {}))
        of_global = {"logits": others.astype(np.float32), **(other_chain if crf else {})}
        outputs |= {f"{GLOBAL}{name}": tf.constant(value) for name, value in of_global.items()}
        losses = session.run(tag_losses(rows_of(texts)[0], outputs))

    def scores(taggings, logits, chain):
        transitions, start, end = (chain[name].astype(float) for name in Chain._fields)
        steps = [sum(transitions[pair] for pair in itertools.pairwise(tags)) for tags in taggings]
        ends = [start[tags[0]] + end[tags[-1]] for tags in taggings]
        return np.array(steps) + ends + [sum(logits[i, tag] for i, tag in enumerate(tags)) for tags in taggings]

    every, possible = (list(itertools.product(*tags)) for tags in ([range(5)] * 3, [(0, 3, 4), (1,), (0, 3, 4)]))
    first, second = (np.log(np.exp(scores(every, of_text, chain)).sum()) for of_text in (logits[:3], logits[3:]))
    shares = np.exp(scores(possible, others[:3], other_chain))
    first -= shares / shares.sum() @ scores(possible, logits[:3], chain)
    second -= scores([(0, 3, 4)], logits[3:], chain)[0]
    if crf:
        np.testing.assert_allclose(losses, [first / 3] * 3 + [second / 3] * 3, rtol=1e-5)
    else:
        np.testing.assert_allclose([losses[:3].sum(), losses[3:].sum()], [first, second], rtol=1e-5)
        assert len(set(losses)) == 6


def test_allowed_tags():
    assert allowed_tags(tf.constant([[1, 0]]), 5).numpy().tolist() == [[True, True, True, False, False]]
    assert allowed_tags(tf.constant([[0, 1]]), 9).numpy().tolist() == [[True] + [False] * 4 + [True] * 4]


@pytest.mark.parametrize("crf", [False, True])
def test_a_batch_without_tokens(crf):
    outputs = outputs_of([[], []], 2, "BIO", np.zeros([0, 5], np.float32), **(chain_of(5) if crf else {}))
    with tf.GradientTape() as tape:
        tape.watch(outputs["logits"])
        losses = tag_losses(tf.zeros([0], tf.int32), outputs)
    assert losses.shape == (0,) and tape.gradient(losses, outputs["logits"]).shape == (0, 5)
    assert all(not value.numpy().any() for value in tag_statistics(tf.zeros([0], tf.int32), outputs).values())
    probabilities, tags = probabilities_and_tags(outputs, tf.fill([2, 3], -1))
    assert probabilities.shape == (2, 3, 5) and not probabilities.numpy().any() and (tags.numpy() == -1).all()


# What exports give


@pytest.mark.parametrize("crf", [False, True])
def test_probabilities_and_tags_stand_where_the_tokens_are(crf):
    texts = [[0, 1, 2], [], [3, 4]]
    logits = (2 * drawn(texts, 2, "BIO")).astype(np.float32)
    outputs = outputs_of(texts, 2, "BIO", logits, **(chain_of(5, scale=2) if crf else {}))
    tokens = tf.constant([[-1, 0, 0, 0, -1], [-1, -1, -1, -1, -1], [-1, 0, -1, 0, -1]])
    probabilities, tags = (array.numpy() for array in probabilities_and_tags(outputs, tokens))
    places = np.argwhere(tokens.numpy() >= 0)
    assert (tags[tokens.numpy() < 0] == -1).all() and not probabilities[tokens.numpy() < 0].any()
    rows = probabilities[tuple(places.T)]
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(tags[tuple(places.T)], best_tags(outputs))
    if crf:
        transitions, start, end = (outputs[name].numpy() for name in Chain._fields)
        every = {
            pair: np.exp(logits[3, pair[0]] + logits[4, pair[1]] + transitions[pair] + start[pair[0]] + end[pair[1]])
            for pair in itertools.product(range(5), repeat=2)
        }
        shares = np.array([sum(v for pair, v in every.items() if pair[0] == tag) for tag in range(5)])
        np.testing.assert_allclose(rows[3], shares / shares.sum(), atol=1e-5)
        assert tuple(tags[2, [1, 3]]) == max(every, key=every.get)
        assert (best_tags(outputs).numpy() != logits.argmax(axis=1)).any()
    else:
        np.testing.assert_allclose(rows, tf.nn.softmax(logits), atol=1e-6)
        np.testing.assert_array_equal(best_tags(outputs), logits.argmax(axis=1))
    layer = TokenTags()({**outputs, "tags": tokens})
    np.testing.assert_array_equal(layer["tags"], tags)


def test_they_are_part_of_a_saved_model(tmp_path):
    module = tf.Module()
    specs = {
        "logits": tf.TensorSpec([None, 5], tf.float32),
        "lengths": tf.TensorSpec([None], tf.int32),
        **{name: tf.TensorSpec(v.shape, v.dtype) for name, v in chain_of(5).items()},
        "tags": tf.TensorSpec([None, None], tf.int32),
    }

    @tf.function(input_signature=[specs])
    def serve(arrays):
        outputs = {name: value for name, value in arrays.items() if name != "tags"}
        return dict(zip(("probabilities", "tags"), probabilities_and_tags(outputs, arrays["tags"]), strict=True))

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path))
    outputs = outputs_of([[0, 1, 2], [3]], 2, "BIO", drawn([[0] * 4], 2, "BIO").astype(np.float32), **chain_of(5))
    arrays = {name: outputs[name] for name in specs if name != "tags"} | {"tags": tf.constant([[0, 0, 0], [-1, 0, -1]])}
    served = tf.saved_model.load(str(tmp_path)).serve(arrays)
    expected = probabilities_and_tags(outputs, arrays["tags"])
    np.testing.assert_allclose(served["probabilities"], expected[0], atol=1e-6)
    np.testing.assert_array_equal(served["tags"], expected[1])


def test_inputs_have_a_spec_for_each_array():
    words, pieces = TaggedTokenInput(9, 5, TYPES, "BIO"), TaggedPieceInput(9, 5, TYPES, "BIOES", "folder")
    common = {"tags": [None, 5], "unrepresented": [None, 3], "annotated": [None, 3]}
    assert {n: s.shape.as_list() for n, s in words.specs.items()} == {"tokens": [None, 5], **common}
    ids = {name: [None, 5] for name in ("input_ids", "attention_mask")}
    assert {n: s.shape.as_list() for n, s in pieces.specs.items()} == {**ids, **common}
    assert pieces.num_tags == 13 and pieces == TaggedPieceInput(9, 5, TYPES, "BIOES", "folder")
