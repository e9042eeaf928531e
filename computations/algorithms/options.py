"""Options that several algorithms share."""

from __future__ import annotations

import copy
from typing import Literal, Protocol

import numpy as np
import tensorflow as tf
from attrs import field
from attrs.validators import optional

from computations.client_work import LocalTraining
from computations.client_work.client_training import Weighting
from computations.privacy.example_gradients import ExamplePrivacy
from computations.ranges import BELOW_ONE, BOUND, COUNT, NOT_NEGATIVE, STEPS, options_class


@options_class
class LocalOptions:
    """Attributes:
    learning_rate: of the client optimizer.
    learning_rate_decay: d in rate / (1 + d * round), round counted from 0.
    learning_rate_decay_form: `inverse`: that; `geometric`: rate * (1 - d)^round in its place, d below 1.
    weight_decay: lambda of the term lambda/2 * ||w||^2 in the clients' loss, over all trained weights; its gradient is
      added behind clipping, and reported losses are without it.
    local_epochs: passes over a client's examples in a round.
    local_steps: if given, exactly this many batches a round instead.
    batch_size: examples in a batch.
    max_gradient_norm: clips the global norm of a batch's gradient; not set: no clipping.
    example_privacy: no key of a recipe's table, whose [privacy] it comes from, see `protecting`.
    """

    learning_rate: float = field(default=0.01, validator=NOT_NEGATIVE)
    learning_rate_decay: float = field(default=0.0, validator=NOT_NEGATIVE)
    learning_rate_decay_form: Literal["inverse", "geometric"] = "inverse"
    weight_decay: float = field(default=0.0, validator=NOT_NEGATIVE)
    local_epochs: int = field(default=10, validator=STEPS)
    local_steps: int | None = field(default=None, validator=optional(STEPS))
    batch_size: int = field(default=10, validator=STEPS)
    max_gradient_norm: float | None = field(default=None, validator=optional(BOUND))
    example_privacy: ExamplePrivacy | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if self.learning_rate_decay_form == "geometric" and self.learning_rate_decay >= 1:
            raise ValueError("learning_rate_decay must be below 1 with learning_rate_decay_form = 'geometric'")

    def protecting(self, privacy: ExamplePrivacy) -> LocalOptions:
        """Return these options with `example_privacy`.

        `attrs.evolve` drops it again, so call this last.

        `ClientWork.example_privacy` says what an algorithm was built with.
        """
        options = copy.copy(self)
        object.__setattr__(options, "example_privacy", privacy)
        return options

    def local_training(self, weighting: Weighting = "examples") -> LocalTraining:
        """Return the part of these options that `build_local_training` takes."""
        decay, geometric = self.learning_rate_decay, self.learning_rate_decay_form == "geometric"

        def factor(round_num: tf.Tensor) -> tf.Tensor:
            passed = tf.cast(round_num, tf.float32)
            return tf.pow(1.0 - decay, passed) if geometric else 1.0 / (1.0 + decay * passed)

        return LocalTraining(
            local_epochs=self.local_epochs,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            weighting=weighting,
            max_gradient_norm=self.max_gradient_norm,
            example_privacy=self.example_privacy,
            weight_decay=self.weight_decay,
            schedule=factor if decay else None,
        )


@options_class
class ServerStepOptions(LocalOptions):
    """Attributes:
    server_step: the server's step size (lambda in FLCMC, Eq. 14).
    server_momentum: momentum of the server's step over rounds.
    """

    server_step: float = field(default=1.0, validator=NOT_NEGATIVE)
    server_momentum: float = field(default=0.0, validator=BELOW_ONE)


@options_class
class MeanOptions(ServerStepOptions):
    """Attributes:
    weighting: `examples`: clients count by their number of examples; `uniform`: all alike (a control).
    """

    weighting: Literal["examples", "uniform"] = "examples"


@options_class
class AdamOrSgdOptions(MeanOptions):
    """Attributes:
    optimizer: of the clients: Adam with fresh moments in every round (Self-Adam), or plain SGD.
    learning_rate: of the client optimizer; the default suits Adam, 5e-5 a pretrained transformer.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.001


@options_class
class AttentionOptions(ServerStepOptions):
    """Attributes:
    server_step: lambda; 1.2 is FLCMC's default (Table 7), 4 and 9 its tuned values.
    granularity: one softmax per weight tensor (`layer`) or over the whole model (`model`).
    noise_scale: standard deviation of the noise that FedAtt's code adds to the new weights; 0: none. No differential
      privacy: nothing bounds what a client adds to the weights. For that, set [privacy].
    noise_seed: where that noise starts.
    """

    server_step: float = 1.2
    granularity: Literal["layer", "model"] = "layer"
    noise_scale: float = field(default=0.0, validator=NOT_NEGATIVE)
    noise_seed: int = 0


@options_class
class ServerPassOptions(AdamOrSgdOptions):
    """Attributes:
    optimizer: of the clients and the server: Adam with fresh moments in every round, or plain SGD.
    server_epochs: passes over the server's examples D_v in a round.
    server_batch_size: examples in a batch of the server's; batch_size if not set.
    server_learning_rate: of the server; learning_rate if not set.
    num_server_examples: how many examples the server holds; a run counts them if it is not set.
    """

    server_epochs: int = field(default=1, validator=STEPS)
    server_batch_size: int | None = field(default=None, validator=optional(STEPS))
    server_learning_rate: float | None = field(default=None, validator=optional(NOT_NEGATIVE))
    num_server_examples: int | None = field(default=None, validator=optional(COUNT))


class ChoosesOptimizer(Protocol):
    """Options of clients that train with Adam or with plain SGD, such as `AdamOrSgdOptions`."""

    optimizer: Literal["adam", "sgd"]
    learning_rate: float


class TrainsAtServer(ChoosesOptimizer, Protocol):
    """Options of a server that trains on its own examples, with the keys of `ServerPassOptions`."""

    batch_size: int
    max_gradient_norm: float | None
    server_epochs: int
    server_batch_size: int | None
    server_learning_rate: float | None

    def local_training(self, weighting: Weighting = "examples") -> LocalTraining:
        """Return the clients' training."""


def server_training(options: TrainsAtServer) -> LocalTraining:
    """Return the server's passes over D_v."""
    return LocalTraining(
        local_epochs=options.server_epochs,
        batch_size=options.server_batch_size or options.batch_size,
        max_gradient_norm=options.max_gradient_norm,
        schedule=options.local_training().schedule,
    )


def server_rate(options: TrainsAtServer) -> float:
    """Return the learning rate of these passes."""
    return options.learning_rate if options.server_learning_rate is None else options.server_learning_rate


def check_learns(options: LocalOptions) -> None:
    """Raise ValueError if a rate or step of the options is zero in float32, so that a run would learn nothing.

    The computations themselves take zero: tests look that the model then stays as it is.
    """
    for name in ("learning_rate", "server_learning_rate", "server_step"):
        value = getattr(options, name, None)
        if value is not None and np.float32(value) == 0:
            raise ValueError(f"{name} must be above zero, or nothing is learned; got {value}")
