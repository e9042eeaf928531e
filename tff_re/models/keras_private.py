"""Private names of Keras that models use, except for one in `computations.local_model`."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from computations.stack import KERAS_MODULE


def layers_in(layer: tf.keras.layers.Layer, *, itself: bool = True) -> list[tf.keras.layers.Layer]:
    """All layers inside of a layer or model, at any depth."""
    return list(layer._flatten_layers(include_self=itself))


def is_of_keras(layer: tf.keras.layers.Layer) -> bool:
    """Whether a layer is Keras' own, which others can load without this project."""
    return type(layer).__module__.split(".")[0] == KERAS_MODULE


def precision_of(layer: tf.keras.layers.Layer) -> tf.keras.mixed_precision.Policy:
    """The policy that a layer computes with."""
    return layer._dtype_policy


def rename(layer: tf.keras.layers.Layer, name: str) -> None:
    """Gives a layer that is not built another name."""
    layer._name = name


def track_untrained(layer: tf.keras.layers.Layer, variable) -> None:
    """Makes a variable one of a layer's weights that are not trained."""
    layer._non_trainable_weights.append(variable)


def sort_layer_weights(layer: tf.keras.layers.Layer, has: Callable, trained: Callable) -> None:
    """Sorts the weights of a built layer, without those of layers inside.

    Args:
      has: whether the layer keeps a variable.
      trained: whether that is trained.
    """
    variables = [variable for variable in (*layer._trainable_weights, *layer._non_trainable_weights) if has(variable)]
    # In place: Keras would track each variable of a new list once more.
    layer._trainable_weights[:] = [variable for variable in variables if trained(variable)]
    layer._non_trainable_weights[:] = [variable for variable in variables if not trained(variable)]


def unwrapped(variable):
    """The variable inside of Keras' wrapper, or the variable itself without a wrapper.

    Keras wraps it where layers compute in another precision.
    """
    return getattr(variable, "_variable", variable)


class InitializedVariable:
    """Base of what Keras is to take for a variable that has its value."""

    _keras_initialized = True
