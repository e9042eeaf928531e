"""Scores of entities by hand and against seqeval, and the dictionary baseline."""

import pytest
from datasets_for_tests import refused
from entities_for_tests import TYPES, marked, tokens_and_spans
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.records import EntitySpan
from datasets.entities.scoring import SpanCounts, SpanScores, dictionary, score_spans, tag_with_dictionary
from datasets.entities.tags import tag_names, tags_of


def spans(*texts):
    return [EntitySpan(int(a), int(b), name) for a, b, name in (text.split() for text in texts)]


def test_counts_by_hand():
    gold = [spans("0 4 Drug", "5 9 Disease", "10 12 Disease"), spans("0 2 Drug"), []]
    predicted = [spans("0 4 Drug", "0 4 Drug", "4 12 Disease"), spans("0 2 Disease"), spans("7 8 Gene")]
    scores = score_spans(gold, predicted, TYPES)
    assert scores.by_type == {"Drug": SpanCounts(1, 1, 2, 1, 1), "Disease": SpanCounts(0, 2, 2, 1, 2)}
    assert scores.micro == SpanCounts(1, 3, 4, 2, 3)
    micro = scores.micro
    assert (micro.precision, micro.recall, micro.f1) == (1 / 3, 1 / 4, 2 / 7)
    assert (micro.lenient_precision, micro.lenient_recall) == (2 / 3, 3 / 4)
    assert micro.lenient_f1 == pytest.approx(2 / (3 / 2 + 4 / 3))
    assert scores.macro_f1 == pytest.approx((2 / 3 + 0) / 2)
    assert scores.macro_lenient_f1 == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_touching_spans_and_other_types_do_not_overlap():
    counts = score_spans([spans("0 3 Drug", "3 5 Disease")], [spans("3 5 Drug")], TYPES).by_type["Drug"]
    assert counts == SpanCounts(0, 1, 1, 0, 0) and counts.lenient_f1 == 0


def test_nothing_predicted_or_stated():
    scores = score_spans([[]], [[]], TYPES)
    assert scores.micro == SpanCounts() and scores.macro_f1 == 0 and scores.micro.f1 == scores.micro.precision == 0
    only = score_spans([spans("0 1 Drug")], [spans("0 1 Drug")], TYPES)
    assert only.macro_f1 == 1, "a type without entities does not count, as in seqeval"
    assert refused(score_spans, [[]], [], TYPES) == (
        "there are gold entities of 1 texts and predicted ones of 0; give both for every text"
    )


@given(st.lists(st.tuples(tokens_and_spans(), tokens_and_spans()), min_size=1, max_size=4))
def test_counts_of_texts_add_up(pairs):
    gold, predicted = [[spans for _, spans in side] for side in zip(*pairs, strict=True)]
    parts = [score_spans([g], [p], TYPES).micro for g, p in zip(gold, predicted, strict=True)]
    micro = score_spans(gold, predicted, TYPES).micro
    assert sum(parts, SpanCounts()) == micro
    assert micro.true_positives <= micro.overlapping_predicted <= micro.predicted
    assert micro.true_positives <= micro.overlapping_actual <= micro.actual
    assert score_spans(gold, gold, TYPES).micro.f1 == score_spans(gold, gold, TYPES).micro.lenient_f1
    swapped = score_spans(predicted, gold, TYPES).micro
    assert (swapped.precision, swapped.lenient_recall) == (micro.recall, micro.lenient_precision)


@given(st.lists(st.tuples(tokens_and_spans(), st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_strict_scores_are_seqevals(drawn):
    """Runs where seqeval is installed; the project does not need it."""
    metrics = pytest.importorskip("seqeval.metrics")
    gold, predicted, gold_names, predicted_names = [], [], [], []
    for (cells, spans), random in drawn:
        changed = [EntitySpan(s.start, s.end, random.choice(TYPES)) for s in spans if random.random() < 0.8]
        for side, names in ((spans, gold_names), (changed, predicted_names)):
            names.append([tag_names(TYPES)[tag] for tag in tags_of(side, cells, TYPES)[0]])
        gold.append(spans)
        predicted.append(changed)
    scores, options = score_spans(gold, predicted, TYPES), {"zero_division": 0}
    assert scores.micro.precision == metrics.precision_score(gold_names, predicted_names, **options)
    assert scores.micro.recall == metrics.recall_score(gold_names, predicted_names, **options)
    assert scores.micro.f1 == pytest.approx(metrics.f1_score(gold_names, predicted_names, **options))
    if any(gold) or any(predicted):
        assert scores.macro_f1 == pytest.approx(
            metrics.f1_score(gold_names, predicted_names, average="macro", **options)
        )


def test_scores_of_types_without_counts_have_no_mean():
    assert SpanScores({"Drug": SpanCounts()}).macro_lenient_f1 == 0


def test_a_dictionary_of_the_training_mentions():
    samples = [
        marked("1", "[Drug aspirin] and [Disease ai] and [Disease pain]"),
        marked("2", "[Drug pain] [Disease pain], no [Drug gold]"),
        marked("3", "[Disease gold]"),
    ]
    known = dictionary(samples)
    assert known == {"aspirin": "Drug", "ai": "Disease", "pain": "Disease", "gold": "Drug"}
    texts = ["pain, ai-based aspirin", "painful 1ai gold2 Aspirin", "", "(ai)ai.ai"]
    assert tag_with_dictionary(texts, known) == [
        tuple(spans("0 4 Disease", "6 8 Disease", "15 22 Drug")),
        (),
        (),
        tuple(spans("1 3 Disease", "4 6 Disease", "7 9 Disease")),
    ]
    assert tag_with_dictionary(["pain"], {}) == [()]


def test_the_longest_mention_first_and_words_of_scripts_without_blanks():
    known = {"咳": "Symptom", "咳嗽": "Symptom", "嗽药": "Drug", "CT": "Test", "e\u0301": "Drug", "e": "Test"}
    assert tag_with_dictionary(["她咳嗽药没吃，做CT检查，CTA", "咳", "e\u0301 e"], known) == [
        tuple(spans("1 3 Symptom", "8 10 Test")),
        tuple(spans("0 1 Symptom")),
        tuple(spans("0 2 Drug", "3 4 Test")),
    ]


@given(st.lists(st.sampled_from(["[Drug ab]", "[Disease b]", "[Drug 咳嗽]", "[Disease 咳]", " ", "，"]), max_size=8))
def test_texts_of_known_mentions_and_borders_are_tagged_as_they_are(parts):
    """Mentions that a blank or a mark follows, so that none runs into the next."""
    sample = marked("1", "".join(f"{part} " for part in parts))
    known = {"ab": "Drug", "b": "Disease", "咳嗽": "Drug", "咳": "Disease"}
    assert tag_with_dictionary([sample.text], known) == [sample.spans]
