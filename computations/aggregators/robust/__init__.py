"""Aggregation that bounds what a few bad clients can do: rules, and what stands before any rule.

| what | form | memory at the server |
| --- | --- | --- |
| `defended` (screening, zeroing, clipping) | sums, one broadcast norm | one model |
| `GeometricMedianFactory` (RFA) | one small sum, 1 + n weighted means, n broadcasts | one model |
| `collected_median`, `collected_trimmed_mean`, `collected_krum` | collect the updates | one model for every client |
| `computations.client_work.trust` (FLTrust) | a broadcast and one weighted mean | two models |

What TFF places at the clients (norms, distances, cosines, clipping) is computed by honest code in a simulation; an
attack (`computations.client_work.attacks`) changes what a client hands to it. In a deployment whoever receives an
update has to compute these, one update after the other, because a client that lies in its update lies in its norm, too.
Values beside the update (control variates, class vectors, scores) do not pass through here.

Weights are taken as they are told, up to `LARGEST`: a client that claims many examples counts as such, unless
`defended(uniform=True)`.
"""

from computations.aggregators.robust.collected import (
    CollectedFactory,
    collected_bytes,
    collected_krum,
    collected_median,
    collected_trimmed_mean,
    require_room,
)
from computations.aggregators.robust.defence import LARGEST, AdaptiveNorm, defended
from computations.aggregators.robust.geometric_median import GeometricMedianFactory

__all__ = [
    "LARGEST",
    "AdaptiveNorm",
    "CollectedFactory",
    "GeometricMedianFactory",
    "collected_bytes",
    "collected_krum",
    "collected_median",
    "collected_trimmed_mean",
    "defended",
    "require_room",
]
