"""Evaluation of a global model on the clients' own examples, over all clients and over their distribution."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from computations.local_model import LABEL
from datasets.federated import FederatedExamples
from tff_re.runs.experiment import Experiment
from tff_re.models.inputs import DocumentInput
from tff_re.tasks.held_out import DEV
from tff_re.tasks.metrics import classification_metric_names, classification_metrics, pair_metrics, trivial_metrics
from tff_re.tasks.pair_metrics import PAIR_METRICS
from tff_re.tasks.ranking_metrics import ranking_metrics


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation.

    Attributes:
      metrics: `accuracy` (correct over all clients' examples: the mean over clients weighted by size, as in FLCMC,
        Section 4.3) and the others of `classification_metrics`; over clients `accuracy_worst`, `accuracy_median`,
        `accuracy_best`. Of pairs in documents see `pair_metrics`, and F1 in place of the accuracy.
      confusion: [C, C], summed over clients; None for pairs.
      clients: client id -> (examples, accuracy or F1, loss).
      trivial: what models have on these examples that give all of them one class, see `trivial_metrics`; empty for
        pairs.
    """

    metrics: dict[str, float]
    confusion: np.ndarray | None
    clients: dict[str, tuple[int, float, float]]
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)


class Evaluator:
    """Evaluates the weights of a round on one split; keeps the arranged examples between rounds."""

    def __init__(self, experiment: Experiment, split: str):
        """Args:
        experiment: what is evaluated.
        split: `test` or `train`.
        """
        self._computation = experiment.evaluation
        self._positive_labels = experiment.prepared.positive_labels
        self._ids, self._examples = arranged(experiment, experiment.prepared.examples, split)

    @property
    def empty(self) -> bool:
        """Whether no client has an example of the split."""
        return not self._ids

    def __call__(self, weights) -> Evaluation:
        """Runs in the current execution context.

        Args:
          weights: ModelWeights.
        """
        per_client = self._computation(weights, self._examples)
        total = {name: np.sum([np.asarray(c[name]) for c in per_client], axis=0) for name in per_client[0]}
        if "confusion" in total:
            measured, quality = classification_metrics, "accuracy"
            metrics = classification_metrics(total, self._positive_labels)
        else:
            measured, quality = pair_metrics, "f1"
            metrics = pair_metrics(total)
        clients = {}
        for client_id, statistics in zip(self._ids, per_client, strict=True):
            own = measured(statistics)
            clients[client_id] = (int(statistics["examples"]), own[quality], own["loss"])
        values = np.array([value for _, value, _ in clients.values()])
        metrics[f"{quality}_worst"] = float(values.min())
        metrics[f"{quality}_median"] = float(np.median(values))
        metrics[f"{quality}_best"] = float(values.max())
        confusion = np.asarray(total["confusion"], np.int64) if "confusion" in total else None
        trivial = {} if confusion is None else trivial_metrics(confusion.sum(axis=1), self._positive_labels)
        return Evaluation(metrics, confusion, clients, trivial)


@dataclass(frozen=True)
class ServerEvaluation:
    """What the examples at the server say of a model: metrics such as `dev/auc`, and the scores of each split."""

    metrics: dict[str, float]
    scores: dict[str, np.ndarray]


class ServerEvaluator:
    """Evaluates the weights of a round on what the server holds; see `tff_re.tasks.held_out`."""

    def __init__(self, experiment: Experiment):
        """Args:
        experiment: one whose task holds examples at the server.
        """
        self._held_out, self._computation = experiment.prepared.held_out, experiment.scoring
        self._examples = {split: self._held_out.examples(experiment.model, split) for split in self._held_out.splits}

    @property
    def criterion(self) -> str | None:
        """The metric that chooses the round, or None where there is no dev split."""
        return f"{DEV}/{self._held_out.criterion}" if DEV in self._held_out.splits else None

    def __call__(self, weights) -> ServerEvaluation:
        """Runs in the current execution context.

        Args:
          weights: ModelWeights.
        """
        scores = {split: np.asarray(self._computation(weights, own)) for split, own in self._examples.items()}
        return ServerEvaluation(self._held_out.metrics(scores), scores)


class Truth:
    """How often a model selects sentences that state their relation, where that is known (made-up bags)."""

    def __init__(self, experiment: Experiment):
        """Args:
        experiment: one whose task knows the truth.
        """
        self._computation = experiment.selection
        _, self._examples = arranged(experiment, experiment.prepared.examples, "train")
        self._truth = [known for known in experiment.prepared.truth if len(known)]

    def __call__(self, weights) -> dict[str, float]:
        """Runs in the current execution context; of the rows of related pairs:

        - `selection/true_share`: the share that is true;
        - `selection/precision_alone`: that of the rows which each platform selects by itself, as ONE does;
        - `selection/precision_across`: that of the rows which all platforms select together, as Lazy MIL does.

        Args:
          weights: ModelWeights.
        """
        everything = [np.ones(len(known), bool) for known in self._truth]
        alone = [self._computation(weights, [examples])[0] for examples in self._examples]
        across = self._computation(weights, self._examples)
        return {
            "selection/true_share": self._precision(everything),
            "selection/precision_alone": self._precision(alone),
            "selection/precision_across": self._precision(across),
        }

    def _precision(self, selected: list[np.ndarray]) -> float:
        of_pairs = np.concatenate([known[rows] for known, rows in zip(self._truth, selected, strict=True)])
        return float((of_pairs == 1).sum() / max((of_pairs >= 0).sum(), 1))


def metric_names(experiment: Experiment) -> set[str]:
    """Names of the metrics of test, train and dev examples that a run of the experiment will have."""
    prepared, names = experiment.prepared, set()
    of_documents = isinstance(prepared.inputs, DocumentInput)
    if of_documents:
        own = ("loss", "precision", "recall", "f1")
    else:
        own = classification_metric_names(prepared.positive_labels)
    over_clients = tuple(f"{'f1' if of_documents else 'accuracy'}_{which}" for which in ("worst", "median", "best"))
    if any(len(client.test[LABEL]) for client in prepared.examples.clients):
        names |= {f"test/{name}" for name in (*own, *over_clients)}
    if experiment.recipe.evaluation.train_split:
        names |= {f"train/{name}" for name in (*own, *(over_clients if of_documents else ()))}
    if prepared.held_out is not None:
        judged = PAIR_METRICS if of_documents else ranking_metrics(np.ones(1), np.ones(1, bool))
        names |= {f"{split}/{name}" for split in prepared.held_out.splits for name in judged}
        names |= {f"{DEV}/threshold"} if of_documents and DEV in prepared.held_out.splits else set()
    return names


def arranged(experiment: Experiment, examples: FederatedExamples, split: str) -> tuple[list[str], list[OrderedDict]]:
    """(ids, examples in the model's order) of the clients that have examples of a split."""
    ids, values = [], []
    for client in examples.clients:
        own = getattr(client, split)
        if len(own["y"]):
            ids.append(client.client_id)
            values.append(experiment.model.arrange(own))
    return ids, values
