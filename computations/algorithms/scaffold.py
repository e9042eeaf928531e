"""SCAFFOLD (Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", Algorithm 1).

A client keeps one control variate, of the trainable weights' size, and sends and receives two models a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from computations.algorithms.options import MeanOptions
from computations.algorithms.parts import with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import ControlVariates
from computations.client_work.objectives.control_variates import check_num_clients
from computations.client_work.optimizers import SGD


@dataclass(frozen=True, kw_only=True)
class ControlVariateOptions(MeanOptions):
    """Attributes:
    num_clients: N, the number of all clients with training examples, sampled in a round or not; a run counts them if
      it is not set.
    weighting: `uniform`: clients count all alike (Algorithm 1); `examples`: by their number of examples; the control
      variates, and so the objective that the rounds settle on, count all clients alike in both.
    """

    num_clients: int | None = None
    weighting: Literal["examples", "uniform"] = "uniform"

    def __post_init__(self):
        super().__post_init__()
        if self.num_clients is not None:
            check_num_clients(self.num_clients)


@algorithm(
    "scaffold",
    title="SCAFFOLD",
    source="Karimireddy et al. 2020, Algorithm 1, option II",
    options=ControlVariateOptions,
)
def scaffold(model, options):
    """mean, SGD whose gradient is corrected by the server's control variate minus the client's own"""
    return with_mean(model, options, SGD(options.learning_rate), ControlVariates(options.num_clients))
