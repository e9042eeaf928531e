"""Federated evaluation, in which clients score the global model on their own examples and send only counts."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping

import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure, Value, Weights
from computations.inference import over_batches
from computations.local_model import LABEL, LocalModel, assign_weights, features_of, zero_initialisers

BATCH = 256
"""Examples at once, unless the model wants fewer."""

COUNTS = ("true_positives", "predicted", "actual", "overlapping_predicted", "overlapping_actual")
"""Statistics that count examples or entities of each class."""


def build_evaluation(model: LocalModel, *, batch_size: int | None = None) -> tff.Computation:
    """(<weights@SERVER, examples@CLIENTS> -> statistics@CLIENTS).

    The statistics of a client are `examples` (float32; rows, see `LocalModel.rows`), `loss` (the sum over them) and the
    model's own (`confusion` [C, C] for classifiers), each zero for a client without examples. They stay one value per
    client because the distribution over clients (worst, median, best) is reported; they hold counts, never text.
    """
    evaluate = client_evaluation(model, batch_size=batch_size)

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def federated_evaluation(weights: Value, examples: Value) -> Value:
        return tff.federated_map(evaluate, (tff.federated_broadcast(weights), examples))

    return federated_evaluation


def client_evaluation(model: LocalModel, *, batch_size: int | None = None) -> tff.Computation:
    """Return (weights, examples -> statistics) of one client (see `build_evaluation`)."""
    batch_size = batch_size or model.inference_batch or BATCH

    @tff.tensorflow.computation(model.weights_type, model.examples_type)
    def evaluate(weights: Weights, examples: Structure) -> Structure:
        with zero_initialisers():
            keras_model = model.build()

        def batch_statistics(batch: Mapping[str, tf.Tensor]) -> collections.OrderedDict[str, tf.Tensor]:
            features, labels = features_of(batch), model.labels_of(batch)
            outputs = keras_model(features, training=False)
            losses = model.losses(labels, outputs)
            return collections.OrderedDict(
                examples=tf.cast(tf.size(losses), tf.float32),
                loss=tf.reduce_sum(losses),
                **model.statistics(labels, outputs),
            )

        scored = _for_batches(model, batch_statistics)
        blank = tf.nest.map_structure(lambda t: tf.zeros(t.shape, t.dtype), scored.structured_outputs)

        def add(_: tf.Tensor, batch: Mapping[str, tf.Tensor], total: Structure) -> Structure:
            return tf.nest.map_structure(tf.add, total, scored(batch))

        @tf.function(autograph=False)
        def run() -> Structure:
            assign_weights(keras_model, weights)
            return over_batches(examples, batch_size, add, blank)

        return run()

    return evaluate


def build_example_statistics(model: LocalModel) -> tff.Computation:
    """(<weights@SERVER, examples@CLIENTS> -> statistics of each example@CLIENTS).

    The statistics are those of `COUNTS` that the model has, float32 [n, K], in the order of a client's examples; of a
    classifier of whole examples those of its one prediction, [n, C]. They tell how a model answers each single
    example: a simulation computes them, and a site for itself, but none leave it.
    """
    whole = model.rows is None
    batch_size = (model.inference_batch or BATCH) if whole else 1

    @tff.tensorflow.computation(model.weights_type, model.examples_type)
    def count(weights: Weights, examples: Structure) -> Structure:
        with zero_initialisers():
            keras_model = model.build()

        def of_examples(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            outputs, labels = keras_model(features_of(batch), training=False), model.labels_of(batch)
            if whole:
                return _of_predictions(labels, outputs["logits"])
            return {name: counts[tf.newaxis] for name, counts in _counts(model.statistics(labels, outputs)).items()}

        scored = _for_batches(model, of_examples)

        def write(
            i: tf.Tensor, batch: Mapping[str, tf.Tensor], done: Mapping[str, tf.TensorArray]
        ) -> collections.OrderedDict[str, tf.TensorArray]:
            counted = scored(batch)
            return collections.OrderedDict((name, array.write(i, counted[name])) for name, array in done.items())

        @tf.function(autograph=False)
        def run() -> Structure:
            assign_weights(keras_model, weights)
            batches = -(-tf.shape(examples[LABEL])[0] // batch_size)
            arrays = collections.OrderedDict(
                (name, tf.TensorArray(tf.float32, batches, element_shape=[None, t.shape[1]], infer_shape=False))
                for name, t in scored.structured_outputs.items()
            )
            done = over_batches(examples, batch_size, write, arrays)
            return collections.OrderedDict((name, array.concat()) for name, array in done.items())

        return run()

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def example_statistics(weights: Value, examples: Value) -> Value:
        return tff.federated_map(count, (tff.federated_broadcast(weights), examples))

    return example_statistics


def _for_batches(model: LocalModel, function: Callable) -> tf.types.experimental.ConcreteFunction:
    """Return the function of a batch of examples as a graph for batches of any size."""
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in model.input_spec.items()}
    return tf.function(function, autograph=False).get_concrete_function(specs)


def _of_predictions(labels: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the counts of each example by its one predicted class, float32 [B, C] each."""
    classes = logits.shape[-1]
    predicted, actual = tf.one_hot(tf.argmax(logits, axis=-1), classes), tf.one_hot(tf.cast(labels, tf.int32), classes)
    return {"true_positives": predicted * actual, "predicted": predicted, "actual": actual}


def _counts(statistics: Mapping[str, tf.Tensor]) -> collections.OrderedDict:
    """Return those of `COUNTS` that a model's statistics have, or that follow from its confusion matrix."""
    if "confusion" in statistics:
        confusion = statistics["confusion"]
        statistics = {
            "true_positives": tf.linalg.diag_part(confusion),
            "predicted": tf.reduce_sum(confusion, axis=0),
            "actual": tf.reduce_sum(confusion, axis=1),
        }
    return collections.OrderedDict((name, statistics[name]) for name in COUNTS if name in statistics)
