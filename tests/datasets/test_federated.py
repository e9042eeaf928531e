import numpy as np
import pytest
from datasets_for_tests import refused

from datasets.federated import ClientExamples, FederatedExamples


def examples(*labels, x=None):
    return {"x": np.zeros((len(labels), 2), np.float32) if x is None else x, "y": np.array(labels, np.int32)}


def test_pooling_and_sizes():
    federated = FederatedExamples(
        (ClientExamples("a", examples(0, 1), examples()), ClientExamples("b", examples(1), examples(0))), ("n", "p")
    )
    assert federated.pooled("train")["y"].tolist() == [0, 1, 1] and federated.pooled("test")["y"].tolist() == [0]
    assert (federated.size("train"), federated.size("test")) == (3, 1)
    server = FederatedExamples(federated.clients, ("n", "p"), examples(0, 0)).server
    assert server["y"].tolist() == [0, 0]
    wide = examples(0, x=np.zeros((1, 3), np.float32))
    assert "its arrays have a different" in refused(FederatedExamples, federated.clients, ("n", "p"), wide)
    assert "the server: has no examples" in refused(FederatedExamples, federated.clients, ("n", "p"), examples())


NAN = np.array([[0, np.nan]], np.float32)


@pytest.mark.parametrize(
    "clients, expected",
    [
        ([], "there are no clients; give at least one client examples"),
        ([("a", examples(), examples())], "client a: has no examples; leave the client out"),
        ([("a", examples(0), examples(0, x=NAN))], 'client a, test: "x" holds NaN or infinity; repair or remove'),
        ([("a", examples(0), examples(2))], "client a, test: a label is outside the 2 classes; use 0 to 1"),
        ([("a", examples(-1), examples())], "client a, train: a label is outside the 2 classes; use 0 to 1"),
        ([("a", {"x": NAN}, examples())], 'client a, train: has no labels "y"; add an int32 array "y"'),
        ([("a", {"y": np.zeros(1)}, examples())], "client a, train: its labels are not int32 [n]; convert them"),
        ([("a", examples(0, 1, x=NAN[:0]), examples())], 'client a, train: "x" and the labels have different lengths'),
        ([("a", examples(0), examples()), ("a", examples(0), examples())], "client a: duplicate id; give every"),
        (
            [("a", examples(0), examples()), ("b", examples(0, x=np.zeros((1, 3), np.float32)), examples())],
            "client b, train: its arrays have a different name, dtype or shape from the other clients'; encode all",
        ),
    ],
)
def test_what_is_refused(clients, expected):
    made = tuple(ClientExamples(*client) for client in clients)
    assert refused(FederatedExamples, made, ("n", "p")).startswith(expected)
