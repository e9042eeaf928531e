"""The ε that runs on a site's training data have spent together.

There are two guarantees, of which each is counted over its own runs, because the noise hides different units:

    example   the site adds the noise in its clients' steps (`privacy.unit = "example"`): for one example
    shares    this and other sites add noise to a total (`unit = "client"` with `least_sites`): for one client

Runs are those of the ledger (`tff_re.sites.ledger`).
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

from computations.privacy.accounting import composed_epsilon
from computations.privacy.options import rounded_up
from computations.privacy.shares import composed_shares_epsilon
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.shares import noise_is_shared

EXAMPLE, SHARES = "example", "shares"
GUARANTEES = (EXAMPLE, SHARES)

RELEASE = (1.0, 1)
"""Of a client's round with noise in shares: all of it is in one sum."""


def guarantee_of(recipe: Recipe) -> str | None:
    """Return which of `GUARANTEES` the runs of a recipe have, or None."""
    if recipe.privacy_unit == EXAMPLE:
        return EXAMPLE
    return SHARES if noise_is_shared(recipe) else None


def spent(runs: Sequence[Mapping[str, Any]], guarantee: str, delta: float) -> float:
    """Return the ε of runs with this guarantee."""
    answered = _answered(runs)
    if not answered:
        return 0.0
    if guarantee == EXAMPLE:
        return composed_epsilon(_of_clients(answered), delta)
    return _spent_in_shares(answered, delta, [1.0] * len(answered))


def spent_with_own_share(runs: Sequence[Mapping[str, Any]], delta: float) -> float:
    """Return the ε of runs with noise in shares if only this site's share is counted.

    All other sites may then know, or leave out, their own.
    """
    answered = _answered(runs)
    return _spent_in_shares(answered, delta, [math.sqrt(_honest(run)) for run in answered])


def shares_text(runs: Sequence[Mapping[str, Any]], delta: float) -> str:
    """Return for whom noise in shares holds, and whose noise is assumed, in words."""
    honest = " to ".join(map(str, sorted({min(map(_honest, runs)), max(map(_honest, runs))})))
    unit = "client" if _is_of_clients(_answered(runs)) else "example"
    return (
        f"for one {unit}, if {honest} sites of each total add their shares (least_sites less colluding_sites, this "
        f"site among them); ε = {rounded_up(spent_with_own_share(runs, delta))} with this site's share only"
    )


def _spent_in_shares(runs: Sequence[Mapping[str, Any]], delta: float, divisors: Sequence[float]) -> float:
    """Return the ε for one client, or for one example if the runs' clients are not the same.

    Where runs divide the examples in other ways, one client of a run may have examples of several clients of another
    run. One example is of one client in each, and moves its update by at most twice the norm.

    `divisors`: of each run's noise multiplier.
    """
    if not _is_of_clients(runs):
        rounds = collections.Counter()
        for run, divisor in zip(runs, divisors, strict=True):
            rounds[run["noise_multiplier"] / divisor] += max(count for *_, count in run["clients"].values())
        return composed_shares_epsilon(rounds, delta, moved=2.0)
    of_client: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for run, divisor in zip(runs, divisors, strict=True):
        for client, (*_, count) in run["clients"].items():
            of_client[client][run["noise_multiplier"] / divisor] += count
    return max((composed_shares_epsilon(rounds, delta) for rounds in of_client.values()), default=0.0)


def _answered(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of which a round was answered."""
    return [run for run in runs if run["clients"]]


def _is_of_clients(runs: Sequence[Mapping[str, Any]]) -> bool:
    return len({run["partition"] for run in runs}) <= 1 or all(run["one_client"] for run in runs)


def _honest(run: Mapping[str, Any]) -> int:
    least, colluding = run["sites"]
    return least - colluding


def _of_clients(runs: Sequence[Mapping[str, Any]]) -> list[collections.Counter]:
    """Return what each client released in all runs, for `composed_epsilon`.

    Where the runs' clients hold different examples, an example may be that of any client of each run: then one client
    stands for all that samples and steps as much as any of them.
    """
    if len({run["partition"] for run in runs}) > 1:
        worst = collections.Counter()
        for run in runs:
            share = max(share for share, _, _ in run["clients"].values())
            worst[run["noise_multiplier"], share] += max(steps * rounds for _, steps, rounds in run["clients"].values())
        return [worst]
    of_client: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for run in runs:
        for client, (share, steps, rounds) in run["clients"].items():
            of_client[client][run["noise_multiplier"], share] += steps * rounds
    return list(of_client.values())
