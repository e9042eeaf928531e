"""A rule in one file, as a stranger would write it; no other file knows of it."""

import tensorflow as tf
from attrs import field

from computations import federated as tff
from computations.aggregation_rules import rule
from computations.aggregators import mean
from computations.federated.values import Value
from computations.ranges import POSITIVE, options_class


@options_class
class ToyOptions:
    """Attributes:
    toy_factor: with `toy`, what the mean is multiplied by.
    """

    toy_factor: float = field(default=0.5, validator=POSITIVE)


@rule("toy", title="a part of their mean", notes=("a toy",), options=ToyOptions, not_secure="it is a toy")
def toy(options: ToyOptions) -> tff.aggregators.WeightedAggregationFactory:
    """a part of the weighted mean"""
    return PartOfMean(options.toy_factor)


class PartOfMean(tff.aggregators.WeightedAggregationFactory):
    def __init__(self, factor: float):
        self._factor = factor

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        inner = mean().create(value_type, weight_type)
        scale = tff.tensorflow.computation(
            lambda value: tf.nest.map_structure(lambda t: self._factor * t, value), value_type
        )

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state: Value, value: Value, weight: Value) -> tff.templates.MeasuredProcessOutput:
            output = inner.next(state, value, weight)
            result = tff.federated_map(scale, output.result)
            return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
