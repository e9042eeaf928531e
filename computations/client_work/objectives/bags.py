"""Multiple-instance losses over local bags, the baselines of FedDS (Appendix C, Algorithm 3).

A bag are a client's sentences of one triple; a batch are whole bags. The sentences' features are as the model gives
them in a step of training, dropout included, one pass for choosing or attending and for learning.
"""

from __future__ import annotations

import tensorflow as tf

from computations.bags import attended, averaged, first_best, label_probabilities
from computations.client_work.objectives.base import Batch, Client, Objective


class _OfBags(Objective):
    """The model's loss of each bag's logits, the mean over the bags of a batch."""

    of_bags = True

    def loss(self, client: Client, prepared, batch: Batch) -> tf.Tensor:
        del prepared
        num_bags = tf.reduce_max(batch.bags) + 1
        logits = tf.cast(batch.outputs["logits"], tf.float32)
        labels = tf.math.unsorted_segment_max(batch.labels, batch.bags, num_bags)  # one label in all of a bag's rows
        logits = self.bag_logits(logits, batch.labels, batch.bags, num_bags)
        return tf.reduce_mean(client.local_model.losses(labels, {"logits": logits}))

    def bag_logits(self, logits: tf.Tensor, labels: tf.Tensor, bags: tf.Tensor, num_bags: tf.Tensor) -> tf.Tensor:
        """Sentences' logits float32 [n, C], their labels and bags int32 [n] -> bags' logits float32 [num_bags, C]."""
        raise NotImplementedError


class AtLeastOne(_OfBags):
    """ONE (Zeng et al. 2015, Section 3.4): a bag is its sentence with the highest p(r|s) under the present weights.

    Of equals the first.
    """

    def bag_logits(self, logits, labels, bags, num_bags):
        _, chosen = first_best(label_probabilities(logits, labels), bags, num_bags)
        return tf.gather(logits, chosen)


class BagAverage(_OfBags):
    """AVE (Lin et al. 2016, Section 3.2): a bag is the mean of its sentences' features."""

    def bag_logits(self, logits, labels, bags, num_bags):
        return averaged(logits, bags, num_bags)


class SelectiveAttention(_OfBags):
    """ATT (Lin et al. 2016, Section 3.2, Eqs. 7-10): a bag is sum_i softmax_i(x_i . r) x_i.

    r is the classifier's vector of the labelled relation. Their diagonal matrix A is the identity.
    """

    def bag_logits(self, logits, labels, bags, num_bags):
        return attended(logits, tf.gather(logits, labels, batch_dims=1), bags, num_bags)


class RelationAwareAttention(_OfBags):
    """ATT_RA (Ye and Ling 2019, Section 3.2, the intra-bag attention): a bag has a vector for every relation k.

    b^k = sum_i softmax_i(x_i . r_k) x_i; the softmax over k of r_k . b^k + d_k gives the bag's probabilities.
    """

    def bag_logits(self, logits, labels, bags, num_bags):
        return attended(logits, logits, bags, num_bags)
