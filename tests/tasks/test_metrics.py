"""F1 of the positive relations against scikit-learn on the labels themselves."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from tff_re.tasks.metrics import classification_metric_names, classification_metrics, trivial_metrics

CLASSES = 5


def metrics(labels, predicted, positive_labels=None, classes=CLASSES):
    confusion = np.zeros([classes, classes], np.float32)
    if len(labels):
        confusion += confusion_matrix(labels, predicted, labels=np.arange(classes))
    statistics = {"examples": np.float32(len(labels)), "loss": np.float32(2 * len(labels)), "confusion": confusion}
    return classification_metrics(statistics, positive_labels)


def drawn(seed, count=200, classes=CLASSES):
    """(labels, predictions): right in half of the cases, some classes rare."""
    generator = np.random.default_rng(seed)
    share = generator.dirichlet(np.ones(classes))
    labels, others = generator.choice(classes, count, p=share), generator.integers(0, classes, count)
    return labels, np.where(generator.random(count) < 0.5, labels, others)


@pytest.mark.parametrize("negative", [0, 2, CLASSES - 1, None])
@pytest.mark.parametrize("seed", range(2))
def test_micro_and_macro_f1_count_the_positive_relations(negative, seed):
    labels, predicted = drawn(seed)
    positive = [label for label in range(CLASSES) if label != negative]
    measured = metrics(labels, predicted, positive)
    occurring = [label for label in positive if label in labels or label in predicted]
    for average, wanted in (("micro", positive), ("macro", occurring)):
        expected = f1_score(labels, predicted, labels=wanted, average=average, zero_division=0.0)
        assert measured[f"{average}_f1"] == pytest.approx(expected, rel=1e-9), average
    assert measured["accuracy"] == pytest.approx(accuracy_score(labels, predicted)) and measured["loss"] == 2
    if negative is None:
        assert measured["micro_f1"] == pytest.approx(measured["accuracy"])


def test_by_hand():
    """Class 0 is negative. Counted: one hit, a relation where there is none, and one that was taken for another."""
    labels, predicted = [0, 0, 1, 1, 2], [0, 1, 1, 2, 2]
    measured = metrics(labels, predicted, (1, 2), classes=3)
    # Class 1: precision 1/2, recall 1/2; class 2: precision 1/2, recall 1. Together: 2 hits, 4 predicted, 3 there.
    assert measured["macro_f1"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert measured["micro_f1"] == pytest.approx(2 * 2 / (4 + 3))
    assert measured["accuracy"] == pytest.approx(3 / 5)


def test_one_positive_relation():
    labels, predicted = drawn(7, classes=2)
    measured = metrics(labels, predicted, (1,), classes=2)
    assert measured["micro_f1"] == measured["macro_f1"] == pytest.approx(f1_score(labels, predicted))
    assert measured["matthews"] == pytest.approx(matthews_corrcoef(labels, predicted))
    assert tuple(measured) == classification_metric_names((1,))


@pytest.mark.parametrize("positive", [0, 1])
def test_matthews_tells_what_f1_does_not(positive):
    """On 82.5 % related pairs, as in a part of ADE: an F1 of 90.4 is that of naming every pair related."""
    labels = np.repeat([positive, 1 - positive], [165, 35])
    generator = np.random.default_rng(0)
    predicted = np.where(generator.random(200) < 0.8, labels, 1 - labels)
    measured = metrics(labels, predicted, (positive,), classes=2)
    trivial = trivial_metrics(np.bincount(labels), (positive,))
    named = np.full(200, positive)
    assert trivial["every pair positive"] == pytest.approx(
        {
            "accuracy": 0.825,
            "macro_f1": f1_score(labels, named, pos_label=positive),
            "micro_f1": 2 * 0.825 / 1.825,
            "matthews": 0.0,
        }
    )
    assert trivial["largest class"] == trivial["every pair positive"]
    assert measured["micro_f1"] < trivial["every pair positive"]["micro_f1"]
    assert measured["matthews"] == pytest.approx(matthews_corrcoef(labels, predicted)) and measured["matthews"] > 0.3


def test_trivial_models_by_hand():
    """Class 0 of five examples is negative; of the relations, class 2 is the most frequent with two."""
    trivial = trivial_metrics(np.array([5, 1, 2]), (1, 2))
    assert list(trivial) == ["largest class", "every pair the most frequent relation"]
    assert trivial["largest class"] == {"accuracy": 5 / 8, "macro_f1": 0.0, "micro_f1": 0.0}
    # Two hits of eight predicted, three there; class 2 has precision 2/8 and recall 1, class 1 nothing.
    f1 = 2 * (2 / 8) / (2 / 8 + 1)
    wanted = {"accuracy": 2 / 8, "macro_f1": f1 / 2, "micro_f1": 2 * 2 / (8 + 3)}
    assert trivial["every pair the most frequent relation"] == pytest.approx(wanted)
    assert trivial_metrics(np.array([3, 4])) == {
        "largest class": pytest.approx({"accuracy": 4 / 7, "macro_f1": 4 / 11})
    }
    assert trivial_metrics(np.zeros(3), (1, 2)) == {}


def test_a_relation_that_neither_occurs_nor_is_predicted_is_not_in_macro_f1():
    assert metrics([0, 1, 1], [0, 1, 1], (1, 2), classes=3)["macro_f1"] == 1.0
    assert metrics([0, 1, 1], [0, 1, 2], (1, 2), classes=3)["macro_f1"] == pytest.approx(1 / 3)
    nothing = metrics([0, 0, 0], [0, 0, 0], (1, 2), classes=3)
    assert nothing == {"accuracy": 1.0, "loss": 2.0, "macro_f1": 0.0, "micro_f1": 0.0}


@pytest.mark.parametrize("positive", [None, (1, 2)])
def test_without_examples_everything_is_nan(positive):
    measured = metrics([], [], positive, classes=3)
    assert set(measured) == {"accuracy", "loss", "macro_f1"} | ({"micro_f1"} if positive else set())
    assert all(np.isnan(value) for value in measured.values())
