"""Optimizers as functions of tensors, whose state is a value and not variables."""

from __future__ import annotations

import abc
import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from computations.federated.values import Structure


class Optimizer(abc.ABC):
    """A step of an optimization as a function of its state, the weights and the gradients."""

    @abc.abstractmethod
    def initialize(self, specs: Structure) -> Structure:
        """Return the state before the first step, for weights of these `tf.TensorSpec`s."""

    @abc.abstractmethod
    def next(self, state: Structure, weights: Structure, gradients: Structure) -> tuple[Structure, Structure]:
        """Return (the next state, the next weights)."""

    def get_hparams(self, state: Structure) -> collections.OrderedDict:
        """Return the hyperparameters in a state."""
        return collections.OrderedDict()

    def set_hparams(self, state: Structure, hparams: Mapping[str, Any]) -> Structure:
        """Return the state with other hyperparameters."""
        return state


def check_same_structure(weights: Structure, others: Structure, name: str) -> None:
    """Raise ValueError if shapes, dtypes or containers differ."""
    try:
        tf.nest.assert_same_structure(weights, others)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the {name} have a different structure from the weights: {error}") from error
    for weight, other in zip(tf.nest.flatten(weights), tf.nest.flatten(others), strict=True):
        if other is not None and (weight.dtype != other.dtype or not weight.shape.is_compatible_with(other.shape)):
            raise ValueError(
                f"weights of {weight.dtype.name}{weight.shape} got {name} of {other.dtype.name}{other.shape}"
            )


def _dense(gradients: Structure) -> Structure:
    return tf.nest.map_structure(lambda g: tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g, gradients)


def _zeros(specs: Structure) -> Structure:
    return tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), specs)


class _TensorOptimizer(Optimizer):
    """An optimizer with a step for each tensor.

    A tensor with a gradient of None stays as it is.
    """

    hyperparameters: dict[str, float]
    moments: tuple[str, ...] = ()

    def _step(
        self, state: Structure, weight: tf.Tensor, gradient: tf.Tensor, *moments: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Return (the next weight, the next moments)."""
        raise NotImplementedError

    def next(self, state: Structure, weights: Structure, gradients: Structure) -> tuple[Structure, Structure]:
        gradients = _dense(gradients)
        check_same_structure(weights, gradients, "gradients")
        names = [name for name in self.moments if name in state]
        for name in names:
            check_same_structure(weights, state[name], name)
        columns = [tf.nest.flatten(part) for part in (weights, gradients, *(state[name] for name in names))]
        steps = [(w, *m) if g is None else self._step(state, w, g, *m) for w, g, *m in zip(*columns, strict=True)]
        parts = zip(*steps, strict=True) if steps else [[]] * (1 + len(names))
        new_weights, *moments = [tf.nest.pack_sequence_as(weights, list(part)) for part in parts]
        return collections.OrderedDict(state, **dict(zip(names, moments, strict=True))), new_weights

    def get_hparams(self, state: Structure) -> collections.OrderedDict:
        return collections.OrderedDict((name, state[name]) for name in self.hyperparameters)

    def set_hparams(self, state: Structure, hparams: Mapping[str, Any]) -> Structure:
        return collections.OrderedDict(state, **hparams)


class _Sgdm(_TensorOptimizer):
    def __init__(self, learning_rate: float, momentum: float | None):
        if learning_rate < 0.0:
            raise ValueError(f"learning_rate must not be negative, but is {learning_rate}")
        if momentum and not 0.0 <= momentum <= 1.0:
            raise ValueError(f"momentum must be from 0 to 1, but is {momentum}")
        self.hyperparameters = {"learning_rate": learning_rate, **({"momentum": momentum} if momentum else {})}
        self.moments = ("accumulator",) if momentum else ()

    def initialize(self, specs: Structure) -> Structure:
        state = collections.OrderedDict(self.hyperparameters)
        state.update({name: _zeros(specs) for name in self.moments})
        return state

    def _step(
        self, state: Structure, weight: tf.Tensor, gradient: tf.Tensor, *accumulator: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        rate = tf.cast(state["learning_rate"], gradient.dtype)
        if not accumulator:
            return (weight - rate * gradient,)
        total = state["momentum"] * accumulator[0] + gradient
        return weight - rate * total, total


class _Adam(_TensorOptimizer):
    moments = ("accumulator", "preconditioner")

    def __init__(self, learning_rate: float, beta_1: float, beta_2: float, epsilon: float):
        if learning_rate < 0.0 or epsilon < 0.0:
            raise ValueError(f"learning_rate and epsilon must not be negative, but are {learning_rate}, {epsilon}")
        if not (0.0 <= beta_1 <= 1.0 and 0.0 <= beta_2 <= 1.0):
            raise ValueError(f"beta_1 and beta_2 must be from 0 to 1, but are {beta_1}, {beta_2}")
        rates = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
        self.hyperparameters = rates

    def initialize(self, specs: Structure) -> Structure:
        return collections.OrderedDict(self.hyperparameters, step=0, **{name: _zeros(specs) for name in self.moments})

    def next(self, state: Structure, weights: Structure, gradients: Structure) -> tuple[Structure, Structure]:
        return super().next(collections.OrderedDict(state, step=state["step"] + 1), weights, gradients)

    def _step(
        self, state: Structure, weight: tf.Tensor, gradient: tf.Tensor, *moments: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        first, second = moments
        beta_1, beta_2 = (tf.convert_to_tensor(state[name], tf.float32) for name in ("beta_1", "beta_2"))
        step = tf.cast(state["step"], tf.float32)
        rate = (
            state["learning_rate"] * tf.math.sqrt(1.0 - tf.math.pow(beta_2, step)) / (1.0 - tf.math.pow(beta_1, step))
        )
        first = first + (gradient - first) * (1.0 - tf.cast(beta_1, first.dtype))
        second = second + (tf.math.square(gradient) - second) * (1.0 - tf.cast(beta_2, second.dtype))
        divisor = tf.math.sqrt(second) + tf.cast(state["epsilon"], second.dtype)
        return weight - tf.cast(rate, first.dtype) * first / divisor, first, second


def build_sgdm(learning_rate: float = 0.01, momentum: float | None = None) -> Optimizer:
    """Return stochastic gradient descent, with momentum if it is given."""
    return _Sgdm(learning_rate, momentum)


def build_adam(learning_rate: float, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7) -> Optimizer:
    """Return Adam (Kingma and Ba 2015) with ε outside of the bias correction."""
    return _Adam(learning_rate, beta_1, beta_2, epsilon)
