"""Documents at the server, whose pairs are classified at one threshold."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from computations import federated as tff
from computations.document_evaluation import build_pair_scores
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from datasets.documents.clients import HeldOutDocuments
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.scoring import best_threshold, countable
from datasets.errors import DataError
from tff_re.models.inputs import DocumentInput
from tff_re.tasks.held_out import DEV, TEST
from tff_re.tasks.pair_metrics import DEFAULT_THRESHOLD, document_counts, every_pair, pair_metric_names, pair_metrics
from tff_re.tasks.ranking_metrics import curve
from tff_re.tasks.type_shares import BY_TYPES, TypeShares


class DocumentsAtServer:
    """Documents at the server: a `tff_re.tasks.held_out.HeldOut`."""

    criterion = "f1"

    def __init__(self, documents: Mapping[str, HeldOutDocuments], corpora: Mapping[str, DocumentCorpus]):
        """Args:
          documents: split -> its documents; `test`, and `dev` before it if there is one.
          corpora: split -> what they were made of.

        Raises:
          DataError: a split that states no relation, so that there is no recall.
        """
        for split, of_split in documents.items():
            if not of_split.gold.facts:
                raise DataError(
                    f"none of its {len(of_split.encoded.pairs)} documents states a relation, so recall is undefined",
                    record=f"documents of {split}",
                    remedy="choose other splits or another dev_share",
                )
        self._documents, self.corpora = documents, corpora
        self.splits = tuple(documents)
        threshold = (f"{DEV}/threshold",) if DEV in documents else ()
        self.metric_names = (*(name for split in documents for name in self._names(split)), *threshold)

    def _names(self, split: str) -> list[str]:
        """The metrics of a split, as in metrics.csv."""
        documents = self._documents[split]
        relations = documents.encoded.arrays["pair_labels"].shape[2]
        return [f"{split}/{name}" for name in pair_metric_names(relations, documents.gold)]

    def scoring(self, algorithm: FederatedAlgorithm) -> tff.Computation:
        """Probabilities of all relations for every candidate pair."""
        return build_pair_scores(algorithm.model)

    def examples(self, model: LocalModel, split: str) -> collections.OrderedDict:
        """The documents of a split."""
        return model.arrange(self._documents[split].encoded.arrays)

    def exported_inputs(self, inputs: DocumentInput, algorithm: FederatedAlgorithm) -> DocumentInput:
        """Encoded documents, as in training."""
        return inputs

    def precomputed(self, run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]) -> DocumentsAtServer:
        """The same documents, encoded by a model's frozen layers."""
        documents = {}
        for split, of_split in self._documents.items():
            encoded = dataclasses.replace(of_split.encoded, arrays=run(of_split.encoded.arrays))
            documents[split] = dataclasses.replace(of_split, encoded=encoded)
        return DocumentsAtServer(documents, self.corpora)

    def metrics(self, scores: Mapping[str, np.ndarray], threshold: float | None = None) -> dict[str, float]:
        """For each split the `pair_metrics`, all at the model's `threshold`, or where it has none at the one that is
        best on dev (0.5 without dev), which is among them. NaN where a score is not finite."""
        if not all(np.isfinite(values).all() for values in scores.values()):
            return {name: float("nan") for split in scores for name in self._names(split)}
        dev_metrics = {}
        if DEV in scores:
            if threshold is None:
                threshold = self._best_on_dev(scores)
            dev_metrics["dev/threshold"] = threshold
        return dev_metrics | self._metrics_at(scores, DEFAULT_THRESHOLD if threshold is None else threshold)

    def _best_on_dev(self, scores: Mapping[str, np.ndarray]) -> float:
        dev = self._documents[DEV]
        return best_threshold(scores[DEV], dev.encoded.pairs, dev.gold)

    def _metrics_at(self, scores: Mapping[str, np.ndarray], threshold: float) -> dict[str, float]:
        metrics = {}
        for split, values in scores.items():
            documents = self._documents[split]
            measured = pair_metrics(values, documents.encoded.pairs, documents.gold, threshold)
            metrics.update({f"{split}/{name}": value for name, value in measured.items()})
        return metrics

    def test_units(
        self, scores: Mapping[str, np.ndarray], threshold: float | None
    ) -> tuple[str, dict[str, np.ndarray]] | None:
        """The counts of each test document, or None if a score is not finite.

        See `document_counts`.
        """
        documents, values = self._documents[TEST], scores[TEST]
        if not np.isfinite(values).all():
            return None
        at = DEFAULT_THRESHOLD if threshold is None else threshold
        return "pairs", {"counts": document_counts(values, documents.encoded.pairs, documents.gold, at)}

    def references(self) -> dict[str, dict[str, float]]:
        """Rows of a comparison that need no training.

        One names a relation for every pair, of several the one that the split states most often. With a dev split
        another names the relations whose share among dev's pairs of the same types, in a sentence or not, reaches a
        threshold, which is the best on dev (see `TypeShares`).
        """
        every, what = {}, ""
        for split, documents in self._documents.items():
            what, every[split] = every_pair(documents.encoded.arrays["pair_labels"])
        rows = {f"trivial: {what}": self._metrics_at(every, DEFAULT_THRESHOLD)}
        rule = self.type_rule()
        if rule is not None:
            scores = {split: self._by_types(rule, split) for split in self.splits}
            rows[f"trivial: {BY_TYPES}"] = self._metrics_at(scores, DEFAULT_THRESHOLD)
        return rows

    def type_rule(self) -> TypeShares | None:
        """Which relations the rule by types names, see `references`.

        None without a dev split.
        """
        if DEV not in self._documents:
            return None
        shares = TypeShares.from_corpus(self.corpora[DEV])
        return shares.rule(self._best_on_dev({DEV: self._by_types(shares, DEV)}))

    def _by_types(self, shares: TypeShares, split: str) -> np.ndarray:
        """The scores of a split's pairs, float32 [D, P, R]."""
        encoded = self._documents[split].encoded
        return shares.scores(self.corpora[split], encoded.pairs, encoded.arrays["pair_labels"].shape[1])

    def points(self, scores: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The precision-recall curve of the test split's candidates.

        Stated relations that are not candidates count as not found. None if a score is not finite or no
        candidate is stated.
        """
        documents = self._documents[TEST]
        if not np.isfinite(scores[TEST]).all():
            return None
        values, true = countable(scores[TEST], documents.encoded.pairs, documents.gold)
        if not true.any():
            return None
        return curve(values, true).points(true.sum(), len(documents.gold.facts))
