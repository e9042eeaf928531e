"""Lazy multiple-instance learning, in which clients agree on one sentence per triple (FedDS, Section 3.3, Algorithm 1).

At the start of a round every client scores its sentences with the global weights. Up go its best score of each triple
and, from those who hold the best of all, their index; down come the best scores and the winners. No sentence, and no
place of one, leaves a client.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.bags import ABSENT, first_best, label_probabilities
from computations.client_work.objectives import BagObjective
from computations.errors import CompositionError
from computations.federated.values import Structure, Value, Weights
from computations.inference import forward
from computations.local_model import LABEL, PLATFORM, TRIPLE, LocalModel, assign_weights, zero_initialisers
from computations.named import named_max, named_min

NOT_PRIVATE = (
    "Lazy MIL sends, for every triple, the largest score over the clients and so reveals which client has the best "
    "sentence; to protect it, every triple needs a private choice with its own budget"
)
"""Why noise on the updates does not cover a selection, for messages."""

NOBODY = np.iinfo(np.int32).max
"""Instead of a platform's index, where no platform has the triple."""

BATCH = 256
"""Sentences at once where they are scored."""

Extreme = Callable[[str, Value], Value]
"""`named_max` or `named_min`, or what takes its place: (name, vectors at the clients) -> a vector at the server."""


def build_cross_platform_selection(
    model: LocalModel, num_triples: int, *, select_na: bool = True, na_label: int = 0, max_share: float | None = None
) -> tff.Computation:
    """(<weights@CLIENTS, examples@CLIENTS> -> <chosen=<selected=bool[?], finite=bool>@CLIENTS, metrics=@SERVER>).

    A triple's sentence is the one with the highest p(r|s) among all clients of the round (Eqs. 1 and 2), without
    dropout; ties go to the smallest platform index, within a platform to the first row. A score that is not finite
    counts as absent, and `finite` says whether a client had none such. Metrics: `selection/triples`, those with a
    winner, `selection/sentences`, the selected (sum of |D*_i|), and `selection/share` of them among all.

    A platform below zero is an attacker of a simulation (`attacks.attacked`, `claim_all`): it offers the highest
    probability there is for every triple, and wins the ties, too. Against it, `max_share` bounds what one client can
    take: of a client's offers only the best ceil(max_share * T) count (ties: the first triples), and of its claims to
    have won the first ceil(max_share * T). Both are cut where its values enter the maximum and the minimum, so that no
    client can evade it. The price: triples that an honest client with more than these would have won go to the next
    best client that offers them, or to nobody.

    Args:
      model: its examples have `triple` and `platform`.
      num_triples: T, how many triples there are at all clients, pairs without a relation included.
      select_na: whether sentences of pairs without a relation are selected like the others, which the paper does not
        say; False: they all train.
      na_label: the label of such pairs.
      max_share: see above, in (0, 1]; None: no bound.
    """
    scores_type, platforms_type = (tff.TensorType(dtype, [num_triples]) for dtype in (np.float32, np.int32))
    offer = _offer(model, num_triples, select_na, na_label)
    claim, choose = _choice(model, offer.type_signature.result, scores_type, platforms_type, select_na, na_label)

    @tff.tensorflow.computation(choose.type_signature.result)
    def count(chosen: Structure) -> Structure:
        selected = tf.reduce_sum(tf.cast(chosen["selected"], tf.float32))
        return collections.OrderedDict(selected=selected, all=tf.cast(tf.size(chosen["selected"]), tf.float32))

    @tff.tensorflow.computation(count.type_signature.result, platforms_type)
    def report(counted: Structure, winners: tf.Tensor) -> Structure:
        return collections.OrderedDict(
            [
                ("selection/triples", tf.reduce_sum(tf.cast(winners < NOBODY, tf.float32))),
                ("selection/sentences", counted["selected"]),
                ("selection/share", tf.math.divide_no_nan(counted["selected"], counted["all"])),
            ]
        )

    highest, lowest = (
        (named_max, named_min) if max_share is None else _bounded_extremes(scores_type, platforms_type, max_share)
    )

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.CLIENTS), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def select(weights: Value, examples: Value) -> Value:
        offers = tff.federated_map(offer, (weights, examples))
        best = tff.federated_broadcast(highest("scores", offers["best"]))
        winners = lowest("platforms", tff.federated_map(claim, (offers, best, examples)))
        chosen = tff.federated_map(choose, (offers, tff.federated_broadcast(winners), examples))
        counted = tff.federated_sum(tff.federated_map(count, chosen))
        return collections.OrderedDict(chosen=chosen, metrics=tff.federated_map(report, (counted, winners)))

    return select


def _offer(model: LocalModel, num_triples: int, select_na: bool, na_label: int) -> tff.Computation:
    """Return (weights, examples) -> a client's best score of each triple, and the row that has it."""

    @tff.tensorflow.computation(model.weights_type, model.examples_type)
    def offer(weights: Weights, examples: Structure) -> Structure:
        scores = label_probabilities(_logits(model, weights, examples), examples[LABEL])
        finite = tf.reduce_all(scores >= 0)
        if not select_na:
            scores = tf.where(tf.equal(examples[LABEL], na_label), ABSENT, scores)
        best, rows = first_best(scores, examples[TRIPLE], num_triples)
        offers = tf.where(tf.reduce_any(examples[PLATFORM] < 0), tf.ones_like(best), best)
        return collections.OrderedDict(
            best=tf.where(offers >= 0, offers, -np.inf), rows=tf.where(best >= 0, rows, tf.size(scores)), finite=finite
        )

    return offer


def _choice(
    model: LocalModel,
    offers_type: tff.Type,
    scores_type: tff.TensorType,
    platforms_type: tff.TensorType,
    select_na: bool,
    na_label: int,
) -> tuple[tff.Computation, tff.Computation]:
    """Return two computations: a client's claims given the best scores, and its selected rows given the winners."""

    @tff.tensorflow.computation(offers_type, scores_type, model.examples_type)
    def claim(offers: Structure, best: tf.Tensor, examples: Structure) -> tf.Tensor:
        # Of nobody and the rows' platforms the least, because a client may have no row.
        platform = tf.reduce_min(tf.concat([[NOBODY], examples[PLATFORM]], axis=0))
        return tf.where((offers["best"] >= 0) & tf.equal(offers["best"], best), platform, NOBODY)

    @tff.tensorflow.computation(offers_type, platforms_type, model.examples_type)
    def choose(offers: Structure, winners: tf.Tensor, examples: Structure) -> Structure:
        labels, triples = examples[LABEL], examples[TRIPLE]
        best_row = tf.equal(tf.gather(offers["rows"], triples), tf.range(tf.size(labels)))
        selected = best_row & tf.equal(tf.gather(winners, triples), examples[PLATFORM])
        if not select_na:
            selected |= tf.equal(labels, na_label)
        return collections.OrderedDict(selected=selected, finite=offers["finite"])

    return claim, choose


def _bounded_extremes(
    scores_type: tff.TensorType, platforms_type: tff.TensorType, max_share: float
) -> tuple[Extreme, Extreme]:
    """Return `named_max` and `named_min` that count at most ceil(max_share * T) offers and claims of a client."""
    limit = math.ceil(max_share * scores_type.shape[0])

    def best_offers(offers: tf.Tensor) -> tf.Tensor:
        ranks = tf.math.invert_permutation(tf.argsort(offers, direction="DESCENDING", stable=True))
        return tf.where(ranks < limit, offers, -np.inf)

    def first_claims(claims: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.cumsum(tf.cast(claims < NOBODY, tf.int32)) <= limit, claims, NOBODY)

    return (
        _bounded(tf.maximum, scores_type, -np.inf, best_offers),
        _bounded(tf.minimum, platforms_type, NOBODY, first_claims),
    )


def _bounded(
    combine: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    value_type: tff.TensorType,
    neutral: float,
    cut: Callable[[tf.Tensor], tf.Tensor],
) -> Extreme:
    """Return (name, vectors at clients) -> their maximum or minimum, each `cut` on arrival (see `named_max`)."""

    def aggregate(name: str, value: Value) -> Value:
        named_type = tff.types.to_type(collections.OrderedDict([(name, value_type)]))

        def named(vector: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
            return collections.OrderedDict([(name, vector)])

        zero = tff.tensorflow.computation(
            lambda: named(tf.fill(value_type.shape, tf.constant(neutral, value_type.dtype)))
        )
        # Lambdas, because TFF takes no function with a default argument.
        take = tff.tensorflow.computation(
            lambda total, vector: named(combine(total[name], cut(vector))), named_type, value_type
        )
        merge = tff.tensorflow.computation(
            lambda left, right: named(combine(left[name], right[name])), named_type, named_type
        )
        report = tff.tensorflow.computation(lambda total: total[name], named_type)
        return tff.federated_aggregate(value, zero(), take, merge, report)

    return aggregate


def build_selection(
    model: LocalModel, num_triples: int, *, select_na: bool = True, na_label: int = 0
) -> tff.Computation:
    """Return a computation of what clients would train on in a round of Lazy MIL.

    (<weights@SERVER, examples@CLIENTS> -> bool[?]@CLIENTS)

    For a simulation's case study; in a deployment it stays at the client. Arguments as above.
    """
    select = build_cross_platform_selection(model, num_triples, select_na=select_na, na_label=na_label)

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def selection(weights: Value, examples: Value) -> Value:
        return select(tff.federated_broadcast(weights), examples)["chosen"]["selected"]

    return selection


def build_shared_winners(model: LocalModel, num_triples: int) -> tff.Computation:
    """Return a computation that gives every client the sentences selected at all clients of the round.

    (<weights@CLIENTS, examples@CLIENTS> -> <examples@CLIENTS, metrics@SERVER>), with the selection of
    `build_cross_platform_selection`.

    A control, no federated method: the sentences themselves leave their clients, in a sum to the server and a broadcast
    from there. The authors' released code of FedDS does this in its simulation, where one list is shared by mistake.
    The metrics are the selection's and `clients/non_finite`: how many clients had a score that is not finite. These get
    no sentences.
    """
    select = build_cross_platform_selection(model, num_triples)
    chosen_type = select.type_signature.result.chosen.member

    @tff.tensorflow.computation(chosen_type, model.examples_type)
    def give(chosen: Structure, examples: Structure) -> Structure:
        rows = tf.where(chosen["selected"])
        triples = tf.gather_nd(examples[TRIPLE], rows)[:, tf.newaxis]
        table = collections.OrderedDict()
        for name, array in examples.items():
            shape = tf.concat([[num_triples], tf.shape(array)[1:]], axis=0)
            table[name] = tf.ensure_shape(
                tf.scatter_nd(triples, tf.gather_nd(array, rows), shape), [num_triples, *array.shape[1:]]
            )
        present = tf.scatter_nd(triples, tf.ones_like(triples[:, 0]), [num_triples])
        return collections.OrderedDict(table=table, present=present)

    @tff.tensorflow.computation(give.type_signature.result, chosen_type)
    def take(shared: Structure, chosen: Structure) -> Structure:
        # A triple has one winner at the most, so that a sum over clients is that winner's row.
        mask = (shared["present"] > 0) & chosen["finite"]
        return collections.OrderedDict(
            (name, tf.ensure_shape(tf.boolean_mask(array, mask), [None, *array.shape[1:]]))
            for name, array in shared["table"].items()
        )

    @tff.tensorflow.computation(chosen_type)
    def left_out(chosen: Structure) -> tf.Tensor:
        return 1.0 - tf.cast(chosen["finite"], tf.float32)

    metrics_type = select.type_signature.result.metrics.member

    @tff.tensorflow.computation(metrics_type, np.float32)
    def with_count(metrics: Structure, count: tf.Tensor) -> Structure:
        return collections.OrderedDict(metrics, **{"clients/non_finite": count})

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.CLIENTS), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def share(weights: Value, examples: Value) -> Value:
        selected = select(weights, examples)
        chosen = selected["chosen"]
        shared = tff.federated_broadcast(tff.federated_sum(tff.federated_map(give, (chosen, examples))))
        count = tff.federated_sum(tff.federated_map(left_out, chosen))
        return collections.OrderedDict(
            examples=tff.federated_map(take, (shared, chosen)),
            metrics=tff.federated_map(with_count, (selected["metrics"], count)),
        )

    return share


def build_local_shares(model: LocalModel, objective: BagObjective) -> tff.Computation:
    """Return a computation of how much each sentence counts in its local bag.

    (<weights@SERVER, examples@CLIENTS> -> float32[?]@CLIENTS)

    Under these weights and without dropout; where relations attend for themselves, by the attention of the bag's label.
    For a simulation's case study, beside `build_selection`; in a deployment it stays at the client.
    """

    @tff.tensorflow.computation(model.weights_type, model.examples_type)
    def share(weights: Weights, examples: Structure) -> tf.Tensor:
        logits, labels = _logits(model, weights, examples), examples[LABEL]
        triples, bags = tf.unique(examples[TRIPLE])
        shares = objective.shares(logits, labels, bags, tf.size(triples))
        shares = shares if shares.shape.rank == 1 else tf.gather(shares, labels, batch_dims=1)
        return tf.ensure_shape(shares, [None])

    @tff.federated_computation(
        tff.FederatedType(model.weights_type, tff.SERVER), tff.FederatedType(model.examples_type, tff.CLIENTS)
    )
    def local_shares(weights: Value, examples: Value) -> Value:
        return tff.federated_map(share, (tff.federated_broadcast(weights), examples))

    return local_shares


def _logits(model: LocalModel, weights: Weights, examples: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return logits without dropout, float32 [n, C]."""
    with zero_initialisers():
        keras_model = model.build()

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        assign_weights(keras_model, weights)
        return forward(keras_model, examples, "logits", model.num_classes, BATCH)

    return run()


def require_bags(model: LocalModel, who: str) -> None:
    """Raise CompositionError unless the model's examples have `triple` and `platform`."""
    missing = [name for name in (TRIPLE, PLATFORM) if name not in model.input_spec]
    if missing:
        raise CompositionError(
            f"{who} needs bags: examples with {TRIPLE!r} and {PLATFORM!r} in addition to the label, but these have "
            "no " + " and no ".join(map(repr, missing)) + "; choose another algorithm, or train it on bags of sentences"
        )
