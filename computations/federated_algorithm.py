"""Composes client work, an aggregator and a finalizer into a federated algorithm.

TFF's own `compose_learning_process` admits client data that are sequences and nothing that stays at a client. Ours
takes a client's examples as tensors with a seed beside them, and what a client keeps as a CLIENTS-placed value in and
out. Distributors, aggregators and finalizers are TFF's own templates.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass

import tensorflow_federated as tff

from computations.client_work import ClientWork
from computations.client_work.local_training import with_arguments
from computations.errors import require_assignable
from computations.local_model import LocalModel


@dataclass(frozen=True)
class FederatedAlgorithm:
    """An algorithm as two computations.

    Attributes:
      model: what the clients train.
      initialize: (weights@SERVER -> state@SERVER); `state.weights` are the global weights.
      next: (<state@SERVER, clients@CLIENTS[, client_state@CLIENTS][, server@SERVER]> -> <state=@SERVER[,
        client_state=@CLIENTS], metrics=@SERVER>).
      client_work: its `client_state_type` says whether clients keep something between rounds.
      server_type: type of `server`, <examples=E, seed=int32[2]>, the labelled examples that the server itself holds and
        the seed of its training; None: it needs none.
      bag_pooling: how the model is to score a bag of sentences, see `bag_evaluation.build_bag_scores`; of no matter
        where sentences are scored one by one.
    """

    model: LocalModel
    initialize: tff.Computation
    next: tff.Computation
    client_work: ClientWork
    server_type: tff.Type | None = None
    bag_pooling: str = "max"


def compose(
    model: LocalModel,
    *,
    client_work: ClientWork,
    aggregator: tff.aggregators.WeightedAggregationFactory,
    finalizer: tff.learning.templates.FinalizerProcess,
    distributor: tff.learning.templates.DistributionProcess | None = None,
) -> FederatedAlgorithm:
    """One round: distribute the weights, work at the clients, aggregate their updates, finalize.

    Where the client work takes the server's examples (`ClientWork.server_type`), the finalizer gets them beside the
    aggregated update, as <update=U, server=S>.

    Raises:
      CompositionError: where one part does not take what the part before it gives; names the part and both types.
    """
    weights_type = model.weights_type
    distributor = distributor or tff.learning.templates.build_broadcast_process(weights_type)
    update_type = client_work.update_type
    weight_type = client_work.next.type_signature.result.weight.member
    aggregation = aggregator.create(update_type, weight_type)
    work_takes = client_work.next.type_signature.parameter
    own_models = client_work.initialize.type_signature.parameter is None
    server_type = client_work.server_type
    to_finalizer = aggregation.next.type_signature.result.result
    if server_type is not None:
        both = collections.OrderedDict(update=to_finalizer.member, server=server_type)
        to_finalizer = tff.FederatedType(tff.types.to_type(both), tff.SERVER)

    require_assignable(
        "distributor", distributor.next.type_signature.parameter[1], tff.FederatedType(weights_type, tff.SERVER)
    )
    require_assignable("client work (weights)", work_takes[1], distributor.next.type_signature.result.result)
    require_assignable(
        "finalizer (weights)",
        finalizer.next.type_signature.parameter[1],
        tff.FederatedType(weights_type, tff.SERVER),
    )
    require_assignable(
        "finalizer (aggregated update)",
        finalizer.next.type_signature.parameter[2],
        to_finalizer,
    )
    require_assignable(
        "finalizer (new weights)",
        tff.FederatedType(weights_type, tff.SERVER),
        finalizer.next.type_signature.result.result,
    )

    @tff.federated_computation(tff.FederatedType(weights_type, tff.SERVER))
    def initialize(weights):
        return tff.federated_zip(
            collections.OrderedDict(
                weights=weights,
                distributor=distributor.initialize(),
                client_work=client_work.initialize(*([] if own_models else [weights])),
                aggregator=aggregation.initialize(),
                finalizer=finalizer.initialize(),
            )
        )

    keeps_state = client_work.client_state_type is not None
    arguments = [initialize.type_signature.result, *list(work_takes)[2:]]

    def one_round(state, clients, *rest):
        sent = distributor.next(state["distributor"], state["weights"])
        work = client_work.next(state["client_work"], sent.result, clients, *rest)
        aggregated = aggregation.next(state["aggregator"], work["update"], work["weight"])
        update = aggregated.result
        if server_type is not None:
            update = tff.federated_zip(collections.OrderedDict(update=update, server=rest[-1]))
        final = finalizer.next(state["finalizer"], state["weights"], update)
        new_state = tff.federated_zip(
            collections.OrderedDict(
                weights=final.result,
                distributor=sent.state,
                client_work=work["state"],
                aggregator=aggregated.state,
                finalizer=final.state,
            )
        )
        metrics = tff.federated_zip(
            collections.OrderedDict(
                work=work["metrics"],
                aggregator=aggregated.measurements,
                finalizer=final.measurements,
                distributor=sent.measurements,
            )
        )
        result = collections.OrderedDict(state=new_state)
        if keeps_state:
            result["client_state"] = work["client_state"]
        result["metrics"] = metrics
        return result

    next_fn = with_arguments(one_round, arguments)
    return FederatedAlgorithm(
        model=model, initialize=initialize, next=next_fn, client_work=client_work, server_type=server_type
    )
