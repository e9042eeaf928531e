"""Evaluation of a global model on the clients' own examples, over all clients and over their distribution."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_re.errors import UserError
from tff_re.runs.features.failures import NOT_FINITE, too_many, without_failing
from tff_re.runtime import ComputationFailed
from tff_re.tasks.held_out import DEV, TEST

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

AT_ONCE = 1000
"""Clients whose arrays are in memory at once."""

FAILED = "clients_failed"
"""The metric that counts clients whose evaluation failed and is left out."""


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation.

    Attributes:
      metrics: `accuracy` (correct over all clients' examples: the mean over clients weighted by size, as in FLCMC,
        Section 4.3) and the others of `classification_metrics`; over clients `accuracy_worst`, `accuracy_median`,
        `accuracy_best`. Of pairs in documents see `PairMeasures`, and F1 in place of the accuracy. With
        `training.tolerated_failures` also `clients_failed`.
      confusion: [C, C], summed over clients; None for pairs and entities.
      per_class: (precision, recall, F1, examples) of each class or type of entities; None for pairs.
      clients: client id -> (examples, accuracy or F1, loss).
      trivial: metrics of models that give all examples one class, see `trivial_metrics`; empty for pairs.
      by_client: client id -> the metrics of its own examples, of an `Evaluator` that was asked for them.
      sites: (sites that it is over, sites that hold examples of it), of clients at sites.
      by_site: site -> `examples` and the metrics of its own examples, of sites that allow it.
    """

    metrics: dict[str, float]
    confusion: np.ndarray | None
    clients: dict[str, tuple[int, float, float]]
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    by_client: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    sites: tuple[int, int] | None = None
    by_site: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    per_class: tuple[np.ndarray, ...] | None = field(default=None, repr=False)

    def recorded(self, split: str) -> dict[str, float]:
        """The metrics under their names in metrics.csv, e.g. `test/accuracy`.

        `sites/test` is the number of sites.
        """
        names = recorded_of_train(self.metrics) if split == "train" else self.metrics
        sites = {} if self.sites is None else {f"sites/{split}": float(self.sites[0])}
        return {f"{split}/{name}": self.metrics[name] for name in names} | sites


class Evaluator:
    """Evaluates weights on the clients' examples of one split: `test`, `dev` or `train`.

    Attributes:
      clients: the ids of those that have examples of the split.
    """

    def __init__(self, experiment: Experiment, split: str, *, by_client: bool = False):
        self._by_client = by_client
        self._measures, self._split, self._training = experiment.prepared.measures, split, experiment.recipe.training
        self.clients, self._examples = arranged(experiment, split)
        self._at_sites = bool(experiment.prepared.sites)
        self._computation = None if self.empty else experiment.evaluation

    @property
    def empty(self) -> bool:
        """Whether no client has an example of the split."""
        return not self.clients

    def __call__(self, weights) -> Evaluation:
        """Evaluates weights in the current execution context.

        The weights are ModelWeights, or client id -> ModelWeights if every client has its own model.

        Raises:
          UserError: the evaluations of more clients failed than `training.tolerated_failures`.
        """
        if isinstance(weights, Mapping):
            pairs = zip(self.clients, self._examples, strict=True)
            return self.combine([self._computation(weights[client], [examples])[0] for client, examples in pairs])
        if self._training.tolerated_failures is not None:
            return self._of_those_that_do_not_fail(weights)
        counted = self._counted(weights)
        if isinstance(counted, Mapping):  # a sum over clients that are at sites
            measured = self._measures.metrics(counted), self._measures.confusion(counted)
            return Evaluation(
                *measured, {}, self._measures.trivial(counted), per_class=self._measures.per_class(counted)
            )
        return self.combine(counted)

    def _counted(self, weights) -> Any:
        """What each client counted, or the sum over clients that are at sites."""
        if self._at_sites or len(self.clients) <= AT_ONCE:
            return self._computation(weights, self._examples[:])
        firsts = range(0, len(self.clients), AT_ONCE)
        return [c for first in firsts for c in self._computation(weights, self._examples[first : first + AT_ONCE])]

    def _of_those_that_do_not_fail(self, weights) -> Evaluation:
        everyone, tolerated = list(range(len(self.clients))), self._training.tolerated_failures
        # Where the worker died, the caller starts it again.
        counted, failed = without_failing(
            lambda indices: self._computation(weights, [self._examples[index] for index in indices]),
            everyone,
            tolerated,
            (ComputationFailed,),
        )
        answered = [index for index in everyone if index not in failed]
        if counted is not None:
            finite = [all(np.isfinite(value).all() for value in statistics.values()) for statistics in counted]
            if any(finite):  # else it is the model's fault
                failed |= {index: NOT_FINITE for index, good in zip(answered, finite, strict=True) if not good}
                counted = [statistics for statistics, good in zip(counted, finite, strict=True) if good]
        if len(failed) > tolerated:
            named = {self.clients[index]: outcome for index, outcome in sorted(failed.items())}
            raise UserError(f"the evaluations on {self._split} examples {too_many(named, self._training)}")
        evaluation = self.combine(counted, [self.clients[index] for index in everyone if index not in failed])
        evaluation.metrics[FAILED] = float(len(failed))
        return evaluation

    def combine(self, per_client: Sequence[Mapping[str, np.ndarray]], ids: Sequence[str] | None = None) -> Evaluation:
        """The evaluation of what each client counted, see `build_evaluation`.

        `ids`: of these clients; by default of all.
        """
        total = {name: np.sum([np.asarray(c[name]) for c in per_client], axis=0) for name in per_client[0]}
        metrics, quality = self._measures.metrics(total), self._measures.quality
        clients, by_client = {}, {}
        for client_id, statistics in zip(self.clients if ids is None else ids, per_client, strict=True):
            clients[client_id] = (int(statistics["examples"]), *self._measures.of_client(statistics))
            if self._by_client:
                by_client[client_id] = self._measures.metrics(statistics)
        # Texts without tokens have no measure.
        values = np.array([value for rows, value, _ in clients.values() if rows] or [np.nan])
        metrics[f"{quality}_worst"] = float(values.min())
        metrics[f"{quality}_median"] = float(np.median(values))
        metrics[f"{quality}_best"] = float(values.max())
        trivial = self._measures.trivial(total)
        confusion, classes = self._measures.confusion(total), self._measures.per_class(total)
        return Evaluation(metrics, confusion, clients, trivial, by_client=by_client, per_class=classes)


def measured_at(measures: Any, results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """`Evaluation.by_site` of what sites counted."""
    return {site: {"examples": float(r["examples"]), **measures.metrics(r)} for site, r in results.items()}


@dataclass(frozen=True)
class ServerEvaluation:
    """A model's metrics on the examples at the server, such as `dev/auc`, and its scores of each split."""

    metrics: dict[str, float]
    scores: dict[str, np.ndarray]


class ServerEvaluator:
    """Evaluates the weights of a round on the examples that the task holds at the server (see `HeldOut`).

    `tested`: whether those of test are among them.
    """

    def __init__(self, experiment: Experiment, *, tested: bool = True):
        self._held_out, self._computation = experiment.prepared.held_out, experiment.scoring
        self._threshold = experiment.model.threshold
        splits = [split for split in self._held_out.splits if tested or split != TEST]
        self._examples = {split: self._held_out.examples(experiment.model, split) for split in splits}

    def __call__(self, weights) -> ServerEvaluation:
        """Of ModelWeights, in the current execution context."""
        scores = {split: np.asarray(self._computation(weights, arrays)) for split, arrays in self._examples.items()}
        return ServerEvaluation(self._held_out.metrics(scores, self._threshold), scores)


def metric_names(experiment: Experiment) -> set[str]:
    """Names of the metrics of test, train and dev examples in metrics.csv of a run of the experiment."""
    prepared, names = experiment.prepared, set()
    measured = prepared.measures.names
    one_model = experiment.algorithm.own_models is None
    failed = (FAILED,) if one_model and experiment.recipe.training.tolerated_failures is not None else ()
    over_clients = tuple(f"{prepared.measures.quality}_{which}" for which in ("worst", "median", "best"))
    if prepared.examples.size("test"):
        names |= {f"test/{name}" for name in (*measured, *over_clients, *failed)}
        for feature in experiment.features:
            names |= feature.metric_names((*measured, *over_clients))
    if experiment.recipe.evaluation.train_split:
        names |= {f"train/{name}" for name in recorded_of_train((*measured, *over_clients, *failed))}
    if prepared.examples.has_dev:
        names |= {f"{DEV}/{name}" for name in (*measured, *over_clients, *failed)}
    if prepared.held_out is not None:
        names |= set(prepared.held_out.metric_names)
    return names


def recorded_of_train(names: Iterable[str]) -> list[str]:
    """Those of an evaluation's metrics that metrics.csv has of the training examples: not the accuracy of the worst,
    the median and the best client."""
    return [name for name in names if not name.startswith("accuracy_")]


class Arranged(Sequence):
    """The examples of clients in the model's order, which are made when a client is asked for."""

    def __init__(self, experiment: Experiment, split: str, indices: np.ndarray):
        self._experiment, self._split, self._indices = experiment, split, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index):
        """Those of an index, or the list of a slice's."""
        if isinstance(index, slice):
            return [self._arrays_of(i) for i in self._indices[index]]
        return self._arrays_of(self._indices[index])

    def _arrays_of(self, index: int) -> OrderedDict:
        client = self._experiment.prepared.examples.clients[index]
        return self._experiment.model.arrange(getattr(client, self._split))


def arranged(experiment: Experiment, split: str) -> tuple[list[str], Arranged]:
    """(ids, examples in the model's order) of the clients that have examples of a split."""
    examples = experiment.prepared.examples
    indices = np.flatnonzero(examples.sizes(split))
    ids = examples.ids
    return [ids[i] for i in indices], Arranged(experiment, split, indices)
