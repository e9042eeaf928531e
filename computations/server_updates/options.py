"""The keys of a recipe's table [server_optimizer]: what the server does with the aggregated update."""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import optional

from computations.ranges import BELOW_ONE, POSITIVE, options_class, refuse_unread

_NEEDS = {
    "tau": ("name", ("adam", "yogi", "adagrad")),
    **dict.fromkeys(("beta_2", "bias_correction"), ("name", ("adam", "yogi"))),
}
"""Keys that not all optimizers read; see `refuse_unread`."""


@options_class
class ServerOptimizerOptions:
    """Attributes:
    name: `adam`, `yogi`, `adagrad`: FedAdam, FedYogi, FedAdagrad (Reddi et al. 2021, Algorithm 2) on whatever the
      algorithm aggregates; `momentum`: server momentum (FedAvgM, Hsu et al. 2019). They take the place of the server's
      step, so that algorithm.server_step, server_momentum and noise_scale stay at their defaults.
    learning_rate: of the server, eta; not set: 0.01, with `momentum` 1.
    beta_1: share of the old first moment that is kept, or the momentum; not set: 0.9, with `adagrad` 0.
    beta_2: share of the old second moment that is kept, with `adam` and `yogi`; not set: 0.99.
    tau: what is added to the root of the second moment, the paper's degree of adaptivity; the second moment starts at
      its square. Not set: 0.001; `momentum` has none.
    bias_correction: with `adam` and `yogi`, both moments start at zero and are divided by 1 - beta^t, as in Kingma and
      Ba 2015; Algorithm 2 has no such correction.
    """

    name: Literal["adam", "yogi", "adagrad", "momentum"]
    learning_rate: float | None = field(default=None, validator=optional(POSITIVE))
    beta_1: float | None = field(default=None, validator=optional(BELOW_ONE))
    beta_2: float | None = field(default=None, validator=optional(BELOW_ONE))
    tau: float | None = field(default=None, validator=optional(POSITIVE))
    bias_correction: bool = False

    def __attrs_post_init__(self) -> None:
        refuse_unread(self, _NEEDS)
