import numpy as np
import pytest
from datasets_for_tests import refused

from datasets.federated import ClientExamples, FederatedExamples, PackedClients


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


def test_packed_clients_are_the_same_clients():
    clients = (
        ClientExamples("a", examples(0, 1), examples(), examples(1)),
        ClientExamples("b", examples(1), examples(0, x=np.ones((1, 2), np.float32)), examples()),
        ClientExamples("c", examples(), examples(1, 1), examples(0)),
    )
    packed = PackedClients.from_clients(clients)
    plain, shared = FederatedExamples(clients, ("n", "p")), FederatedExamples(packed, ("n", "p"))
    assert len(packed) == 3 and shared.ids == plain.ids == ("a", "b", "c") and shared.has_dev and plain.has_dev
    for split in ("train", "test", "dev"):
        assert shared.sizes(split).tolist() == plain.sizes(split).tolist() and shared.size(split) == plain.size(split)
        for one, other in zip(packed, clients, strict=True):
            for name, array in getattr(other, split).items():
                np.testing.assert_array_equal(getattr(one, split)[name], array)
                assert getattr(one, split)[name].dtype == array.dtype
        for name, array in plain.pooled(split).items():
            np.testing.assert_array_equal(shared.pooled(split)[name], array)
    assert shared.pooled("train", ["y"]).keys() == plain.pooled("train", ["y"]).keys() == {"y"}
    assert np.shares_memory(packed[1].train["x"], packed.arrays["x"])
    assert [client.client_id for client in packed[1:]] == ["b", "c"] and packed[-1].client_id == "c"
    without = FederatedExamples(PackedClients.from_clients([ClientExamples("a", examples(0), examples(1))]), ("n", "p"))
    assert not without.has_dev and without.sizes("dev").tolist() == [0] and without.clients[0].dev is None
    with pytest.raises(IndexError):
        packed[3]
    with pytest.raises(ValueError, match="the clients hold 2 examples, but there are 3"):
        PackedClients(["a"], examples(0, 1, 1), {"train": np.array([2]), "test": np.array([0])})


@pytest.mark.parametrize(
    "clients, expected",
    [
        (
            [("a", examples(), examples()), ("b", examples(0), examples())],
            "client a: has no examples; leave the client",
        ),
        ([("a", examples(0), examples(0)), ("b", examples(0), examples(0, x=NAN))], 'client b, test: "x" holds NaN'),
        ([("a", examples(0), examples(2))], "client a, test: a label is outside the 2 classes; use 0 to 1"),
        ([("a", examples(0), examples()), ("a", examples(0), examples())], "client a: duplicate id; give every"),
    ],
)
def test_what_is_refused_of_packed_clients_names_the_client(clients, expected):
    packed = PackedClients.from_clients(ClientExamples(*client) for client in clients)
    assert refused(FederatedExamples, packed, ("n", "p")).startswith(expected)


def test_packed_clients_fit_the_server():
    packed = PackedClients.from_clients([ClientExamples("a", examples(0), examples(1))])
    wide = examples(0, x=np.zeros((1, 3), np.float32))
    assert "its arrays have a different" in refused(FederatedExamples, packed, ("n", "p"), wide)
    assert FederatedExamples(packed, ("n", "p"), examples(0)).server["y"].tolist() == [0]
