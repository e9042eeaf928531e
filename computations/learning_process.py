"""A federated algorithm as TFF's own `LearningProcess`, for `tff.simulation` loops and programs of `tff.learning`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm


def as_learning_process(algorithm: FederatedAlgorithm, initial_weights: Any) -> tff.learning.templates.LearningProcess:
    """Return the algorithm as a learning process.

    initialize: ( -> S@SERVER), next: (<S@SERVER, clients@CLIENTS> -> LearningProcessOutput<state=S, metrics=M>).

    A round's client data are a list of <examples=E, seed=int32[2]>, one per client, as `FederatedAlgorithm.next` takes
    them. Whoever selects the clients of a round also gives their seeds; a run of this project draws them from (run,
    round, client). State, metrics and numbers are those of `algorithm.next`.

    Args:
      algorithm: without client state and without examples at the server: a LearningProcess takes and returns the
        server's state alone, and client state must not leave the client. Call `algorithm.next` for the others.
      initial_weights: ModelWeights of arrays, `LocalModel.initial_weights(seed)`. They are constants of `initialize`;
        beyond 2 GB, which a graph cannot hold, start from smaller ones and call `set_model_weights`.

    Raises:
      CompositionError: for an algorithm with client state or examples at the server.
    """
    extras = {
        "its clients keep state between rounds": algorithm.client_work.client_state_type,
        "its server holds examples": algorithm.server_type,
    }
    refused = [what for what, type_spec in extras.items() if type_spec is not None]
    if refused:
        raise CompositionError(
            "learning process: takes only the server's state and the clients' data, but with this algorithm "
            f"{' and '.join(refused)}; call the algorithm's own next"
        )

    @tff.tensorflow.computation
    def weights() -> Any:
        return tf.nest.map_structure(tf.constant, initial_weights)

    @tff.federated_computation
    def initialize() -> Any:
        return algorithm.initialize(tff.federated_eval(weights, tff.SERVER))

    inputs = algorithm.next.type_signature.parameter

    @tff.federated_computation(inputs.state, inputs.clients)
    def next_round(state: Any, clients: Any) -> Any:
        output = algorithm.next(state, clients)
        return tff.learning.templates.LearningProcessOutput(output["state"], output["metrics"])

    return tff.learning.templates.LearningProcess(
        initialize, next_round, algorithm.get_model_weights, algorithm.set_model_weights
    )
