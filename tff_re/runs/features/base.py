"""The form of a feature: what a recipe may add to a run, in one file for each."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from computations.errors import CompositionError
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe

if TYPE_CHECKING:
    from computations.federated_algorithm import FederatedAlgorithm
    from tff_re.runs.building import Setting
    from tff_re.runs.experiment import Experiment
    from tff_re.runs.training import Result, Training
    from tff_re.tasks.base import Prepared


class Feature:
    """What a recipe adds to its run: hooks that do nothing unless a feature overrides them.

    An experiment has its own instances. They are called in the order of `order.FEATURES`; between its hooks a feature
    may keep what it needs as attributes of its own.

    Attributes:
      table: the table of a recipe that asks for the feature.
      recipe, options: the run's recipe and that table.
      data_key: what `change_data` depends on; data are changed once for equal keys. Set it if you override that.
      algorithm_key: what `change_algorithm` depends on; an algorithm is built once for equal keys.
    """

    table: ClassVar[str]
    data_key: Hashable = None
    algorithm_key: Hashable = None

    def __init__(self, recipe: Recipe):
        self.recipe, self.options = recipe, getattr(recipe, self.table)

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """Whether a recipe asks for the feature."""
        return getattr(recipe, cls.table) is not None

    @contextlib.contextmanager
    def naming(self, about: str = "") -> Iterator[None]:
        """Turns what is refused inside into UserError that names the recipe and what the refusal is about."""
        try:
            yield
        except (CompositionError, UserError) as error:
            raise UserError(f"{self.recipe.source}: {about}{error}") from None

    # Building an experiment

    def refuse(self, *, at_sites: bool) -> None:
        """Raises UserError for a recipe that cannot be trained, before data are read."""

    def change_data(self, prepared: Prepared) -> Prepared:
        """The clients' data as they are trained on and evaluated."""
        return prepared

    def prepare(self, setting: Setting) -> None:
        """Keeps what later hooks need of data and model, and raises UserError if they do not fit."""

    def change_algorithm(self, algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
        """The algorithm with what the feature does in it."""
        return algorithm

    def check(self, algorithm: FederatedAlgorithm) -> None:
        """Raises UserError if the finished algorithm, maybe built for an earlier run, does not fit this run."""

    def warnings(self, experiment: Experiment) -> Sequence[str]:
        """Lines for legal values that do nothing in this run, or less than they promise."""
        return ()

    def metric_names(self, of_test: Sequence[str]) -> set[str]:
        """Names of the metrics that it measures on test examples.

        `of_test`: the metrics of an evaluation.
        """
        return set()

    # Training

    def checkpointed(self, experiment: Experiment, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What it adds to the state before the first round.

        From then on it is part of `training.state` and of checkpoints.
        """
        return {}

    def start(self, training: Training) -> None:
        """Called before the first round of a run or of a resumed run, when `training.round` is the checkpoint's."""

    def begin_round(self, training: Training) -> None:
        """Called before the round with the number `training.round` is computed."""

    def evaluate(self, training: Training, weights: Any) -> Mapping[str, float]:
        """Metrics of a round's weights (see `own_models.models_of`), in rounds that are evaluated."""
        return {}

    def after_round(self, training: Training, metrics: dict[str, float]) -> None:
        """Called after a round and its evaluation, if any.

        It may add to the round's metrics and change `training.state`.
        """

    def stop(self, training: Training) -> str | None:
        """One line that says why training ends after `training.round`, or None to continue.

        It may depend only on what a resumed run has, too: it is asked before the evaluation, after it and on resuming.
        """

    def finish(self, training: Training, result: Result) -> Result:
        """The run's result with what the feature found out."""
        return result

    # Writing results

    def columns(self, clients: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Columns of clients.csv: name -> client id -> value.

        A client that is not among `clients` gets a row.
        """
        return {}

    def summary(self, result: Result) -> Mapping[str, Any]:
        """Entries of summary.json."""
        return {}
