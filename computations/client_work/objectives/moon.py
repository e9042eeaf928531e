"""Contrasts with the global and the previous local model: MOON (Li, He and Song 2021, "Model-Contrastive Federated
Learning", CVPR, Eqs. 3-4) and FedLCC."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.objectives.base import Batch, Client, Objective, mean, output_rows
from computations.errors import CompositionError
from computations.federated.values import Structure
from computations.inference import outputs_of_all
from computations.local_model import LocalModel
from computations.ranges import NOT_NEGATIVE, POSITIVE


@attrs.frozen
class ModelContrast(Objective):
    """Cross-entropy plus weight * mean of -log(e^p / (e^p + e^n)), p = cos(z, z_glob) / tau, n = cos(z, z_prev) / tau.

    z is the model's `features` of an example in the step, z_glob that of the global model at the start of the round,
    z_prev that of the client's own model at the end of its last round; the latter two are constants. MOON puts a
    projection head of two layers before z; here z is what the classifier sees, so that methods are compared on one
    model. Where an example makes several rows of the outputs (a document's pairs) each row has its z, and the mean is
    over the batch's rows.

    A client keeps z_prev of its own rows (n * d numbers) instead of its previous model: the loss is the same, as both
    are computed without dropout. A client that has not been trained yet has no previous model and no contrast.

    With `remembers` z_prev of an example is the z of the last step that it was in, which saves a reading of all
    examples after the last step. It is then of the model in training, with dropout; an example that no step of the
    round had keeps what it had.

    Attributes:
      weight: of the contrast (the paper's mu).
      tau: temperature.
      remembers: whether z_prev is taken from the steps and not from the trained model.
      output: name of the model's output that is contrasted.
    """

    output = "features"

    weight: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    tau: float = attrs.field(default=0.5, validator=POSITIVE)
    remembers: bool = False

    def client_state_type(self, local_model: LocalModel) -> tff.Type:
        """<representations=float32[?,d], trained=bool>."""
        representations = tff.TensorType(np.float32, [None, self._width(local_model)])
        return tff.types.to_type(collections.OrderedDict(representations=representations, trained=np.bool_))

    def initial_client_state(
        self, local_model: LocalModel, examples: Mapping[str, np.ndarray]
    ) -> collections.OrderedDict[str, Structure]:
        representations = np.zeros([local_model.num_rows(examples), self._width(local_model)], np.float32)
        return collections.OrderedDict(representations=representations, trained=np.bool_(False))

    def prepare(self, client: Client) -> collections.OrderedDict[str, tf.Tensor]:
        """Return the directions of z_glob and z_prev, float32 [n, d] each, for the n rows of the client's examples."""
        return collections.OrderedDict(
            globally=direction(representations(client, self.output)),
            previously=direction(client.client_state["representations"]),
        )

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        z, rows = direction(tf.cast(batch.outputs[self.output], tf.float32)), output_rows(client, batch.rows)
        similar = tf.reduce_sum(z * tf.gather(prepared["globally"], rows), axis=-1) / self.tau
        dissimilar = tf.reduce_sum(z * tf.gather(prepared["previously"], rows), axis=-1) / self.tau
        contrast = mean(tf.math.softplus(dissimilar - similar))
        plain = super().loss(client, prepared, batch)
        return plain + self.weight * tf.where(client.client_state["trained"], contrast, 0.0)

    def remembered(self, client: Client) -> tf.Tensor:
        return client.client_state["representations"]

    def remember(self, client: Client, remembered: Any, batch: Batch) -> tf.Tensor:
        rows = output_rows(client, batch.rows)[:, tf.newaxis]
        z = tf.stop_gradient(tf.cast(batch.outputs[self.output], tf.float32))
        return tf.tensor_scatter_nd_update(remembered, rows, z)

    def next_client_state(
        self, client: Client, prepared: Any, steps: tf.Tensor, remembered: Any = ()
    ) -> collections.OrderedDict[str, tf.Tensor]:
        current = remembered if self.remembers else representations(client, self.output)
        return collections.OrderedDict(representations=current, trained=tf.constant(True))

    def _width(self, local_model: LocalModel) -> int:
        """Return d.

        Raises CompositionError for a model without the representations to contrast.
        """
        widths = local_model.output_widths
        if self.output not in widths:
            raise CompositionError(
                f"{type(self).__name__} contrasts the model's output '{self.output}', but the model gives "
                f"{', '.join(sorted(widths))}; choose another model.name or algorithm.name"
            )
        return widths[self.output]


class LocalizedContextContrast(ModelContrast):
    """FedLCC (Xiao, Jin and Hao, Section 3.3, Eqs. 11-13): the model's loss plus mu * L_LCC, both means over the pairs.

    L_LCC = -log(e^p / (e^p + e^n)), p = cos(L_k, L) / tau, n = cos(L_k, L_k') / tau (Eq. 12), MOON's form. L_k is the
    localized context of a pair (the model's `context`, Eq. 5), L that of the global model, L_k' that of the client's
    previous one. A client keeps the contexts of its own pairs (n * d numbers). The released code computes the term and
    does not add it; this is the paper.
    """

    output = "context"


def direction(vectors: tf.Tensor) -> tf.Tensor:
    """Return float32 [n, d] with rows of length one.

    A row of zeros stays, so that its cosine with anything is zero.
    """
    return tf.math.l2_normalize(vectors, axis=-1)


def representations(client: Client, output: str) -> tf.Tensor:
    """Return an output for all of the client's examples under the current model, without dropout (float32 [n, d])."""
    width = client.local_model.output_widths[output]
    return outputs_of_all(client.local_model, client.model, client.examples, output, width)
