"""Models that clients have for themselves: local heads, the models of a round, and what checkpoints keep of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from computations.algorithms.own_models import with_local_heads
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import arranged
from tff_re.runs.features.base import Feature

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment


class LocalHead(Feature):
    """`personalise.local_head`: every client keeps a head of its own."""

    table = "personalise"
    algorithm_key = "local head"

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """See `Feature`."""
        return recipe.personalise is not None and recipe.personalise.local_head

    def change_algorithm(self, algorithm):
        """See `Feature`."""
        with self.naming(f"'personalise.local_head' with {self.recipe.algorithm.name}: "):
            return with_local_heads(algorithm)


def model_state_of(experiment: Experiment, state: OrderedDict) -> Any:
    """What the models of a round are made of: the server's weights, and the clients' states where they are a part."""
    if experiment.algorithm.own_models is None:
        return state["server"]["weights"]
    return OrderedDict(server=state["server"]["weights"], memory=list(state["memory"]))


def models_of(experiment: Experiment, model_state: Any) -> Any:
    """The ModelWeights that `model_state_of` gave, or client id -> ModelWeights where every client has its own.

    A client that never trains has what a client starts with.
    """
    own_models = experiment.algorithm.own_models
    if own_models is None:
        return model_state
    blank = experiment.algorithm.client_work.initial_client_state(None, experiment.recipe.seed)
    ids, _ = arranged(experiment, "train")
    states = dict(zip(ids, model_state["memory"], strict=True))
    clients = (client.client_id for client in experiment.prepared.examples.clients)
    return {client: own_models.of_client(model_state["server"], states.get(client, blank)) for client in clients}


def final_models(experiment: Experiment, state: OrderedDict) -> Any:
    """The models that a run ends with, see `models_of`: of the chosen round, or of the last one."""
    model_state, chosen = model_state_of(experiment, state), state.get("chosen")
    if isinstance(chosen, list):
        memory = zip(chosen, model_state["memory"], strict=True)
        model_state = OrderedDict(
            model_state, memory=[choice["weights"] if choice["round"] else last for choice, last in memory]
        )
    elif chosen_round(state) is not None:
        model_state = chosen["weights"]
    return models_of(experiment, model_state)


def chosen_round(state: OrderedDict) -> int | None:
    """The round that was selected on dev, or None without a dev split or if its metric was never finite.

    If clients select for themselves, it is the latest of their rounds.
    """
    chosen = state.get("chosen", [])
    rounds = [int(choice["round"]) for choice in (chosen if isinstance(chosen, list) else [chosen])]
    return max(rounds, default=0) or None


def rounds_of_each(experiment: Experiment, state: OrderedDict) -> dict[str, int]:
    """Client id -> its selected round, if each client selects for itself.

    Clients that selected none are left out.
    """
    if not isinstance(chosen := state.get("chosen"), list):
        return {}
    ids, _ = arranged(experiment, "train")
    return {client: int(choice["round"]) for client, choice in zip(ids, chosen, strict=True) if choice["round"]}
