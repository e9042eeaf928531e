"""What a recipe's [privacy] makes of its run: what it has spent so far, when it stops, and what is said of it."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from computations.algorithms.arranged import privatised, require_only_updates
from computations.errors import CompositionError
from computations.local_model import GROUP, LABEL
from computations.privacy.accounting import Accounting, client_accounting, example_accounting
from computations.privacy.example_gradients import ExamplePrivacy
from computations.privacy.options import PrivacyOptions, rounded_up
from computations.privacy.shares import SharesAccounting, shares_accounting
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.base import Feature
from tff_re.runs.features.failures import max_asked
from tff_re.runs.features.shares import noise_is_shared, require_shares, shared_noise, sums_are_masked
from tff_re.runs.folder import RunFolder, write_text
from tff_re.runs.resuming import notice
from tff_re.runtime.events import PRIVACY_NEW_RANDOMNESS
from tff_re.tasks.base import Prepared

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

EPSILON = "privacy/epsilon"
"""The column of metrics.csv."""


class Privacy(Feature):
    """[privacy] of any unit.

    Attributes:
      accounting: counts what the run spends.
    """

    table = "privacy"
    accounting: Accounting

    @property
    def data_key(self):
        """See `Feature`."""
        return "groups" if self.options.unit == "group" else None

    @property
    def algorithm_key(self):
        """See `Feature`."""
        return form_of(self.options, self.accounting), self._per_round, self._shares

    def refuse(self, *, at_sites):
        """See `Feature`."""
        if self.options.unit == "client":
            require_shares(self.recipe)
        require_private_statistics(self.recipe, at_sites=at_sites)

    def change_data(self, prepared):
        """See `Feature`."""
        if self.options.unit != "group":
            return prepared
        with self.naming():
            return prepared.with_groups()

    def prepare(self, setting):
        """Keeps the accounting, made once for the algorithms of a comparison, because calibration takes seconds."""
        recipe, self._per_round = self.recipe, setting.per_round
        steps = self.options.unit != "client" and recipe.algorithm.options
        key = (recipe.task, recipe.partition, recipe.seed, recipe.privacy, recipe.training, recipe.choice, steps)
        key = (*key, sums_are_masked(recipe))
        if key not in setting.data_parts:
            setting.data_parts[key] = accounting_of(recipe, setting.prepared, setting.per_round)
        self.accounting = setting.data_parts[key]
        self._shares = shared_noise(recipe, setting, self.accounting)

    def change_algorithm(self, algorithm):
        """The algorithm with noise on the clients' sum, for `unit = "client"`.

        For other units, the algorithm as it is, which must be built with noise in local training (`protecting`).
        """
        recipe, accounting = self.recipe, self.accounting
        with refusals(recipe):
            if accounting.unit == "client":
                noise = {"expected_clients": self._per_round, "noise_multiplier": accounting.noise_multiplier}
                algorithm = privatised(algorithm, recipe.privacy, **noise, shares=self._shares)
            elif algorithm.client_work.example_privacy != _example_privacy(recipe, accounting):
                raise ValueError("its local training has no noise")
            else:
                require_only_updates(algorithm, recipe.privacy)
        self._require_covered()
        return algorithm

    def _require_covered(self) -> None:
        """Raises UserError for a rule of [aggregation] in the place of the private sum over clients."""
        table = self.recipe.aggregation
        if self.options.unit == "client" and table is not None and table.guards:
            raise UserError(
                f"{self.recipe.source}: [aggregation] rule, clip and zeroing cannot be combined with privacy.unit = "
                "'client', which aggregates with a clipped and noised sum and limits each client by privacy.clip; "
                "leave them out"
            )

    def warnings(self, experiment):
        """See `Feature`."""
        lines = () if self.accounting.warning is None else (self.accounting.warning,)
        unit, batch = self.options.unit, self.recipe.algorithm.get("batch_size")
        if unit == "client" or batch is None:
            return lines
        held = [client.train for client in experiment.prepared.examples.clients]
        largest = max((len(np.unique(train[GROUP]) if unit == "group" else train[LABEL]) for train in held), default=0)
        if batch < largest or not largest:
            return lines
        return (
            *lines,
            f"algorithm.batch_size is {batch} but no client has more than {largest} {unit}s, so every step uses all "
            "of them: each step adds noise, but sampling adds no protection; lower batch_size",
        )

    def start(self, training):
        """See `Feature`."""
        recipe, folder, asked = self.recipe, training.folder, training.participation.asked
        self._spending = Spending(recipe, self.accounting, folder, asked, training.round)
        if training.round and recipe.privacy.noise_seed == "system":
            notice(PRIVACY_NEW_RANDOMNESS, file=folder.path)

    def begin_round(self, training):
        """See `Feature`."""
        self._spending.begin(training.round)

    def after_round(self, training, metrics):
        """See `Feature`."""
        metrics[EPSILON] = self._spending.epsilon

    def stop(self, training):
        """See `Feature`."""
        stops = self._spending.stops_before(training.round + 1)
        return self._spending.reason(training.round) if stops else None

    def summary(self, result):
        """See `Feature`."""
        return {"privacy": dict(result.privacy)}


def accounting_of(recipe: Recipe, prepared: Prepared, sampled: int) -> Accounting:
    """The accounting of a recipe with [privacy].

    Its noise multiplier is calibrated if the recipe gives epsilon.

    Raises:
      UserError: the options do not fit together or to the data; names the key.
    """
    privacy, rounds = recipe.privacy, recipe.training.rounds
    held = {client.client_id: client.train for client in prepared.examples.clients if len(client.train["y"])}
    try:
        if noise_is_shared(recipe):
            masked = sums_are_masked(recipe)
            return shares_accounting(privacy, num_clients=len(held), rounds=rounds, at_sites=masked)
        if privacy.unit == "client":
            sampling, asked = recipe.training.sampling, max_asked(recipe.training, sampled, len(held))
            return client_accounting(privacy, num_clients=len(held), per_round=asked, rounds=rounds, sampling=sampling)
        if not hasattr(recipe.algorithm.options, "protecting"):
            raise ValueError(f"{recipe.algorithm.name} has no local training, so it cannot protect single examples")
        grouped = privacy.unit == "group"
        local, batch = recipe.algorithm.options, recipe.algorithm.options.batch_size
        units = {client: len(np.unique(train[GROUP]) if grouped else train["y"]) for client, train in held.items()}
        steps = {client: local.local_steps or local.local_epochs * -(-n // batch) for client, n in units.items()}
        return example_accounting(privacy, units=units, steps=steps, batch=batch, rounds=rounds)
    except ValueError as error:
        raise UserError(f"{recipe.source}: [privacy]: {str(error).removeprefix('[privacy] ')}") from None


def require_private_statistics(recipe: Recipe, *, at_sites: bool) -> None:
    """Raises UserError for a recipe with [privacy] that lets numbers made of training examples leave without noise.

    Across sites none may; a simulation has to ask for them by `privacy.training_metrics`.
    """
    privacy = recipe.privacy
    if privacy is None:
        return
    source, split = recipe.source, recipe.evaluation.train_split
    if at_sites and privacy.training_metrics:
        raise UserError(
            f"{source}: privacy.training_metrics = true lets sums without noise leave the clients, which only a "
            "simulation may do; leave it out"
        )
    if split and not privacy.training_metrics:
        allowed = "" if at_sites else " (a simulation can have both with privacy.training_metrics = true)"
        raise UserError(
            f"{source}: evaluation.train_split evaluates the training examples without noise, which [privacy] does not "
            f"cover; set evaluation.train_split = false{allowed}"
        )
    if at_sites and privacy.unit == "client" and privacy.noise_seed == "run" and not noise_is_shared(recipe):
        raise UserError(
            f"{source}: privacy.noise_seed = 'run' draws the noise from the recipe's seed, which every site knows; set "
            "it to 'system' or 'file:PATH'"
        )


def protecting(features: Iterable[Feature], options: Any) -> Any:
    """An algorithm's options, with noise in local training for `unit = "example"` or `"group"`."""
    private = next((feature for feature in features if isinstance(feature, Privacy)), None)
    if private is None or private.accounting.unit == "client":
        return options
    return options.protecting(_example_privacy(private.recipe, private.accounting))


def _example_privacy(recipe: Recipe, accounting: Accounting) -> ExamplePrivacy:
    privacy, z = recipe.privacy, accounting.noise_multiplier
    metrics = privacy.training_metrics
    return ExamplePrivacy(clip=privacy.clip, noise_multiplier=z, unit=privacy.unit, training_metrics=metrics)


def form_of(privacy: PrivacyOptions, accounting: Accounting) -> PrivacyOptions:
    """The options that computations depend on: neither the budget nor, where the noise has no memory, its seed."""
    seed = privacy.noise_seed if privacy.mechanism == "tree" else "run"
    z = accounting.noise_multiplier
    return attrs.evolve(privacy, noise_multiplier=z, epsilon=None, delta=0.5, noise_seed=seed)


@contextlib.contextmanager
def refusals(recipe: Recipe):
    """Turns what the private parts of an algorithm refuse into UserError that names recipe, key and algorithm."""
    try:
        yield
    except (ValueError, CompositionError) as error:
        if recipe.privacy is None:
            raise
        unit, name = recipe.privacy.unit, recipe.algorithm.name
        raise UserError(
            f"{recipe.source}: [privacy] with unit = '{unit}' cannot be combined with {name}: {error}"
        ) from None


def accounting_in(experiment: Experiment) -> Accounting | None:
    """What counts the privacy that a run spends, or None without [privacy]."""
    private = experiment.feature(Privacy)
    return None if private is None else private.accounting


def require_budget(experiment: Experiment, folder: RunFolder, participants: Callable[[int], Iterable[str]]) -> None:
    """Raises UserError where the first round would spend more than the budget."""
    if (accounting := accounting_in(experiment)) is not None:
        Spending(experiment.recipe, accounting, folder, participants, done=0)


class Spending:
    """The privacy that a run has spent so far.

    With the run's seed, or a secret file, a round that a resumed run repeats releases what it released before, and
    counts once. With the operating system's randomness it releases something else: then every round that was begun
    counts, and `spent.json` in the run's folder, written before each, says how many were.
    """

    def __init__(
        self,
        recipe: Recipe,
        accounting: Accounting,
        folder: RunFolder,
        participants: Callable[[int], Iterable[str]],
        done: int,
    ):
        """Args:
          recipe, accounting: the run's.
          folder: its files.
          participants: round -> ids of the clients that take part.
          done: rounds of the checkpoint that the run continues from.

        Raises:
          UserError: the first round would spend more than the budget; or spent.json is damaged.
        """
        self._accounting, self._participants, self._rounds, self._taken = accounting, participants, 0, Counter()
        self._file = folder.spent if recipe.privacy.noise_seed == "system" else None
        if self._file is None:
            for round_num in range(1, done + 1):
                self.begin(round_num)
        elif self._file.exists():
            self._read()
        elif done:
            raise UserError(f"{self._file}: is missing; put it back, it records the ε that the run has spent")
        if not done and self.stops_before(1):
            spent = rounded_up(self._after(1))
            raise UserError(
                f"{recipe.source}: 'privacy.epsilon' is {accounting.budget:g}, but the first round would already "
                f"spend {spent}; set a larger noise_multiplier or epsilon, or leave noise_multiplier out"
            )

    def begin(self, round_num: int) -> None:
        """Counts a round that is about to be computed."""
        self._rounds += 1
        self._taken.update(self._participants(round_num))
        if self._file is not None:
            write_text(self._file, json.dumps({"rounds": self._rounds, "participations": self._taken}) + "\n")

    @property
    def epsilon(self) -> float:
        """Spent by all rounds begun."""
        return self._epsilon_after(self._rounds, self._taken)

    def stops_before(self, round_num: int) -> bool:
        """Whether a round would spend more than the budget."""
        budget = self._accounting.budget
        return budget is not None and self._after(round_num) > budget * (1 + 1e-9)

    def reason(self, round_num: int) -> str:
        """Why the run ends with a round: one line."""
        return (
            f"stopped after round {round_num} at ε = {rounded_up(self.epsilon)}: the next round would bring it to "
            f"{rounded_up(self._after(round_num + 1))}, more than privacy.epsilon = {self._accounting.budget:g}"
        )

    def _after(self, round_num: int) -> float:
        return self._epsilon_after(self._rounds + 1, self._taken + Counter(self._participants(round_num)))

    def _epsilon_after(self, rounds: int, taken: Mapping[str, int]) -> float:
        accounting = self._accounting
        of_rounds = accounting.unit == "client" and not isinstance(accounting, SharesAccounting)
        return accounting.epsilon(rounds) if of_rounds else accounting.epsilon_of(taken)

    def _read(self) -> None:
        try:
            table = json.loads(self._file.read_text("utf-8"))
            self._rounds, self._taken = int(table["rounds"]), Counter(table["participations"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self._file}: is damaged; put the original back, it records the ε that the run has spent"
            ) from None
