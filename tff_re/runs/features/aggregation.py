"""[aggregation]: how updates are sent and combined."""

from __future__ import annotations

from computations.aggregation_rules.registry import Rule
from computations.algorithms.aggregation import require_round, with_aggregation
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.base import Feature
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
        if at_sites and sums_are_simulated(self.recipe):
            raise UserError(
                f"{self.recipe.source}: aggregation.secure is simulated, and sites do not simulate; leave it out"
            )

    def prepare(self, setting):
        """Keeps what the clients of a secure sum agree on: how many they are at most, and the largest weight."""
        self._setting, self._sums = setting, {"clients": 1, "largest_weight": 1.0}
        if sums_are_simulated(self.recipe):
            by_examples = self.recipe.algorithm.get("weighting") == "examples"
            sizes = [len(client.train["y"]) for client in setting.prepared.examples.clients]
            self._sums = {
                "clients": setting.max_per_round,
                "largest_weight": float(max(sizes)) if by_examples else 1.0,
            }

    def change_algorithm(self, algorithm):
        """See `Feature`."""
        with self.naming():
            changed = with_aggregation(algorithm, self.options, **self._sums)
        keeps = changed.client_work.client_state_type is not algorithm.client_work.client_state_type
        if keeps and algorithm.own_models is not None:
            raise UserError(
                f"{self.recipe.source}: this [aggregation] keeps a state at the clients, and so does "
                "'personalise.local_head'; leave one of the two out"
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


def sums_are_simulated(recipe: Recipe) -> bool:
    """Whether sums are made as secure ones would be, which protects nothing in a simulation."""
    return recipe.aggregation is not None and recipe.aggregation.secure != "none"


def rule_of(recipe: Recipe) -> Rule | None:
    """The rule in the place of the algorithm's own aggregator; None: it keeps that."""
    return None if recipe.aggregation is None else recipe.aggregation.chosen_rule
