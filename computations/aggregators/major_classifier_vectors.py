"""Election of a vector per class (FedCMC, Du, He and Jin, Eqs. 12 and 13) without collecting a client's classifier."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.named import named_sum


class MajorClassifierVectorsFactory(tff.aggregators.UnweightedAggregationFactory):
    """For every class, the vector of the client with the lowest score.

    Takes <vectors=float32[C,d], scores=float32[C], counts=float32> of every client and gives <vectors=float32[C,d],
    holders=float32[C]>: the vectors of those who hold the least score of a class (the mean of them where several do)
    and their number. A client with `counts` zero takes no part; where none does, vectors and holders are zero.

    Clients learn the least scores by a `federated_min` and a broadcast, and only those who hold one put their vector
    into a sum. Nobody's classifier is collected.
    """

    def __init__(self, inner_sum: tff.aggregators.UnweightedAggregationFactory | None = None):
        """Create the factory.

        `inner_sum` makes the sum of the vectors, by default tff.aggregators.SumFactory().
        """
        self._inner_sum = inner_sum or tff.aggregators.SumFactory()

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Return a process over such structures.

        Raises CompositionError for a value of another type.
        """
        value_type = tff.types.to_type(value_type)
        _check(value_type)
        vectors_type, scores_type = value_type["vectors"], value_type["scores"]
        inner = self._inner_sum.create(vectors_type)

        @tff.tensorflow.computation(value_type)
        def offer(value: Structure) -> tf.Tensor:
            return tf.where(value["counts"] > 0, value["scores"], np.float32(np.inf))

        @tff.tensorflow.computation(value_type, scores_type)
        def held(value: Structure, least: tf.Tensor) -> tf.Tensor:
            # tf.equal, because == compares identities in the graphs that TFF makes.
            return tf.cast(tf.equal(value["scores"], least) & (value["counts"] > 0), tf.float32)

        @tff.tensorflow.computation(value_type, scores_type)
        def contribute(value: Structure, holds: tf.Tensor) -> tf.Tensor:
            # Not holds * vectors, which is NaN where a client that does not count has a vector that is not finite.
            return tf.where(holds[:, tf.newaxis] > 0, value["vectors"], 0.0)

        @tff.tensorflow.computation(vectors_type, scores_type)
        def share(summed: tf.Tensor, holders: tf.Tensor) -> Structure:
            vectors = tf.math.divide_no_nan(summed, holders[:, tf.newaxis])
            return collections.OrderedDict(vectors=vectors, holders=holders)

        @tff.federated_computation(inner.initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS))
        def next_fn(state: Value, value: Value) -> tff.templates.MeasuredProcessOutput:
            least = tff.federated_broadcast(tff.federated_min(tff.federated_map(offer, value)))
            holds = tff.federated_map(held, (value, least))
            summed = inner.next(state, tff.federated_map(contribute, (value, holds)))
            return tff.templates.MeasuredProcessOutput(
                state=summed.state,
                result=tff.federated_map(share, (summed.result, named_sum("holders", holds))),
                measurements=summed.measurements,
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


def _check(value_type: tff.Type) -> None:
    shape = getattr(getattr(value_type, "vectors", None), "shape", None)
    if shape is not None and len(shape) == 2:
        shapes = collections.OrderedDict(vectors=shape, scores=shape[:1], counts=())
        wanted = {name: tff.TensorType(np.float32, dimensions) for name, dimensions in shapes.items()}
        if tff.types.to_type(collections.OrderedDict(wanted)).is_equivalent_to(value_type):
            return
    raise CompositionError(
        "major classifier vectors: expected the type <vectors=float32[C,d],scores=float32[C],counts=float32>, got "
        f"{value_type}"
    )
