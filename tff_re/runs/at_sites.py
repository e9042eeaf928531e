"""Experiments whose examples lie at sites: what differs from those of a simulation."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow_federated as tff

from computations.evaluation import build_evaluation
from computations.local_model import LocalModel
from tff_re.errors import UserError
from tff_re.recipes.options import ChoiceOptions
from tff_re.recipes.reading import Recipe
from tff_re.runs.experiment import Experiment, ExperimentBuilder, sizes_of
from tff_re.tasks.at_sites import Agreement, SitesPrepared, at_coordinator, encoding_of, prepared
from tff_re.tasks.data_paths import DataPaths

NO_STATE = -1
"""The version of a client's state before its first round."""


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
        _require_possible(recipe)
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
        blank = {"initial_client_state": lambda examples, seed=0: np.int64(NO_STATE), "shown": ()}
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
    return prepared(agreement, found, {}, **at_coordinator(recipe.task, paths, agreement, found))


def _require_possible(recipe: Recipe) -> None:
    """Raises UserError for what is simulated alone, or looks at examples that no coordinator has."""
    source, aggregation = recipe.source, recipe.aggregation
    if aggregation is not None and aggregation.secure != "none":
        raise UserError(f"{source}: aggregation.secure is simulated, and sites do not simulate; leave it out")
    for table in ("attack", "failures"):
        if getattr(recipe, table) is not None:
            raise UserError(f"{source}: [{table}] is simulated, and sites do not simulate; leave it out")
    for table in ("baseline", "personalise"):
        if getattr(recipe, table) is not None:
            raise UserError(f"{source}: [{table}] is not for runs across sites yet; leave it out")
    if recipe.is_unreliable:
        raise UserError(
            f"{source}: training.over_sampling, min_clients and tolerated_failures are not for runs across "
            "sites, where --quorum says how many clients are enough; leave them out"
        )
