"""What the table [aggregation] puts around an algorithm's aggregator."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators.compression import Code, EightBits, EncodedSumFactory, TopShare
from computations.aggregators.options import AggregationOptions
from computations.aggregators.secure import SecureSumFactory, modulus_bits_for
from computations.errors import CompositionError


def around_aggregator(
    factory: tff.aggregators.WeightedAggregationFactory,
    options: AggregationOptions,
    *,
    clients: int,
    largest_weight: float = 1.0,
) -> tff.aggregators.WeightedAggregationFactory:
    """The aggregator with its sums replaced; the same where the options change nothing.

    With secure sums a client's weight w becomes min(w, W) / W, so that what is summed lies within the bound of the
    update's own numbers (attention's factors are at most one by themselves); weights and normalisers go through secure
    sums, too, with the bound 1.

    Args:
      factory: of this package; it has `with_sums`.
      options: the table.
      clients: the most that are summed over in a round.
      largest_weight: W, which clients agree on beforehand.

    Raises:
      CompositionError: the aggregator has no sums that could be replaced, or the modulus is too small.
    """
    if options.secure == "none" and options.compression == "none":
        return factory
    if not hasattr(factory, "with_sums"):
        raise CompositionError(f"[aggregation]: {type(factory).__name__} has no sums that could be replaced")
    if options.compression != "none":
        return factory.with_sums(EncodedSumFactory(code_of(options)))
    modulus = _modulus_bits(options, clients)
    values = SecureSumFactory(options.secure_bits, modulus, options.secure_bound, options.secure_quantile)
    weights = SecureSumFactory(options.secure_bits, modulus, 1.0, measured=False)
    return _ScaledWeights(factory.with_sums(values, weights), largest_weight)


def code_of(options: AggregationOptions) -> Code:
    """Of `options.compression`, where it is not `none`."""
    return EightBits() if options.compression == "stochastic_8bit" else TopShare(options.top_share)


def _modulus_bits(options: AggregationOptions, clients: int) -> int:
    needed, given = modulus_bits_for(options.secure_bits, clients), options.secure_modulus_bits
    if given is not None and given < needed:
        raise CompositionError(
            f"aggregation.secure_modulus_bits is {given}, but the sum of {clients} clients' numbers of "
            f"{options.secure_bits} bits needs {needed}, or it would wrap around; raise it, leave it out, or lower "
            "aggregation.secure_bits"
        )
    return given or needed


class _ScaledWeights(tff.aggregators.WeightedAggregationFactory):
    """min(w, W) / W in place of each weight w."""

    def __init__(self, inner: tff.aggregators.WeightedAggregationFactory, largest: float):
        self._inner, self._largest = inner, largest

    def create(self, value_type: tff.Type, weight_type: tff.Type) -> tff.templates.AggregationProcess:
        inner = self._inner.create(value_type, weight_type)
        largest = np.float32(self._largest)
        scale = tff.tensorflow.computation(lambda weight: tf.minimum(weight, largest) / largest, weight_type)

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state, value, weight):
            return inner.next(state, value, tff.federated_map(scale, weight))

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
