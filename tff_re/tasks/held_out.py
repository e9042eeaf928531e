"""Examples at the server: a dev split, which chooses the round, and a test split."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from computations import federated as tff
    from computations.federated_algorithm import FederatedAlgorithm
    from computations.local_model import LocalModel

DEV, TEST = "dev", "test"


class HeldOut(Protocol):
    """Examples at the server, scored by the global model and measured together.

    Bags of sentences and pairs of entities in documents are ranked or cut at a threshold over all of them, which a sum
    of the clients' counts cannot do; and the published test sets are the server's.

    Attributes:
      splits: `test`, and `dev` before it if there is one.
      corpora: split -> the corpus that its examples were made of, for an export to be checked on.
      metric_names: what `metrics` gives: `test/auc`, …
      criterion: the metric of `dev` that chooses the round, e.g. `auc`; higher is better.
    """

    splits: tuple[str, ...]
    corpora: Mapping[str, Any]
    criterion: str
    metric_names: tuple[str, ...]

    def scoring(self, algorithm: FederatedAlgorithm) -> tff.Computation:
        """(<weights@SERVER, examples@SERVER> -> scores@SERVER) as a model trained by the algorithm is to be used."""

    def examples(self, model: LocalModel, split: str) -> collections.OrderedDict:
        """What the scoring takes of a split."""

    def metrics(self, scores: Mapping[str, np.ndarray], threshold: float | None = None) -> dict[str, float]:
        """Split -> what the scoring gave for it, to metrics by name: `test/auc`, …

        Args:
          scores: of each split.
          threshold: of the model, see `LocalModel.threshold`.
        """

    def exported_inputs(self, inputs: Any, algorithm: FederatedAlgorithm) -> Any:
        """What an exported model is fed with: `inputs`, those of the model in training, or a form of them."""

    def precomputed(self, run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]) -> HeldOut:
        """The same examples, encoded by a model's frozen layers.

        `run` applies these layers to arrays.
        """

    def test_units(
        self, scores: Mapping[str, np.ndarray], threshold: float | None
    ) -> tuple[str, dict[str, np.ndarray]] | None:
        """(kind, arrays) of `MeasuredUnits`, in an order that is the same for all runs on these examples, or None.

        Args:
          scores: of each split.
          threshold: from which on a relation is predicted; None: it was not chosen.
        """

    def references(self) -> dict[str, dict[str, float]]:
        """Row of a comparison's table -> metric -> value: what the data give without any training, a ceiling or a
        trivial baseline."""

    def points(self, scores: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The test split's curve of precision over recall, float64 [n, 3]: recall, precision, least score, from the
        most certain prediction down; None where there is none."""
