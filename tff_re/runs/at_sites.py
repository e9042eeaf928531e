"""Experiments whose examples lie at sites: what differs from those of a simulation."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from computations import federated as tff
from computations.evaluation import build_evaluation
from computations.local_model import LocalModel
from tff_re.errors import UserError
from tff_re.recipes.options import ChoiceOptions
from tff_re.recipes.reading import Recipe
from tff_re.runs.building import sizes_of
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.features.failures import COUNTED, REPEATED, Answers, Attempt, Participation
from tff_re.runs.features.order import features_of
from tff_re.runtime.errors import RuntimeProblem
from tff_re.tasks import TASKS
from tff_re.tasks.at_sites import Agreement, SitesPrepared, encoding_of, prepared
from tff_re.tasks.data_paths import DataPaths

NO_STATE = -1
"""The version of a client's state before its first round."""

NO_ANSWER = "no_answer"
"""What became of a client whose site failed or did not answer in time; see `tff_re.runs.features.failures`."""


class TooFewAnswers(RuntimeProblem):
    """Fewer than `training.min_clients` clients' sites answered in an attempt of a round."""


class ParticipationOfSites(Participation):
    """Who is asked in each round, and whose answers counted: what happened, and not what a seed says.

    Of a site with several clients in a round, all count or none.
    """

    def __init__(self, *arguments, runtime):
        """As `Participation`; `runtime` says what became of the clients of its latest call (`not_counted`)."""
        super().__init__(*arguments)
        self._runtime = runtime

    def of_round(self, round_num, compute, not_finite) -> Answers:
        """See `Participation.of_round`; clients whose answers do not count are among the places, and keep what they
        had."""
        del not_finite
        done = []
        for attempt in self.attempts(round_num):
            self._runtime.not_counted, output = {}, None
            found = len(attempt.outcomes) >= self._training.min_clients
            try:
                output = compute(attempt.answered) if found else None
            except TooFewAnswers:
                found = False
            outcomes = {p: self._runtime.not_counted.get(self._ids[p], COUNTED) for p in attempt.outcomes}
            if found:
                return Answers(attempt.answered, output, [*done, Attempt(attempt.number, outcomes)])
            repeated = {p: REPEATED if outcome == COUNTED else outcome for p, outcome in outcomes.items()}
            done.append(Attempt(attempt.number, repeated))
        raise self._no_quorum(round_num, done)

    def _tried(self, round_num: int, number: int, asked: np.ndarray) -> Attempt:
        return Attempt(number, dict.fromkeys(map(int, asked), COUNTED))


def summed_evaluation(model: LocalModel) -> tff.Computation:
    """(<weights@SERVER, examples@CLIENTS> -> statistics@SERVER): `build_evaluation`, summed over the clients."""
    evaluation = build_evaluation(model)

    @tff.federated_computation(evaluation.type_signature.parameter)
    def federated_evaluation(inputs):
        return tff.federated_sum(evaluation(inputs))

    return federated_evaluation


class SitesBuilder(ExperimentBuilder):
    """Builds an experiment of data that all parties agreed upon, see `tff_re.tasks.at_sites.prepared`.

    Its evaluation gives one sum over the clients.
    """

    def __init__(self, prepared: SitesPrepared):
        super().__init__()
        self._given = prepared

    def prepare(self, recipe: Recipe) -> SitesPrepared:
        """The data agreed upon."""
        return self._given

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """As `ExperimentBuilder.build`; UserError for what needs all clients' numbers in one place."""
        require_possible_at_sites(recipe)
        # What the round is chosen on is the coordinator's to know; the dev examples are kept out already.
        experiment = super().build(dataclasses.replace(recipe, choice=self._choice(recipe)), trains=trains)
        experiment = dataclasses.replace(experiment, recipe=recipe)
        summed = functools.cache(lambda: summed_evaluation(experiment.model))
        key = ("summed evaluation", recipe.model, sizes_of(self._given))
        return dataclasses.replace(experiment, _evaluation=self._computations.setdefault(key, summed))

    def _choice(self, recipe: Recipe) -> ChoiceOptions | None:
        return None


class CoordinatorBuilder(SitesBuilder):
    """Builds the experiment of a party that holds no examples and no client states.

    A client's state is here the number of the round that it is of, int64, and nothing of it is shown.
    """

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """As `SitesBuilder.build`."""
        experiment = super().build(recipe, trains=trains)
        algorithm = experiment.algorithm
        if algorithm.client_work.initial_client_state is None:
            return experiment
        blank = {"initial_client_state": lambda examples, seed=0: np.int64(NO_STATE), "recorded_state": ()}
        parts = dataclasses.replace(algorithm.parts, client_work=dataclasses.replace(algorithm.client_work, **blank))
        return dataclasses.replace(experiment, algorithm=dataclasses.replace(algorithm, parts=parts))

    def _choice(self, recipe: Recipe) -> ChoiceOptions | None:
        return recipe.choice


def coordinated(recipe: Recipe, data_paths: DataPaths, agreement: Agreement) -> SitesPrepared:
    """The data as the coordinator has them: its own, and in place of the clients' their numbers.

    Raises:
      UserError, DataError: its own do not fit, are missing or malformed.
    """
    paths = agreement.paths(data_paths, at_site=False)
    found = encoding_of(recipe.task, recipe.seed, paths)
    task = TASKS[recipe.task.name]
    at_server = task.at_server(recipe.task.options, agreement, *found[:2], paths)
    return prepared(task, agreement, found, {}, at_server)


def require_possible_at_sites(recipe: Recipe) -> None:
    """Raises UserError for what is simulated only, or looks at examples that no coordinator has."""
    if recipe.algorithm.name == "lazy_mil_alias":
        raise UserError(
            f"{recipe.source}: lazy_mil_alias gives the sentences of each client to all others, a control of "
            "simulations; across sites use lazy_mil"
        )
    for feature in features_of(recipe):
        feature.refuse(at_sites=True)
