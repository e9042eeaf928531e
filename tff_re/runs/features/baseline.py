"""[baseline]: every client trains by itself, or one client has all examples, and nothing is sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from computations.aggregators import mean
from computations.algorithms.own_models import require_plain, trained_alone
from computations.federated_algorithm import recompose
from computations.local_model import LABEL, PLATFORM
from computations.server_updates import gradient_step
from datasets.federated import ClientExamples, FederatedExamples
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import arranged
from tff_re.runs.features.base import Feature
from tff_re.runs.features.own_models import rounds_of_each
from tff_re.tasks.base import Prepared

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

POOLED = "all training examples"
"""Id of the client that trains."""


class Baseline(Feature):
    """Both kinds."""

    table = "baseline"
    _on_all = None

    @property
    def data_key(self):
        """See `Feature`."""
        return self.options

    @property
    def algorithm_key(self):
        """See `Feature`."""
        return self.options

    @property
    def _is_local(self) -> bool:
        return self.options.kind == "local"

    def refuse(self, *, at_sites):
        """Raises UserError for tables that go with no [baseline]."""
        recipe = self.recipe
        if at_sites:  # each site trains alone in addition to the federated run
            if not self._is_local:
                raise UserError(
                    f"{recipe.source}: baseline.kind = 'pooled' is not for runs across sites, where nobody has all "
                    "examples; set it to 'local', or leave [baseline] out"
                )
            return
        for table in ("privacy", "aggregation", "client_model", "server_optimizer", "attack", "failures"):
            if getattr(recipe, table) is not None:
                raise UserError(
                    f"{recipe.source}: a [baseline] run has no server, so [{table}] has no effect; leave one of the "
                    "two out"
                )
        if self._is_local and recipe.personalise is not None:
            raise UserError(
                f"{recipe.source}: [personalise] needs a global model, and baseline.kind = 'local' trains none; "
                "leave one of the two out"
            )
        if recipe.personalise is not None and recipe.personalise.local_head:
            raise UserError(
                f"{recipe.source}: 'personalise.local_head' cannot be combined with [baseline]; leave one of the two "
                "out"
            )

    def change_data(self, prepared):
        """See `Feature`."""
        return prepared if self._is_local else pooled(prepared)

    def prepare(self, setting):
        """See `Feature`."""
        if self._is_local:
            require_tests_at_clients(self.recipe, setting.prepared, "baseline.kind = 'local'")

    def change_algorithm(self, algorithm):
        """See `Feature`."""
        with self.naming(f"[baseline] with {self.recipe.algorithm.name}: "):
            if self._is_local:
                return trained_alone(algorithm)
            require_plain(algorithm.client_work, "one client with all examples")
            return recompose(algorithm, aggregator=mean(), finalizer=gradient_step(algorithm.model))

    def metric_names(self, of_test):
        """See `Feature`."""
        return {f"all/{name}" for name in of_test} if self._is_local else set()

    def start(self, training):
        """See `Feature`."""
        self._on_all = OnAll(training.experiment) if self._is_local else None

    def evaluate(self, training, weights):
        """See `Feature`."""
        return {} if self._on_all is None else self._on_all(weights)[0]

    def finish(self, training, result):
        """See `Feature`."""
        self._columns = {}
        if self._on_all is None:
            return result
        metrics, self._columns = training.call(self._on_all, result.weights)
        if rounds := rounds_of_each(training.experiment, training.state):
            self._columns |= {"round": rounds}
        return dataclasses.replace(result, on_all=metrics)

    def columns(self, clients):
        """See `Feature`."""
        return {name: {c: values[c] for c in clients if c in values} for name, values in self._columns.items()}

    def summary(self, result):
        """See `Feature`."""
        return {"on_all": dict(result.on_all)} if result.on_all else {}


def sends_nothing(recipe: Recipe) -> bool:
    """Whether no client sends anything."""
    return recipe.baseline is not None


def clients_of(recipe: Recipe, clients: int, per_round: int) -> tuple[int, int]:
    """(clients with training examples, those of a round) of a run: with [baseline] all clients, or the one that has all
    examples, train in every round."""
    if recipe.baseline is None:
        return clients, per_round
    number = 1 if recipe.baseline.kind == "pooled" else clients
    return number, number


def require_tests_at_clients(recipe: Recipe, prepared: Prepared, table: str) -> None:
    """Raises UserError where models of single clients cannot be measured."""
    if prepared.held_out is not None or not prepared.examples.size("test"):
        raise UserError(
            f"{recipe.source}: {table} is measured on the clients' test examples, but here the clients have none; "
            "leave it out"
        )


def pooled(prepared: Prepared) -> Prepared:
    """These data with all training examples at one client.

    Dev and test examples stay where they are, so that the metrics are over the same clients as in a federated run.
    """
    train = prepared.examples.pooled("train")
    none = {name: array[:0] for name, array in train.items()}
    if PLATFORM in train:
        train[PLATFORM] = np.zeros_like(train[PLATFORM])
    dev = None if all(client.dev is None for client in prepared.examples.clients) else none
    others = [dataclasses.replace(client, train=none) for client in prepared.examples.clients]
    holders = [c for c in others if len(c.test[LABEL]) or (c.dev is not None and len(c.dev[LABEL]))]
    clients = (ClientExamples(POOLED, train, none, dev), *holders)
    examples = FederatedExamples(clients, prepared.examples.label_names, prepared.examples.server)
    truth = prepared.truth and (np.concatenate(prepared.truth), *([prepared.truth[0][:0]] * len(holders)))
    return dataclasses.replace(prepared, examples=examples, **({} if truth is None else {"truth": truth}))


class OnAll:
    """Tests every client's own model on the test examples of all clients."""

    def __init__(self, experiment: Experiment):
        self._measures, self._evaluation = experiment.prepared.measures, experiment.evaluation
        self._examples = experiment.model.arrange(experiment.prepared.examples.pooled("test"))
        self._ids, _ = arranged(experiment, "train")

    def __call__(self, models: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """(metrics, columns of clients.csv). `all/accuracy` and so on are means over the models of clients that train,
        `all/accuracy_worst`, … are of the worst, the median and the best model."""
        counted = {client: self._evaluation(models[client], [self._examples])[0] for client in self._ids}
        by_client = {client: self._measures.metrics(counts) for client, counts in counted.items()}
        quality = self._measures.quality
        metrics = {
            f"all/{n}": float(np.mean([metrics_of[n] for metrics_of in by_client.values()]))
            for n in self._measures.names
        }
        values = [metrics_of[quality] for metrics_of in by_client.values()]
        for which, statistic in (("worst", np.min), ("median", np.median), ("best", np.max)):
            metrics[f"all/{quality}_{which}"] = float(statistic(values))
        return metrics, {
            f"{n}_all": {c: metrics_of[n] for c, metrics_of in by_client.items()} for n in (quality, "loss")
        }
