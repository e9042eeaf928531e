"""From a resolved recipe to what a run needs: data at clients, a model, an algorithm, an evaluation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from computations import algorithms
from computations import federated as tff
from computations.evaluation import build_evaluation, build_example_statistics
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.traffic import Traffic, round_traffic
from tff_re import tasks
from tff_re.recipes.reading import Recipe
from tff_re.runs.building import (
    Setting,
    client_model,
    clients_per_round,
    named,
    naming_algorithm,
    require_room_for_states,
    sizes_of,
    weight_bytes,
    with_counts,
)
from tff_re.runs.features import baseline, privacy
from tff_re.runs.features.base import Feature
from tff_re.runs.features.order import features_of
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_digest import with_data_digest
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.duplicates import with_duplicate_notes
from tff_re.tasks.sizes import require_room_for_model, require_room_in_message

F = TypeVar("F", bound=Feature)

MOST_OUTPUTS = 2e9
"""Bytes of the outputs of several models' frozen layers that are held at once; those of the model in use always are."""


@dataclass(frozen=True, repr=False)
class Experiment:
    """A recipe with its data and computations, ready to run.

    Attributes:
      recipe: with all its values.
      prepared: the task's data at the clients.
      model: the server's model, its initial weights included; the clients' too, unless they have one of their own.
      algorithm: the federated algorithm as computations.
      clients_per_round: how many clients are sampled in each round; with Poisson sampling, how many are expected.
      features: what the recipe adds to the run.
      scoring: scores the examples at the server, see `HeldOut`; None where the clients hold the test examples.
    """

    recipe: Recipe
    prepared: Prepared
    model: LocalModel
    algorithm: FederatedAlgorithm
    clients_per_round: int
    features: tuple[Feature, ...]
    _evaluation: Callable[[], tff.Computation]
    _traffic: Callable[[], Traffic]
    scoring: tff.Computation | None = None
    _example_statistics: Callable[[], tff.Computation] | None = None

    def __repr__(self) -> str:
        recipe, clients = self.recipe, len(self.prepared.examples.clients)
        return (
            f"Experiment({recipe.name}, seed {recipe.seed}: {recipe.algorithm.name} on {recipe.task.name}, "
            f"{clients} clients)"
        )

    def feature(self, kind: type[F]) -> F | None:
        """The feature of a class, or None if the recipe does not ask for it."""
        return next((feature for feature in self.features if isinstance(feature, kind)), None)

    @property
    def evaluation(self) -> tff.Computation:
        """The federated evaluation (see `build_evaluation`), compiled at its first use."""
        return self._evaluation()

    @property
    def example_statistics(self) -> tff.Computation:
        """The counts of single examples (see `build_example_statistics`), compiled at its first use."""
        return self._example_statistics()

    @property
    def traffic(self) -> Traffic:
        """Bytes per client and round.

        The first use compiles the whole round.
        """
        return self._traffic()

    @property
    def notes(self) -> tuple[str, ...]:
        """For readers of the results: of the data, and of what is done to the clients' updates."""
        return (*self.prepared.notes, *self.recipe.notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines for legal values of the recipe that do nothing in this run, or less than they promise."""
        lines = (line for feature in self.features for line in feature.warnings(self))
        return tuple(f"{self.recipe.source}: {line}" for line in lines)


@dataclass
class ExperimentBuilder:
    """Builds experiments and builds only once the parts that two of them share.

    Seeds differ in data and initial weights, not in computations; algorithms compared on a seed differ in
    computations, not in data.
    """

    data_paths: DataPaths = field(default_factory=DataPaths)
    _prepared: dict = field(default_factory=dict)
    _computations: dict = field(default_factory=dict)
    _outputs: dict[tuple, int] = field(default_factory=dict)  # key of `_prepared` -> bytes, the last one is in use

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """An Experiment of a resolved recipe.

        Args:
          recipe: resolved.
          trains: whether the model will be trained, which needs more memory than computing with it.

        Raises:
          UserError: what the recipe asks for does not fit together.
          DataError: the data are missing or malformed.
        """
        features = features_of(recipe)
        for feature in features if trains else ():  # without it a finished run is evaluated or exported
            feature.refuse(at_sites=False)
        prepared = self.prepare(recipe)
        clients = int((prepared.examples.sizes("train") > 0).sum())
        per_round = clients_per_round(recipe, clients)
        clients, per_round = baseline.clients_of(recipe, clients, per_round)
        prepared = self._changed(recipe, prepared, features)
        model, sizes = named(recipe, prepared.local_model, recipe.model), sizes_of(prepared)
        first = self._computations.setdefault((LocalModel, recipe.model, sizes), model)
        name = f"{recipe.source}: model '{recipe.model.name}'"
        require_room_for_model(named(recipe, weight_bytes, recipe, first), name, trains=trains)
        model = model.with_sizes(first.sizes)
        setting = Setting(recipe, prepared, model, clients, per_round, sizes, self._prepared, self._computations)
        for feature in features:
            feature.prepare(setting)
        options = privacy.protecting(features, with_counts(recipe, clients, prepared))
        changes = tuple((type(feature), key) for feature in features if (key := feature.algorithm_key) is not None)
        key = (recipe.model, recipe.client_model, recipe.algorithm.name, options, changes, sizes)
        if key not in self._computations:
            self._computations[key] = self._build(setting, options, features)
        algorithm, *computations = self._computations[key]
        require_room_for_states(setting, algorithm)
        for feature in features:
            feature.check(algorithm)
        return Experiment(recipe, prepared, model, algorithm, per_round, features, *computations)

    def _build(self, setting: Setting, options, features: tuple[Feature, ...]) -> tuple:
        """(algorithm, its evaluation, traffic, scoring and statistics), which experiments of equal keys share."""
        recipe, prepared, model = setting.recipe, setting.prepared, setting.model
        of_clients = () if recipe.client_model is None else (client_model(recipe, prepared),)
        with naming_algorithm(recipe), privacy.refusals(recipe):
            algorithm = named(recipe, algorithms.find(recipe.algorithm.name).build, model, options, *of_clients)
        for feature in features:
            algorithm = feature.change_algorithm(algorithm)
        evaluation = functools.cache(lambda: build_evaluation(model))
        evaluation = self._computations.setdefault((recipe.model, setting.sizes), evaluation)
        single = functools.cache(lambda: build_example_statistics(model))
        single = self._computations.setdefault((build_example_statistics, recipe.model, setting.sizes), single)
        scoring = None if prepared.held_out is None else prepared.held_out.scoring(algorithm)
        nothing = baseline.sends_nothing(recipe)  # the metrics' bytes would be all
        traffic = functools.cache(lambda: Traffic(0, 0) if nothing else round_traffic(algorithm.next))
        return algorithm, evaluation, traffic, scoring, single

    def with_model_options(self, experiment: Experiment, options) -> Experiment:
        """An experiment of this builder whose model has the same weights with other options, such as its precision.

        Nothing can be trained with it: the computations of training are those of the first one, not built again.
        """
        recipe = experiment.recipe
        recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, options=options))
        prepared = self._changed(recipe, self.prepare(recipe), features_of(recipe))
        model = named(recipe, prepared.local_model, recipe.model).with_sizes(experiment.model.sizes)
        algorithm = dataclasses.replace(experiment.algorithm, model=model)
        return dataclasses.replace(
            experiment,
            recipe=recipe,
            prepared=prepared,
            model=model,
            algorithm=algorithm,
            scoring=None if prepared.held_out is None else prepared.held_out.scoring(algorithm),
            _evaluation=functools.cache(lambda: build_evaluation(model)),
            _example_statistics=functools.cache(lambda: build_example_statistics(model)),
        )

    def _changed(self, recipe: Recipe, prepared: Prepared, features: tuple[Feature, ...]) -> Prepared:
        """Prepared data as the clients' model takes them: after its frozen layers, and changed by the features."""
        base = (recipe.task, recipe.partition, recipe.seed, recipe.model)
        if base not in self._prepared:
            self._forget_outputs()
            self._prepared[base] = named(recipe, prepared.precomputed, recipe.model, recipe.seed)
            self._outputs[base] = _output_bytes(prepared, self._prepared[base])
        self._outputs[base] = self._outputs.pop(base)
        changes = tuple((type(feature), key) for feature in features if (key := feature.data_key) is not None)
        key = (*base, changes)
        if key not in self._prepared:
            changed = self._prepared[base]
            for feature in features:
                changed = feature.change_data(changed)
            self._prepared[key] = changed
        return self._prepared[key]

    def _forget_outputs(self) -> None:
        """Forgets the outputs of other models' frozen layers beyond `MOST_OUTPUTS`, the least recently used first."""
        total = sum(self._outputs.values())
        for base, size in list(self._outputs.items()):
            if total <= MOST_OUTPUTS:
                break
            for key in [key for key in self._prepared if key[: len(base)] == base]:
                del self._prepared[key]
            del self._outputs[base]
            total -= size

    def prepare(self, recipe: Recipe) -> Prepared:
        """The task's data for the recipe's seed."""
        key = (recipe.task, recipe.partition, recipe.seed)
        if key not in self._prepared:
            self._prepared.clear()  # one seed at a time is in use, and the data may be large
            self._outputs.clear()
            arguments = recipe.task.options, recipe.partition.options, recipe.seed, self.data_paths
            prepared = named(recipe, tasks.TASKS[recipe.task.name].prepare, *arguments)
            self._prepared[key] = with_data_digest(with_duplicate_notes(prepared))
        return self._prepared[key]


def _output_bytes(plain: Prepared, prepared: Prepared) -> int:
    """Returns the bytes of prepared data if they have outputs of frozen layers, else 0."""
    if prepared is plain:
        return 0
    server = prepared.examples.server
    parts = [part for client in prepared.examples.clients for part in (client.train, client.test)]
    return sum(array.nbytes for part in [*parts, *([] if server is None else [server])] for array in part.values())


def require_messages(experiment: Experiment, runtime: str) -> None:
    """Raises UserError where the weights do not fit into a message to the runtime's worker."""
    recipe = experiment.recipe
    name = f"{recipe.source}: model '{recipe.model.name}'"
    require_room_in_message(weight_bytes(recipe, experiment.model), name, runtime)
