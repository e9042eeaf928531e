"""The keys of a recipe's table [aggregation]: what is put around an algorithm's aggregator, and in its place."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import field
from attrs.validators import and_, ge, gt, le, lt, optional

from computations.ranges import POSITIVE, options_class

_READ_WITH = {
    "secure_bits": ("secure", "simulated"),
    "secure_modulus_bits": ("secure", "simulated"),
    "secure_bound": ("secure", "simulated"),
    "secure_quantile": ("secure", "simulated"),
    "top_share": ("compression", "top_k"),
}
"""A key that is read with one choice of another key alone -> that key and the choice."""


@options_class
class AggregationOptions:
    """Attributes:
    secure: `simulated`: clients' numbers are clipped, rounded and added modulo a power of two as secure sums would add
      them. A simulation: it protects nothing.
    secure_bits: b, of a number that enters a secure sum: it is rounded to the nearest of 2^b - 1 values from
      -secure_bound to secure_bound.
    secure_modulus_bits: m, secure sums are modulo 2^m, and a client sends m bits a number; not set: as few as the
      clients of a round need, b + log2(clients), rounded up. Fewer are refused.
    secure_bound: numbers of an update are clipped to it, from below and above; with secure_quantile the bound of the
      first round.
    secure_quantile: the bound follows this quantile of the clients' largest numbers; not set: it is fixed.
    compression: of what a client sends to the aggregator. `stochastic_8bit`: 8 bits a number, between the least and the
      greatest of its tensor, rounded at random without bias; `top_k`: of each tensor the numbers of the largest sizes,
      and the client adds the rest to its next update (error feedback).
    top_share: with `top_k`, the share of a tensor's numbers that is sent; at least one number is.
    """

    secure: Literal["none", "simulated"] = "none"
    secure_bits: int = field(default=20, validator=and_(ge(2), le(32)))
    secure_modulus_bits: int | None = field(default=None, validator=optional(and_(ge(2), le(62))))
    secure_bound: float = field(default=1.0, validator=POSITIVE)
    secure_quantile: float | None = field(default=None, validator=optional(and_(gt(0), lt(1))))
    compression: Literal["none", "stochastic_8bit", "top_k"] = "none"
    top_share: float = field(default=0.1, validator=and_(gt(0), le(1)))

    def __attrs_post_init__(self):
        fields = attrs.fields_dict(type(self))
        for key, (chooser, choice) in _READ_WITH.items():
            if getattr(self, key) != fields[key].default and getattr(self, chooser) != choice:
                raise ValueError(f"{key} needs {chooser} = {choice!r}")
        if self.secure != "none" and self.compression != "none":
            raise ValueError("compression needs secure = 'none'; secure sums take secure_bits of every number")

    def notes(self) -> tuple[str, ...]:
        """What every output of a run has to say of it, a sentence each; empty where nothing is changed."""
        if self.secure == "simulated":
            words = f"{self.secure_bits} bits and so many more as the sum over a round's clients needs"
            if self.secure_modulus_bits is not None:
                words = f"{self.secure_modulus_bits} bits"
            return (
                "a simulation of secure sums, which protects nothing: updates are clipped, rounded and added as secure "
                "sums would do it, but in the clear",
                "what travels beside the updates is neither rounded nor hidden: losses, counts of clients, attention's "
                "largest norm, SCAFFOLD's variates, FedCMC's vectors, Lazy MIL's scores",
                f"bytes up count a number of an update as {words}, packed",
            )
        if self.compression == "stochastic_8bit":
            return (f"updates are compressed: 8 bits a number, rounded at random; {_COUNTED}",)
        if self.compression == "top_k":
            share = f"{100 * self.top_share:g} % of each tensor's numbers, the largest, are sent"
            return (f"updates are compressed: {share}, the rest stays at the client for later rounds; {_COUNTED}",)
        return ()


_COUNTED = "bytes up count what is sent; what travels beside the updates is not compressed"
