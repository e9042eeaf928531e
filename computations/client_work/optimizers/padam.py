"""PAdam: Self-Adam on the perturbed gradient (FLCMC, Hu and Fang 2024, Section 3.3.2, Eqs. 21-27)."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import attrs
import tensorflow as tf

from computations.client_work.objectives.proximal import add_proximal_gradients
from computations.client_work.optimizers.self_adam import BoundAdam, SelfAdam
from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class PAdam(SelfAdam):
    """Self-Adam whose gradient is dF + mu * (w - w_global) (Eq. 22).

    As an optimizer of `tff.learning` it is not told w_global, and takes the weights of its first step for it. They are
    those at a client, where TFF starts every local training with a new state at the weights that it broadcast; with a
    state that lasts over rounds, as at the server, they are not.
    """

    mu: float = attrs.field(default=0.03, validator=NOT_NEGATIVE)

    def bind(self, variables: Sequence[tf.Variable]):
        return _BoundPAdam(self, variables)

    def initialize(self, specs):
        start = tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)
        return collections.OrderedDict(super().initialize(specs), start=start)

    def _hparams(self):
        return collections.OrderedDict(super()._hparams(), mu=self.mu)

    def _step(self, state, weights, gradients):
        start = tf.nest.map_structure(lambda s, w: tf.where(tf.equal(state["step"], 0), w, s), state["start"], weights)
        perturbed = tf.nest.map_structure(lambda g, w, s: g + state["mu"] * (w - s), gradients, weights, start)
        return super()._step(collections.OrderedDict(state, start=start), weights, perturbed)


class _BoundPAdam(BoundAdam):
    def __init__(self, settings: PAdam, variables: Sequence[tf.Variable]):
        super().__init__(settings, variables)
        self._mu = settings.mu

    def apply(self, gradients, global_weights, rate):
        super().apply(
            add_proximal_gradients(gradients, self._variables, global_weights, self._mu), global_weights, rate
        )
