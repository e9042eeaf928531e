"""The rule `median`."""

from __future__ import annotations

from computations.aggregation_rules.registry import NOBODY_SEES, rule
from computations.aggregators.collected import CollectedFactory, collected_median


@rule("median", title="the median of every number", collects=True, not_secure=NOBODY_SEES)
def median(options: object) -> CollectedFactory:
    """of every number the median"""
    del options
    return collected_median()
