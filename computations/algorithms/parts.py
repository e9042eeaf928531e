"""Compositions that several algorithms share: local training with the mean or with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from computations import federated as tff
from computations.aggregators import AttentionFactory, mean
from computations.algorithms.options import AttentionOptions, ChoosesOptimizer, MeanOptions, ServerStepOptions
from computations.client_work import ClientWork, NormalisedDifference, build_local_training
from computations.client_work.client_training import Weighting
from computations.client_work.objectives import CrossEntropy, Objective
from computations.client_work.optimizers import SGD, ClientOptimizer, SelfAdam
from computations.errors import CompositionError
from computations.federated.values import Value
from computations.federated_algorithm import FederatedAlgorithm, compose
from computations.local_model import LocalModel
from computations.server_updates import gradient_step


def adam_or_sgd(options: ChoosesOptimizer) -> ClientOptimizer:
    """Return the client optimizer that `options.optimizer` names."""
    return (SelfAdam if options.optimizer == "adam" else SGD)(options.learning_rate)


def require_one_label(model: LocalModel, name: str) -> None:
    """Raise CompositionError if an algorithm needs one class per output and the model has several for each pair."""
    if not model.one_label:
        raise CompositionError(
            f"{name}: needs examples with one class each, but the model classifies pairs that may have several "
            "relations; choose another algorithm.name"
        )


def with_mean(
    model: LocalModel, options: MeanOptions, optimizer: ClientOptimizer, objective: Objective | None = None
) -> FederatedAlgorithm:
    """Compose local training, the mean over clients and a step of the server."""
    return with_aggregator(model, options, optimizer, objective, mean(), options.weighting)


def with_attention(
    model: LocalModel, options: AttentionOptions, optimizer: ClientOptimizer, objective: Objective | None = None
) -> FederatedAlgorithm:
    """Compose local training, attention over clients and a step of the server (FLCMC, Eqs. 10-14)."""
    aggregator = AttentionFactory(options.granularity)
    noise: dict[str, Any] = {"noise_scale": options.noise_scale, "noise_seed": options.noise_seed}
    return with_aggregator(model, options, optimizer, objective, aggregator, "uniform", **noise)


def with_aggregator(
    model: LocalModel,
    options: ServerStepOptions,
    optimizer: ClientOptimizer,
    objective: Objective | None,
    aggregator: tff.aggregators.WeightedAggregationFactory,
    weighting: Weighting,
    *,
    selection: tff.Computation | None = None,
    client_update: NormalisedDifference | None = None,
    changed: Callable[[ClientWork], ClientWork] = lambda work: work,
    **noise: Any,
) -> FederatedAlgorithm:
    """Compose local training, an aggregation, and a step of the server with `noise`.

    `changed` may replace parts of the local training.
    """
    work = build_local_training(
        model,
        objective=objective or CrossEntropy(),
        optimizer=optimizer,
        training=options.local_training(weighting),
        selection=selection,
        client_update=client_update,
    )
    step = gradient_step(model, step_size=options.server_step, momentum=options.server_momentum, **noise)
    return compose(model, client_work=changed(work), aggregator=aggregator, finalizer=step)


def nothing_sent(weights_type: tff.Type) -> tff.learning.templates.DistributionProcess:
    """Return a broadcast that sends nothing, for clients that have their own models."""
    nothing = tff.tensorflow.computation(lambda weights: tf.constant(0, tf.int32), weights_type)
    initialize = tff.federated_computation(lambda: tff.federated_value((), tff.SERVER))

    @tff.federated_computation(initialize.type_signature.result, tff.FederatedType(weights_type, tff.SERVER))
    def next_fn(state: Value, weights: Value) -> tff.templates.MeasuredProcessOutput:
        return tff.templates.MeasuredProcessOutput(
            state, tff.federated_broadcast(tff.federated_map(nothing, weights)), tff.federated_value((), tff.SERVER)
        )

    return tff.learning.templates.DistributionProcess(initialize, next_fn)
