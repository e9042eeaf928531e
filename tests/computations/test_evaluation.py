import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss

from computations.evaluation import build_evaluation
from tests.computations import toolbox
from tests.computations.toolbox import client, examples, model_weights, start_weights


@pytest.fixture(scope="module")
def evaluate(model):
    """Federated evaluation in batches of four: smaller than the clients, and no divisor of their sizes."""
    return build_evaluation(model, batch_size=4)


SIZES = (10, 3, 0, 1, 8)


def clients_examples():
    return [examples(n, seed=n) if n else (np.zeros([0, 3]), np.zeros([0])) for n in SIZES]


@pytest.fixture(scope="module")
def statistics(evaluate, runtime):
    return evaluate(model_weights(*start_weights()), [client(x, y)["examples"] for x, y in clients_examples()])


def predictions(x):
    return toolbox.softmax(x.astype(float) @ start_weights()[0] + start_weights()[1])


def test_one_value_per_client(statistics):
    assert [s["examples"] for s in statistics] == list(SIZES)


def test_confusion_is_scikit_learns(statistics):
    wrong = 0
    for (x, y), s in zip(clients_examples(), statistics, strict=True):
        if len(y):
            expected = confusion_matrix(y, predictions(x).argmax(axis=1), labels=[0, 1, 2])
            np.testing.assert_array_equal(s["confusion"], expected)
            wrong += expected.sum() - np.trace(expected)
    assert wrong > 3  # rows and columns could not be told apart in a diagonal matrix


def test_loss_is_summed_over_the_examples(statistics):
    for (x, y), s in zip(clients_examples(), statistics, strict=True):
        if len(y):
            np.testing.assert_allclose(s["loss"], len(y) * log_loss(y, predictions(x), labels=[0, 1, 2]), rtol=1e-5)


def test_a_client_without_examples_is_all_zeros(statistics):
    empty = statistics[SIZES.index(0)]
    assert empty["loss"] == 0 and empty["examples"] == 0
    assert toolbox.bits(empty["confusion"]) == toolbox.bits(np.zeros([3, 3], np.float32))


def test_batches_make_no_difference(model, evaluate, statistics):
    whole = build_evaluation(model, batch_size=256)(
        model_weights(*start_weights()), [client(x, y)["examples"] for x, y in clients_examples()]
    )
    for a, b in zip(whole, statistics, strict=True):
        np.testing.assert_array_equal(a["confusion"], b["confusion"])
        np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-6)


def test_it_evaluates_the_weights_that_it_is_given(evaluate, statistics):
    other = evaluate(model_weights(*start_weights(seed=6)), [client(*examples(10, seed=10))["examples"]])
    assert abs(other[0]["loss"] - statistics[0]["loss"]) > 0.1
