"""An algorithm with what the table [aggregation] puts around its parts."""

from __future__ import annotations

import math

import attrs
import numpy as np
import tensorflow_federated as tff

from computations.aggregators import AttentionFactory, PredictionsFactory, mean
from computations.aggregators.around import around_aggregator, code_of
from computations.aggregators.options import COLLECTING, AggregationOptions
from computations.aggregators.robust import (
    AdaptiveNorm,
    GeometricMedianFactory,
    collected_krum,
    collected_median,
    collected_trimmed_mean,
    defended,
    require_room,
)
from computations.aggregators.weighed_means import NormalisedMeanFactory, WeighedMeanFactory
from computations.client_work.compression import with_error_feedback, with_lossy_updates
from computations.client_work.trust import trusted
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, recompose


def with_aggregation(
    algorithm: FederatedAlgorithm, options: AggregationOptions, *, clients: int, largest_weight: float = 1.0
) -> FederatedAlgorithm:
    """The algorithm with its updates sent and combined as the options say; itself, where they change nothing.

    From the clients on: an update is compressed, compared with the server's own (FLTrust), screened, zeroed, clipped,
    and combined by the rule, whose sums are secure ones or of codes. What travels beside the updates (an objective's
    side channel, a selection's scores, metrics) is as it was. What an aggregator weighs updates by, as attention does
    by their norms, is taken of compressed and clipped ones.

    Args:
      algorithm: composed.
      options: the table.
      clients: the most that take part in a round.
      largest_weight: of a client, for secure sums; see `around_aggregator`.

    Raises:
      CompositionError: the two do not go together; names the key.
    """
    own = algorithm.parts.aggregator
    if options.guards and isinstance(own, PredictionsFactory):
        raise CompositionError(
            "[aggregation]: rule, clip and zeroing are for updates of weights, and this algorithm's clients send "
            "predictions; leave them out, and set algorithm.ensemble = 'median' against bad clients"
        )
    if options.rule == "fltrust" and algorithm.server_type is not None:
        raise CompositionError(
            "aggregation.rule = 'fltrust': the server's examples serve another purpose in this algorithm already; take "
            "another rule"
        )
    # These hand the server a sum of weights, or take numbers of steps, beside the updates: a rule goes inside.
    beside = isinstance(own, NormalisedMeanFactory | WeighedMeanFactory)
    if isinstance(own, NormalisedMeanFactory) and options.rule == "fltrust":
        raise CompositionError(
            "aggregation.rule = 'fltrust' scales every update to one length, which undoes FedNova's division by "
            "numbers of steps; set algorithm.name = 'fedavg'"
        )
    rule = own if beside or options.rule is None else _rule(options)
    changed = around_aggregator(rule, options, clients=clients, largest_weight=largest_weight)
    if changed is own and not options.guards:
        return algorithm
    work = algorithm.client_work
    if options.compression != "none" or options.secure != "none":
        _require_float32(work.update_type)
    if options.compression == "top_k":
        largest = max(math.prod(tensor.shape) for tensor in tff.structure.flatten(work.update_type))
        if options.top_share * largest < 1:
            raise CompositionError(
                f"aggregation.top_share is {options.top_share:g}, not one of the {largest} numbers of the model's "
                f"largest tensor; raise it to at least {1 / largest:.2g}"
            )
        if not algorithm.model.weights_type.trainable.is_equivalent_to(work.update_type):
            raise CompositionError(
                "aggregation.compression = 'top_k' sends later what it leaves out, which differences of weights allow "
                "and predictions do not; choose stochastic_8bit"
            )
        work = with_error_feedback(work, code_of(options))
    elif options.compression == "stochastic_8bit":
        work = with_lossy_updates(work, code_of(options))
    if options.rule == "fltrust":
        # The server's examples are its own: DP-SGD is for those of the clients.
        training = attrs.evolve(work.training, example_privacy=None)
        work = trusted(work, algorithm.model, optimizer=work.optimizer, training=training)
    bounds = {"clip": _clip(options), "zeroing": _zeroing(options)}
    if options.guards and beside:
        changed = defended(type(own)(defended(_rule(options), **bounds)))
    elif options.guards:
        changed = defended(changed, **bounds)
    return recompose(algorithm, client_work=work, aggregator=changed)


def require_round(
    options: AggregationOptions, update_type: tff.Type, *, expected: float, most: int, free_bytes: float
) -> None:
    """CompositionError where a rule cannot work on so many clients, or their updates would not fit side by side.

    Args:
      options: the table.
      update_type: of a client's update.
      expected: clients of a round.
      most: the most of a round.
      free_bytes: of memory.
    """
    if options.rule == "krum":
        needed, chosen = 2 * options.krum_bad + 3, options.krum_chosen
        if expected < needed:
            raise CompositionError(
                f"aggregation.krum_bad = {options.krum_bad} needs {needed} clients a round, and {expected:g} take "
                "part; lower it, or raise training.clients_per_round"
            )
        if chosen > expected - options.krum_bad - 2:
            raise CompositionError(
                f"aggregation.krum_chosen is {chosen}, and of {expected:g} clients with {options.krum_bad} bad ones "
                f"{expected - options.krum_bad - 2:g} can be chosen; lower it"
            )
    if options.rule == "trimmed_mean" and options.trimmed_share * expected < 1 - 1e-9:
        raise CompositionError(
            f"aggregation.trimmed_share = {options.trimmed_share:g} of {expected:g} clients a round leaves out nobody; "
            "raise it, or training.clients_per_round"
        )
    if options.rule in COLLECTING:
        require_room(update_type, most, free_bytes, f"aggregation.rule = {options.rule!r}")


def _rule(options: AggregationOptions) -> tff.aggregators.WeightedAggregationFactory:
    match options.rule:
        case "attention":
            return AttentionFactory(options.attention_granularity)
        case "rfa":
            return GeometricMedianFactory(
                steps=options.rfa_steps, smoothing=options.rfa_smoothing, start=options.rfa_start
            )
        case "median":
            return collected_median()
        case "trimmed_mean":
            return collected_trimmed_mean(options.trimmed_share)
        case "krum":
            return collected_krum(options.krum_bad, options.krum_chosen)
    return mean()


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


def _require_float32(update_type: tff.Type) -> None:
    if not tff.types.contains_only(update_type, _of_float32):
        raise CompositionError(
            f"[aggregation]: changes updates of float32 numbers, got {update_type}; set algorithm.uploads = 'float32'"
        )


def _of_float32(type_spec: tff.Type) -> bool:
    return not isinstance(type_spec, tff.TensorType) or type_spec.dtype == np.float32
