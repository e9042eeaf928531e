"""Scores of bags, for precision and recall of the facts that a model finds (held-out evaluation)."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.bags import attended, require_linear_classifier
from computations.federated.values import Structure, Value, Weights
from computations.inference import forward
from computations.local_model import LocalModel, assign_weights, features_of, tensor_type, zero_initialisers


def _highest(logits: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
    return tf.math.unsorted_segment_max(tf.nn.softmax(logits), bags, num_bags)


def _mean(logits: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.math.unsorted_segment_mean(logits, bags, num_bags))


def _each_relations_attention(logits: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
    def of_relation(k: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(attended(logits, logits[:, k], bags, num_bags))[:, k]

    # One relation at a time: what all of them make of all bags would be num_bags * C * C numbers.
    relations = tf.range(logits.shape[1])
    scores = tf.map_fn(of_relation, relations, fn_output_signature=tf.float32, parallel_iterations=1)
    return tf.transpose(scores)


def _relation_aware_attention(logits: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(attended(logits, logits, bags, num_bags))


POOLINGS = {
    "max": _highest,
    "mean": _mean,
    "attention": _each_relations_attention,
    "relation_attention": _relation_aware_attention,
}


def build_bag_scores(model: LocalModel, pooling: str, *, batch_size: int = 256) -> tff.Computation:
    """Return (<weights@SERVER, bags@SERVER> -> float32[?,C]@SERVER), p(relation | bag) of every bag and relation.

    `bags` is <examples=F, bag=int32[?]> (see `arrange_bags`): the features of the sentences and the bag of each, every
    one of 0, 1, …, num_bags - 1. Only the sentences' logits are held for all of them, n * C numbers.

    Args:
      model: its sentences make bags.
      pooling: of the sentences of a bag. `max`: the highest p(r|s) of each relation (NONE; ONE, Zeng et al. 2015; Lazy
        MIL). `mean`: the softmax of the mean vector's logits (AVE). `attention`: every relation attends with its own
        query, and its score is its place in the softmax over that vector's logits (ATT, Lin et al. 2016).
        `relation_attention`: one softmax over all relations' own attended logits (ATT_RA, Ye and Ling 2019). A
        bag's scores sum to 1 with `mean` and `relation_attention` alone.
      batch_size: sentences at once in the model.

    Raises:
      CompositionError: for a model whose classifier the pooling cannot work with.
    """
    if pooling != "max":
        require_linear_classifier(model, f"the pooling {pooling!r}")
    features = sorted(features_of(model.input_spec).items())
    examples = collections.OrderedDict((name, tensor_type(spec)) for name, spec in features)
    bags_type = collections.OrderedDict(examples=examples, bag=tff.TensorType(np.int32, [None]))

    @tff.tensorflow.computation(model.weights_type, tff.types.to_type(bags_type))
    def score(weights: Weights, bags: Structure) -> tf.Tensor:
        with zero_initialisers():
            keras_model = model.build()

        @tf.function(autograph=False)
        def run() -> tf.Tensor:
            assign_weights(keras_model, weights)
            logits = forward(keras_model, bags["examples"], "logits", model.num_classes, batch_size)
            num_bags = tf.reduce_max(tf.concat([[-1], bags["bag"]], axis=0)) + 1
            return tf.ensure_shape(POOLINGS[pooling](logits, bags["bag"], num_bags), [None, model.num_classes])

        return run()

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(tff.types.to_type(bags_type), tff.SERVER)
    )
    def bag_scores(weights: Value, bags: Value) -> Value:
        return tff.federated_map(score, (weights, bags))

    return bag_scores


def arrange_bags(model: LocalModel, examples: Mapping[str, np.ndarray], bag: np.ndarray) -> collections.OrderedDict:
    """Return the `bags` that `build_bag_scores` takes.

    They are arrays [n, ...], and the bag of every sentence as ascending numbers 0, 1, ….
    """
    features = collections.OrderedDict(
        (name, np.ascontiguousarray(examples[name], spec.dtype.as_numpy_dtype))
        for name, spec in sorted(features_of(model.input_spec).items())
    )
    return collections.OrderedDict(examples=features, bag=np.asarray(bag, np.int32))
