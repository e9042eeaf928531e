"""[personalise]: every client fine-tunes the run's final model on its own examples, and counts what it gains."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from computations.algorithms.fine_tuning import HELD
from computations.local_model import LABEL
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import Evaluator
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


def personalise(experiment: Experiment, models: Any, call: Callable[..., Any], seed_for) -> Personalised:
    """Fine-tunes at every client with test or dev examples, as [personalise] says.

    Args:
      experiment: with `personalise.epochs` above zero.
      models: the final weights, see `own_models.models_of`.
      call: calls its first argument with the others, again where the worker died.
      seed_for: client id -> the seed of its training, int32 [2].
    """
    model, measures, computation = experiment.model, experiment.prepared.measures, experiment.fine_tuning
    clients = experiment.prepared.examples.clients
    held = {
        c.client_id: OrderedDict((split, getattr(c, split) or {n: a[:0] for n, a in c.train.items()}) for split in HELD)
        for c in clients
    }
    who = [c for c in clients if any(len(own[LABEL]) for own in held[c.client_id].values())]
    at_clients = [OrderedDict(examples=model.arrange(c.train), seed=seed_for(c.client_id)) for c in who]
    arranged = [OrderedDict((split, model.arrange(own)) for split, own in held[c.client_id].items()) for c in who]
    if isinstance(models, Mapping):
        pairs = zip(who, at_clients, arranged, strict=True)
        counted = [call(computation, models[c.client_id], [own], [parts])[0] for c, own, parts in pairs]
    else:
        counted = call(computation, models, at_clients, arranged)
    metrics, columns, worst = {}, {}, None
    quality = measures.quality
    for split in HELD:
        evaluator = Evaluator(experiment, split)
        if evaluator.empty:
            continue
        having = [own for c, own in zip(who, counted, strict=True) if len(held[c.client_id][split][LABEL])]
        before, after = (evaluator.of([own[when][split] for own in having]) for when in ("before", "after"))
        gains = {c: after.clients[c][1] - before.clients[c][1] for c in after.clients}
        metrics |= {PREFIX[split] + name: value for name, value in after.metrics.items()}
        metrics[f"{PREFIX[split]}gain"] = after.metrics[quality] - before.metrics[quality]
        metrics[f"{PREFIX[split]}gain_worst"] = min(gains.values())
        metrics[f"{PREFIX[split]}not_worse"] = float(np.mean([gain >= 0 for gain in gains.values()]))
        if split == "test":
            worst = min(gains, key=gains.get)
            columns = {
                f"{quality}_personal": {c: own[1] for c, own in after.clients.items()},
                "loss_personal": {c: own[2] for c, own in after.clients.items()},
                "gain": gains,
            }
    return Personalised(metrics, columns, worst)


def summary_of(recipe: Recipe, found: Personalised) -> dict[str, Any]:
    """What summary.json says of it."""
    options = recipe.personalise
    told = {"epochs": options.epochs, "layers": options.layers, "local_head": options.local_head}
    return {**told, "client_that_gains_least": found.worst, **found.metrics}
