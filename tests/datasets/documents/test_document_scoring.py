import json

import numpy as np
import pytest
from datasets_for_tests import refused
from documents_for_tests import corpus, document, worked
from hypothesis import given
from hypothesis import strategies as st

from datasets.documents.encoding import PairId, identified_pairs
from datasets.documents.pairs import PairRule, document_corpus
from datasets.documents.records import Document, EntityMention, Fact
from datasets.documents.scoring import (
    NOTHING,
    Gold,
    PairScores,
    best_threshold,
    countable,
    facts_by_name,
    gold_facts,
    score_pairs,
)

PAIRS = (
    (PairId("1", "C1", "D1", True), PairId("1", "C1", "D2", False)),
    (PairId("2", "C1", "D1", False),),
)
GOLD = Gold({("1", "C1", 0, "D1"): True, ("2", "C1", 0, "D1"): False, ("2", "C8", 0, "D9"): False})


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
    gold = Gold({("1", "C1", 0, "D1"): True})

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
    elsewhere = Gold({("9", "C1", 0, "D1"): True})
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
    gold = Gold(stated or {("1", "C", 0, "D0"): True})
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
    gold = Gold({("2", "C1", 1, "D1"): False})
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
    assert gold_facts(corpus(some, worked())).facts == {
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
    gold = Gold({key: data.draw(st.booleans()) for key in [*keys, ("z", "C", 0, "D")] if data.draw(st.booleans())})
    best = score_pairs(scores, pairs, gold, best_threshold(scores, pairs, gold)).all.f1
    assert best == pytest.approx(max(score_pairs(scores, pairs, gold, t).all.f1 for t in (0.0, 0.25, 0.5, 1.0, 2.0)))
    values = {key: scores[int(key[0]), int(key[3][1:]), 0] for key in keys}
    predicted = {key for key, value in values.items() if value >= 0.5}
    counted = score_pairs(scores, pairs, gold, 0.5)
    assert counted.all == PairScores(len(predicted & set(gold.facts)), len(predicted), len(gold.facts))
    for part in ("correct", "predicted", "stated"):
        assert getattr(counted.intra, part) + getattr(counted.inter, part) == getattr(counted.all, part)


PAIRS_OF_TWO = (
    (PairId("1", "A", "B", True), PairId("1", "A", "C", False), PairId("1", "B", "C", True)),
    (PairId("2", "A", "B", True),),
)
"""Two documents for the worked numbers of three relations."""

FACTS_OF_TWO = {
    **{("1", "A", 0, "B"): True, ("1", "A", 1, "B"): True, ("1", "B", 0, "C"): True},
    **{("2", "A", 0, "B"): True, ("2", "Z", 3, "B"): False},
}
"""Two facts of a pair, one of no candidate and of a relation that the model does not know (its index is 3)."""

SCORES_OF_TWO = np.array(
    [[[0.9, 0.8, 0.1], [0.7, 0.2, 0.6], [0.1, 0.1, 0.1]], [[0.9, 0.1, 0.1], [9, 9, 9], [9, 9, 9]]], np.float32
)


def test_micro_and_macro_f1_by_hand():
    """From 0.5: of relation 0 three are predicted, two of them right, three stated: 4/6; of relation 1 one of one: 1;
    of relation 2 one is predicted, wrong: 0; of the unknown one none, one stated: 0. Together 5 predicted, 3 right,
    5 stated: micro 6/10, macro (2/3 + 1 + 0 + 0) / 4."""
    result = score_pairs(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(FACTS_OF_TWO), 0.5)
    assert result.by_relation == (PairScores(2, 3, 3), PairScores(1, 1, 1), PairScores(0, 1, 0), PairScores(0, 0, 1))
    assert result.all == PairScores(3, 5, 5) and result.all.f1 == pytest.approx(0.6)
    assert result.macro_f1 == pytest.approx((2 / 3 + 1) / 4)
    assert result.intra == PairScores(3, 3, 4) and result.inter == PairScores(0, 2, 1)
    few = score_pairs(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(dict(list(FACTS_OF_TWO.items())[:1])), 0.85)
    assert few.by_relation == (PairScores(1, 2, 1), PairScores(0, 0, 0), PairScores(0, 0, 0))
    assert few.macro_f1 == few.all.f1, "relations that are neither stated nor predicted do not count"
    nothing = score_pairs(SCORES_OF_TWO[:0], (), Gold({}), 0.5)
    assert nothing.macro_f1 == nothing.ign_f1 == 0.0
    # F1 at 0.9: 4/7, at 0.8: 6/8, at 0.7: 6/9, at 0.6: 6/10
    assert best_threshold(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(FACTS_OF_TWO)) == pytest.approx(0.75)


def test_f1_without_known_facts_by_hand():
    """As DocRED's evaluation: two of the three right ones are known, so precision is 1/3, and recall stays 3/5."""
    known = frozenset([("1", "A", 0, "B"), ("2", "A", 0, "B"), ("1", "B", 0, "C")])
    result = score_pairs(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(FACTS_OF_TWO, known), 0.5)
    assert result.correct_known == 2, "the third is not predicted"
    assert result.ign_f1 == pytest.approx(2 * (1 / 3) * (3 / 5) / (1 / 3 + 3 / 5))
    assert score_pairs(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(FACTS_OF_TWO), 0.5).correct_known is None
    every = score_pairs(SCORES_OF_TWO, PAIRS_OF_TWO, Gold(FACTS_OF_TWO, frozenset(FACTS_OF_TWO)), 0.85)
    assert every.correct_known == every.all.predicted == 2 and every.ign_f1 == 0.0


def official_ign_f1(predicted, stated, names, in_train):
    """DocRED's evaluation, from its description: triples of (document, head, relation, tail), names of entities."""
    correct = [p for p in predicted if p in stated]
    seen = [
        (d, h, r, t) for d, h, r, t in correct if any((a, r, b) in in_train for a in names[d, h] for b in names[d, t])
    ]
    precision = (len(correct) - len(seen)) / (len(predicted) - len(seen) + 1e-5)
    recall = len(correct) / len(stated)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@given(st.data())
def test_f1_without_known_facts_is_docreds(data):
    """Two documents of three entities with names from a few; facts of two relations in training and in test."""
    entities, relations = "ABC", ("R", "S")

    def drawn(prefix):
        made = []
        for number in range(2):
            names = {e: data.draw(st.lists(st.sampled_from("xyzw"), min_size=1, max_size=2)) for e in entities}
            mentions, text = [], ""
            for entity in entities:
                for name in names[entity]:
                    mentions.append(EntityMention(len(text), len(text) + 1, "T", (entity,)))
                    text += name
            triples = st.tuples(st.sampled_from(entities), st.sampled_from(relations), st.sampled_from(entities))
            facts = data.draw(st.lists(triples.filter(lambda f: f[0] != f[2]), unique=True, min_size=1, max_size=4))
            facts = tuple(Fact(*fact) for fact in facts)
            made.append(Document(f"{prefix}{number}", text, 0, tuple(mentions), facts))
        rule = PairRule((("T", "T"),), relations)
        return document_corpus(made, rule, name=prefix, facts_by_name=True)

    train, test = drawn("train"), drawn("test")
    gold = gold_facts(test, facts_by_name([train]))
    pairs = identified_pairs(test.samples)
    scores = np.array(data.draw(st.lists(st.booleans(), min_size=24, max_size=24)), np.float32).reshape(2, 6, 2)
    result = score_pairs(scores, pairs, gold, 0.5)
    predicted = [
        (pair.document_id, pair.head_id, relations[r], pair.tail_id)
        for row, mine in zip(scores, pairs, strict=True)
        for values, pair in zip(row, mine, strict=True)
        for r in range(2)
        if values[r]
    ]
    stated = {(d, h, relations[r], t) for d, h, r, t in gold.facts}
    names = {(s.document_id, i): named for s in test.samples for i, named in s.document.names().items()}
    in_train = set(facts_by_name([train]))
    assert result.ign_f1 == pytest.approx(official_ign_f1(predicted, stated, names, in_train), abs=1e-4)


def test_relations_without_a_direction_count_in_one_order():
    """Both orders are candidates, of which the second does not count relation 0."""
    pairs = ((PairId("1", "A", "B", True), PairId("1", "B", "A", True, (0,))),)
    gold = Gold({("1", "A", 0, "B"): True, ("1", "B", 1, "A"): True})
    scores = np.array([[[0.9, 0.2], [0.8, 0.7]]], np.float32)
    assert score_pairs(scores, pairs, gold, 0.5).by_relation == (PairScores(1, 1, 1), PairScores(1, 1, 1))
    assert best_threshold(scores, pairs, gold) == pytest.approx(0.45)
    values, stated = countable(scores, pairs, gold)
    assert values.tolist() == pytest.approx([0.9, 0.2, 0.7]) and stated.tolist() == [True, False, True]


def test_what_does_not_fit_is_refused():
    for scores in (np.zeros((2, 2)), np.zeros((1, 2, 1)), np.zeros((2, 1, 1))):
        assert "do not fit" in refused(score_pairs, scores, PAIRS, GOLD, 0.5)
    assert "NaN" in refused(score_pairs, np.full((2, 2, 1), np.nan), PAIRS, GOLD, 0.5)
