"""Options that several algorithms share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tensorflow as tf

from computations.client_work import LocalTraining


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Attributes:
    learning_rate: of the client optimizer.
    learning_rate_decay: d in rate / (1 + d * round), round counted from 0.
    local_epochs: passes over a client's examples in a round.
    local_steps: if given, exactly this many batches a round instead.
    batch_size: examples in a batch.
    max_gradient_norm: clips the global norm of a batch's gradient; not set: no clipping.
    """

    learning_rate: float = 0.01
    learning_rate_decay: float = 0.0
    local_epochs: int = 10
    local_steps: int | None = None
    batch_size: int = 10
    max_gradient_norm: float | None = None

    def __post_init__(self):
        check_float32(self)
        if not 0 <= self.learning_rate_decay < float("inf"):
            raise ValueError(f"learning_rate_decay must be finite and not negative, got {self.learning_rate_decay}")
        if not 0 <= self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be finite and not negative, got {self.learning_rate}")
        self.local_training()

    def local_training(self, weighting: str = "examples") -> LocalTraining:
        """The part of these options that `build_local_training` takes."""
        decay = self.learning_rate_decay
        return LocalTraining(
            local_epochs=self.local_epochs,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            weighting=weighting,
            max_gradient_norm=self.max_gradient_norm,
            schedule=(lambda r: 1.0 / (1.0 + decay * tf.cast(r, tf.float32))) if decay else None,
        )


@dataclass(frozen=True, kw_only=True)
class ServerStepOptions(LocalOptions):
    """Attributes:
    server_step: the server's step size (lambda in FLCMC, Eq. 14).
    server_momentum: momentum of the server's step over rounds.
    """

    server_step: float = 1.0
    server_momentum: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.server_step < float("inf"):
            raise ValueError(f"server_step must be finite and not negative, got {self.server_step}")
        if not 0 <= np.float32(self.server_momentum) < 1:
            raise ValueError(f"server_momentum must lie in [0, 1), got {self.server_momentum}")


@dataclass(frozen=True, kw_only=True)
class MeanOptions(ServerStepOptions):
    """Attributes:
    weighting: `examples`: clients count by their number of examples; `uniform`: all alike (a control).
    """

    weighting: Literal["examples", "uniform"] = "examples"


@dataclass(frozen=True, kw_only=True)
class AdamOrSgdOptions(MeanOptions):
    """Attributes:
    optimizer: of the clients: Adam with fresh moments in every round (Self-Adam), or plain SGD.
    learning_rate: of the client optimizer; the default suits Adam, 5e-5 a pretrained transformer.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.001

    def __post_init__(self):
        super().__post_init__()
        if self.optimizer not in ("adam", "sgd"):
            raise ValueError(f"optimizer must be 'adam' or 'sgd', got {self.optimizer!r}")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(ServerStepOptions):
    """Attributes:
    server_step: lambda; 1.2 is FLCMC's default (Table 7), 4 and 9 its tuned values.
    granularity: one softmax per weight tensor (`layer`) or over the whole model (`model`).
    one_pass: one aggregation in place of two dependent ones, for platforms that allow no more; see AttentionFactory.
    noise_scale: standard deviation of the noise that FedAtt's code adds to the new weights; 0: none.
    noise_seed: where that noise starts.
    """

    server_step: float = 1.2
    granularity: Literal["layer", "model"] = "layer"
    one_pass: bool = False
    noise_scale: float = 0.0
    noise_seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.noise_scale < float("inf"):
            raise ValueError(f"noise_scale must be finite and not negative, got {self.noise_scale}")


def check_mu(options) -> None:
    """ValueError unless `options.mu` is finite and not negative."""
    if not 0 <= options.mu < float("inf"):
        raise ValueError(f"mu must be finite and not negative, got {options.mu}")


def check_float32(options) -> None:
    """ValueError where a number of an options dataclass is finite, but infinite in float32, which computations use."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, float) and np.finfo(np.float32).max < abs(value) < float("inf"):
            raise ValueError(f"{field.name} must be at most {np.finfo(np.float32).max:.1e} (float32), got {value}")


def check_learns(options) -> None:
    """ValueError where a rate or a step of an options dataclass is zero in float32, so that a run would learn nothing.

    The computations themselves take zero: tests look that the model then stays as it is.
    """
    for name in ("learning_rate", "server_learning_rate", "server_step"):
        value = getattr(options, name, None)
        if value is not None and np.float32(value) == 0:
            raise ValueError(f"{name} must be above zero, or nothing is learned; got {value}")
