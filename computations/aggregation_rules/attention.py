"""The rule `attention`."""

from __future__ import annotations

from typing import Literal

from computations.aggregation_rules.registry import rule
from computations.aggregators import AttentionFactory
from computations.ranges import options_class


@options_class
class AttentionRuleOptions:
    """Attributes:
    attention_granularity: with `attention`, one softmax per weight tensor (`layer`) or over the whole model (`model`).
    """

    attention_granularity: Literal["layer", "model"] = "layer"


@rule("attention", title="attention", options=AttentionRuleOptions)
def attention(options: AttentionRuleOptions) -> AttentionFactory:
    """the softmax of the updates' norms (FLCMC, Eqs. 11-13)"""
    return AttentionFactory(options.attention_granularity)
