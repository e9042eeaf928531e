"""An algorithm with another optimizer at the server, from the table [server_optimizer]."""

from __future__ import annotations

import attrs

from computations.algorithms.options import LocalOptions
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, recompose
from computations.server_updates import ServerOptimizerOptions, server_optimizer

REPLACED = ("server_step", "server_momentum", "noise_scale")
"""The algorithm's own options of the server's step."""


def with_server_optimizer(
    algorithm: FederatedAlgorithm, options: ServerOptimizerOptions, of_algorithm: LocalOptions
) -> FederatedAlgorithm:
    """Return the algorithm with that optimizer in place of its step along the aggregated update.

    What the clients do and how their updates are aggregated stay: attention, robust rules, clipping and noise compose
    with it, because all of them give an update of the model's form.

    Args:
      algorithm: composed.
      options: the table.
      of_algorithm: the algorithm's options, of which those in `REPLACED` have to be at their defaults.

    Raises:
      CompositionError: the algorithm's server does something else than a step, or has options of such a step.
    """
    options_type: type = type(of_algorithm)
    for key in REPLACED:
        default = getattr(attrs.fields_dict(options_type).get(key), "default", None)
        if default is not None and (value := getattr(of_algorithm, key)) != default:
            raise CompositionError(
                f"[server_optimizer] replaces algorithm.{key}, which is {value:g}; leave that key out, or set it to "
                f"{default:g}"
            )
    takes = algorithm.parts.finalizer.next.type_signature.parameter[2].member
    if not takes.is_equivalent_to(algorithm.model.weights_type.trainable):
        reason = _why_not(algorithm)
        raise CompositionError(f"[server_optimizer] replaces a step along an update of the weights; {reason}")
    return recompose(algorithm, finalizer=server_optimizer(algorithm.model, options))


def _why_not(algorithm: FederatedAlgorithm) -> str:
    if algorithm.client_work.server_type is not None:
        return "FedED's server distils predictions instead, at algorithm.server_learning_rate"
    if algorithm.server_type is not None:
        return "this server trains on its own examples, at algorithm.server_learning_rate"
    return "this server has its own step, like FedDyn's, which its clients' training needs"
