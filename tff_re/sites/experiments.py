"""Experiments whose examples are at sites, and how they differ from simulations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from computations import federated as tff
from computations.evaluation import build_evaluation
from computations.local_model import LocalModel
from tff_re.errors import UserError
from tff_re.recipes.options import ChoiceOptions
from tff_re.recipes.reading import Recipe
from tff_re.runs.building import sizes_of
from tff_re.runs.experiment import Experiment, ExperimentBuilder
from tff_re.runs.features.order import features_of
from tff_re.runs.folder import RunFolder
from tff_re.runs.setup import Setup, Simulation
from tff_re.runtime import is_of_sites
from tff_re.sites.agreement import read_agreement
from tff_re.sites.comparisons import Comparisons, compared_models, federated_recipe, require_comparable
from tff_re.sites.prepared import SitesPrepared, coordinated
from tff_re.tasks.data_digest import with_data_digest
from tff_re.tasks.data_paths import DataPaths

if TYPE_CHECKING:
    from tff_re.sites.asking import Patience

NO_STATE = -1
"""The version of a client's state before its first round."""


def summed_evaluation(model: LocalModel) -> tff.Computation:
    """Return `build_evaluation` summed over the clients: <weights@SERVER, examples@CLIENTS> -> statistics@SERVER."""
    evaluation = build_evaluation(model)

    @tff.federated_computation(evaluation.type_signature.parameter)
    def federated_evaluation(inputs):
        return tff.federated_sum(evaluation(inputs))

    return federated_evaluation


def setup_of(runtime: str, sites: Sequence[str], patience: Patience | None, on_line: Callable[[str], None]) -> Setup:
    """Where a run is computed: a simulation, or across sites."""
    if is_of_sites(runtime):
        from tff_re.sites.run import AcrossSites
        from tff_re.sites.transport import engine_of

        return AcrossSites(engine_of(runtime, sites), patience, on_line)
    if sites:
        raise UserError("--sites needs --runtime sites:… or flower:…")
    return Simulation(runtime)


class SitesBuilder(ExperimentBuilder):
    """Builds an experiment from data that all parties agreed upon (see `tff_re.sites.prepared.prepared`).

    Its evaluation gives one sum over the clients.
    """

    def __init__(self, prepared: SitesPrepared):
        super().__init__()
        self._data = prepared

    def prepare(self, recipe: Recipe) -> SitesPrepared:
        """Return the data agreed upon."""
        return self._data

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """Like `ExperimentBuilder.build`.

        Raises UserError for anything that needs all clients' numbers in one place.
        """
        require_possible_at_sites(recipe)
        federated = federated_recipe(recipe)
        # What the round is chosen on is the coordinator's to know; the dev examples are kept out already.
        experiment = super().build(dataclasses.replace(federated, choice=self._choice(recipe)), trains=trains)
        require_comparable(recipe, experiment)
        experiment = dataclasses.replace(experiment, recipe=federated)
        summed = functools.cache(lambda: summed_evaluation(experiment.model))
        key = ("summed evaluation", recipe.model, sizes_of(self._data))
        return dataclasses.replace(experiment, _evaluation=self._computations.setdefault(key, summed))

    def _choice(self, recipe: Recipe) -> ChoiceOptions | None:
        return None


class CoordinatorBuilder(SitesBuilder):
    """Builds the experiment of a party that holds no examples and no client states.

    A client's state is here the number of the round that it is of, int64, and nothing of it is shown.
    """

    def __init__(self, prepared: SitesPrepared):
        super().__init__(with_data_digest(prepared))

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """Like `SitesBuilder.build`."""
        experiment = super().build(recipe, trains=trains)
        if compared_models(recipe):
            experiment = dataclasses.replace(experiment, features=(*experiment.features, Comparisons(recipe)))
        algorithm = experiment.algorithm
        if algorithm.client_work.initial_client_state is None:
            return experiment
        blank = {"initial_client_state": lambda examples, seed=0: np.int64(NO_STATE), "recorded_state": ()}
        parts = dataclasses.replace(algorithm.parts, client_work=dataclasses.replace(algorithm.client_work, **blank))
        return dataclasses.replace(experiment, algorithm=dataclasses.replace(algorithm, parts=parts))

    def _choice(self, recipe: Recipe) -> ChoiceOptions | None:
        return recipe.choice


def require_possible_at_sites(recipe: Recipe) -> None:
    """Raise UserError for features that are only simulated, or need examples that a coordinator does not have."""
    if recipe.algorithm.name == "lazy_mil_alias":
        raise UserError(
            f"{recipe.source}: lazy_mil_alias gives the sentences of each client to all others, a control of "
            "simulations; across sites use lazy_mil"
        )
    for feature in features_of(recipe):
        feature.refuse(at_sites=True)


def finished_builder(folder: RunFolder, recipe: Recipe, data_paths: DataPaths) -> ExperimentBuilder:
    """Return the builder of a finished run's experiment, for `open_run`.

    If the run was across sites, it is the coordinator's builder.
    """
    if not folder.sites.exists():
        return ExperimentBuilder(data_paths)
    return CoordinatorBuilder(coordinated(recipe, data_paths, read_agreement(folder.sites)))
