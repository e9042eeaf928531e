"""Finalizers: from the aggregated update to the next global model."""

from computations.server_updates.gradient_step import gradient_step

__all__ = ["gradient_step"]
