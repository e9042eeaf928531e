"""Client optimizers: weights and moments live in variables and are updated by fused kernels."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import tensorflow as tf

from computations import federated as tff
from computations.client_work.objectives.proximal import add_proximal_gradients
from computations.federated.values import Structure
from computations.local_model import zeros
from computations.ranges import BELOW_ONE, NOT_NEGATIVE

Apply = Callable[[Sequence[Any], Sequence[tf.Tensor], tf.Tensor], None]
"""What `ClientOptimizer.bind` returns."""


class ClientOptimizer(Protocol):
    """What local training requires of a client optimizer.

    Its moments are reset in every local training.
    """

    @property
    def learning_rate(self) -> float:
        """Return the rate before any schedule."""

    def bind(self, variables: Sequence[tf.Variable]) -> Apply:
        """Create the moments.

        Called once per local training, outside of the step.

        Returns:
          (gradients, global_weights, rate) -> None, which updates the variables in place: a gradient per variable
          (IndexedSlices for looked-up rows), the weights that the client started from, and the learning rate of this
          round, a float32 scalar.
        """


@attrs.frozen
class SGD:
    """SGD, w <- w - rate * gradient (FLCMC, Eq. 5).

    Only the looked-up rows of an embedding are updated.

    With a momentum rho, w <- w - rate * u, u <- rho * u + gradient, u zero at the start of each local training.
    """

    learning_rate: float = attrs.field(default=0.01, validator=NOT_NEGATIVE)
    momentum: float = attrs.field(default=0.0, validator=BELOW_ONE)

    def bind(self, variables: Sequence[tf.Variable]) -> Apply:
        if self.momentum:
            return self._bind_with_momentum(variables)

        def apply(gradients: Sequence[Any], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
            for variable, gradient in zip(variables, gradients, strict=True):
                if isinstance(gradient, tf.IndexedSlices):
                    variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
                else:
                    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)

        return apply

    def _bind_with_momentum(self, variables: Sequence[tf.Variable]) -> Apply:
        moments = [tf.Variable(zeros(v.shape, v.dtype), trainable=False) for v in variables]

        def apply(gradients: Sequence[Any], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
            for variable, moment, gradient in zip(variables, moments, gradients, strict=True):
                tf.raw_ops.ResourceApplyMomentum(
                    var=variable.handle,
                    accum=moment.handle,
                    lr=rate,
                    grad=tf.convert_to_tensor(gradient),
                    momentum=self.momentum,
                )

        return apply


@attrs.frozen
class LibraryAdam:
    """The library's own Adam ("Tf-Adam" in FLCMC).

    It is `tf.keras.optimizers.legacy.Adam`, the form in TensorFlow 2.5.

    Its fused kernel adds epsilon beside the uncorrected root; Self-Adam adds it as Eq. 20 does. For gradients well
    above epsilon the two agree step for step.
    """

    learning_rate: float = attrs.field(default=0.001, validator=NOT_NEGATIVE)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def bind(self, variables: Sequence[tf.Variable]) -> Apply:
        rate_now = tf.Variable(0.0, trainable=False)
        optimizer = tf.keras.optimizers.legacy.Adam(rate_now, self.beta_1, self.beta_2, self.epsilon)
        optimizer._create_all_weights(variables)  # a step may not make variables

        def apply(gradients: Sequence[Any], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
            rate_now.assign(rate)
            dense = [tf.convert_to_tensor(g) for g in gradients]
            optimizer.apply_gradients(zip(dense, variables, strict=True))

        return apply


@attrs.frozen
class SelfAdam(tff.learning.optimizers.Optimizer):
    """Adam as FLCMC writes it (Hu and Fang 2024, Eqs. 15-20, after Kingma and Ba 2015, Algorithm 1).

    w <- w - rate * m_hat / (sqrt(v_hat) + epsilon), moments zero at the start of each local training. Eq. 20 as printed
    lacks the root over v_hat; the paper's prose and Adam have it.

    Local training of this project calls `bind`, whose fused kernel updates variables in place. `initialize` and `next`
    are the same rule on tensors, which makes this a client optimizer of `tff.learning.algorithms`, too.
    """

    learning_rate: float = attrs.field(default=0.001, validator=NOT_NEGATIVE)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def bind(self, variables: Sequence[tf.Variable]) -> Apply:
        moments = [[tf.Variable(zeros(v.shape, v.dtype), trainable=False) for v in variables] for _ in range(2)]
        count = tf.Variable(0.0, trainable=False)

        def apply(gradients: Sequence[Any], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
            step = count.assign_add(1.0)
            power_1, power_2 = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
            # The kernel divides by sqrt(v) + epsilon where Eq. 20 has sqrt(v_hat) + epsilon = (sqrt(v) + epsilon') / c
            # with c = sqrt(1 - beta_2^t); epsilon' = c * epsilon makes the two the same.
            epsilon = self.epsilon * tf.sqrt(1.0 - power_2)
            for variable, first, second, gradient in zip(variables, *moments, gradients, strict=True):
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=first.handle,
                    v=second.handle,
                    beta1_power=power_1,
                    beta2_power=power_2,
                    lr=rate,
                    beta1=self.beta_1,
                    beta2=self.beta_2,
                    epsilon=epsilon,
                    grad=tf.convert_to_tensor(gradient),
                )

        return apply

    def initialize(self, specs: Structure) -> collections.OrderedDict[str, Structure]:
        """Return the state of `tff.learning.optimizers.Optimizer`: hyperparameters, step, and moments of zero."""
        return collections.OrderedDict(self._hparams(), step=0, first=_blank(specs), second=_blank(specs))

    def next(
        self, state: Structure, weights: Structure, gradients: Structure
    ) -> tuple[collections.OrderedDict[str, Structure], Structure]:
        """Take one step on tensors.

        A gradient of None is zero.
        """
        gradients = tf.nest.map_structure(
            lambda w, g: tf.zeros_like(w) if g is None else tf.convert_to_tensor(g), weights, gradients
        )
        return self._step(state, weights, gradients)

    def get_hparams(self, state: Structure) -> collections.OrderedDict[str, Any]:
        return collections.OrderedDict((name, state[name]) for name in self._hparams())

    def set_hparams(self, state: Structure, hparams: Mapping[str, Any]) -> collections.OrderedDict[str, Structure]:
        return collections.OrderedDict(state, **hparams)

    def _hparams(self) -> collections.OrderedDict[str, float]:
        """Return the settings by name, of which TFF knows `learning_rate`."""
        return collections.OrderedDict(attrs.asdict(self))

    def _step(
        self, state: Structure, weights: Structure, gradients: Structure
    ) -> tuple[collections.OrderedDict[str, Structure], Structure]:
        step, beta_1, beta_2 = state["step"] + 1, state["beta_1"], state["beta_2"]
        t = tf.cast(step, tf.float32)

        def mixed(moments: Structure, new: Structure, beta: tf.Tensor) -> Structure:
            return tf.nest.map_structure(lambda m, g: beta * m + (1.0 - beta) * g, moments, new)

        first = mixed(state["first"], gradients, beta_1)
        second = mixed(state["second"], tf.nest.map_structure(tf.square, gradients), beta_2)

        def moved(w: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
            m_hat, v_hat = m / (1.0 - tf.pow(beta_1, t)), v / (1.0 - tf.pow(beta_2, t))
            return w - state["learning_rate"] * m_hat / (tf.sqrt(v_hat) + state["epsilon"])

        new_weights = tf.nest.map_structure(moved, weights, first, second)
        return collections.OrderedDict(state, step=step, first=first, second=second), new_weights


@attrs.frozen
class PAdam(SelfAdam):
    """Self-Adam whose gradient is dF + mu * (w - w_global) (FLCMC, Section 3.3.2, Eqs. 21-27).

    As an optimizer of `tff.learning` it is not told w_global, and takes the weights of its first step for it. They are
    those at a client, where TFF starts every local training with a new state at the weights that it broadcast; with a
    state that lasts over rounds, as at the server, they are not.
    """

    mu: float = attrs.field(default=0.03, validator=NOT_NEGATIVE)

    def bind(self, variables: Sequence[tf.Variable]) -> Apply:
        adam = super().bind(variables)

        def apply(gradients: Sequence[Any], global_weights: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
            adam(add_proximal_gradients(gradients, variables, global_weights, self.mu), global_weights, rate)

        return apply

    def initialize(self, specs: Structure) -> collections.OrderedDict[str, Structure]:
        return collections.OrderedDict(super().initialize(specs), start=_blank(specs))

    def _step(
        self, state: Structure, weights: Structure, gradients: Structure
    ) -> tuple[collections.OrderedDict[str, Structure], Structure]:
        start = tf.nest.map_structure(lambda s, w: tf.where(tf.equal(state["step"], 0), w, s), state["start"], weights)
        perturbed = tf.nest.map_structure(lambda g, w, s: g + state["mu"] * (w - s), gradients, weights, start)
        return super()._step(collections.OrderedDict(state, start=start), weights, perturbed)


def accumulated(optimizer: SGD | SelfAdam, steps: tf.Tensor) -> tf.Tensor:
    """Return ||a||_1 of FedNova (Wang et al. 2020, Section 4), float32, where w_0 - w_tau = rate * sum_s a_s g_s.

    SGD: a = 1, so tau. With momentum rho: a_s = (1 - rho^(tau-s)) / (1 - rho), s from 0, and the sum is (tau - rho (1 -
    rho^tau) / (1 - rho)) / (1 - rho). Adam: the paper does not work it out; here g_s are the gradients over the root of
    the second moment of the step that uses them, of which every step takes a mean whose weights add up to 1, because
    the first moment is corrected for its start: tau.

    Args:
      optimizer: of the clients.
      steps: tau, float32 scalar.
    """
    rho = getattr(optimizer, "momentum", 0.0)
    if not rho:
        return steps
    return (steps - rho * (1.0 - tf.pow(rho, steps)) / (1.0 - rho)) / (1.0 - rho)


def _blank(specs: Structure) -> Structure:
    return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)
