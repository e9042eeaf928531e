import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss

from computations.evaluation import build_evaluation, build_example_statistics
from tests.computations import toolbox
from tests.computations.toolbox import client, examples, model_weights, start_weights

SIZES = (10, 3, 0, 1, 8)
CLIENTS = [examples(n, seed=n) if n else (np.zeros([0, 3]), np.zeros([0])) for n in SIZES]


def statistics(model, batch_size, clients=CLIENTS, weights=None):
    evaluate = build_evaluation(model, batch_size=batch_size)
    return evaluate(model_weights(*(weights or start_weights())), [client(x, y)["examples"] for x, y in clients])


@pytest.mark.parametrize("batch_size", [4, 256])  # smaller than the clients, and no divisor of their sizes
def test_statistics_of_each_client_are_scikit_learns(model, batch_size):
    wrong, counted = 0, statistics(model, batch_size)
    assert [s["examples"] for s in counted] == list(SIZES)
    for (x, y), s in zip(CLIENTS, counted, strict=True):
        p = toolbox.softmax(x.astype(float) @ start_weights()[0] + start_weights()[1])
        if len(y):
            expected = confusion_matrix(y, p.argmax(axis=1), labels=[0, 1, 2])
            np.testing.assert_array_equal(s["confusion"], expected)
            np.testing.assert_allclose(s["loss"], len(y) * log_loss(y, p, labels=[0, 1, 2]), rtol=1e-5)
            wrong += expected.sum() - np.trace(expected)
        else:
            assert s["loss"] == 0 and toolbox.bits(s["confusion"]) == toolbox.bits(np.zeros([3, 3], np.float32))
    assert wrong > 3  # rows and columns could not be told apart in a diagonal matrix


def test_it_evaluates_the_weights_that_it_is_given(model):
    here, other = (statistics(model, 4, CLIENTS[:1], start_weights(seed=seed)) for seed in (5, 6))
    assert abs(other[0]["loss"] - here[0]["loss"]) > 0.1


def test_statistics_of_each_example_say_its_label_and_its_prediction(model):
    weights = model_weights(*start_weights())
    counted = build_example_statistics(model)(weights, [client(x, y)["examples"] for x, y in CLIENTS])
    sums = statistics(model, 256)
    assert len(counted) == len(SIZES)
    for (x, y), of_examples, of_client in zip(CLIENTS, counted, sums, strict=True):
        predicted = (x @ start_weights()[0] + start_weights()[1]).argmax(axis=1)
        one_hot = np.eye(3)
        expected = {
            "true_positives": one_hot[np.int32(y)] * (predicted == y)[:, None],
            "predicted": one_hot[predicted],
            "actual": one_hot[np.int32(y)],
        }
        assert set(of_examples) == set(expected)
        for name, rows in expected.items():
            np.testing.assert_array_equal(of_examples[name], rows.reshape(-1, 3), err_msg=name)
        np.testing.assert_array_equal(of_examples["true_positives"].sum(axis=0), np.diag(of_client["confusion"]))
