"""What the server itself holds to judge the global model by: a dev split that chooses the round, and a test split."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import tensorflow_federated as tff

from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel

DEV, TEST = "dev", "test"


class HeldOut(Protocol):
    """Examples at the server, scored by the global model and measured as one whole.

    Bags of sentences and pairs of entities in documents are ranked or cut at a threshold over all of them, which a sum
    of the clients' counts cannot do; and the published test sets are the server's.

    Attributes:
      splits: `test`, and `dev` before it if there is one.
      criterion: the metric of `dev` that chooses the round, e.g. `auc`; higher is better.
    """

    splits: tuple[str, ...]
    criterion: str

    def scoring(self, algorithm: FederatedAlgorithm) -> tff.Computation:
        """(<weights@SERVER, examples@SERVER> -> scores@SERVER) as a model trained by the algorithm is to be used."""

    def examples(self, model: LocalModel, split: str) -> collections.OrderedDict:
        """What the scoring takes of a split."""

    def metrics(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Split -> what the scoring gave for it, to metrics by name: `test/auc`, …"""

    def behind(self, run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]) -> HeldOut:
        """The same examples with a model's frozen layers behind them; `run` is what those make of arrays."""

    def points(self, scores: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The test split's curve of precision over recall, float64 [n, 3]: recall, precision, least score, from the
        most certain prediction down; None where there is none."""
