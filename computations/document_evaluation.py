"""Scores of the global model on the server's documents: the probability of every relation of every pair."""

from __future__ import annotations

import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.federated.values import Structure, Value, Weights
from computations.inference import joined
from computations.local_model import LocalModel, assign_weights, features_of, zero_initialisers

BATCH = 8
"""Documents at once, unless the model wants another number."""


def build_pair_scores(model: LocalModel) -> tff.Computation:
    """Return a computation of the sigmoid of each pair's logits.

    (<weights@SERVER, examples@SERVER> -> float32[D,P,R]@SERVER)

    P are the places for pairs that the examples have (`LocalModel.rows`); where there is no pair it is 0. A relation is
    predicted above 0.5, or above what is best on other documents.

    Raises:
      CompositionError: the model does not classify pairs.
    """
    if model.rows is None:
        raise CompositionError("scores of pairs: the model has one row of outputs per example; use document_encoder")
    shape = [model.input_spec[model.rows].shape[1], model.output_widths["logits"]]

    @tff.tensorflow.computation(model.weights_type, model.examples_type)
    def score(weights: Weights, examples: Structure) -> tf.Tensor:
        with zero_initialisers():
            keras_model = model.build()

        def probabilities(batch: Structure) -> tf.Tensor:
            scores = tf.sigmoid(tf.cast(keras_model(batch, training=False)["logits"], tf.float32))
            pairs = tf.cast(tf.where(batch[model.rows] >= 0), tf.int32)
            return tf.scatter_nd(pairs, scores, [tf.shape(batch[model.rows])[0], *shape])

        @tf.function(autograph=False)
        def run() -> tf.Tensor:
            assign_weights(keras_model, weights)
            return joined(features_of(examples), model.inference_batch or BATCH, probabilities, shape)

        return run()

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(model.examples_type, tff.SERVER)
    )
    def pair_scores(weights: Value, examples: Value) -> Value:
        return tff.federated_map(score, (weights, examples))

    return pair_scores
