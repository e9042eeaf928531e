"""The measures of rankings against scikit-learn and numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, f1_score, precision_recall_curve, precision_score

from tff_re.tasks.ranking_metrics import curve, ranking_metrics

rankings = st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=60).filter(
    lambda pairs: any(true for _, true in pairs)
)


@given(rankings)
def test_full_area_and_highest_f1_are_those_of_scikit_learn(pairs):
    scores, true = map(np.array, zip(*pairs, strict=True))
    precision, recall, thresholds = precision_recall_curve(true, scores)
    metrics = ranking_metrics(scores, true)
    assert metrics["auc"] == pytest.approx(auc(recall, precision))
    assert metrics["max_f1"] == pytest.approx(max(f1_score(true, scores >= t, zero_division=0) for t in thresholds))


def test_numbers_by_hand():
    scores = np.array([[0.9, 0.8], [0.7, 0.6]])
    true = np.array([[True, False], [True, False]])
    metrics = ranking_metrics(scores, true)
    # Points (recall, precision): (1/2, 1), (1/2, 1/2), (1, 2/3), (1, 1/2); from (0, 1).
    assert metrics["auc"] == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)
    assert metrics["auc_2000"] == pytest.approx(metrics["auc"])
    assert metrics["max_f1"] == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))
    assert metrics["p_at_100"] == metrics["p_at_mean"] == pytest.approx(0.5)


def test_precision_at_n_and_the_area_at_the_top():
    generator = np.random.default_rng(0)
    scores, true = generator.permutation(5000) / 5000, generator.random(5000) < 0.3
    metrics = ranking_metrics(scores, true)
    for n in (100, 200, 300):
        at_n = scores >= np.sort(scores)[-n]
        assert metrics[f"p_at_{n}"] == pytest.approx(precision_score(true, at_n))
    top = scores >= np.sort(scores)[-2000]
    precision, recall, _ = precision_recall_curve(true[top], scores[top])
    assert metrics["auc_2000"] == pytest.approx(auc(recall, precision) * true[top].sum() / true.sum())
    assert metrics["auc_2000"] < metrics["auc"]


def test_points_go_from_the_most_certain_prediction_down():
    points = curve(np.array([0.1, 0.9, 0.9, 0.4]), np.array([True, True, False, False]))
    np.testing.assert_allclose(points.score, [0.9, 0.4, 0.1])
    np.testing.assert_allclose(points.recall, [0.5, 0.5, 1])
    np.testing.assert_allclose(points.precision, [1 / 2, 1 / 3, 1 / 2])


@pytest.mark.parametrize(
    ("scores", "true", "what"), [([0.5], [False], "none"), ([np.nan, 0.2], [True, False], "finite")]
)
def test_nothing_to_measure_is_refused(scores, true, what):
    with pytest.raises(ValueError, match=what):
        ranking_metrics(np.array(scores), np.array(true))
