"""The tables [training], [failures] and [evaluation] of a recipe."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, le, optional

from computations.ranges import SHARE, refuse_unread

DEFAULT_ATTEMPTS = 3


@attrs.frozen(kw_only=True)
class TrainingOptions:
    """Attributes:
    rounds: how many.
    clients_per_round: clients sampled in each round, without replacement, from those with training examples.
    client_fraction: in place of clients_per_round, the share (C) of these clients, rounded, at least one; 1 is all.
    sampling: `fixed`: exactly so many clients a round; `poisson`: every client takes part with the same probability,
      independently, so that the expected number is that. Such a round may have no client; privacy counts less for it.
    over_sampling: with `fixed` sampling this many times as many clients are asked, rounded up; the answers of the
      first clients_per_round to come count.
    min_clients: a round that fewer answers count in is repeated with other clients, as far as there are any.
    attempts: the times that a round is tried until min_clients answer; then the run ends. Not set: 3.
    tolerated_failures: clients of a round whose computation may fail, by an error or by an update that is not finite.
      They cost their updates; with more of them the run ends. As many clients' evaluations may fail each time, and are
      left out. Not set: an error ends the run, and updates that are not finite cost themselves alone, as long as one is
      finite.
    checkpoint_every: rounds between checkpoints; a run that was killed repeats at most so many. Ctrl-C and SIGTERM
      write one, too. Across sites every round has one.
    """

    rounds: int = attrs.field(default=100, validator=ge(1))
    clients_per_round: int = attrs.field(default=10, validator=ge(1))
    client_fraction: float | None = attrs.field(default=None, validator=optional(and_(gt(0), le(1))))
    sampling: Literal["fixed", "poisson"] = "fixed"
    over_sampling: float = attrs.field(default=1.0, validator=and_(ge(1), le(1000)))
    min_clients: int = attrs.field(default=0, validator=ge(0))
    attempts: int | None = attrs.field(default=None, validator=optional(and_(ge(1), le(1000))))
    tolerated_failures: int | None = attrs.field(default=None, validator=optional(ge(0)))
    checkpoint_every: int = attrs.field(default=10, validator=ge(1))

    def __attrs_post_init__(self):
        refuse_unread(self, {"over_sampling": ("sampling", ("fixed",))})
        if self.attempts is not None and not self.min_clients:
            raise ValueError("attempts needs min_clients of at least 1")

    @property
    def max_attempts(self) -> int:
        """How often a round is tried."""
        return (self.attempts or DEFAULT_ATTEMPTS) if self.min_clients else 1


@attrs.frozen(kw_only=True)
class FailureOptions:
    """Simulated failures of clients.

    The fate of a sampled client is drawn from the run's seed, the round and the client. A lost client does not
    count in the round, and keeps the state it had before. The shares are of the sampled clients; together they are
    below 1.

    Attributes:
      dropout: the share that never answers.
      late: the share that answers after the deadline.
      crash_after_update: the share that trains, and is gone before its answer arrives.
      between_stages: the share that is lost between two stages of the round, which is then computed anew without them.
        Only for algorithms whose rounds have several stages, such as attention's.
    """

    dropout: float = attrs.field(default=0.0, validator=SHARE)
    late: float = attrs.field(default=0.0, validator=SHARE)
    crash_after_update: float = attrs.field(default=0.0, validator=SHARE)
    between_stages: float = attrs.field(default=0.0, validator=SHARE)

    def __attrs_post_init__(self):
        if (total := sum(self.shares.values())) >= 1 - 1e-9:
            named, together = ", ".join(self.shares), " together" if len(self.shares) > 1 else ""
            raise ValueError(f"shares {named} must be below 1{together}, or no client ever answers; got {total:g}")

    @property
    def shares(self) -> dict[str, float]:
        """Key -> share, of those above zero."""
        return {name: share for name, share in attrs.asdict(self).items() if share}

    def notes(self) -> tuple[str, ...]:
        """What every output of a run has to say of it."""
        lost = [f"{100 * share:g} % {_LOST[name]}" for name, share in self.shares.items()]
        if not lost:
            return ()
        return (
            f"simulated failures: of the clients asked, {', '.join(lost)}; each round uses the answers that arrived",
        )


_LOST = {
    "dropout": "never answer",
    "late": "answer too late",
    "crash_after_update": "train but drop out before their answer arrives",
    "between_stages": "drop out between two stages of a round",
}


@attrs.frozen(kw_only=True)
class EvaluationOptions:
    """Attributes:
    every: rounds between evaluations; the last round is always evaluated.
    train_split: whether the global model's loss on all training examples is computed too (the papers' loss).
    """

    every: int = attrs.field(default=1, validator=ge(1))
    train_split: bool = True
