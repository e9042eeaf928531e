"""FedNova (Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS)."""

from __future__ import annotations

import functools
from typing import Literal

from attrs import field

from computations.aggregators.weighed_means import NormalisedMeanFactory
from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import with_aggregator
from computations.algorithms.registry import algorithm
from computations.client_work import NormalisedDifference
from computations.client_work.optimizers import SGD, SelfAdam, accumulated
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import BELOW_ONE, options_class, refuse_unread


@options_class
class NormalisedAveragingOptions(AdamOrSgdOptions):
    """Attributes:
    optimizer: of the clients: plain SGD, or Adam with fresh moments in every round (Self-Adam), whose steps count one
      each.
    learning_rate: of the client optimizer; the default suits SGD.
    local_momentum: of SGD, zero at the start of each local training.
    """

    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.01
    local_momentum: float = field(default=0.0, validator=BELOW_ONE)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        refuse_unread(self, {"local_momentum": ("optimizer", ("sgd",))})


@algorithm(
    "fednova", title="FedNova", source="Wang et al. 2020, Section 4, Algorithm 1", options=NormalisedAveragingOptions
)
def fednova(model: LocalModel, options: NormalisedAveragingOptions) -> FederatedAlgorithm:
    """mean of updates divided by the client's number of steps, times the mean number of steps"""
    optimizer: SGD | SelfAdam
    if options.optimizer == "adam":
        optimizer = SelfAdam(options.learning_rate)
    else:
        optimizer = SGD(options.learning_rate, options.local_momentum)
    update = NormalisedDifference(functools.partial(accumulated, optimizer))
    return with_aggregator(
        model, options, optimizer, None, NormalisedMeanFactory(), options.weighting, client_update=update
    )
