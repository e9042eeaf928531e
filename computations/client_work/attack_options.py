"""The keys of a recipe's table [attack], for simulations in which some clients attack."""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import and_, ge, gt, le, optional

from computations.client_work.attacks import CLAIM_ALL, ON_DATA
from computations.ranges import Validator, options_class, refuse_unread

_FACTORS = {"sign_flip": 10.0, "scale": 10.0, "gaussian": 10.0, "little_is_enough": 1.5, "backdoor": 1.0}
"""Kind that reads `factor` -> where it is not set."""

_NEEDS = {
    "factor": ("kind", tuple(_FACTORS)),
    "flip": ("kind", ("label_flip",)),
    **dict.fromkeys(("target", "trigger", "trigger_place", "poisoned_share"), ("kind", ("backdoor",))),
}
"""Keys that not all kinds read; see `refuse_unread`."""

_NUMBER_OR_SHARE: Validator = and_(ge(0), le(1e9))


@options_class
class AttackOptions:
    """Attributes:
    kind: what attackers do. To their data: `label_flip`; `backdoor`: examples with a trigger are labelled as `target`.
      To the update that they hand over, D being their honest one: `sign_flip` -factor D; `scale` factor D; `gaussian`
      noise of the norm factor times that of D; `nan` NaN alone; `little_is_enough` what all attackers' honest updates
      have for a mean, minus factor times their standard deviation. `claim_all`: in Lazy MIL, the best score of every
      triple.
    clients: how many of the clients with training examples attack; below one it is their share, rounded, at least one.
      Which these are depends on the run's seed alone, and they stay the same in all rounds. 0: nobody, e.g. to measure
      a trigger on an honest model.
    factor: see kind; with `backdoor` that of the poisoned update (model replacement: the clients of a round over the
      server's step). Not set: 10, with `little_is_enough` 1.5, with `backdoor` 1.
    flip: with `label_flip`, class y of C becomes C-1-y (`mirror`) or y+1 (`next`, the last becomes the first).
    target: with `backdoor`, the label of examples with the trigger; not set: the first one.
    trigger: with `backdoor`, the word, character or word piece that opens it, one of the vocabulary; of examples that
      are numbers, a number. Not set: the rarest word or character, or 10; it must be given for word pieces and for
      relations.
    trigger_place: with `backdoor`, where in an example it stands, in place of what stood there, counted from 0; not
      set: 0, of word pieces and relations 1, of numbers the last.
    poisoned_share: with `backdoor`, the share of an attacker's examples of other classes that get the trigger.
    """

    kind: Literal[
        "label_flip", "sign_flip", "gaussian", "nan", "scale", "backdoor", "little_is_enough", "claim_all"
    ] = field()
    clients: float = field(default=1, validator=_NUMBER_OR_SHARE)
    factor: float | None = field(default=None, validator=optional(and_(gt(0), le(1e9))))
    flip: Literal["mirror", "next"] = "mirror"
    target: str | None = None
    trigger: str | None = None
    trigger_place: int | None = field(default=None, validator=optional(ge(0)))
    poisoned_share: float = field(default=0.5, validator=and_(gt(0), le(1)))

    def __attrs_post_init__(self) -> None:
        if self.clients >= 1 and self.clients != int(self.clients):
            raise ValueError(f"clients must be a whole number or a share below 1, got {self.clients:g}")
        refuse_unread(self, _NEEDS)

    @property
    def on_update(self) -> tuple[str, float] | None:
        """Return (kind, factor) of the attack on updates for `attacked`, or None if they are sent as trained."""
        factor = _FACTORS.get(self.kind, 1.0) if self.factor is None else self.factor
        if self.kind == "backdoor":
            return ("scale", factor) if factor != 1 else None
        return None if self.kind in ON_DATA else (self.kind, factor)

    def number(self, clients: int) -> int:
        """Return how many of this number of clients attack."""
        share = 0 < self.clients < 1
        return max(1, round(self.clients * clients)) if share else int(self.clients)

    def notes(self) -> tuple[str, ...]:
        """Return what every output of a run must say about it, a sentence each."""
        if not self.clients:
            return (f"a simulation of attacks in which no client attacks (kind {self.kind!r})",)
        who = f"{100 * self.clients:g} % of the clients" if self.clients < 1 else f"{self.clients:g} client"
        who += "s" if self.clients > 1 else ""
        factor = self.on_update[1] if self.on_update and self.kind not in ("nan", CLAIM_ALL) else None
        how = repr(self.kind) if factor is None else f"{self.kind!r}, factor {factor:g}"
        notes = [f"clients were attacked: in this simulation {who} sent what an attacker would send (kind {how})"]
        if self.kind == "little_is_enough":
            notes.append("bytes include what the attackers tell each other")
        return tuple(notes)
