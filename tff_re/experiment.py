"""From a resolved recipe to everything that a run needs: data at clients, a model, an algorithm, an evaluation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import tensorflow_federated as tff

from computations import algorithms
from computations.evaluation import build_evaluation
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.traffic import Traffic, round_traffic
from tff_re import tasks
from tff_re.errors import UserError
from tff_re.recipe import Recipe
from tff_re.tasks.base import Prepared
from tff_re.tasks.where import Where


@dataclass(frozen=True)
class Experiment:
    """A recipe made ready to run.

    Attributes:
      recipe: with all its values.
      prepared: the task's data at the clients.
      model: the clients' model, its initial weights included.
      algorithm: the federated algorithm as computations.
      evaluation: the federated evaluation, see `build_evaluation`.
      traffic: bytes per client and round.
    """

    recipe: Recipe
    prepared: Prepared
    model: LocalModel
    algorithm: FederatedAlgorithm
    evaluation: tff.Computation
    traffic: Traffic


@dataclass
class Workshop:
    """Builds experiments; what two of them have in common is built once.

    Seeds differ in data and initial weights, not in computations; algorithms compared on a seed differ in
    computations, not in data.
    """

    where: Where = field(default_factory=Where)
    _prepared: dict = field(default_factory=dict)
    _computations: dict = field(default_factory=dict)

    def build(self, recipe: Recipe) -> Experiment:
        """An Experiment of a recipe.

        Raises:
          UserError: what the recipe asks for does not fit together.
          DataError: the data are missing or malformed.
        """
        prepared = self.prepare(recipe)
        trainable = sum(len(client.train["y"]) > 0 for client in prepared.examples.clients)
        if recipe.training.clients_per_round > trainable:
            raise UserError(
                f"{recipe.source}: training.clients_per_round is {recipe.training.clients_per_round}, but only "
                f"{trainable} clients have training examples; lower it"
            )
        model = _of(recipe, prepared.local_model, recipe.model)
        form = _form(prepared)
        key = (recipe.model, recipe.algorithm, form)
        if key not in self._computations:
            algorithm = algorithms.find(recipe.algorithm.name).build(model, recipe.algorithm.options)
            evaluation_key = (recipe.model, form)
            if evaluation_key not in self._computations:
                self._computations[evaluation_key] = build_evaluation(model)
            self._computations[key] = (algorithm, round_traffic(algorithm.next))
        algorithm, traffic = self._computations[key]
        return Experiment(recipe, prepared, model, algorithm, self._computations[(recipe.model, form)], traffic)

    def prepare(self, recipe: Recipe) -> Prepared:
        """The task's data for the recipe's seed."""
        key = (recipe.task, recipe.partition, recipe.seed)
        if key not in self._prepared:
            self._prepared.clear()  # one seed at a time is in use, and the data may be large
            prepare = tasks.module(recipe.task.name).prepare
            self._prepared[key] = _of(
                recipe, prepare, recipe.task.options, recipe.partition.options, recipe.seed, self.where
            )
        return self._prepared[key]


def _of(recipe: Recipe, make, *arguments):
    """make(*arguments), with the recipe named where it asks for what does not fit together."""
    try:
        return make(*arguments)
    except UserError as error:
        raise UserError(f"{recipe.source}: {error}") from None


def _form(prepared: Prepared) -> tuple:
    """What the computations depend on: sizes, not values."""
    inputs = prepared.inputs
    vectors = getattr(inputs, "vectors", None)
    sizes = tuple((f.name, getattr(inputs, f.name)) for f in dataclasses.fields(inputs) if f.name != "vectors")
    return (type(inputs).__name__, sizes, None if vectors is None else vectors.shape, len(prepared.label_names))
