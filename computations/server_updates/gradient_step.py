"""The server's step along the aggregated update (FLCMC, Eq. 14: lambda is the step size)."""

from __future__ import annotations

import collections
import functools

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Value, Weights
from computations.local_model import LocalModel


def gradient_step(
    model: LocalModel,
    *,
    step_size: float = 1.0,
    momentum: float = 0.0,
    noise_scale: float = 0.0,
    noise_seed: int = 0,
) -> tff.learning.templates.FinalizerProcess:
    """w <- w - step_size * update, a pseudo-gradient, with optional momentum and noise.

    The noise of FedAtt's code (scale 0.001 there, off here) is added to the new weights; round t draws it from
    (`noise_seed`, t). It is no differential privacy: nothing bounds what a client adds to the update.
    """
    step = _sgd(step_size, momentum, model.weights_type)
    return _with_noise(step, model.weights_type, noise_scale, noise_seed) if noise_scale > 0 else step


@functools.lru_cache(maxsize=64)  # most algorithms of a comparison have the same one
def _sgd(step_size: float, momentum: float, weights_type: tff.Type) -> tff.learning.templates.FinalizerProcess:
    optimizer = tff.learning.optimizers.build_sgdm(learning_rate=step_size, momentum=momentum or None)
    optimizer.next = tf.autograph.experimental.do_not_convert(optimizer.next)
    return optimizer_finalizer(optimizer, weights_type)


def optimizer_finalizer(
    optimizer: tff.learning.optimizers.Optimizer, weights_type: tff.Type
) -> tff.learning.templates.FinalizerProcess:
    """The finalizer that applies an optimizer, unless the aggregated update has a value that is not finite.

    TFF lets AutoGraph rewrite it for one `if`. What it calls has none on tensors, and to rewrite that takes longer than
    all the rest; so TFF's check is kept from it here, and the optimizers' `next` where they are made.
    """
    reject = tf.autograph.experimental.do_not_convert(tff.learning.templates.reject_non_finite_update)
    return tff.learning.templates.build_apply_optimizer_finalizer(optimizer, weights_type, reject)


def _with_noise(
    step: tff.learning.templates.FinalizerProcess, weights_type: tff.Type, scale: float, seed: int
) -> tff.learning.templates.FinalizerProcess:
    @tff.tensorflow.computation(weights_type, np.int32)
    def add_noise(weights: Weights, round_num: tf.Tensor) -> Weights:
        noisy = [
            w + scale * tf.random.stateless_normal(tf.shape(w), seed=[seed + 7919 * i, round_num], dtype=w.dtype)
            for i, w in enumerate(weights.trainable)
        ]
        return tff.learning.models.ModelWeights(noisy, list(weights.non_trainable))

    next_count = tff.tensorflow.computation(lambda n: n + 1, np.int32)
    zero = tff.tensorflow.computation(lambda: tf.constant(0, tf.int32))

    @tff.federated_computation
    def initialize() -> Value:
        return tff.federated_zip(
            collections.OrderedDict(step=step.initialize(), round=tff.federated_eval(zero, tff.SERVER))
        )

    parameters = step.next.type_signature.parameter

    @tff.federated_computation(initialize.type_signature.result, parameters[1], parameters[2])
    def next_fn(state: Value, weights: Value, update: Value) -> tff.templates.MeasuredProcessOutput:
        output = step.next(state["step"], weights, update)
        return tff.templates.MeasuredProcessOutput(
            state=tff.federated_zip(
                collections.OrderedDict(step=output.state, round=tff.federated_map(next_count, state["round"]))
            ),
            result=tff.federated_map(add_noise, (output.result, state["round"])),
            measurements=output.measurements,
        )

    return tff.learning.templates.FinalizerProcess(initialize, next_fn)
