"""Client optimizers: weights and moments live in variables and are updated by fused kernels."""

from computations.client_work.optimizers.base import ClientOptimizer
from computations.client_work.optimizers.library_adam import LibraryAdam
from computations.client_work.optimizers.padam import PAdam
from computations.client_work.optimizers.self_adam import SelfAdam
from computations.client_work.optimizers.sgd import SGD

__all__ = ["SGD", "ClientOptimizer", "LibraryAdam", "PAdam", "SelfAdam"]
