"""Measures of entities by hand, against the scores of spans, and against seqeval."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from datasets.entities.records import EntitySpan
from datasets.entities.scoring import SpanScores, score_spans
from datasets.entities.tags import SCHEMES, spans_of, tag_names
from tff_re.models.tagging import tag_statistics
from tff_re.recipes.metric_names import ALL
from tff_re.tasks.span_metrics import SPAN_METRICS, SpanMeasures

TYPES = ("drug", "disease", "gene")
COUNTS = ("true_positives", "predicted", "actual", "overlapping_predicted", "overlapping_actual")


def statistics(*columns, examples=20.0, loss=5.0):
    """What clients send; columns in the order of `COUNTS`, a number a type each."""
    arrays = {name: np.array(column, np.float32) for name, column in zip(COUNTS, columns, strict=True)}
    return {"examples": np.float32(examples), "loss": np.float32(loss), **arrays}


def test_by_hand():
    """Drugs: 2 of 4 predicted are right, of 5; diseases: 1 of 1, of 2; no gene."""
    measures = SpanMeasures(TYPES)
    counted = statistics([2, 1, 0], [4, 1, 0], [5, 2, 0], [3, 1, 0], [4, 1, 0])
    measured = measures.metrics(counted)
    assert tuple(measured) == measures.names == SPAN_METRICS and measures.quality == "f1"
    drugs, diseases = 2 * 2 / (4 + 5), 2 * 1 / (1 + 2)
    assert measured == pytest.approx(
        {
            **{"loss": 5 / 20, "precision": 3 / 5, "recall": 3 / 7, "f1": 2 * 3 / (5 + 7)},
            "macro_f1": (drugs + diseases) / 2,
            **{"lenient_precision": 4 / 5, "lenient_recall": 5 / 7, "lenient_f1": 2 / (5 / 4 + 7 / 5)},
        }
    )
    precision, recall, f1, actual = measures.per_class(counted)
    assert precision.tolist() == pytest.approx([1 / 2, 1, 0]) and recall.tolist() == pytest.approx([2 / 5, 1 / 2, 0])
    assert f1.tolist() == pytest.approx([drugs, diseases, 0]) and actual.tolist() == [5, 2, 0]
    assert measures.confusion(counted) is None and measures.trivial(counted) == {}


def test_without_tokens_and_without_entities():
    measures, nothing = SpanMeasures(TYPES), [[0] * 3] * 5
    assert all(math.isnan(value) for value in measures.metrics(statistics(*nothing, examples=0, loss=0)).values())
    assert measures.metrics(statistics(*nothing)) == {**dict.fromkeys(SPAN_METRICS, 0.0), "loss": 0.25}
    missed = measures.metrics(statistics([0] * 3, [0] * 3, [1, 0, 0], [0] * 3, [0] * 3))
    assert missed == {**dict.fromkeys(SPAN_METRICS, 0.0), "loss": 0.25}


def test_a_type_without_entities_is_not_in_the_macro_f1():
    measures = SpanMeasures(TYPES)
    assert measures.metrics(statistics([1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]))["macro_f1"] == 1
    predicted = measures.metrics(statistics([1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]))
    assert predicted["macro_f1"] == 0.5, "a type that is predicted is"


def test_suites_and_recipes_may_name_every_measure():
    assert {f"{split}/{name}" for split in ("test", "dev", "train") for name in SPAN_METRICS} <= set(ALL)


# From tags


@st.composite
def taggings(draw):
    """(scheme, K, gold and predicted tags of some texts, which types a text is annotated with, entities lost)."""
    scheme, types = draw(st.sampled_from(sorted(SCHEMES))), draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    tag = st.integers(0, types * len(SCHEMES[scheme]))
    gold, predicted = ([draw(st.lists(tag, min_size=n, max_size=n)) for n in lengths] for _ in range(2))
    kept = [draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in lengths]
    predicted = [
        [g if keep else p for g, p, keep in zip(*rows, strict=True)] for rows in zip(gold, predicted, kept, strict=True)
    ]
    of_types = [[draw(st.integers(0, top)) for _ in range(types)] for top in (1, 2) for _ in lengths]
    return scheme, types, gold, predicted, of_types[: len(lengths)], of_types[len(lengths) :]


def counted(scheme, types, gold, predicted, annotated, lost):
    """The statistics of these texts, as the graph counts them."""
    labels, answers = (np.array([tag for tags in side for tag in tags], np.int32) for side in (gold, predicted))
    outputs = {
        "logits": tf.one_hot(answers, 1 + types * len(SCHEMES[scheme])),
        "lengths": tf.constant([len(tags) for tags in gold], tf.int32),
        "annotated": tf.constant(np.reshape(annotated, [len(gold), types]).astype(np.int32)),
        "unrepresented": tf.constant(np.reshape(lost, [len(gold), types]).astype(np.int32)),
    }
    counts = {name: value.numpy() for name, value in tag_statistics(tf.constant(labels), outputs).items()}
    return {"examples": np.float32(len(labels)), "loss": np.float32(0), **counts}


def spans_in(tags, scheme, types):
    """Every token has two characters, and a blank follows."""
    return spans_of(tags, [(3 * i, 3 * i + 2) for i in range(len(tags))], TYPES[:types], scheme)


def scored(scheme, types, gold, predicted, annotated, lost) -> SpanScores:
    """The scores of the same entities as spans of texts; those that tags do not hold stand behind each text."""
    pairs = []
    for row, sides in enumerate(zip(gold, predicted, strict=True)):
        known = [TYPES[k] for k in range(types) if annotated[row][k]]
        theirs, ours = ([s for s in spans_in(tags, scheme, types) if s.type in known] for tags in sides)
        theirs += [
            EntitySpan(1000 + 10 * n, 1005 + 10 * n, name)
            for name in known
            for n in range(lost[row][TYPES.index(name)])
        ]
        pairs.append((theirs, ours))
    return score_spans(*zip(*pairs, strict=True), TYPES[:types])


@given(taggings(), st.integers(1, 3))
def test_sums_over_batches_are_the_scores_of_all_spans(problem, batch):
    scheme, types, *texts = problem
    batches = [
        counted(scheme, types, *(part[first : first + batch] for part in texts))
        for first in range(0, len(texts[0]), batch)
    ]
    total = {name: np.sum([counts[name] for counts in batches], axis=0) for name in batches[0]}
    scores = scored(scheme, types, *texts)
    for name in COUNTS:
        wanted = [getattr(counts, name) for counts in scores.by_type.values()]
        np.testing.assert_array_equal(total[name], wanted, err_msg=name)
    measures = SpanMeasures(TYPES[:types])
    if not total["examples"]:
        return
    measured = measures.metrics(total)
    for name in ("precision", "recall", "f1", "lenient_precision", "lenient_recall", "lenient_f1"):
        assert measured[name] == pytest.approx(getattr(scores.micro, name)), name
    assert measured["macro_f1"] == pytest.approx(scores.macro_f1)
    by_type = [(c.precision, c.recall, c.f1, c.actual) for c in scores.by_type.values()]
    np.testing.assert_allclose(np.array(measures.per_class(total)).T, by_type)


# seqeval

LENGTHS = {"BIO": 4, "BIOES": 3}

SEQEVAL = {
    "BIO": (0.6111111111111112, 0.5823529411764706, 0.5963855421686747, 0.5952925792742726, 0.63157895, 0.55900621),
    "BIOES": (0.7903225806451613, 0.735, 0.7616580310880828, 0.7602887308769661, 0.78431373, 0.73626374),
}
"""Micro precision, recall and F1, macro F1, and the F1 of drugs and diseases, as seqeval 1.2.2 gives them for
`every_tagging`."""


def every_tagging(scheme):
    """(all taggings of a few tokens by two types, as many others that share their first two tags)."""
    gold = list(itertools.product(range(len(tag_names(TYPES[:2], scheme))), repeat=LENGTHS[scheme]))
    return gold, [(*tags[:2], *gold[number**2 % len(gold)][2:]) for number, tags in enumerate(gold)]


def measured_of(scheme, gold, predicted):
    ones, zeros = ([[value] * 2] * len(gold) for value in (1, 0))
    counts, measures = counted(scheme, 2, gold, predicted, ones, zeros), SpanMeasures(TYPES[:2])
    metrics = measures.metrics(counts)
    return (*(metrics[name] for name in ("precision", "recall", "f1", "macro_f1")), *measures.per_class(counts)[2])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_measures_are_seqevals(scheme):
    assert measured_of(scheme, *every_tagging(scheme)) == pytest.approx(SEQEVAL[scheme], abs=1e-8)


@given(taggings())
def test_strict_measures_are_seqevals_at_random(problem):
    """Runs where seqeval is installed; the project does not need it."""
    metrics = pytest.importorskip("seqeval.metrics")
    scheme, types, gold, predicted, *_ = problem
    if types != 2 or not any(map(len, gold)):
        return
    names = tag_names(TYPES[:2], scheme)
    written = [[[names[tag] for tag in tags] for tags in side] for side in (gold, predicted)]
    precision, recall, f1, macro, *_ = measured_of(scheme, gold, predicted)
    options = {"zero_division": 0}
    assert precision == pytest.approx(metrics.precision_score(*written, **options))
    assert recall == pytest.approx(metrics.recall_score(*written, **options))
    assert f1 == pytest.approx(metrics.f1_score(*written, **options))
    if any(tag for side in (gold, predicted) for tags in side for tag in tags):
        assert macro == pytest.approx(metrics.f1_score(*written, average="macro", **options))
