"""FedAvg (McMahan et al. 2017) and its Adam forms FedAvgS and FedAvgT (FLCMC, Tables 5 and 6)."""

from __future__ import annotations

from computations.algorithms.options import MeanOptions
from computations.algorithms.parts import with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.optimizers import SGD, LibraryAdam, SelfAdam
from computations.ranges import options_class


@options_class
class AdamMeanOptions(MeanOptions):
    """MeanOptions at Adam's learning rate."""

    learning_rate: float = 0.001


@algorithm("fedavg", title="FedAvg", source="McMahan et al. 2017, Algorithm 1; FLCMC, Eq. 6", options=MeanOptions)
def fedavg(model, options):
    """mean, SGD"""
    return with_mean(model, options, SGD(options.learning_rate))


@algorithm("fedavgs", title="FedAvgS", source="FLCMC, Table 6; Eqs. 15-20", options=AdamMeanOptions)
def fedavgs(model, options):
    """mean, Self-Adam"""
    return with_mean(model, options, SelfAdam(options.learning_rate))


@algorithm("fedavgt", title="FedAvgT", source="FLCMC, Table 6", options=AdamMeanOptions)
def fedavgt(model, options):
    """mean, the library's Adam"""
    return with_mean(model, options, LibraryAdam(options.learning_rate))
