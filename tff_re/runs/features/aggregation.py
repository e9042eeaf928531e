"""[aggregation]: how updates are sent and combined."""

from __future__ import annotations

import math

from computations.aggregation_rules.registry import Rule
from computations.algorithms.aggregation import require_round, with_aggregation
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.base import Feature
from tff_re.runs.features.shares import most_in_sum, noise_is_shared, sums_are_secure
from tff_re.tasks.sizes import available_memory


class Aggregation(Feature):
    """See `computations.algorithms.aggregation`."""

    table = "aggregation"

    @property
    def algorithm_key(self):
        """See `Feature`."""
        return self.options, *self._sums.values()

    def refuse(self, *, at_sites):
        """See `Feature`."""
        if at_sites and self.options.secure == "simulated":
            raise UserError(
                f"{self.recipe.source}: aggregation.secure = 'simulated' works only in a simulation; for a run "
                "across sites set it to 'masks', or leave it out"
            )

    def prepare(self, setting):
        """Keeps what the clients of a secure sum agree on: how many they are at most, and the largest weight."""
        self._setting, self._sums = setting, {"clients": 1, "largest_weight": 1.0, "largest_size": 1.0}
        if not sums_are_secure(self.recipe):
            return
        if self.options.secure == "masks" and not setting.prepared.sites:
            raise UserError(
                f"{self.recipe.source}: aggregation.secure = 'masks' is only for runs across sites (train --sites); "
                "in a simulation 'simulated' gives the same numbers"
            )
        largest = int(setting.prepared.examples.sizes("train").max())
        by_examples = self.recipe.algorithm.get("weighting") == "examples"
        self._sums = {
            "clients": most_in_sum(self.recipe, setting),
            "largest_weight": float(largest) if by_examples else 1.0,
            "largest_size": _largest_size(self.recipe, largest),
        }

    def change_algorithm(self, algorithm):
        """The algorithm, whose sums are secure ones already where [privacy] adds noise in shares to them."""
        if noise_is_shared(self.recipe):
            return algorithm
        with self.naming():
            changed = with_aggregation(algorithm, self.options, **self._sums)
        keeps = changed.client_work.client_state_type is not algorithm.client_work.client_state_type
        if keeps and algorithm.own_models is not None:
            raise UserError(
                f"{self.recipe.source}: this [aggregation] and 'personalise.local_head' both keep a state at the "
                "clients; leave one of the two out"
            )
        return changed

    def check(self, algorithm):
        """Raises UserError where the rule cannot work with the run's clients or the server's examples."""
        setting, rule = self._setting, rule_of(self.recipe)
        if rule is None:
            return
        if rule.server_examples:
            setting.server_examples(f"aggregation.rule = {rule.name!r}", "aggregation.rule")
        with self.naming():
            require_round(
                self.options,
                algorithm.client_work.update_type,
                expected=setting.per_round,
                max_clients=setting.max_per_round,
                free_bytes=available_memory(),
            )


def _largest_size(recipe: Recipe, examples: int) -> float:
    """The most that a client with this number of examples says of its local steps to FedNova's server."""
    options = recipe.algorithm
    batches = max(math.ceil(examples / (options.get("batch_size") or examples)), 1)
    steps = options.get("local_steps") or (options.get("local_epochs") or 1) * batches
    return steps / (1.0 - (options.get("local_momentum") or 0.0))


def rule_of(recipe: Recipe) -> Rule | None:
    """The rule that replaces the algorithm's own aggregator, or None if the algorithm keeps its own."""
    return None if recipe.aggregation is None else recipe.aggregation.chosen_rule
