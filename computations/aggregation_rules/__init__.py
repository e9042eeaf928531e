"""Rules that combine the clients' updates, selected by a recipe's `aggregation.rule`.

A rule is one file here.

| rule | computed by | memory at the server |
| --- | --- | --- |
| `mean`, `attention` | the aggregators of these names | one model |
| `rfa` | one small sum, 1 + n weighted means, n broadcasts | one model |
| `median`, `trimmed_mean`, `krum` | collecting all updates | one model per client |
| `fltrust` | a broadcast and one weighted mean | two models |

What TFF places at the clients (norms, distances, cosines, clipping) is computed by honest code in a simulation; an
attack (`computations.client_work.attacks`) changes what a client hands to it. In a deployment whoever receives an
update has to compute these, one update after the other, because a client that lies in its update lies in its norm, too.
Values sent in addition to the update (control variates, class vectors, scores) do not pass through a rule.

A new rule, selected by `aggregation.rule = "twice"`:

    @options_class
    class TwiceOptions:
        '''Attributes:
        twice_factor: what the mean is multiplied by.
        '''

        twice_factor: float = 2.0


    @rule("twice", title="twice their mean", options=TwiceOptions)
    def twice(options: TwiceOptions) -> tff.aggregators.WeightedAggregationFactory:
        '''the mean, multiplied by a factor'''
        return TwiceFactory(options.twice_factor)
"""

from computations.aggregation_rules.options import AggregationOptions, aggregation_options
from computations.aggregation_rules.registry import RULES, Rule, rule

__all__ = ["RULES", "AggregationOptions", "Rule", "aggregation_options", "rule"]
