"""Multiple-instance losses over local bags, the baselines of FedDS (Appendix C, Algorithm 3).

A bag are a client's sentences of one triple; a batch are whole bags. The sentences' features are as the model gives
them in a step of training, dropout included, one pass for choosing or attending and for learning.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from computations.bags import first_best, label_probabilities, segment_softmax, weighted
from computations.client_work.objectives.base import Batch, Client, Objective


class BagObjective(Objective):
    """The model's loss of each bag's logits, averaged over the bags of a batch.

    A bag's logits are those of its sentences, weighted by their shares, which sum to 1 in every bag.
    """

    of_bags = True

    def loss(self, client: Client, prepared: Any, batch: Batch) -> tf.Tensor:
        num_bags = tf.reduce_max(batch.bags) + 1
        logits = tf.cast(batch.outputs["logits"], tf.float32)
        labels = tf.math.unsorted_segment_max(batch.labels, batch.bags, num_bags)  # one label in all of a bag's rows
        shares = self.shares(logits, batch.labels, batch.bags, num_bags)
        logits = weighted(logits, shares, batch.bags, num_bags)
        return tf.reduce_mean(client.local_model.losses(labels, {"logits": logits}))

    def shares(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        """Return how much each sentence counts in its bag.

        Args:
          logits: float32 [n, C], of the sentences.
          labels, bags: int32 [n], of every sentence its bag's label and its bag's place.
          num_bags: int32 scalar.

        Returns:
          float32 [n], or [n, C] where it is another in the bag's logit of every relation.
        """
        raise NotImplementedError


class AtLeastOne(BagObjective):
    """ONE (Zeng et al. 2015, Section 3.4): a bag is its sentence with the highest p(r|s) under the present weights.

    On a tie, the first.
    """

    def shares(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        _, best = first_best(label_probabilities(logits, labels), bags, num_bags)
        return tf.cast(tf.equal(tf.gather(best, bags), tf.range(tf.size(bags))), tf.float32)


class BagAverage(BagObjective):
    """AVE (Lin et al. 2016, Section 3.2): a bag is the mean of its sentences' features."""

    def shares(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        return segment_softmax(tf.zeros_like(logits[:, 0]), bags, num_bags)


class SelectiveAttention(BagObjective):
    """ATT (Lin et al. 2016, Section 3.2, Eqs. 7-10): a bag is sum_i softmax_i(x_i . r) x_i.

    r is the classifier's vector of the labelled relation. Their diagonal matrix A is the identity.
    """

    def shares(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        return segment_softmax(tf.gather(logits, labels, batch_dims=1), bags, num_bags)


class RelationAwareAttention(BagObjective):
    """ATT_RA (Ye and Ling 2019, Section 3.2, the intra-bag attention): a bag has a vector for every relation k.

    b^k = sum_i softmax_i(x_i . r_k) x_i; the softmax over k of r_k . b^k + d_k gives the bag's probabilities.
    """

    def shares(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        return segment_softmax(logits, bags, num_bags)
