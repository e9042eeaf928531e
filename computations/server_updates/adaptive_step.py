"""Adaptive server optimizers (Reddi et al. 2021, "Adaptive Federated Optimization", ICLR, arXiv 2003.00295)."""

from __future__ import annotations

import collections
from typing import Literal

import attrs
import tensorflow as tf

from computations import federated as tff
from computations.federated.values import Structure
from computations.local_model import LocalModel, zeros
from computations.server_updates.gradient_step import gradient_step, optimizer_finalizer
from computations.server_updates.options import ServerOptimizerOptions


@attrs.frozen
class AdaptiveServer(tff.learning.optimizers.Optimizer):
    """Algorithm 2 for pseudo-gradients g, global minus local, which are -Delta_t.

    m_t = beta_1 m_(t-1) + (1 - beta_1) g_t, w <- w - rate * m_t / (sqrt(v_t) + tau), and of every coordinate

    - adagrad: v_t = v_(t-1) + g_t^2
    - yogi: v_t = v_(t-1) - (1 - beta_2) g_t^2 sign(v_(t-1) - g_t^2)
    - adam: v_t = beta_2 v_(t-1) + (1 - beta_2) g_t^2

    with m_0 = 0 and v_0 = tau^2, the least that the paper allows. With `bias_correction` v_0 = 0, and m_t / (1 -
    beta_1^t) and v_t / (1 - beta_2^t) take their places (Kingma and Ba 2015, Algorithm 1).

    TFF's `build_adam` and `build_yogi` always correct, with tau beside the uncorrected root, and its `build_adagrad`
    has no beta_1.
    """

    rule: Literal["adam", "yogi", "adagrad"]
    learning_rate: float
    beta_1: float
    beta_2: float
    tau: float
    bias_correction: bool = False

    def initialize(self, specs: Structure) -> collections.OrderedDict[str, Structure]:
        """Return <step=int32, first=W, second=W>, where the moments have the form of the weights."""
        start = 0.0 if self.bias_correction else self.tau**2
        return collections.OrderedDict(
            step=tf.constant(0),
            first=tf.nest.map_structure(lambda s: zeros(s.shape, s.dtype), specs),
            second=tf.nest.map_structure(lambda s: zeros(s.shape, s.dtype) + start, specs),
        )

    @tf.autograph.experimental.do_not_convert
    def next(
        self, state: Structure, weights: Structure, gradients: Structure
    ) -> tuple[collections.OrderedDict[str, Structure], Structure]:
        step = state["step"] + 1
        first = tf.nest.map_structure(lambda m, g: self.beta_1 * m + (1.0 - self.beta_1) * g, state["first"], gradients)
        second = tf.nest.map_structure(self._second, state["second"], gradients)
        of_first, of_second = 1.0, 1.0
        if self.bias_correction:
            t = tf.cast(step, tf.float32)
            of_first, of_second = 1.0 - tf.pow(self.beta_1, t), 1.0 - tf.pow(self.beta_2, t)
        new_weights = tf.nest.map_structure(
            lambda w, m, v: w - self.learning_rate * (m / of_first) / (tf.sqrt(v / of_second) + self.tau),
            weights,
            first,
            second,
        )
        return collections.OrderedDict(step=step, first=first, second=second), new_weights

    def _second(self, v: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
        square = tf.square(g)
        if self.rule == "adagrad":
            return v + square
        if self.rule == "yogi":
            return v - (1.0 - self.beta_2) * square * tf.sign(v - square)
        return self.beta_2 * v + (1.0 - self.beta_2) * square


def server_optimizer(model: LocalModel, options: ServerOptimizerOptions) -> tff.learning.templates.FinalizerProcess:
    """Return the finalizer that [server_optimizer] requests.

    Its state, and so each checkpoint, includes the moments.

    An aggregated update that is not finite changes neither the weights nor the moments.
    """
    if options.name == "momentum":
        rate = 1.0 if options.learning_rate is None else options.learning_rate
        return gradient_step(model, step_size=rate, momentum=0.9 if options.beta_1 is None else options.beta_1)
    beta_1 = {"adagrad": 0.0}.get(options.name, 0.9) if options.beta_1 is None else options.beta_1
    optimizer = AdaptiveServer(
        options.name,
        learning_rate=0.01 if options.learning_rate is None else options.learning_rate,
        beta_1=beta_1,
        beta_2=0.99 if options.beta_2 is None else options.beta_2,
        tau=1e-3 if options.tau is None else options.tau,
        bias_correction=options.bias_correction,
    )
    return optimizer_finalizer(optimizer, model.weights_type)
