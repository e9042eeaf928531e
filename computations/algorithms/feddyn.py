"""FedDyn (Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", ICLR)."""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import optional

from computations.aggregators.weighed_means import WeighedMeanFactory
from computations.algorithms.options import LocalOptions
from computations.algorithms.parts import adam_or_sgd
from computations.algorithms.registry import algorithm
from computations.client_work import build_local_training
from computations.client_work.objectives import DynamicRegularizer
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, compose
from computations.local_model import LocalModel
from computations.ranges import COUNT, POSITIVE, options_class
from computations.server_updates import dynamic_step


@options_class
class DynamicRegularizationOptions(LocalOptions):
    """Attributes:
    optimizer: of the clients: plain SGD, as in the paper, or Adam with fresh moments in every round (Self-Adam).
    alpha: weight of the penalty; the paper takes 0.1, 0.01 or 0.001.
    num_clients: N, the number of all clients with training examples, sampled in a round or not; a run counts them if
      it is not set.
    """

    optimizer: Literal["adam", "sgd"] = "sgd"
    alpha: float = field(default=0.01, validator=POSITIVE)
    num_clients: int | None = field(default=None, validator=optional(COUNT))


@algorithm("feddyn", title="FedDyn", source="Acar et al. 2021, Algorithm 1", options=DynamicRegularizationOptions)
def feddyn(model: LocalModel, options: DynamicRegularizationOptions) -> FederatedAlgorithm:
    """plain mean less h / alpha; a proximal term and a linear one whose slope the client keeps and adds up"""
    if options.num_clients is None:
        raise CompositionError("feddyn: num_clients must be given, the number of all clients with training examples")
    work = build_local_training(
        model,
        objective=DynamicRegularizer(options.alpha),
        optimizer=adam_or_sgd(options),
        training=options.local_training("uniform"),
    )
    step = dynamic_step(model, alpha=options.alpha, num_clients=options.num_clients)
    return compose(model, client_work=work, aggregator=WeighedMeanFactory(), finalizer=step)
