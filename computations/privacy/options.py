"""The keys of a recipe's table [privacy]."""

from __future__ import annotations

import math
from typing import Literal

from attrs import field
from attrs.validators import and_, ge, gt, le, lt, optional

from computations.ranges import FLOAT32_MAX, NOISE, POSITIVE, Validator, options_class, refuse_unread

_INSIDE: Validator = and_(gt(0), lt(1))
_NORM: Validator = and_(ge(1e-12), le(FLOAT32_MAX))
"""Of a bound on a norm: far below, float32 rounds squares to zero, and with them norms and sensitivities."""


@options_class
class PrivacyOptions:
    """Attributes:
    unit: whose presence the guarantee hides: a `client`, an `example`, or a `group` of a client's examples with one id.
    clip: largest L2 norm of what one unit contributes, over all tensors; with clip_quantile the bound of the first
      round.
    clip_quantile: the bound follows this quantile of the clients' norms, estimated privately within the same budget;
      not set: it is fixed. For `unit = "client"`.
    mechanism: `gaussian`: independent noise in every round; `tree`: noise of tree aggregation, for `unit = "client"`,
      a mean and a fixed clip; it pays where a client takes part in few rounds.
    noise_multiplier: standard deviation of the noise over the sensitivity.
    epsilon: in place of noise_multiplier: the noise is calibrated so that all rounds together spend so much. Beside
      it: the run stops before a round that would spend more.
    delta: of the guarantee (epsilon, delta); well below one over the number of units.
    normaliser: attention alone: the number c that a client sends beside its update, for the normaliser; clip if not
      set.
    training_metrics: whether sums of the clients' training statistics (loss, steps, how many counted) leave the clients
      without noise; only for simulations, where it also allows `evaluation.train_split`.
    least_sites: with `aggregation.secure`, each site adds a share of the noise to its own sum, and no total is opened
      over fewer sites; the noise that is counted is that of least_sites - colluding_sites sites.
    colluding_sites: number of sites that may work together, with the coordinator or not, and take their own noise off.
    noise_seed: `run`: noise from the run's seed, so that a simulation can be repeated; `system`: from the operating
      system's randomness, which is never written; `file:PATH`: from a secret file's bytes.
    """

    unit: Literal["client", "example", "group"] = "client"
    clip: float = field(default=1.0, validator=_NORM)
    clip_quantile: float | None = field(default=None, validator=optional(_INSIDE))
    mechanism: Literal["gaussian", "tree"] = "gaussian"
    noise_multiplier: float | None = field(default=None, validator=optional(NOISE))
    epsilon: float | None = field(default=None, validator=optional(and_(ge(1e-4), le(FLOAT32_MAX))))
    delta: float = field(default=1e-5, validator=_INSIDE)
    normaliser: float | None = field(default=None, validator=optional(POSITIVE))
    training_metrics: bool = False
    least_sites: int | None = field(default=None, validator=optional(ge(2)))
    colluding_sites: int = field(default=0, validator=ge(0))
    noise_seed: str = "run"

    def __attrs_post_init__(self) -> None:
        of_clients = ("mechanism", "clip_quantile", "normaliser", "least_sites", "colluding_sites")
        refuse_unread(self, dict.fromkeys(of_clients, ("unit", ("client",))))
        if self.colluding_sites and self.least_sites is None:
            raise ValueError("colluding_sites needs least_sites")
        if self.least_sites is not None and self.colluding_sites >= self.least_sites:
            raise ValueError(f"colluding_sites must be below least_sites = {self.least_sites}, or no noise is left")


def rounded_up(epsilon: float) -> str:
    """Return an ε with two decimals, rounded up so that an upper bound stays one."""
    return f"{math.ceil(epsilon * 100 - 1e-9) / 100:.2f}" if math.isfinite(epsilon) else "∞"
