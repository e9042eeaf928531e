"""Values of a recipe that are legal and do nothing in this run, or leave nothing to measure: a line for each."""

from __future__ import annotations

import numpy as np

from computations.local_model import GROUP, LABEL
from tff_re.runs.experiment import Experiment


def warnings(experiment: Experiment) -> tuple[str, ...]:
    """A line for each such value, which names the key, its value and what it is compared with."""
    lines = (_patience(experiment), _attackers(experiment), _batch(experiment))
    return tuple(f"{experiment.recipe.source}: {line}" for line in lines if line is not None)


def _patience(experiment: Experiment) -> str | None:
    choice, rounds = experiment.recipe.choice, experiment.recipe.training.rounds
    if choice is None or choice.patience is None or choice.patience < rounds:
        return None
    return f"choice.patience is {choice.patience} and training.rounds {rounds}, so patience never ends the training"


def _attackers(experiment: Experiment) -> str | None:
    attack = experiment.attack
    if attack is None:
        return None
    bad, clients = len(attack.clients), sum(len(c.train[LABEL]) > 0 for c in experiment.prepared.examples.clients)
    if 2 * bad < clients:
        return None
    return f"attack.clients makes {bad} of {clients} clients attackers; no rule withstands half of the clients"


def _batch(experiment: Experiment) -> str | None:
    privacy, batch = experiment.recipe.privacy, getattr(experiment.recipe.algorithm.options, "batch_size", None)
    if privacy is None or privacy.unit == "client" or batch is None:
        return None
    held = [client.train for client in experiment.prepared.examples.clients]
    of = GROUP if privacy.unit == "group" else None
    largest = max((len(train[LABEL]) if of is None else len(np.unique(train[of])) for train in held), default=0)
    if batch < largest or not largest:
        return None
    return (
        f"algorithm.batch_size is {batch} and no client has more than {largest} {privacy.unit}s, so every step takes "
        "all of them: the noise is added at each step and sampling protects nothing; lower batch_size"
    )
