"""An algorithm whose updates are sent and combined as specified in the table [aggregation]."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregation_rules import AggregationOptions
from computations.aggregators import AttentionFactory, PredictionsFactory, mean
from computations.aggregators.collected import require_room
from computations.aggregators.compression import Code, EightBits, EncodedSumFactory, TopShare
from computations.aggregators.defence import AdaptiveNorm, defended
from computations.aggregators.secure import SecureSumFactory, modulus_bits_for
from computations.aggregators.weighed_means import NormalisedMeanFactory, WeighedMeanFactory
from computations.client_work import ClientWork
from computations.client_work.compression import with_error_feedback, with_lossy_updates
from computations.errors import CompositionError
from computations.federated.values import Value
from computations.federated_algorithm import FederatedAlgorithm, recompose

Factory: TypeAlias = tff.aggregators.WeightedAggregationFactory


def with_aggregation(
    algorithm: FederatedAlgorithm,
    options: AggregationOptions,
    *,
    clients: int,
    largest_weight: float = 1.0,
    largest_size: float = 1.0,
) -> FederatedAlgorithm:
    """Return the algorithm with its updates sent and combined according to the options.

    It is the same algorithm if they change nothing.

    From the clients on: an update is compressed, compared with the server's own (FLTrust), screened, zeroed, clipped,
    and combined by the rule, whose sums are secure ones or of codes. What travels in addition to the updates (an
    objective's side channel, a selection's scores, metrics) is as it was. What an aggregator weighs updates by, as
    attention does by their norms, is taken of compressed and clipped ones.

    Args:
      algorithm: composed.
      options: the table.
      clients: the largest number that takes part in a round.
      largest_weight, largest_size: of a client, for secure sums; see `with_replaced_sums`.

    Raises:
      CompositionError: the two do not go together; names the key.
    """
    aggregator, rule = algorithm.parts.aggregator, options.chosen_rule
    _require_rule_fits(algorithm, options)
    # These also give the server a sum of weights, or take numbers of steps: a rule goes inside.
    wraps = isinstance(aggregator, NormalisedMeanFactory | WeighedMeanFactory)
    combined = mean() if rule is None else rule.build(options)
    used = aggregator if wraps or rule is None else combined
    largest = {"largest_weight": largest_weight, "largest_size": largest_size}
    used = with_replaced_sums(used, options, clients=clients, **largest)
    if used is aggregator and not options.guards:
        return algorithm
    work = _with_compression(algorithm, options)
    if rule is not None:
        work = rule.change_work(work, algorithm.model)
    bounds: dict[str, Any] = {"clip": _clip(options), "zeroing": _zeroing(options)}
    if options.guards and wraps:
        used = defended(type(aggregator)(defended(combined, **bounds)))
    elif options.guards:
        used = defended(used, **bounds)
    return recompose(algorithm, client_work=work, aggregator=used)


def _require_rule_fits(algorithm: FederatedAlgorithm, options: AggregationOptions) -> None:
    aggregator, rule = algorithm.parts.aggregator, options.chosen_rule
    if options.guards and isinstance(aggregator, PredictionsFactory):
        raise CompositionError(
            "[aggregation]: rule, clip and zeroing are for updates of weights, but this algorithm's clients send "
            "predictions; leave them out, and use algorithm.ensemble = 'median' against bad clients"
        )
    if rule is None:
        return
    if rule.server_examples and algorithm.server_type is not None:
        raise CompositionError(
            f"aggregation.rule = {rule.name!r}: this algorithm already uses the server's examples for another "
            "purpose; choose another rule"
        )
    if reason := rule.excludes.get(type(aggregator)):
        raise CompositionError(f"aggregation.rule = {rule.name!r} {reason}")


def _with_compression(algorithm: FederatedAlgorithm, options: AggregationOptions) -> ClientWork:
    """Return the algorithm's client work, with updates that `options.compression` represents without loss."""
    work = algorithm.client_work
    if options.compression == options.secure == "none":
        return work
    if not tff.types.contains_only(work.update_type, _is_float32):
        raise CompositionError(
            f"[aggregation]: needs updates of float32 numbers, got {work.update_type}; set algorithm.uploads = "
            "'float32'"
        )
    if options.compression == "stochastic_8bit":
        return with_lossy_updates(work, _code(options))
    if options.compression == "none":
        return work
    largest = max(math.prod(tensor.shape) for tensor in tff.structure.flatten(work.update_type))
    if options.top_share * largest < 1:
        raise CompositionError(
            f"aggregation.top_share is {options.top_share:g}, which is less than one of the {largest} numbers of the "
            f"model's largest tensor; raise it to at least {1 / largest:.2g}"
        )
    if not algorithm.model.weights_type.trainable.is_equivalent_to(work.update_type):
        raise CompositionError(
            "aggregation.compression = 'top_k' sends the left-out numbers in later rounds, which works for "
            "differences of weights but not for predictions; use stochastic_8bit"
        )
    return with_error_feedback(work, TopShare(options.top_share))


def _is_float32(type_spec: tff.Type) -> bool:
    return not isinstance(type_spec, tff.TensorType) or type_spec.dtype == np.float32


def _clip(options: AggregationOptions) -> float | AdaptiveNorm | None:
    if options.clip_quantile is None:
        return options.clip
    return AdaptiveNorm(quantile=options.clip_quantile, initial=options.clip or 1.0)


def _zeroing(options: AggregationOptions) -> float | AdaptiveNorm | None:
    if options.zeroing_quantile is None:
        return options.zeroing
    return AdaptiveNorm(
        quantile=options.zeroing_quantile, initial=options.zeroing or 10.0, factor=options.zeroing_factor
    )


def require_round(
    options: AggregationOptions, update_type: tff.Type, *, expected: float, max_clients: int, free_bytes: float
) -> None:
    """Raise an error for a round that the rule cannot handle.

    Args:
      options: the table.
      update_type: of a client's update.
      expected: clients of a round.
      max_clients: the largest number of clients of a round.
      free_bytes: of memory.

    Raises:
      CompositionError: too few clients, or their updates do not fit into the memory together.
    """
    if (rule := options.chosen_rule) is None:
        return
    rule.require_round(options, expected)
    if rule.collects:
        require_room(update_type, max_clients, free_bytes, f"aggregation.rule = {rule.name!r}")


def with_replaced_sums(
    factory: Factory,
    options: AggregationOptions,
    *,
    clients: int,
    largest_weight: float = 1.0,
    largest_size: float = 1.0,
) -> Factory:
    """Return the aggregator with secure or encoded sums, or the same one if the options change nothing.

    With secure sums a client's weight w becomes min(w, W) / W, so that what is summed lies within the bound of the
    update's own numbers (attention's factors are at most one by themselves); weights and normalisers go through secure
    sums, too, with the bound 1. The sum of the weights that `WeighedMeanFactory` gives in addition to the mean, with
    which servers count, stays a plain one of the weights w.

    Args:
      factory: of this package; it has `with_sums`.
      options: the table.
      clients: the largest number that is summed over in a round.
      largest_weight: W, which clients agree on beforehand.
      largest_size: of a client's number of steps as FedNova takes it, which clients agree on, too.

    Raises:
      CompositionError: the aggregator has no sums that could be replaced, or the modulus is too small.
    """
    if options.secure == options.compression == "none":
        return factory
    if options.secure != "none":
        factory = _without_maximum(factory, options)
        if isinstance(factory, WeighedMeanFactory):
            inner = with_replaced_sums(factory.inner, options, clients=clients, largest_weight=largest_weight)
            return WeighedMeanFactory(inner)
    if isinstance(factory, NormalisedMeanFactory) and options.secure != "none":
        modulus = _modulus_bits(options, clients)
        sizes = SecureSumFactory(options.secure_bits, modulus, largest_size, measured=False)
        return _ScaledWeights(factory.with_secure_sums(*_secure_sums(options, modulus), sizes), largest_weight)
    if not hasattr(factory, "with_sums"):
        raise CompositionError(f"[aggregation]: {type(factory).__name__} has no sums that could be replaced")
    if options.compression != "none":
        return factory.with_sums(EncodedSumFactory(_code(options)))
    sums = _secure_sums(options, _modulus_bits(options, clients))
    return _ScaledWeights(factory.with_sums(*sums), largest_weight)


def _secure_sums(options: AggregationOptions, modulus: int) -> tuple[SecureSumFactory, SecureSumFactory]:
    """Return the secure sums of the values and of the weights."""
    values = SecureSumFactory(options.secure_bits, modulus, options.secure_bound, options.secure_quantile)
    return values, SecureSumFactory(options.secure_bits, modulus, 1.0, measured=False)


def _without_maximum(factory: Factory, options: AggregationOptions) -> Factory:
    """Return attention with `secure_norm` in place of the largest norm, if it is set, and other aggregators unchanged.

    Raises CompositionError where the two do not go together.
    """
    if not isinstance(factory, AttentionFactory):
        if options.secure_norm is not None:
            raise CompositionError(
                "aggregation.secure_norm is for attention, which this algorithm does not use; leave it out"
            )
        return factory
    if options.secure_norm is not None:
        return factory.with_bound(options.secure_norm)
    if options.secure == "masks":
        raise CompositionError(
            "aggregation.secure = 'masks' can only add numbers, but attention needs the largest norm of all clients; "
            "set aggregation.secure_norm, a constant in its place"
        )
    return factory


def _code(options: AggregationOptions) -> Code:
    """Return the code of `options.compression`, unless it is `none`."""
    return EightBits() if options.compression == "stochastic_8bit" else TopShare(options.top_share)


def _modulus_bits(options: AggregationOptions, clients: int) -> int:
    needed, chosen = modulus_bits_for(options.secure_bits, clients), options.secure_modulus_bits
    if chosen is not None and chosen < needed:
        raise CompositionError(
            f"aggregation.secure_modulus_bits is {chosen}, but the sum of {clients} clients' numbers of "
            f"{options.secure_bits} bits needs {needed}, or it would wrap around; raise it, leave it out, or lower "
            "aggregation.secure_bits"
        )
    return chosen or needed


class _ScaledWeights(Factory):
    """Replaces each weight w by min(w, W) / W."""

    def __init__(self, inner: Factory, largest: float):
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
        def next_fn(state: Value, value: Value, weight: Value) -> Value:
            return inner.next(state, value, tff.federated_map(scale, weight))

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
