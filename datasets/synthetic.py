"""The generator of Synthetic(α, β) and its IID form (FedProx, Li et al., MLSys 2020, after Shamir et al. 2014).

u_k ~ N(0, α), B_k ~ N(0, β), v_k ~ N(B_k, 1)^d, W_k, b_k ~ N(u_k, 1), x ~ N(v_k, Σ) with Σ_jj = j^−1.2,
y = argmax(softmax(W_k x + b_k)); sizes lognormal(4, 2) + 50; the IID form shares W, b ~ N(0, 1) and has v_k = 0.
The paper writes N(0, α) and its released code takes α and β as standard deviations; so do we, unless told otherwise.
As u_k is added to all weights and biases of a client alike, it shifts all its logits alike: alpha moves the weights,
and no label. The clients' models differ by their W_k, b_k, drawn for each client anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.apportion import by_largest_remainder
from datasets.catalogue import DATA_SETS, DataSet
from datasets.errors import DataError
from datasets.federated import FederatedExamples, PackedClients
from datasets.partition.base import client_names
from datasets.ranges import NOT_NEGATIVE, one_of, require, whole_number
from datasets.seeds import generator

TRAIN_SHARE = 0.9
SMALLEST_SIZE = 50


def generate(
    alpha: float,
    beta: float,
    *,
    iid: bool = False,
    num_clients: int = 30,
    num_features: int = 60,
    num_classes: int = 10,
    sizes: Sequence[int] | None = None,
    total_train: int | None = None,
    total_test: int | None = None,
    largest_train: int | None = None,
    max_size: int | None = None,
    spread: str = "standard_deviation",
    seed: int = 0,
) -> FederatedExamples:
    """Draw the clients' examples, `x` float32 [n, num_features] and `y` int32 [n].

    Args:
      alpha: Spread of u_k, the mean of a client's weights; at least 0.
      beta: Spread of B_k, the difference of the clients' features; at least 0.
      iid: Whether all clients share one model and one distribution of features; `alpha` and `beta` are then 0.
      num_clients: K.
      num_features: d.
      num_classes: C, at least 2.
      sizes: Examples of each client, train and test together, at least 2; drawn from lognormal(4, 2) + 50 by default.
      total_train: Training examples over all clients, met exactly: the lognormal part of the drawn sizes is scaled,
        and the 50 that every client has stay where the totals allow. Comes with `total_test`, instead of `sizes`.
      total_test: Test examples over all clients.
      largest_train: Training examples of the client that drew the largest size; it has the same share of the test
        examples, and the others share the rest as they drew. Comes with totals. FLCMC's Figure 5 has 4,185 of 8,065.
      max_size: Upper bound of a drawn size; none by default, and lognormal(4, 2) can reach tens of thousands. Not
        together with totals.
      spread: Whether alpha and beta are the ``standard_deviation`` (the released code) or the ``variance`` of the
        normals.
      seed: All numbers come from one generator derived from it.

    Without totals a client trains on its first ⌊0.9 n⌋ examples and is tested on the others (the examples of a client
    are independent draws, so no shuffling is needed).

    Raises:
      DataError: an impossible option.
    """
    require(NOT_NEGATIVE, alpha=alpha, beta=beta)
    if iid and (alpha or beta):
        raise DataError("the IID form has no alpha and beta", remedy="set both to 0")
    require(whole_number(1), num_clients=num_clients, num_features=num_features)
    require(whole_number(2), num_classes=num_classes)
    require(one_of(("standard_deviation", "variance")), spread=spread)
    rng = generator(seed, "synthetic")
    train, test = _sizes(rng, num_clients, sizes, total_train, total_test, largest_train, max_size)
    if spread == "variance":
        alpha, beta = np.sqrt(alpha), np.sqrt(beta)
    model_means = rng.normal(0.0, alpha, num_clients)
    feature_means = rng.normal(0.0, beta, num_clients)
    deviations = np.arange(1, num_features + 1, dtype=np.float64) ** -0.6
    shared = rng.normal(0.0, 1.0, (num_features + 1, num_classes)) if iid else None
    ends = np.cumsum(train + test)
    x, y = np.empty((ends[-1], num_features), np.float32), np.empty(ends[-1], np.int32)
    for k, end in enumerate(ends):
        if iid:
            centre, model = np.zeros(num_features), shared
        else:
            centre = rng.normal(feature_means[k], 1.0, num_features)
            model = rng.normal(model_means[k], 1.0, (num_features + 1, num_classes))
        rows = slice(end - train[k] - test[k], end)
        features = centre + deviations * rng.standard_normal((train[k] + test[k], num_features))
        y[rows] = np.argmax(features @ model[:-1] + model[-1], axis=1)
        x[rows] = features
    ids, names = client_names(num_clients), tuple(str(c) for c in range(num_classes))
    return FederatedExamples(PackedClients(ids, {"x": x, "y": y}, {"train": train, "test": test}), names)


def _sizes(rng, num_clients, sizes, total_train, total_test, largest_train, max_size) -> tuple[np.ndarray, np.ndarray]:
    """Return each client's numbers of training and of test examples, int64 [K] each."""
    totals = total_train is not None or total_test is not None
    if totals and (total_train is None or total_test is None):
        raise DataError("only one of total_train and total_test is given", remedy="give both or none")
    if totals and (sizes is not None or max_size is not None):
        raise DataError("totals are given together with sizes or max_size", remedy="give one of them")
    if largest_train is not None and not totals:
        raise DataError("largest_train is given without totals", remedy="give total_train and total_test, too")
    if sizes is not None:
        drawn = np.asarray(sizes, np.int64)
        if drawn.shape != (num_clients,) or drawn.min() < 2:
            raise DataError("sizes is not one number of at least 2 for each client", remedy="check its length")
    else:
        drawn = rng.lognormal(4.0, 2.0, num_clients).astype(np.int64) + SMALLEST_SIZE
    if max_size is not None:
        if max_size < 2:
            raise DataError(f"max_size is {max_size}", remedy="use at least 2")
        drawn = np.minimum(drawn, max_size)
    if not totals:
        train = np.maximum(1, (TRAIN_SHARE * drawn).astype(np.int64))
        return train, drawn - train
    if total_train < num_clients or total_test < num_clients:
        raise DataError("the totals are smaller than the number of clients", remedy="give every client one of each")
    if largest_train is None:
        return _meet_totals(drawn, total_train, total_test)
    return _meet_totals_with_a_largest(drawn, total_train, total_test, largest_train)


def _meet_totals(drawn: np.ndarray, total_train: int, total_test: int) -> tuple[np.ndarray, np.ndarray]:
    def share_out(total: int, floor: int) -> np.ndarray:
        floor = min(floor, total // len(drawn))
        # One is added, so that weights of zero cannot meet.
        return floor + by_largest_remainder(total - floor * len(drawn), drawn - drawn.min() + 1)

    smallest_train = int(TRAIN_SHARE * SMALLEST_SIZE)
    return share_out(total_train, smallest_train), share_out(total_test, SMALLEST_SIZE - smallest_train)


def _meet_totals_with_a_largest(
    drawn: np.ndarray, total_train: int, total_test: int, largest_train: int
) -> tuple[np.ndarray, np.ndarray]:
    largest, others = int(np.argmax(drawn)), len(drawn) - 1
    largest_test = round(total_test * largest_train / total_train)
    left_train, left_test = total_train - largest_train, total_test - largest_test
    if min(left_train, left_test) < others or min(others, largest_train, largest_test) < 1:
        raise DataError(
            f"largest_train is {largest_train} of {total_train}, and not every client gets an example of each split",
            remedy="lower it, or raise the totals",
        )
    train, test = _meet_totals(np.delete(drawn, largest), left_train, left_test)
    if train.max() > largest_train:
        raise DataError(
            f"largest_train is {largest_train}, and another client has {train.max()}",
            remedy="raise it at least to that",
        )
    return np.insert(train, largest, largest_train), np.insert(test, largest, largest_test)


DATA_SETS.add(
    "synthetic",
    DataSet(
        name="synthetic",
        title="Synthetic(alpha, beta)",
        kind="vectors",
        language="none",
        task="60 features, 10 classes",
        labels=(),
        files={},
        licence="Apache-2.0 (generated by this package)",
        citation="Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
        available_from="generated: datasets.synthetic.generate",
    ),
    __name__,
)
