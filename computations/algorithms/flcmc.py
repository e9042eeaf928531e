"""FedPA and FedPAP, the two algorithms of FLCMC (Hu and Fang 2024, Section 3.3)."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import AttentionOptions
from computations.algorithms.parts import with_attention
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import Proximal
from computations.client_work.optimizers import SGD, PAdam
from computations.ranges import NOT_NEGATIVE, options_class


@options_class
class PerturbedAttentionOptions(AttentionOptions):
    """Attributes:
    mu: weight of the proximal term; 0.03 is the tuned value of Section 5.1.1.
    """

    mu: float = field(default=0.03, validator=NOT_NEGATIVE)


@options_class
class AdamPerturbedAttentionOptions(PerturbedAttentionOptions):
    """PerturbedAttentionOptions at Adam's learning rate."""

    learning_rate: float = 0.001


@algorithm("fedpa", title="FedPA", source="FLCMC, Section 3.3, Eqs. 10-14", options=PerturbedAttentionOptions)
def fedpa(model, options):
    """attention, PGD: SGD on the loss with the proximal term"""
    return with_attention(model, options, SGD(options.learning_rate), Proximal(options.mu))


@algorithm(
    "fedpap", title="FedPAP", source="FLCMC, Section 3.3, Eqs. 10-14, 21-27", options=AdamPerturbedAttentionOptions
)
def fedpap(model, options):
    """attention, PAdam"""
    return with_attention(model, options, PAdam(options.learning_rate, mu=options.mu))
