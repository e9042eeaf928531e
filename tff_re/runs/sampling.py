"""Who is asked in a round: a sample of the clients that depends only on the seed and the round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tff_re.runs.experiment import Experiment
from tff_re.runs.features.failures import Participation, asked_at_once
from tff_re.runs.randomness import entropy


def sample_clients(
    seed: int | bytes, round_num: int, eligible: int, count: int, sampling: Literal["fixed", "poisson"] = "fixed"
) -> np.ndarray:
    """The sorted indices of the clients of a round, which depend only on (seed, round).

    `fixed`: `count` clients, without replacement. `poisson`: each with the probability count / eligible,
    independently; the sample may be empty.
    """
    if sampling == "poisson":
        generator = np.random.default_rng(entropy(seed, round_num, 3))
        return np.flatnonzero(generator.random(eligible) < count / eligible)
    generator = np.random.default_rng(entropy(seed, round_num, 1))
    return np.sort(generator.choice(eligible, size=count, replace=False))


def participation(
    experiment: Experiment, seed: int | bytes, ids: Sequence[str], make: Callable[..., Participation] = Participation
) -> Participation:
    """Who is asked in each round of a run, and whose answers count.

    `ids` are of the clients with training examples. `make` builds it, by default the class itself.
    """
    training, per_round = experiment.recipe.training, experiment.clients_per_round

    def first(round_num: int) -> np.ndarray:
        asked = min(asked_at_once(training, per_round), len(ids))
        return sample_clients(seed, round_num, len(ids), asked, training.sampling)

    return make(experiment.recipe, seed, ids, per_round, first)
