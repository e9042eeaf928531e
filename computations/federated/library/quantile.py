"""A bound that follows a quantile of the clients' numbers (Andrew et al. 2021), without noise."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from computations.federated import core as tff
from computations.federated.library.templates import EstimationProcess
from computations.federated.values import Structure, Value

State = collections.namedtuple(
    "State", ("current_estimate", "target_quantile", "learning_rate", "below_estimate_state")
)
Parameters = collections.namedtuple("Parameters", ("current_estimate", "below_estimate_params"))


class PrivateQuantileEstimationProcess(EstimationProcess):
    """TFF's class of this name, limited to the process without noise."""

    @classmethod
    def no_noise(
        cls,
        initial_estimate: float,
        target_quantile: float,
        learning_rate: float,
        multiplier: float = 1.0,
        increment: float = 0.0,
    ) -> EstimationProcess:
        """Return the process that multiplies its estimate by exp(-learning_rate · (fraction at or below it - target)).

        Args:
          initial_estimate, learning_rate: positive.
          target_quantile: from 0 to 1.
          multiplier, increment: of the estimate that is reported.
        """
        for name, value, valid in (
            ("initial_estimate", initial_estimate, initial_estimate > 0),
            ("target_quantile", target_quantile, 0 <= target_quantile <= 1),
            ("learning_rate", learning_rate, learning_rate > 0),
            ("multiplier", multiplier, multiplier > 0),
            ("increment", increment, increment >= 0),
        ):
            if not valid:
                raise ValueError(f"{name} is {value}, which is out of range")
        process = cls(*_quantile(initial_estimate, target_quantile, learning_rate))
        if multiplier == 1.0 and increment == 0.0:
            return process
        scale = tff.tensorflow.computation(lambda value: multiplier * value + increment, np.float32)
        at_server = tff.FederatedType(np.float32, tff.SERVER)
        return process.map(tff.federated_computation(lambda value: tff.federated_map(scale, value), at_server))


def _quantile(initial_estimate: float, target_quantile: float, learning_rate: float) -> tuple[tff.Computation, ...]:
    @tff.tensorflow.computation
    def initial_state() -> State:
        numbers = (initial_estimate, target_quantile, learning_rate)
        estimate, target, rate = (tf.constant(number, tf.float32) for number in numbers)
        return State(estimate, target, rate, ())

    state_type = initial_state.type_signature.result

    @tff.tensorflow.computation(state_type)
    def parameters(state: Structure) -> Parameters:
        return Parameters(state.current_estimate, ())

    @tff.tensorflow.computation(parameters.type_signature.result, np.float32)
    def record(params: Structure, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(value <= params.current_estimate, tf.float32) - 0.5, tf.constant(1.0)

    @tff.tensorflow.computation(record.type_signature.result, state_type)
    def next_state(records: Structure, state: Structure) -> State:
        below, count = records
        fraction = tf.minimum(1.0, tf.maximum(0.0, below / count + 0.5))
        update = state.learning_rate * (fraction - state.target_quantile)
        return state._replace(current_estimate=state.current_estimate * tf.math.exp(-update))

    @tff.federated_computation
    def initialize() -> Value:
        return tff.federated_zip((tff.federated_eval(initial_state, tff.SERVER), tff.federated_value((), tff.SERVER)))

    @tff.federated_computation(initialize.type_signature.result, tff.FederatedType(np.float32, tff.CLIENTS))
    def next_fn(state: Value, value: Value) -> Value:
        query_state, sum_state = state
        params = tff.federated_broadcast(tff.federated_map(parameters, query_state))
        records = tff.federated_sum(tff.federated_map(record, (params, value)))
        return tff.federated_zip((tff.federated_map(next_state, (records, query_state)), sum_state))

    report = tff.federated_computation(lambda state: state[0].current_estimate, initialize.type_signature.result)
    return initialize, next_fn, report
