"""SCAFFOLD (Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", Algorithm 1).

A client keeps one control variate, of the trainable weights' size, and sends and receives two models a round.
"""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import optional

from computations.algorithms.options import MeanOptions
from computations.algorithms.parts import with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import ControlVariates
from computations.client_work.optimizers import SGD
from computations.ranges import COUNT, options_class


@options_class
class ControlVariateOptions(MeanOptions):
    """Attributes:
    num_clients: N, the number of all clients with training examples, sampled in a round or not; a run counts them if
      it is not set.
    weighting: `uniform`: clients count all alike (Algorithm 1); `examples`: by their number of examples; the control
      variates, and so the objective that the rounds settle on, count all clients alike in both.
    """

    num_clients: int | None = field(default=None, validator=optional(COUNT))
    weighting: Literal["examples", "uniform"] = "uniform"


@algorithm(
    "scaffold",
    title="SCAFFOLD",
    source="Karimireddy et al. 2020, Algorithm 1, option II",
    options=ControlVariateOptions,
)
def scaffold(model, options):
    """mean, SGD whose gradient is corrected by the server's control variate minus the client's own"""
    return with_mean(model, options, SGD(options.learning_rate), ControlVariates(options.num_clients))
