"""PAdam: Self-Adam on the perturbed gradient (FLCMC, Hu and Fang 2024, Section 3.3.2, Eqs. 21-27)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import tensorflow as tf

from computations.client_work.objectives.proximal import add_proximal_gradients
from computations.client_work.optimizers.self_adam import BoundAdam, SelfAdam
from computations.ranges import NOT_NEGATIVE


@attrs.frozen
class PAdam(SelfAdam):
    """Self-Adam whose gradient is dF + mu * (w - w_global) (Eq. 22)."""

    mu: float = attrs.field(default=0.03, validator=NOT_NEGATIVE)

    def bind(self, variables: Sequence[tf.Variable]):
        return _BoundPAdam(self, variables)


class _BoundPAdam(BoundAdam):
    def __init__(self, settings: PAdam, variables: Sequence[tf.Variable]):
        super().__init__(settings, variables)
        self._mu = settings.mu

    def apply(self, gradients, global_weights, rate):
        super().apply(
            add_proximal_gradients(gradients, self._variables, global_weights, self._mu), global_weights, rate
        )
