"""The rule `mean`."""

from __future__ import annotations

from computations import federated as tff
from computations.aggregation_rules.registry import rule
from computations.aggregators import mean


@rule("mean", title="their weighted mean")
def weighted_mean(options: object) -> tff.aggregators.WeightedAggregationFactory:
    """the weighted mean; clients count as `algorithm.weighting` says"""
    del options
    return mean()
