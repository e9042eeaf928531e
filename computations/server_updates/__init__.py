"""Finalizers, which compute the next global model from the aggregated update."""

from computations.server_updates.adaptive_step import server_optimizer
from computations.server_updates.distillation import distillation
from computations.server_updates.dynamic_step import dynamic_step
from computations.server_updates.gradient_step import gradient_step
from computations.server_updates.options import ServerOptimizerOptions
from computations.server_updates.training_pass import training_pass

__all__ = [
    "ServerOptimizerOptions",
    "distillation",
    "dynamic_step",
    "gradient_step",
    "server_optimizer",
    "training_pass",
]
