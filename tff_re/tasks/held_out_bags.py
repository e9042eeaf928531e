"""Bags of sentences at the server, whose facts are ranked."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from computations import federated as tff
from computations.bag_evaluation import arrange_bags, build_bag_scores
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from datasets.bags.encoding import HeldOutBags
from datasets.bags.records import BagCorpus
from datasets.errors import DataError
from tff_re.models.inputs import BagInput, HiddenInput, RelationInput
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.measured_units import MOST_PREDICTIONS
from tff_re.tasks.ranking_metrics import CHANCE, RANKING_METRICS, chance_metrics, curve, ranking_metrics


class BagsAtServer:
    """Bags at the server, whose facts are ranked: a `tff_re.tasks.held_out.HeldOut`."""

    criterion = "auc"

    def __init__(
        self,
        bags: Mapping[str, HeldOutBags],
        corpora: Mapping[str, BagCorpus],
        stated: Mapping[str, str] | None = None,
    ):
        """Args:
          bags: split -> its bags; `test`, and `dev` before it if there is one.
          corpora: split -> what they were made of.
          stated: sentence id -> the relation that it states, the negative for none; None: that is not known.

        Raises:
          DataError: a split without a fact, so that there is no recall.
        """
        for split, of_split in bags.items():
            if not of_split.labels[:, 1:].any():
                raise DataError(
                    f"none of its {len(of_split.pairs)} pairs of entities has a relation, so recall is undefined",
                    record=f"bags of {split}",
                    remedy="choose other splits or another dev_share",
                )
        self._bags, self._stated, self.corpora = bags, stated, corpora
        self.splits = tuple(bags)
        self.metric_names = tuple(f"{split}/{name}" for split in bags for name in RANKING_METRICS)

    def scoring(self, algorithm: FederatedAlgorithm) -> tff.Computation:
        """Probabilities of all relations for every bag, as the algorithm's method pools its sentences."""
        return build_bag_scores(algorithm.model, algorithm.bag_pooling)

    def examples(self, model: LocalModel, split: str) -> collections.OrderedDict:
        """The sentences of a split and the bag of each."""
        return arrange_bags(model, self._bags[split].arrays, self._bags[split].arrays["bag"])

    def metrics(self, scores: Mapping[str, np.ndarray], threshold: float | None = None) -> dict[str, float]:
        """`dev/auc`, `test/p_at_100` and the other metrics of `ranking_metrics`.

        A metric is NaN if a score is not finite.
        """
        del threshold  # rankings have none
        metrics = {}
        for split, values in scores.items():
            finite = np.isfinite(values).all()
            measured = ranking_metrics(values[:, 1:] if finite else np.zeros_like(values[:, 1:]), self._true(split))
            metrics.update({f"{split}/{name}": value if finite else np.nan for name, value in measured.items()})
        return metrics

    def exported_inputs(self, inputs: RelationInput | HiddenInput, algorithm: FederatedAlgorithm) -> BagInput:
        """Bags of sentences, pooled as the algorithm's method does."""
        return BagInput(inputs, algorithm.bag_pooling)

    def precomputed(self, run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]) -> BagsAtServer:
        """The same bags, encoded by a model's frozen layers."""
        bags = {split: dataclasses.replace(bags, arrays=run(bags.arrays)) for split, bags in self._bags.items()}
        return BagsAtServer(bags, self.corpora, self._stated)

    def test_units(
        self, scores: Mapping[str, np.ndarray], threshold: float | None
    ) -> tuple[str, dict[str, np.ndarray]] | None:
        """The scores of each test bag, or None if one is not finite or there are more than `MOST_PREDICTIONS`."""
        del threshold  # rankings have none
        values = scores[TEST][:, 1:]
        if values.size > MOST_PREDICTIONS or not np.isfinite(values).all():
            return None
        return "rankings", {"scores": values, "true": self._true(TEST)}

    def references(self) -> dict[str, dict[str, float]]:
        """See `HeldOut`: `CHANCE`, and `ORACLES` where it is known what sentences state."""
        rows: dict[str, dict[str, float]] = {CHANCE: {}}
        for split in self.splits:
            rows[CHANCE] |= {f"{split}/{name}": v for name, v in chance_metrics(self._true(split)).items()}
        for title, pool in ORACLES.items() if self._stated is not None else ():
            scores = {split: pool(*_certain(bags, self._stated)) for split, bags in self._bags.items()}
            rows[title] = self.metrics(scores)
        return rows

    def points(self, scores: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The precision-recall curve of the test split's facts, or None if a score is not finite."""
        if not np.isfinite(scores[TEST]).all():
            return None
        return curve(scores[TEST][:, 1:], self._true(TEST)).points()

    def threshold(self, scores: np.ndarray) -> float | None:
        """The score threshold at which the facts of dev are predicted with the highest F1.

        None if a score is not finite.
        """
        return curve(scores[:, 1:], self._true(DEV)).best_threshold if np.isfinite(scores).all() else None

    def _true(self, split: str) -> np.ndarray:
        return self._bags[split].labels[:, 1:].astype(bool)


def _certain(bags: HeldOutBags, stated: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """(one-hot float64 [n, C] of the relation that each sentence states, int32 [n] of its bag)."""
    label_of = {name: label for label, name in enumerate(bags.label_names)}
    labels = [label_of[stated[sentence_id]] for sentence_id in bags.sentence_ids]
    return np.eye(len(label_of))[labels], bags.arrays["bag"]


def _best_of_bag(scores: np.ndarray, bag: np.ndarray) -> np.ndarray:
    pooled = np.zeros((bag[-1] + 1, scores.shape[1]))
    np.maximum.at(pooled, bag, scores)
    return pooled


def _mean_of_bag(scores: np.ndarray, bag: np.ndarray) -> np.ndarray:
    pooled = np.zeros((bag[-1] + 1, scores.shape[1]))
    np.add.at(pooled, bag, scores)
    return pooled / np.bincount(bag)[:, None]


ORACLES = {
    "oracle (perfect sentence classifier), best of a bag": _best_of_bag,
    "oracle (perfect sentence classifier), mean of a bag": _mean_of_bag,
}
"""Row of a comparison -> (scores of sentences [n, C], bag of each [n]) -> scores of the bags. NONE, ONE and Lazy MIL
score a bag by its best sentence; so do ATT and ATT_RA where sentences are certain, because their attention goes to the
sentences that state a relation. AVE takes the mean."""
