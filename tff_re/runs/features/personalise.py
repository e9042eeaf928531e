"""[personalise]: every client fine-tunes the run's final model on its own examples, and counts what it gains."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from computations import federated as tff
from computations.algorithms.fine_tuning import HELD, build_fine_tuning
from computations.algorithms.own_models import head_indices
from computations.client_work import LocalTraining
from computations.client_work.optimizers import SGD, SelfAdam
from computations.errors import CompositionError
from computations.local_model import LABEL, LocalModel
from tff_re.errors import UserError
from tff_re.recipes.metric_names import OF_GAIN
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import Evaluator
from tff_re.runs.features.base import Feature
from tff_re.runs.features.baseline import require_tests_at_clients
from tff_re.runs.randomness import client_seed

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

PREFIX = {"test": "personal/", "dev": "personal_dev/"}
"""Of the metrics, by the split that they are of."""


@dataclass(frozen=True)
class Personalised:
    """What fine-tuning gave.

    Attributes:
      metrics: `personal/accuracy` and the others of an evaluation, of every client's own model on its own test
        examples; `personal/gain`, its quality (accuracy or F1) minus that before, over all clients' examples;
        `personal/gain_worst`, the least gain of a client, and `personal/not_worse`, the share of clients that do not
        lose. The same of dev examples as `personal_dev/`.
      columns: of clients.csv.
      worst: id of the client that gains least on test; None without test examples.
    """

    metrics: dict[str, float]
    columns: dict[str, dict[str, float]]
    worst: str | None


class Personalise(Feature):
    """Fine-tuning after training (local heads are `own_models.LocalHead`)."""

    table = "personalise"
    _build = None
    _columns: Mapping[str, Mapping[str, float]] = {}

    def refuse(self, *, at_sites):
        """See `Feature`."""
        if at_sites and self.options.local_head:
            raise UserError(
                f"{self.recipe.source}: 'personalise.local_head' is not for runs across sites; set it to false"
            )

    def prepare(self, setting):
        """See `Feature`."""
        recipe, model = self.recipe, setting.model
        require_tests_at_clients(recipe, setting.prepared, "[personalise]")
        if recipe.client_model is not None:
            raise UserError(
                f"{recipe.source}: [personalise] cannot be combined with [client_model]; leave one of the two out"
            )
        if self.options.epochs:
            settings = fine_tuning_settings(recipe, model)
            build = functools.cache(lambda: build_fine_tuning(model, **settings))
            key = (recipe.model, setting.sizes, *settings.values())
            self._build = setting.computations.setdefault(key, build)

    def metric_names(self, of_test):
        """See `Feature`."""
        return {f"personal/{name}" for name in (*of_test, *OF_GAIN)} if self.options.epochs else set()

    def finish(self, training, result):
        """See `Feature`."""
        if self._build is None:
            return result
        computation, seed = self._build(), training.seed
        personalised = personalise(
            training.experiment, computation, result.weights, training.call, lambda client: client_seed(seed, 0, client)
        )
        self._columns = personalised.columns
        return dataclasses.replace(result, personalised=personalised)

    def columns(self, clients):
        """See `Feature`."""
        return self._columns

    def summary(self, result):
        """See `Feature`."""
        if (personalised := result.personalised) is None:
            return {}
        options = self.options
        fields = {"epochs": options.epochs, "layers": options.layers, "local_head": options.local_head}
        return {"personalised": {**fields, "client_that_gains_least": personalised.worst, **personalised.metrics}}


def personalise(
    experiment: Experiment, computation: tff.Computation, models: Any, call: Callable[..., Any], seed_for
) -> Personalised:
    """Fine-tunes at every client with test or dev examples, as [personalise] says.

    Args:
      experiment: of the run.
      computation: of `build_fine_tuning`.
      models: the final weights, see `own_models.models_of`.
      call: calls its first argument with the others, again where the worker died.
      seed_for: client id -> the seed of its training, int32 [2].
    """
    model, measures = experiment.model, experiment.prepared.measures
    clients = experiment.prepared.examples.clients
    held = {
        c.client_id: OrderedDict((split, getattr(c, split) or {n: a[:0] for n, a in c.train.items()}) for split in HELD)
        for c in clients
    }
    who = [c for c in clients if any(len(part[LABEL]) for part in held[c.client_id].values())]
    at_clients = [OrderedDict(examples=model.arrange(c.train), seed=seed_for(c.client_id)) for c in who]
    arranged = [OrderedDict((split, model.arrange(part)) for split, part in held[c.client_id].items()) for c in who]
    if isinstance(models, Mapping):
        pairs = zip(who, at_clients, arranged, strict=True)
        counted = [call(computation, models[c.client_id], [client], [parts])[0] for c, client, parts in pairs]
    else:
        counted = call(computation, models, at_clients, arranged)
    metrics, columns, worst = {}, {}, None
    quality = measures.quality
    for split in HELD:
        evaluator = Evaluator(experiment, split)
        if evaluator.empty:
            continue
        having = [counts for c, counts in zip(who, counted, strict=True) if len(held[c.client_id][split][LABEL])]
        before, after = (evaluator.combine([counts[when][split] for counts in having]) for when in ("before", "after"))
        gains = {c: after.clients[c][1] - before.clients[c][1] for c in after.clients}
        metrics |= {PREFIX[split] + name: value for name, value in after.metrics.items()}
        metrics[f"{PREFIX[split]}gain"] = after.metrics[quality] - before.metrics[quality]
        metrics[f"{PREFIX[split]}gain_worst"] = min(gains.values())
        metrics[f"{PREFIX[split]}not_worse"] = float(np.mean([gain >= 0 for gain in gains.values()]))
        if split == "test":
            worst = min(gains, key=gains.get)
            columns = {
                f"{quality}_personal": {c: values[1] for c, values in after.clients.items()},
                "loss_personal": {c: values[2] for c, values in after.clients.items()},
                "gain": gains,
            }
    return Personalised(metrics, columns, worst)


def trained_indices(recipe: Recipe, model: LocalModel) -> frozenset[int]:
    """Indices of the weights that `personalise.layers` trains among the trainable ones.

    Raises:
      UserError: the model has no such part.
    """
    layers, every = recipe.personalise.layers, range(len(model.weight_names))
    if layers == "all":
        return frozenset(every)
    where = f"{recipe.source}: 'personalise.layers' is '{layers}'"
    if layers == "adapter" and recipe.model.get("adapter") is None:
        raise UserError(f"{where}, but the model has no adapter; set [model.adapter], or use 'all' or 'head'")
    try:
        head = frozenset(head_indices(model))
    except CompositionError as error:
        raise UserError(f"{where}: {error}; set it to 'all'") from None
    return head if layers == "head" else frozenset(every) - head


def fine_tuning_settings(recipe: Recipe, model: LocalModel) -> dict[str, Any]:
    """The arguments of `build_fine_tuning` other than the model, in a form that can be compared."""
    options, algorithm = recipe.personalise, recipe.algorithm.options
    rate = algorithm.learning_rate if options.learning_rate is None else options.learning_rate
    return {
        "optimizer": (SelfAdam if options.optimizer == "adam" else SGD)(rate),
        "training": LocalTraining(local_epochs=options.epochs, batch_size=algorithm.batch_size),
        "indices": trained_indices(recipe, model),
    }
