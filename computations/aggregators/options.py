"""The keys of a recipe's table [aggregation]: what is put around an algorithm's aggregator, and in its place."""

from __future__ import annotations

from computations.ranges import options_class


@options_class
class AggregationOptions:
    """Attributes:"""
