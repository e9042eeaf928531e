"""Linear-chain CRFs against sums over all taggings."""

from __future__ import annotations

import itertools

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_re.models.crf import (
    UNROLLED,
    Chain,
    LinearChain,
    expected_scores,
    log_likelihood,
    log_partition,
    marginals,
    scores,
    viterbi,
    with_allowed,
)

NUMBERS = st.floats(-4, 4, width=32)


@st.composite
def problems(draw):
    """(emissions [B, L, T], lengths [B], chain, allowed [B, T]) of up to 4^4 taggings."""
    batch, count, tags = (draw(st.integers(1, most)) for most in (3, 4, 4))
    lengths = np.array(draw(st.lists(st.integers(0, count), min_size=batch, max_size=batch)), np.int32)
    shapes = ([batch, count, tags], [tags, tags], [tags], [tags])
    emissions, *chain = (draw(arrays.arrays(np.float32, shape, elements=NUMBERS)) for shape in shapes)
    allowed = draw(arrays.arrays(np.bool_, [batch, tags]))
    allowed[:, 0] = True
    return emissions, lengths, Chain(*chain), allowed


def every_tagging(emissions, chain, allowed):
    """(taggings, their scores in float64) of one text, emissions [n, T]."""
    taggings = list(itertools.product(np.flatnonzero(allowed), repeat=len(emissions)))
    return taggings, np.array([score_of(tagging, emissions, chain) for tagging in taggings])


def score_of(tagging, emissions, chain):
    if not tagging:
        return 0.0
    total = np.float64(chain.start[tagging[0]]) + chain.end[tagging[-1]]
    total += sum(np.float64(emissions[i, tag]) for i, tag in enumerate(tagging))
    return total + sum(np.float64(chain.transitions[pair]) for pair in itertools.pairwise(tagging))


def in_logarithms(values):
    return values.max() + np.log(np.exp(values - values.max()).sum())


def tensors(emissions, lengths, chain):
    return tf.constant(emissions), tf.constant(lengths), Chain(*map(tf.constant, chain))


@settings(deadline=None, max_examples=60)
@given(problems())
def test_all_is_what_a_sum_over_all_taggings_gives(problem):
    emissions, lengths, chain, allowed = problem
    batch, count, tags = emissions.shape
    values, counts, weights = tensors(emissions, lengths, chain)
    values = with_allowed(values, tf.constant(allowed))
    totals, probabilities = log_partition(values, counts, weights), marginals(values, counts, weights)
    best = viterbi(values, counts, weights).numpy()
    given_tags = np.zeros([batch, count], np.int32)
    for row, length in enumerate(lengths):
        taggings, of_all = every_tagging(emissions[row, :length], chain, allowed[row])
        np.testing.assert_allclose(totals[row], in_logarithms(of_all), rtol=1e-5, atol=1e-4)
        shares = np.exp(of_all - in_logarithms(of_all))
        expected = np.zeros([count, tags])
        for tagging, share in zip(taggings, shares, strict=True):
            expected[np.arange(length), list(tagging)] += share
        np.testing.assert_allclose(probabilities[row], expected, atol=1e-5)
        assert score_of(tuple(best[row, :length]), emissions[row], chain) >= of_all.max() - 1e-4
        assert not best[row, length:].any() and allowed[row][best[row, :length]].all()
        given_tags[row, :length] = taggings[len(taggings) // 2]
    expected = [score_of(tuple(t[:n]), e, chain) for t, n, e in zip(given_tags, lengths, emissions, strict=True)]
    np.testing.assert_allclose(scores(tf.constant(given_tags), values, counts, weights), expected, atol=1e-4)
    likelihoods = log_likelihood(tf.constant(given_tags), values, counts, weights)
    np.testing.assert_allclose(likelihoods, expected - totals.numpy(), atol=1e-4)


@settings(deadline=None, max_examples=40)
@given(problems(), st.randoms(use_true_random=False))
def test_the_expected_score_is_the_mean_over_all_taggings(problem, random):
    """Of a CRF with other weights, which may have fewer tags."""
    emissions, lengths, chain, allowed = problem
    drawn = np.random.default_rng(random.getrandbits(32))
    other, *other_chain = (drawn.normal(size=array.shape).astype(np.float32) for array in (emissions, *chain))
    values, counts, weights = tensors(emissions, lengths, chain)
    reference = with_allowed(tf.constant(other), tf.constant(allowed)), Chain(*map(tf.constant, other_chain))
    with tf.GradientTape() as tape:
        tape.watch([values, *weights, reference[0], *reference[1]])
        computed = expected_scores(values, counts, weights, *reference)
    for row, length in enumerate(lengths):
        taggings, of_other = every_tagging(other[row, :length], Chain(*other_chain), allowed[row])
        of_this = [score_of(tagging, emissions[row], chain) for tagging in taggings]
        expected = np.exp(of_other - in_logarithms(of_other)) @ of_this
        np.testing.assert_allclose(computed[row], expected, rtol=1e-4, atol=1e-4)
    gradients = tape.gradient(computed, [values, *weights, reference[0], *reference[1]])
    np.testing.assert_allclose(gradients[0], marginals(reference[0], counts, reference[1]), atol=1e-5)
    assert gradients[4:] == [None] * 4


@settings(deadline=None, max_examples=30)
@given(problems())
def test_the_gradient_is_that_of_the_sum(problem):
    """Against differences of the sum in float64; a weight for each text."""
    emissions, lengths, chain, allowed = problem
    values, counts, weights = tensors(emissions, lengths, chain)
    upstream = np.arange(1.0, len(lengths) + 1)
    with tf.GradientTape() as tape:
        tape.watch([values, *weights])
        totals = log_partition(with_allowed(values, tf.constant(allowed)), counts, weights)
        weighted = tf.reduce_sum(totals * upstream.astype(np.float32))
    gradients = tape.gradient(weighted, [values, *weights])

    def weighted_sum(emissions, *chain):
        of_texts = [
            in_logarithms(every_tagging(emissions[row, :length], Chain(*chain), allowed[row])[1])
            for row, length in enumerate(lengths)
        ]
        return upstream @ of_texts

    parameters = [array.astype(np.float64) for array in (emissions, *chain)]
    for number, gradient in enumerate(gradients):
        for index in np.ndindex(*parameters[number].shape):
            sides = []
            for step in (1e-4, -1e-4):
                moved = [array.copy() for array in parameters]
                moved[number][index] += step
                sides.append(weighted_sum(*moved))
            assert gradient.numpy()[index] == pytest.approx((sides[0] - sides[1]) / 2e-4, abs=2e-4)


@pytest.mark.parametrize("count", [1, 2, UNROLLED, UNROLLED + 1, UNROLLED + 2, 3 * UNROLLED])
def test_texts_of_any_length(count):
    """Loops that do not end with a turn; against the recursion in float64, for texts with too many taggings."""
    random = np.random.default_rng(count)
    emissions, transitions = random.normal(size=[2, count, 3]), random.normal(size=[3, 3])
    start, end = random.normal(size=[2, 3])
    lengths = np.array([count, max(count - 1, 1)], np.int32)
    parts = [array.astype(np.float32) for array in (transitions, start, end)]
    values, counts, chain = tensors(emissions.astype(np.float32), lengths, Chain(*parts))
    totals, best = log_partition(values, counts, chain).numpy(), viterbi(values, counts, chain).numpy()
    probabilities = marginals(values, counts, chain).numpy()
    for row, length in enumerate(lengths):
        sums, greatest = (start + emissions[row, 0] for _ in range(2))
        for step in emissions[row, 1:length]:
            sums = step + np.array([in_logarithms(sums + column) for column in transitions.T])
            greatest = step + (greatest[:, np.newaxis] + transitions).max(axis=0)
        np.testing.assert_allclose(totals[row], in_logarithms(sums + end), rtol=1e-5)
        found = score_of(tuple(best[row, :length]), emissions[row], Chain(transitions, start, end))
        np.testing.assert_allclose(found, (greatest + end).max(), rtol=1e-5)
        np.testing.assert_allclose(probabilities[row].sum(axis=-1), np.arange(count) < length, atol=1e-5)


def test_by_hand():
    """Two tokens and two tags; only a change of tags scores, log 3 from 0 to 1, log 2 from 1 to 0."""
    transitions = np.log([[1, 3], [2, 1]]).astype(np.float32)
    none = np.zeros(2, np.float32)
    values, counts, chain = tensors(np.zeros([1, 2, 2], np.float32), np.int32([2]), Chain(transitions, none, none))
    assert np.exp(log_partition(values, counts, chain)[0]) == pytest.approx(1 + 3 + 2 + 1, rel=1e-6)
    np.testing.assert_allclose(marginals(values, counts, chain)[0], [[4 / 7, 3 / 7], [3 / 7, 4 / 7]], rtol=1e-5)
    np.testing.assert_array_equal(viterbi(values, counts, chain)[0], [0, 1])


def test_without_transitions_it_is_the_softmax_of_each_token():
    random = np.random.default_rng(0)
    emissions, lengths = random.normal(size=[2, 5, 4]).astype(np.float32), np.array([5, 3], np.int32)
    layer = LinearChain(4)
    chain = Chain(**layer(lengths))
    assert [w.name.split("/")[-1] for w in layer.weights] == ["transitions:0", "start:0", "end:0"]
    totals = log_partition(tf.constant(emissions), tf.constant(lengths), chain)
    of_tokens = np.log(np.exp(emissions).sum(axis=-1))
    np.testing.assert_allclose(totals, [of_tokens[0].sum(), of_tokens[1, :3].sum()], rtol=1e-6)
    softmax = tf.nn.softmax(emissions)[0]
    np.testing.assert_allclose(marginals(tf.constant(emissions), tf.constant(lengths), chain)[0], softmax, atol=1e-6)


def test_long_texts_of_large_scores_stay_exact():
    """The sums are shifted at each token: a text of 2,000 tokens has probabilities as exact as a short one."""
    random = np.random.default_rng(0)
    emissions = (30 * random.normal(size=[1, 2000, 5])).astype(np.float32)
    transitions = (5 * random.normal(size=[5, 5])).astype(np.float32)
    none = np.zeros(5, np.float32)
    values, counts, chain = tensors(emissions, np.array([2000], np.int32), Chain(transitions, none, none))
    sums = np.zeros([2000, 5])
    sums[0] = emissions[0, 0]
    for i in range(1, 2000):
        sums[i] = emissions[0, i] + np.log(np.exp((sums[i - 1] - sums[i - 1].max())[:, None] + transitions).sum(0))
        sums[i] += sums[i - 1].max()
    right = np.zeros([2000, 5])
    for i in range(1998, -1, -1):
        onward = right[i + 1] + emissions[0, i + 1]
        right[i] = np.log(np.exp(onward - onward.max() + transitions).sum(1)) + onward.max()
    expected = np.exp(sums + right - in_logarithms(sums[-1]))
    np.testing.assert_allclose(marginals(values, counts, chain)[0], expected, atol=2e-5)
    assert float(log_partition(values, counts, chain)[0]) == pytest.approx(in_logarithms(sums[-1]), rel=1e-6)


@pytest.mark.parametrize("large", [1e4, 1e9])
def test_gradients_of_extreme_scores_are_finite(large):
    emissions = tf.constant([[[large, 0.0, -large], [0.0, -large, large], [-large, large, 0.0]]] * 2)
    chain = Chain(tf.constant(np.diag([large, -large, 0.0]).astype(np.float32)), tf.zeros(3), tf.fill([3], -large))
    with tf.GradientTape() as tape:
        tape.watch([emissions, *chain])
        lengths = tf.constant([3, 0])
        total = log_likelihood(tf.constant([[0, 1, 2]] * 2), emissions, lengths, chain)
    for gradient in tape.gradient(total, [emissions, *chain]):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
    assert float(total[1]) == 0.0


def test_in_a_graph_of_free_dimensions():
    """Of any number of texts and tokens, with the gradient; what lies behind a text counts nowhere."""
    spec = (
        tf.TensorSpec([None, None, 3], tf.float32),
        tf.TensorSpec([None, None], tf.int32),
        tf.TensorSpec([None], tf.int32),
    )

    @tf.function(input_signature=spec, autograph=False)
    def both(emissions, tags, lengths):
        chain = Chain(tf.eye(3), tf.ones(3), tf.zeros(3))
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            value = tf.reduce_sum(log_likelihood(tags, emissions, lengths, chain))
        return value, tape.gradient(value, emissions), viterbi(emissions, lengths, chain)

    random = np.random.default_rng(1)
    emissions, tags = random.normal(size=[2, 11, 3]).astype(np.float32), random.integers(0, 3, [2, 11]).astype(np.int32)
    lengths = np.array([4, 11], np.int32)
    value, gradient, best = both(emissions, tags, lengths)
    assert not gradient.numpy()[0, 4:].any() and gradient.numpy()[0, :4].any()
    changed, changed_tags = emissions.copy(), tags.copy()
    changed[0, 4:], changed_tags[0, 4:] = 7.0, 1
    again, same, same_best = both(changed, changed_tags, lengths)
    assert float(again) == float(value)
    np.testing.assert_array_equal(same, gradient)
    np.testing.assert_array_equal(same_best, best)
    one, *_ = both(emissions[:, :1], tags[:, :1], np.array([1, 0], np.int32))
    np.testing.assert_allclose(
        float(one), 1 + emissions[0, 0, tags[0, 0]] - in_logarithms(1 + emissions[0, 0].astype(float)), rtol=1e-5
    )
    assert both(emissions[:0], tags[:0], lengths[:0])[2].shape == (0, 11)
