"""FedCMC's contrast with major classifier vectors (Du, He and Jin, Section 3, Eqs. 10-17)."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregators.major_classifier_vectors import MajorClassifierVectorsFactory
from computations.client_work.objectives.base import Batch, Client, Objective, SideChannel, row_mean
from computations.local_model import LocalModel, zero_initialisers


class MajorClassifierContrast(Objective):
    """Cross-entropy plus mu * L_con, both as means over the batch.

    L_con = -log softmax(h V^T)_y (Eqs. 14 and 15).

    h [B, d] is the model's `features`. V [C, d] are the clients' major classifier vectors of the last round (Eq. 12;
    the initial classifier in the first), a constant, so that L_con trains the encoder alone (Eqs. 16 and 17). A
    classifier's bias, which FedCMC's own does not have, is no part of V.

    After training a client sends its classifier's vectors with a score per class; the least score wins. The score is
    the local average similarity (`major`), its negative (`minor`) or a random number that the client draws from its
    seed of the round (`random`), the paper's ablations. Where no client counts the vectors stay.

    A client keeps the local average similarities of its own classifier, whichever vectors are broadcast. They are for a
    simulation to record (Fig. 1); training does not read them, and they do not travel.
    """

    recorded_state = ("similarity",)
    not_private = (
        "FedCMC sends, for every class, the smallest score over the clients and the classifier vector of the client "
        "that has it; to protect them, that client must be chosen privately and its vector needs noise"
    )

    def __init__(
        self, local_model: LocalModel, mu: float = 1.0, vectors: Literal["major", "minor", "random"] = "major"
    ):
        """Args:
        local_model: ValueError unless its classifier is a trainable dense layer from `features` to two logits or more.
        mu: weight of L_con.
        vectors: whose vector of a class is broadcast.
        """
        self.mu, self.vectors = mu, vectors
        self._kernel = kernel = classifier_kernel(local_model)
        self.side_channel = SideChannel(
            initial=lambda weights: tf.transpose(weights.trainable[kernel]),
            aggregator=MajorClassifierVectorsFactory(),
            update=lambda shared, elected, counted: tf.where(
                elected["holders"][:, tf.newaxis] > 0, elected["vectors"], shared
            ),
        )

    def client_state_type(self, local_model: LocalModel) -> tff.Type:
        """<similarity=float32[C]>: d_{k,c} (Eq. 10) at the end of the client's last local training."""
        similarity = tff.TensorType(np.float32, [local_model.num_classes])
        return tff.types.to_type(collections.OrderedDict(similarity=similarity))

    def initial_client_state(
        self, local_model: LocalModel, examples: Mapping[str, np.ndarray]
    ) -> collections.OrderedDict[str, np.ndarray]:
        return collections.OrderedDict(similarity=np.zeros([local_model.num_classes], np.float32))

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        h = tf.cast(batch.outputs["features"], tf.float32)
        if h.shape[-1] != client.shared.shape[-1]:
            raise ValueError(
                f"the model's features are {h.shape[-1]} wide and its classifier {client.local_model.classifier!r} "
                f"takes {client.shared.shape[-1]}: `features` must be the classifier's input"
            )
        contrast = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=batch.labels, logits=tf.matmul(h, client.shared, transpose_b=True)
        )
        return super().loss(client, prepared, batch) + self.mu * row_mean(client, contrast)

    def upload(self, client: Client, prepared: Any, steps: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
        """Return <vectors=float32[C,d], scores=float32[C], counts=float32> (see MajorClassifierVectorsFactory)."""
        vectors = self._vectors(client)
        if self.vectors == "random":
            # Local training uses the seed itself and folds in 1, 2, …
            seed = tf.random.experimental.stateless_fold_in(client.seed, 0)
            scores = tf.random.stateless_uniform([client.local_model.num_classes], seed)
        else:
            similarity = average_similarity(vectors)
            scores = similarity if self.vectors == "major" else -similarity
        # One, because what a client that does not count uploads is made zero: a zero similarity could win.
        return collections.OrderedDict(vectors=vectors, scores=scores, counts=tf.constant(1.0))

    def next_client_state(
        self, client: Client, prepared: Any, steps: tf.Tensor
    ) -> collections.OrderedDict[str, tf.Tensor]:
        return collections.OrderedDict(similarity=average_similarity(self._vectors(client)))

    def _vectors(self, client: Client) -> tf.Tensor:
        """Return float32 [C, d], with a row for each class of the client's classifier."""
        return tf.transpose(client.model.trainable_variables[self._kernel])


def average_similarity(vectors: tf.Tensor) -> tf.Tensor:
    """Return the average similarity of each class's vector to the others: float32 [C, d] -> float32 [C].

    d_c = 1/(C-1) sum_{i != c} cos(V_c, V_i): Eq. 10, which prints c for i in its second factor. The cosine with a
    vector of zeros is taken as zero.
    """
    directions = tf.math.l2_normalize(vectors, axis=-1)
    cosines = tf.matmul(directions, directions, transpose_b=True)
    others = tf.linalg.set_diag(cosines, tf.zeros_like(cosines[0]))
    return tf.reduce_sum(others, axis=-1) / (vectors.shape[0] - 1)


def classifier_kernel(local_model: LocalModel) -> int:
    """Return the index of the classifier's kernel [d, C] among the trainable weights.

    Raises:
      ValueError: where there is none of that shape.
    """
    name, classes = local_model.classifier, local_model.num_classes
    if name is None:
        raise ValueError(
            "FedCMC needs a model that names its classifier (LocalModel.classifier), but this one does not"
        )
    if classes < 2:
        raise ValueError(f"FedCMC compares the vectors of at least 2 classes, but the model has num_classes {classes}")
    with tf.Graph().as_default(), zero_initialisers():
        model = local_model.build()
        kernel = getattr(model.get_layer(name), "kernel", None)
        if kernel is None or kernel.shape.rank != 2 or kernel.shape[1] != classes:
            shape = None if kernel is None else kernel.shape.as_list()
            raise ValueError(f"the classifier {name!r} must have a kernel of shape [d, {classes}], got {shape}")
        places = [i for i, variable in enumerate(model.trainable_variables) if variable is kernel]
    if not places:
        raise ValueError(
            f"the classifier {name!r} must be trainable, because FedCMC compares clients by their classifiers"
        )
    return places[0]
