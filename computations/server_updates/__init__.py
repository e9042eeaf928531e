"""Finalizers: from the aggregated update to the next global model."""

from computations.server_updates.distillation import distillation
from computations.server_updates.gradient_step import gradient_step

__all__ = ["distillation", "gradient_step"]
