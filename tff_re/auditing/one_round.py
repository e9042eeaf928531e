"""Trains one round of a run again: what single clients send, and what the server makes of all of it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import numpy as np

from computations import federated as tff
from computations.aggregators import has_noise, with_noise_seed
from computations.federated_algorithm import FederatedAlgorithm
from tff_re.runs.experiment import Experiment
from tff_re.runs.randomness import client_seed
from tff_re.runs.sampling import participation


def no_weights_sent(algorithm: FederatedAlgorithm) -> str | None:
    """Why a client's update is not a change of the global model's weights, or None if it is."""
    if algorithm.server_type is not None and algorithm.client_work.server_type is None:
        return "its server trains on its own examples after each round"
    sent, trained = algorithm.client_work.update_type, algorithm.model.weights_type.trainable
    if [t.shape for t in tff.structure.flatten(sent)] == [t.shape for t in tff.structure.flatten(trained)]:
        return None
    if algorithm.client_work.server_type is not None:
        return "its clients send predictions on the server's examples, not weights"
    return "what its clients send does not have the structure of the model's weights"


def build_update(algorithm: FederatedAlgorithm) -> tff.Computation:
    """(weights@SERVER, clients@CLIENTS[, client_state@CLIENTS]) -> update@CLIENTS: the algorithm's own client work,
    with the server's state of its first round (its first learning rate; control variates of zero)."""
    work = algorithm.client_work
    taken = [name for name in ("clients", "client_state") if name in work.inputs]
    weights_type = tff.FederatedType(algorithm.model.weights_type, tff.SERVER)
    inputs_type = collections.OrderedDict(weights=weights_type, **{name: work.inputs[name] for name in taken})

    @tff.federated_computation(tff.types.to_type(inputs_type))
    def update(inputs):
        weights, arguments = inputs["weights"], {name: inputs[name] for name in taken}
        state = work.initialize(weights)
        return work.next(state=state, weights=tff.federated_broadcast(weights), **arguments)["update"]

    return update


def change_of_round(
    algorithm: FederatedAlgorithm, weights, initial, clients: list, states: list, seed: int
) -> list[np.ndarray]:
    """What a round from `weights` on changes in the model that everybody gets: those weights less the new ones.

    The aggregator's clipping and noise are in it, and the server's step; the server's state is that of a first round,
    made of the weights `initial`.
    """
    state = _seeded(algorithm, algorithm.set_model_weights(algorithm.initialize(initial), weights), seed)
    output = algorithm.next(state, clients, *([states] if states else []))
    new = output["state"]["weights"].trainable
    return [np.asarray(old) - np.asarray(updated) for old, updated in zip(weights.trainable, new, strict=True)]


def round_clients(
    experiment: Experiment, ids: Sequence[str], examples: Sequence, round_num: int, seed: int
) -> tuple[list[int], list[collections.OrderedDict]]:
    """(indices, clients' values) of those that the run's sampling draws for a round and whose answers count."""
    chosen = participation(experiment, seed, ids).counted(round_num)
    clients = [collections.OrderedDict(examples=examples[i], seed=client_seed(seed, round_num, ids[i])) for i in chosen]
    return chosen, clients


def first_client_state(experiment: Experiment, examples, seed: int) -> tuple:
    """The client state of a client that has not been trained yet, in a tuple.

    The tuple is empty if clients keep no state.
    """
    initial = experiment.algorithm.client_work.initial_client_state
    return () if initial is None else (initial(examples, seed),)


def train_again(
    experiment: Experiment,
    algorithm: FederatedAlgorithm,
    ids: Sequence[str],
    examples: Sequence,
    seed: int,
    *,
    change_round: Callable[[int, list, list], tuple[list, list]] = lambda round_num, clients, states: (clients, states),
    on_round: Callable[[int, object], None] = lambda round_num, weights: None,
):
    """The rounds of a run once more, without evaluation and without files.

    Args:
      experiment: of the run: its sampling and its number of rounds.
      algorithm: the run's, or one made of it.
      ids, examples: of the clients that have some.
      seed: of the initial weights, the sampling, batches, dropout and noise.
      change_round: (round, clients' values, client states) -> what the algorithm is called with.
      on_round: called with the weights after every round; with those before the first one as round 0.

    Returns:
      ModelWeights after the last round.
    """
    state = algorithm.initialize(experiment.model.initial_weights(seed))
    memory = [first_client_state(experiment, arrays, seed) for arrays in examples]
    on_round(0, state["weights"])
    for round_num in range(1, experiment.recipe.training.rounds + 1):
        chosen, clients = round_clients(experiment, ids, examples, round_num, seed)
        clients, states = change_round(round_num, clients, [entry for i in chosen for entry in memory[i]])
        if not clients and not has_noise(algorithm):  # as in training
            on_round(round_num, state["weights"])
            continue
        output = algorithm.next(_seeded(algorithm, state, seed), clients, *([states] if memory[0] else []))
        state = output["state"]
        if memory[0]:
            for position, i in enumerate(chosen):
                memory[i] = (output["client_state"][position],)
        on_round(round_num, state["weights"])
    return state["weights"]


def _seeded(algorithm: FederatedAlgorithm, state, seed: int):
    """The state with a seed of the audit's own for the noise of private sums, where the algorithm has any."""
    return with_noise_seed(state, client_seed(seed, 0, "noise of the audit")) if has_noise(algorithm) else state


def is_finite(weights) -> bool:
    """Whether no trained weight is NaN or infinite."""
    return all(np.isfinite(value).all() for value in weights.trainable)
