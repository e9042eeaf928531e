"""FedProx (Li et al. 2020) and its Adam form FedProxP (FLCMC, Tables 5 and 6)."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import MeanOptions
from computations.algorithms.parts import with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import Proximal
from computations.client_work.optimizers import SGD, PAdam
from computations.ranges import NOT_NEGATIVE, options_class


@options_class
class ProximalOptions(MeanOptions):
    """Attributes:
    mu: weight of the proximal term; 1 is FLCMC's default (Table 7), 0.03 its tuned value on dialogues.
    """

    mu: float = field(default=1.0, validator=NOT_NEGATIVE)


@options_class
class AdamProximalOptions(ProximalOptions):
    """ProximalOptions at Adam's learning rate."""

    learning_rate: float = 0.001


@algorithm("fedprox", title="FedProx", source="Li et al. 2020, Algorithm 2; FLCMC, Table 5", options=ProximalOptions)
def fedprox(model, options):
    """mean, PGD: SGD on the loss with the proximal term"""
    return with_mean(model, options, SGD(options.learning_rate), Proximal(options.mu))


@algorithm("fedproxp", title="FedProxP", source="FLCMC, Table 6; Eqs. 21-27", options=AdamProximalOptions)
def fedproxp(model, options):
    """mean, PAdam"""
    return with_mean(model, options, PAdam(options.learning_rate, mu=options.mu))
