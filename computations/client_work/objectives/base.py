"""What local training asks of an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.local_model import LocalModel


@dataclass(frozen=True)
class Client:
    """One client in local training.

    Attributes:
      model: the Keras model; at first it holds the global weights, after the last step the local ones.
      local_model: what `model` was built from.
      examples: name -> all examples of the client, [n, ...]; the label included.
      global_weights: the global trainable weights.
      rate: float32 scalar, the optimizer's learning rate in this round.
      seed: int32 [2], the client's in this round; batches and dropout draw from `stateless_fold_in(seed, step)` with
        step >= 1 and from the seed itself, compression folds in -1, so that an objective may fold in 0.
      shared: what the server broadcasts beside the weights (the objective's side channel), or ().
      client_state: what the client kept from its last round, or ().
    """

    model: tf.keras.Model
    local_model: LocalModel
    examples: Mapping[str, tf.Tensor]
    global_weights: Sequence[tf.Tensor]
    rate: tf.Tensor
    seed: tf.Tensor
    shared: Any = ()
    client_state: Any = ()

    def label_counts(self) -> tf.Tensor:
        """Return float32 [C], the client's number of rows of each class.

        Do not upload it, because counts stay at the client.
        """
        classes, labels = self.local_model.num_classes, self.local_model.labels_of(self.examples)
        return tf.math.bincount(labels, minlength=classes, maxlength=classes, dtype=tf.float32)


@dataclass(frozen=True)
class Batch:
    """A batch of a step, where `rows` (int32 [B]) are its indices among the client's examples.

    `labels` are int32 [B], or the classes of the rows of the outputs (`LocalModel.labels_of`).

    For an objective `of_bags` a batch are whole bags, and `bags` int32 [B] says which of them a row belongs to:
    0, 1, … in ascending order; else it is None.
    """

    features: Mapping[str, tf.Tensor]
    labels: tf.Tensor
    outputs: Mapping[str, tf.Tensor]
    rows: tf.Tensor
    bags: tf.Tensor | None = None


def mean(values: tf.Tensor) -> tf.Tensor:
    """Return the mean of float32 [n], or 0 if n is 0, since a batch of documents may have no pairs."""
    return tf.math.divide_no_nan(tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32))


def row_mean(client: Client, values: tf.Tensor) -> tf.Tensor:
    """Return the mean over the rows of the outputs, float32 [N], or 0 for N = 0, as for texts without tokens."""
    return tf.reduce_mean(values) if client.local_model.rows is None else mean(values)


def output_rows(client: Client, rows: tf.Tensor) -> tf.Tensor:
    """Return the indices of the output rows (int32 [N]) that examples with these indices (int32 [B]) produce."""
    return client.local_model.output_rows(client.examples, rows)


@dataclass(frozen=True)
class SideChannel:
    """What an objective sends in addition to the model.

    The clients' uploads are aggregated and become the next round's `shared`.

    Attributes:
      initial: (tff.learning.models.ModelWeights of tensors) -> `shared` of the first round.
      aggregator: a TFF unweighted aggregation factory over the uploads.
      update: (shared, aggregated, number of clients that count) -> `shared` of the next round.
    """

    initial: Callable[[Any], Any]
    aggregator: tff.aggregators.UnweightedAggregationFactory
    update: Callable[[Any, Any, tf.Tensor], Any]


class Objective:
    """The local loss of an algorithm.

    Subclasses override what they need, and the rest is `CrossEntropy`.

    `prepare` runs once at the start of a client's local training (label counts, representations under the global
    model), `loss` in every step, `upload` and `next_client_state` once at the end.

    Attributes:
      side_channel: what travels in addition to the model, or None.
      not_private: why noise on the updates does not cover the side channel, and what would be needed; for messages.
      recorded_state: names of entries of the client state, float32 [C] each and without text, that a simulation may
        record for every client. In a deployment they stay at the client like the rest of its state.
      of_bags: whether batches are made of bags, a client's rows of one `triple`, in place of single examples.
      remembers: whether the steps keep something for `next_client_state`, see `remember`.
      beyond_batch: what of the client's examples the loss depends on in addition to those of the batch, in words;
        None: on nothing but what the server broadcasts and what earlier trainings made.
    """

    of_bags: bool = False
    remembers: bool = False
    beyond_batch: str | None = None
    side_channel: SideChannel | None = None
    not_private: str | None = None
    recorded_state: tuple[str, ...] = ()

    def client_state_type(self, local_model: LocalModel) -> tff.Type | None:
        """Return the type of what a client stores between rounds, or None.

        Its leading dimensions may be None.
        """
        return None

    def initial_client_state(self, local_model: LocalModel, examples: Mapping[str, np.ndarray]) -> Any:
        """Return the NumPy value of `client_state_type` for a client with these examples that is not trained yet."""
        raise TypeError(f"{type(self).__name__} keeps no client state")

    def prepare(self, client: Client) -> Any:
        """Return tensors that are made once per local training and passed to the other methods."""
        return ()

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        """Return the loss to minimise, a scalar.

        It is the mean over the batch (over its rows, see `LocalModel.rows`).
        """
        return mean(client.local_model.losses(batch.labels, batch.outputs))

    def adjust_gradients(self, client: Client, prepared: Any, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients for the optimizer.

        This is for terms with a closed form (proximal, control variates).
        """
        return gradients

    def upload(self, client: Client, prepared: Any, steps: tf.Tensor) -> Any:
        """Return what is sent through the side channel after training."""
        return ()

    def remembered(self, client: Client) -> Any:
        """Return the initial value for `remember`, if the objective `remembers`."""
        return ()

    def remember(self, client: Client, remembered: Any, batch: Batch) -> Any:
        """Return `remembered` with what a step computed from its batch.

        Shapes stay the same.
        """
        return remembered

    def next_client_state(self, client: Client, prepared: Any, steps: tf.Tensor) -> Any:
        """Return the client's state after training.

        An objective that `remembers` also gets what it remembered.
        """
        return ()


class CrossEntropy(Objective):
    """The mean of the local model's losses over the batch and nothing else (FedAvg, McMahan et al. 2017)."""
