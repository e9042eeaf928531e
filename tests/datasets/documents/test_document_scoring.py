import json

import numpy as np
import pytest
from datasets_for_tests import refused
from documents_for_tests import corpus, document, worked
from hypothesis import given
from hypothesis import strategies as st

from datasets.documents.encoding import PairId
from datasets.documents.scoring import NOTHING, PairScores, best_threshold, gold_facts, score_pairs

PAIRS = (
    (PairId("1", "C1", "D1", True), PairId("1", "C1", "D2", False)),
    (PairId("2", "C1", "D1", False),),
)
GOLD = {("1", "C1", 0, "D1"): True, ("2", "C1", 0, "D1"): False, ("2", "C8", 0, "D9"): False}


def test_scores_by_hand():
    scores = np.array([[[0.9], [0.6]], [[0.4], [7.0]]])  # the 7 is padding
    result = score_pairs(scores, PAIRS, GOLD, 0.5)
    assert result.all == PairScores(correct=1, predicted=2, stated=3)
    assert result.intra == PairScores(1, 1, 1) and result.inter == PairScores(0, 1, 2)
    assert result.all.precision == 0.5 and result.all.recall == pytest.approx(1 / 3)
    assert result.all.f1 == pytest.approx(0.4) and result.threshold == 0.5
    assert score_pairs(scores, PAIRS, GOLD, 0.4).all == PairScores(2, 3, 3)
    # F1 at 0.9: 2/4, at 0.6: 2/5, at 0.4: 4/6
    assert best_threshold(scores, PAIRS, GOLD) == pytest.approx(0.2), "halfway to 0: there is no lower score"
    nothing = PairScores(0, 0, 0)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)


def test_the_threshold_lies_midway_to_the_next_lower_score():
    gold = {("1", "C1", 0, "D1"): True}

    def threshold_and_scores(*scores):
        threshold = best_threshold(np.array([scores], np.float32)[..., np.newaxis], PAIRS[:1], gold)
        return threshold, score_pairs(np.array([scores], np.float32)[..., np.newaxis], PAIRS[:1], gold, threshold).all

    assert threshold_and_scores(0.75, 0.25) == (0.5, PairScores(1, 1, 1))
    assert threshold_and_scores(1.0, 1.0) == (0.5, PairScores(1, 2, 1))
    assert threshold_and_scores(1.0, 0.0) == (0.5, PairScores(1, 1, 1))
    assert threshold_and_scores(0.0, 0.0) == (0.0, PairScores(1, 2, 1)), "no score is lower than 0"
    threshold, counted = threshold_and_scores(0.3, 0.1)
    assert counted.f1 == 1 and threshold == float(np.float32(threshold)) == json.loads(json.dumps(threshold))


def test_no_probability_reaches_the_threshold_where_nothing_can_be_found():
    elsewhere = {("9", "C1", 0, "D1"): True}
    ones = np.ones((1, 2, 1), np.float32)
    assert best_threshold(ones, PAIRS[:1], elsewhere) == NOTHING == best_threshold(ones[:0], (), elsewhere)
    assert score_pairs(np.nextafter(ones, 2), PAIRS[:1], elsewhere, NOTHING).all == PairScores(0, 0, 1)


@given(st.data())
def test_scores_moved_by_a_step_of_float32_are_predicted_alike(data):
    """As another processor would give them: up, down, or each its own way."""
    count = data.draw(st.integers(1, 8))
    pairs = (tuple(PairId("1", "C", f"D{p}", True) for p in range(count)),)
    exact = st.floats(0, 1, width=32) | st.sampled_from([0.0, 0.5, 1.0])
    base = np.array(data.draw(st.lists(exact, min_size=count, max_size=count)), np.float32)
    stated = {("1", "C", 0, f"D{p}"): True for p in range(count) if data.draw(st.booleans())}
    gold = stated or {("1", "C", 0, "D0"): True}
    if data.draw(st.booleans()):  # neighbours
        base[-1] = np.nextafter(base[0], np.float32(data.draw(st.sampled_from([0, 1]))))
    scores = base[np.newaxis, :, np.newaxis]
    threshold = best_threshold(scores, pairs, gold)
    expected = score_pairs(scores, pairs, gold, threshold)
    for way in (0.0, 1.0, np.array([data.draw(st.sampled_from([0.0, 1.0])) for _ in range(count)]).reshape(1, -1, 1)):
        moved = np.nextafter(scores, np.float32(way) + np.zeros_like(scores))
        assert score_pairs(moved, pairs, gold, threshold) == expected
        np.testing.assert_array_equal(moved >= np.float32(threshold), moved.astype(float) >= threshold)


def test_several_relations():
    gold = {("2", "C1", 1, "D1"): False}
    assert score_pairs(np.array([[[0.9, 0.8]]]), PAIRS[1:], gold, 0.5).all == PairScores(1, 2, 1)
    assert score_pairs(np.array([[[0.9, 0.1]]]), PAIRS[1:], gold, 0.5).all == PairScores(0, 1, 1)


def test_gold_facts():
    some = document(
        "1",
        "x y.",
        "z",
        [("x", 0, "C1"), ("y", 0, "D1"), ("z", 0, "D2")],
        facts=[("C1", "D1"), ("C1", "D2"), ("C1", "D9"), ("C1", "C1")],
    )
    assert gold_facts(corpus(some, worked())) == {
        ("1", "C1", 0, "D1"): True,
        ("1", "C1", 0, "D2"): False,
        ("1", "C1", 0, "D9"): False,
        ("7", "C1", 0, "D2"): True,
    }


@given(st.data())
def test_the_best_threshold_is_the_best(data):
    pairs = tuple(
        tuple(PairId(str(d), "C", f"D{p}", data.draw(st.booleans())) for p in range(data.draw(st.integers(0, 4))))
        for d in range(data.draw(st.integers(1, 3)))
    )
    scores = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=4 * len(pairs), max_size=4 * len(pairs)))
    ).reshape(len(pairs), 4, 1)
    keys = [(p.document_id, p.head_id, 0, p.tail_id) for mine in pairs for p in mine]
    gold = {key: data.draw(st.booleans()) for key in [*keys, ("z", "C", 0, "D")] if data.draw(st.booleans())}
    best = score_pairs(scores, pairs, gold, best_threshold(scores, pairs, gold)).all.f1
    assert best == pytest.approx(max(score_pairs(scores, pairs, gold, t).all.f1 for t in (0.0, 0.25, 0.5, 1.0, 2.0)))
    values = {key: scores[int(key[0]), int(key[3][1:]), 0] for key in keys}
    predicted = {key for key, value in values.items() if value >= 0.5}
    counted = score_pairs(scores, pairs, gold, 0.5)
    assert counted.all == PairScores(len(predicted & set(gold)), len(predicted), len(gold))
    for part in ("correct", "predicted", "stated"):
        assert getattr(counted.intra, part) + getattr(counted.inter, part) == getattr(counted.all, part)


def test_what_does_not_fit_is_refused():
    for scores in (np.zeros((2, 2)), np.zeros((1, 2, 1)), np.zeros((2, 1, 1))):
        assert "do not fit" in refused(score_pairs, scores, PAIRS, GOLD, 0.5)
    assert "NaN" in refused(score_pairs, np.full((2, 2, 1), np.nan), PAIRS, GOLD, 0.5)
