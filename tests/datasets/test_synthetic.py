import numpy as np
import pytest
from datasets_for_tests import refused

from datasets.apportion import by_cumulative_shares, by_largest_remainder
from datasets.errors import DataError
from datasets.synthetic import generate


def restated(alpha, beta, sizes, seed_generator, features=60, classes=10):
    """Synthetic(alpha, beta), equation by equation and sample by sample."""
    rng = seed_generator
    sigma = np.diag([j**-1.2 for j in range(1, features + 1)])
    u = [rng.normal(0, alpha) if alpha else (rng.normal(), 0.0)[1] for _ in sizes]
    centres = [rng.normal(0, beta) if beta else (rng.normal(), 0.0)[1] for _ in sizes]
    clients = []
    for k, n in enumerate(sizes):
        v = np.array([centres[k] + rng.normal() for _ in range(features)])
        model = np.array([[u[k] + rng.normal() for _ in range(classes)] for _ in range(features + 1)])
        x, y = [], []
        for _ in range(n):
            sample = v + np.sqrt(sigma) @ rng.normal(size=features)
            logits = model[:features].T @ sample + model[features]
            probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            x.append(sample)
            y.append(int(np.argmax(probabilities)))
        clients.append((np.array(x), np.array(y)))
    return clients


@pytest.mark.parametrize("alpha, beta", [(0.0, 0.0), (0.5, 0.5), (1.0, 0.3)])
def test_the_equations(alpha, beta):
    from datasets.seeds import generator

    sizes = [20, 11, 2]
    federated = generate(alpha, beta, num_clients=3, sizes=sizes, seed=7)
    for client, (x, y) in zip(federated.clients, restated(alpha, beta, sizes, generator(7, "synthetic")), strict=True):
        np.testing.assert_allclose(np.concatenate([client.train["x"], client.test["x"]]), x, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.concatenate([client.train["y"], client.test["y"]]), y)
    assert [len(c.train["y"]) for c in federated.clients] == [18, 9, 1]
    assert federated.clients[0].train["x"].dtype == np.float32 and federated.clients[0].train["y"].dtype == np.int32


def test_iid_clients_share_one_distribution():
    federated = generate(0, 0, iid=True, num_clients=2, sizes=[20000, 20000])
    for client in federated.clients:
        x = client.train["x"]
        np.testing.assert_allclose(x.mean(axis=0), 0, atol=0.05)
        np.testing.assert_allclose(x.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.08)
    shares = [np.bincount(c.train["y"], minlength=10) / len(c.train["y"]) for c in federated.clients]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.02)
    assert "the IID form has no alpha and beta" in refused(generate, 0.5, 0, iid=True)


def test_the_spread_is_a_standard_deviation_unless_asked():
    means = {}
    for spread in ("standard_deviation", "variance"):
        federated = generate(0, 9.0, num_clients=400, sizes=[2] * 400, spread=spread)
        means[spread] = np.std([c.train["x"].mean() for c in federated.clients])
    assert 8 < means["standard_deviation"] < 10 and 2.7 < means["variance"] < 3.4


# FLCMC's Table 4: alpha and beta, whether IID, the totals over 30 clients.
TABLE_4 = [(0.0, False, 7926, 897), (0.5, False, 8065, 912), (1.0, False, 9600, 1084), (0.0, True, 7102, 805)]


@pytest.mark.parametrize("spread, iid, train, test", TABLE_4)
def test_table_4_totals(spread, iid, train, test):
    federated = generate(spread, spread, iid=iid, total_train=train, total_test=test, seed=3)
    assert len(federated.clients) == 30
    assert (federated.size("train"), federated.size("test")) == (train, test)
    assert all(len(c.train["y"]) >= 45 and len(c.test["y"]) >= 5 for c in federated.clients)
    assert federated.pooled("train")["x"].shape == (train, 60)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_client_of_figure_5(seed):
    """FLCMC's Figure 5: of synthetic(0.5, 0.5) one client has 4,185 training examples, the smallest 45."""
    totals = {"total_train": 8065, "total_test": 912, "seed": seed}
    free, skewed = generate(0.5, 0.5, **totals), generate(0.5, 0.5, **totals, largest_train=4185)
    sizes, drawn = ([len(c.train["y"]) for c in made.clients] for made in (skewed, free))
    assert (sum(sizes), max(sizes)) == (8065, 4185) and 45 <= min(sizes) <= 46
    largest = int(np.argmax(drawn))
    assert sizes[largest] == 4185 and len(skewed.clients[largest].test["y"]) == 473  # 912 · 4185 / 8065
    assert skewed.size("test") == 912 and all(len(c.test["y"]) >= 5 for c in skewed.clients)
    others = [k for k in np.argsort(drawn, kind="stable") if k != largest]
    assert list(np.diff([sizes[k] for k in others]) >= 0) == [True] * 28, "the others keep their order"


def test_sizes_and_seeds():
    first, same, other = (generate(0.5, 0.5, num_clients=5, max_size=300, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.pooled("train")["x"], same.pooled("train")["x"])
    assert not np.array_equal(first.clients[0].train["x"][0], other.clients[0].train["x"][0])
    sizes = [len(c.train["y"]) + len(c.test["y"]) for c in first.clients]
    assert min(sizes) >= 50 and max(sizes) <= 300
    small = generate(0, 0, num_clients=4, total_train=5, total_test=4)
    assert (small.size("train"), small.size("test")) == (5, 4)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"alpha": -1}, "alpha must be a finite number of at least 0, got -1"),
        ({"num_clients": 0}, "num_clients must be a whole number of at least 1, got 0"),
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2, got 1"),
        ({"sizes": [5]}, "sizes is not one number"),
        ({"total_train": 100}, "only one of total_train and total_test"),
        ({"total_train": 10, "total_test": 10}, "smaller than the number of clients"),
        ({"total_train": 90, "total_test": 90, "max_size": 9}, "totals are given together"),
        ({"largest_train": 50}, "largest_train is given without totals"),
        ({"total_train": 90, "total_test": 90, "largest_train": 62}, "not every client gets an example of each split"),
        ({"total_train": 8065, "total_test": 912, "largest_train": 60}, "largest_train is 60, and another client has"),
        ({"max_size": 1}, "max_size is 1"),
        ({"spread": "x"}, "spread must be one of"),
        ({"seed": -1}, "the seed is not"),
    ],
)
def test_impossible_options(options, reason):
    with pytest.raises(DataError, match=reason):
        generate(**{"alpha": 0, "beta": 0, **options})


def test_apportionment():
    np.testing.assert_array_equal(by_largest_remainder(10, np.array([1, 1, 1])), [4, 3, 3])
    np.testing.assert_array_equal(by_largest_remainder(7, np.array([5, 3, 2])), [4, 2, 1])
    np.testing.assert_array_equal(by_cumulative_shares(10, np.array([0.55, 0.0, 0.45])), [5, 0, 5])
    np.testing.assert_array_equal(by_cumulative_shares(0, np.array([0.5, 0.5])), [0, 0])
