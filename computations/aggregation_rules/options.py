"""The keys of a recipe's table [aggregation], to which each rule adds its own."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

import attrs
from attrs import field
from attrs.validators import and_, ge, gt, le, lt, optional

from computations.aggregation_rules.registry import RULES, Rule
from computations.ranges import BOUND, POSITIVE, Validator, options_class, refuse_unread

_BETWEEN: Validator = and_(gt(0), lt(1))

_NEEDS = {
    **dict.fromkeys(
        ("secure_bits", "secure_modulus_bits", "secure_bound", "secure_quantile", "secure_norm"),
        ("secure", ("simulated", "masks")),
    ),
    "top_share": ("compression", ("top_k",)),
}
"""Keys that not all choices read; see `refuse_unread`."""


@functools.lru_cache(maxsize=8)
def _with_keys_of(rules: tuple[Rule, ...]) -> type:
    """Return `AggregationOptions` with the keys of these rules, whose names are the choices of `rule`."""
    described = "; ".join(f"`{r.name}`: {inspect.getdoc(r.build)}" for r in rules)
    doc = (
        f"Attributes:\n  rule: replaces the algorithm's own way of combining updates. {described}. Clients count "
        "equally unless stated otherwise. Not set: as the algorithm has it."
    )
    choices: Any = Literal[tuple(r.name for r in rules)] | None
    fields = {"__doc__": doc, "__module__": __name__, "__annotations__": {"rule": choices}, "rule": None}
    # attrs takes the fields of the last base first.
    bases = (*(r.options for r in reversed(rules) if r.options is not None), AggregationOptions)
    return options_class(type("AggregationOptions", bases, fields))


def aggregation_options() -> type:
    """Return the class of the table [aggregation], with the keys of every registered rule."""
    return _with_keys_of(tuple(RULES.values()))


@options_class
class AggregationOptions:
    """Attributes:
    secure: `simulated`: clients' numbers are clipped, rounded and added modulo a power of two as secure sums would add
      them. A simulation: it protects nothing. `masks`, across sites only: the same numbers, and each site adds masks
      that cancel in the total, so that nobody sees a site's own sums.
    secure_bits: b, of a number that enters a secure sum: it is rounded to the nearest of 2^b - 1 values from
      -secure_bound to secure_bound.
    secure_modulus_bits: m, secure sums are modulo 2^m, and a client sends m bits a number; not set: as few as the
      clients of a round need, b + log2(clients), rounded up, and more for noise in shares (`privacy.least_sites`).
      Fewer are refused.
    secure_bound: numbers of an update are clipped to it, from below and above; with secure_quantile the bound of the
      first round.
    secure_quantile: the bound follows this quantile of the clients' largest numbers; not set: it is fixed.
    secure_norm: attention takes this constant in place of the clients' largest norm, and shrinks updates of larger
      norms to it; not set: the largest norm leaves the clients, which `masks` refuses.
    compression: of what a client sends to the aggregator. `stochastic_8bit`: 8 bits a number, between the least and the
      greatest of its tensor, rounded at random without bias; `top_k`: of each tensor the numbers of the largest sizes,
      and the client adds the rest to its next update (error feedback).
    top_share: with `top_k`, the share of a tensor's numbers that is sent; at least one number is.
    clip: updates with a larger L2 norm, over all tensors, are scaled to it before any rule; with clip_quantile the
      bound of the first round. Not set: no clipping, and 1 with clip_quantile.
    clip_quantile: the bound follows this quantile of the clients' norms over the rounds; not set: it is fixed.
    zeroing: updates with a number that is larger in size become zero, before clipping; with zeroing_quantile the bound
      of the first round. Not set: no zeroing, and 10 with zeroing_quantile.
    zeroing_quantile: the bound is zeroing_factor times this quantile of the clients' largest numbers over the rounds;
      not set: it is fixed.
    zeroing_factor: see zeroing_quantile.
    """

    secure: Literal["none", "simulated", "masks"] = "none"
    secure_bits: int = field(default=20, validator=and_(ge(2), le(32)))
    secure_modulus_bits: int | None = field(default=None, validator=optional(and_(ge(2), le(62))))
    secure_bound: float = field(default=1.0, validator=BOUND)
    secure_quantile: float | None = field(default=None, validator=optional(_BETWEEN))
    secure_norm: float | None = field(default=None, validator=optional(BOUND))
    compression: Literal["none", "stochastic_8bit", "top_k"] = "none"
    top_share: float = field(default=0.1, validator=and_(gt(0), le(1)))
    rule: str | None = None
    clip: float | None = field(default=None, validator=optional(BOUND))
    clip_quantile: float | None = field(default=None, validator=optional(_BETWEEN))
    zeroing: float | None = field(default=None, validator=optional(BOUND))
    zeroing_quantile: float | None = field(default=None, validator=optional(_BETWEEN))
    zeroing_factor: float = field(default=2.0, validator=POSITIVE)

    def __attrs_post_init__(self) -> None:
        cls: type = type(self)
        fields = attrs.fields_dict(cls)
        of_rules = {key: ("rule", (rule.name,)) for rule in RULES.values() for key in _keys(rule) if key in fields}
        refuse_unread(self, _NEEDS | of_rules)
        if self.zeroing_factor != fields["zeroing_factor"].default and self.zeroing_quantile is None:
            raise ValueError("zeroing_factor needs zeroing_quantile")
        if self.secure != "none" and self.compression != "none":
            raise ValueError(
                "compression needs secure = 'none'; secure sums already send every number with secure_bits bits"
            )
        if self.secure != "none":
            self._require_sums()
        if self.compression != "none" and self.chosen_rule is not None and self.chosen_rule.collects:
            raise ValueError(
                f"rule = {self.rule!r} needs compression = 'none': it has no sum whose numbers could be compressed; "
                "use 'rfa'"
            )

    def _require_sums(self) -> None:
        """Raise ValueError if secure sums are combined with an option that needs single updates."""
        if self.chosen_rule is not None and self.chosen_rule.not_secure is not None:
            raise ValueError(f"rule = {self.rule!r} needs secure = 'none': {self.chosen_rule.not_secure}")
        for key in ("clip", "clip_quantile", "zeroing", "zeroing_quantile"):
            if getattr(self, key) is not None:
                raise ValueError(
                    f"{key} needs secure = 'none': with secure sums nobody sees the size of an update; secure_bound "
                    "bounds its numbers instead"
                )

    @property
    def chosen_rule(self) -> Rule | None:
        """Return the entry of `rule`, or None if the algorithm's own aggregator is used."""
        return None if self.rule is None else RULES[self.rule]

    @property
    def clips(self) -> bool:
        """Return whether updates are clipped."""
        return self.clip is not None or self.clip_quantile is not None

    @property
    def zeroes(self) -> bool:
        """Return whether updates that are too large become zero."""
        return self.zeroing is not None or self.zeroing_quantile is not None

    @property
    def guards(self) -> bool:
        """Return whether a rule, clipping or zeroing is set, in which case updates are also screened."""
        return self.rule is not None or self.clips or self.zeroes

    def notes(self) -> tuple[str, ...]:
        """Return what every output of a run must say about it, a sentence each.

        Empty if nothing is changed.
        """
        return (*self._notes_on_rules(), *self._notes_on_sums())

    def _notes_on_rules(self) -> tuple[str, ...]:
        if not self.guards:
            return ()
        notes = []
        if self.chosen_rule is not None:
            notes.append(f"updates are combined by {self.chosen_rule.title}, in place of the algorithm's own way")
            if self.chosen_rule.collects:
                notes.append("with this rule the server holds the updates of all clients of a round")
            notes += self.chosen_rule.notes
        if self.clips:
            notes.append(f"updates are clipped to {_bound(self.clip, self.clip_quantile, 'L2 norms')}")
        if self.zeroes:
            factor = f"{self.zeroing_factor:g} times " if self.zeroing_quantile is not None else ""
            bound = _bound(self.zeroing, self.zeroing_quantile, "largest numbers")
            notes.append(f"updates with a number larger than {factor}{bound} become zero")
        return tuple(notes)

    def _notes_on_sums(self) -> tuple[str, ...]:
        if self.secure != "none":
            words = f"{self.secure_bits} bits plus the bits that the sum over a round's clients needs"
            if self.secure_modulus_bits is not None:
                words = f"{self.secure_modulus_bits} bits"
            counted = f"bytes up count a number of an update as {words}, packed"
            if self.secure == "masks":
                return (
                    "sums of sites are masked: the coordinator sees only their total, not the sums of a site; for "
                    "this, updates are clipped and rounded",
                    f"{counted}; as sent it takes 4 bytes, or 8 with more than 32 bits, and any other number takes 16",
                )
            return (
                "a simulation of secure sums that protects nothing: updates are clipped, rounded and added as in "
                "secure sums, but in the clear",
                "values sent with the updates are neither rounded nor hidden: losses, counts of clients, attention's "
                "largest norm, SCAFFOLD's variates, FedCMC's vectors, Lazy MIL's scores",
                counted,
            )
        if self.compression == "stochastic_8bit":
            return (f"updates are compressed: 8 bits a number, rounded at random; {_COUNTED}",)
        if self.compression == "top_k":
            share = f"{100 * self.top_share:g} % of each tensor's numbers, the largest, are sent"
            return (f"updates are compressed: {share}, and the rest stays at the client for later rounds; {_COUNTED}",)
        return ()


_COUNTED = "bytes up count what is sent; what is sent in addition to the updates is not compressed"


def _keys(rule: Rule) -> list[str]:
    """Return the keys that a rule adds to the table."""
    return [] if rule.options is None else list(attrs.fields_dict(rule.options))


def _bound(number: float | None, quantile: float | None, what: str) -> str:
    if quantile is None:
        return f"{number:g}"
    return f"the {quantile:g} quantile of the clients' {what}, estimated over the rounds"
