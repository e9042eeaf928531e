"""The models of a round where every client has one of its own, and what checkpoints keep of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_re.runs.evaluation import arranged
from tff_re.runs.experiment import Experiment


def trains_alone(experiment: Experiment) -> bool:
    """Whether the server's weights are no part of the clients' models."""
    baseline = experiment.recipe.baseline
    return baseline is not None and baseline.kind == "local"


def kept_of(experiment: Experiment, state: OrderedDict) -> Any:
    """What the models of a round are made of: the server's weights, and the clients' states where they are a part."""
    if experiment.algorithm.own_models is None:
        return state["server"]["weights"]
    return OrderedDict(server=state["server"]["weights"], memory=list(state["memory"]))


def models_of(experiment: Experiment, kept: Any) -> Any:
    """The ModelWeights that `kept_of` kept, or client id -> ModelWeights where every client has its own.

    A client that never trains has what a client starts with.
    """
    own = experiment.algorithm.own_models
    if own is None:
        return kept
    blank = experiment.algorithm.client_work.initial_client_state(None, experiment.recipe.seed)
    ids, _ = arranged(experiment, "train")
    states = dict(zip(ids, kept["memory"], strict=True))
    clients = (client.client_id for client in experiment.prepared.examples.clients)
    return {client: own.of_client(kept["server"], states.get(client, blank)) for client in clients}


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
        found = {client: self._measures.metrics(own) for client, own in counted.items()}
        quality = self._measures.quality
        metrics = {f"all/{n}": float(np.mean([own[n] for own in found.values()])) for n in self._measures.names}
        values = [own[quality] for own in found.values()]
        for which, of in (("worst", np.min), ("median", np.median), ("best", np.max)):
            metrics[f"all/{quality}_{which}"] = float(of(values))
        return metrics, {f"{n}_all": {c: own[n] for c, own in found.items()} for n in (quality, "loss")}


def final_models(experiment: Experiment, state: OrderedDict) -> tuple[Any, int | None, dict[str, int]]:
    """(the models that a run ends with, see `models_of`; the chosen round; client id -> its own where each chooses for
    itself).

    The round is None without a dev split, or where its metric was never finite; of clients' own it is the latest.
    """
    kept, chosen = kept_of(experiment, state), state.get("chosen")
    if isinstance(chosen, list):
        ids, _ = arranged(experiment, "train")
        rounds = {client: int(own["round"]) for client, own in zip(ids, chosen, strict=True) if own["round"]}
        memory = zip(chosen, kept["memory"], strict=True)
        kept = OrderedDict(kept, memory=[own["weights"] if own["round"] else last for own, last in memory])
        return models_of(experiment, kept), max(rounds.values(), default=None), rounds
    if chosen is not None and (round_num := int(chosen["round"])):
        return models_of(experiment, chosen["weights"]), round_num, {}
    return models_of(experiment, kept), None, {}
