"""[server_optimizer]: another optimizer in place of the server's step."""

from __future__ import annotations

from computations.algorithms.server_optimizer import with_server_optimizer
from tff_re.runs.features.base import Feature


class ServerOptimizer(Feature):
    """See `computations.algorithms.server_optimizer`."""

    table = "server_optimizer"

    @property
    def algorithm_key(self):
        """See `Feature`."""
        return self.options

    def change_algorithm(self, algorithm):
        """See `Feature`."""
        with self.naming():
            return with_server_optimizer(algorithm, self.options, self.recipe.algorithm.options)
