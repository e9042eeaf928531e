"""An algorithm with what the table [aggregation] puts around its parts."""

from __future__ import annotations

import numpy as np
import tensorflow_federated as tff

from computations.aggregators.around import around_aggregator, code_of
from computations.aggregators.options import AggregationOptions
from computations.client_work.compression import with_error_feedback, with_lossy_updates
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, recompose


def with_aggregation(
    algorithm: FederatedAlgorithm, options: AggregationOptions, *, clients: int, largest_weight: float = 1.0
) -> FederatedAlgorithm:
    """The algorithm with its updates sent as the options say; itself, where they change nothing.

    What travels beside the updates (an objective's side channel, a selection's scores, metrics) is as it was. What an
    aggregator weighs updates by, as attention does by their norms, is taken of compressed ones.

    Args:
      algorithm: composed.
      options: the table.
      clients: the most that take part in a round.
      largest_weight: of a client, for secure sums; see `around_aggregator`.

    Raises:
      CompositionError: the two do not go together; names the key.
    """
    work, aggregator = algorithm.parts.client_work, algorithm.parts.aggregator
    changed = around_aggregator(aggregator, options, clients=clients, largest_weight=largest_weight)
    if changed is aggregator:
        return algorithm
    if not tff.types.contains_only(work.update_type, _of_float32):
        raise CompositionError(
            f"[aggregation]: changes updates of float32 numbers, got {work.update_type}; set algorithm.uploads = "
            "'float32'"
        )
    if options.compression == "top_k":
        if not algorithm.model.weights_type.trainable.is_equivalent_to(work.update_type):
            raise CompositionError(
                "aggregation.compression = 'top_k' sends later what it leaves out, which differences of weights allow "
                "and predictions do not; choose stochastic_8bit"
            )
        work = with_error_feedback(work, code_of(options))
    elif options.compression == "stochastic_8bit":
        work = with_lossy_updates(work, code_of(options))
    return recompose(algorithm, client_work=work, aggregator=changed)


def _of_float32(type_spec: tff.Type) -> bool:
    return not isinstance(type_spec, tff.TensorType) or type_spec.dtype == np.float32
