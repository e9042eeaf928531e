"""FedAtt (Ji et al. 2019) and its Adam form FedAttS (FLCMC, Tables 5 and 6)."""

from __future__ import annotations

from computations.algorithms.options import AttentionOptions
from computations.algorithms.parts import with_attention
from computations.algorithms.registry import algorithm
from computations.client_work.optimizers import SGD, SelfAdam
from computations.ranges import options_class


@options_class
class AdamAttentionOptions(AttentionOptions):
    """AttentionOptions at Adam's learning rate."""

    learning_rate: float = 0.001


@algorithm("fedatt", title="FedAtt", source="Ji et al. 2019; FLCMC, Eqs. 10-14", options=AttentionOptions)
def fedatt(model, options):
    """attention, SGD"""
    return with_attention(model, options, SGD(options.learning_rate))


@algorithm("fedatts", title="FedAttS", source="FLCMC, Table 6; Eqs. 10-20", options=AdamAttentionOptions)
def fedatts(model, options):
    """attention, Self-Adam"""
    return with_attention(model, options, SelfAdam(options.learning_rate))
