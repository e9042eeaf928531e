"""Attacks of clients, for simulations of how much a rule tolerates.

Two seams. Attacks on what a client hands over (`attacked`) change its update behind its local training and in front of
everything else; a flag beside its examples says who attacks. Attacks on data (`flip_labels`, `poisoned`) are plain
functions on a client's arrays before they are handed to the computations.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.client_work.work import ClientWork
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.local_model import LABEL, PLATFORM

ON_UPDATES = ("sign_flip", "scale", "gaussian", "nan", "little_is_enough")
"""See `attacked`."""

CLAIM_ALL = "claim_all"

ON_DATA = ("label_flip", "backdoor")
"""See `flip_labels` and `poisoned`."""

_NOISE = 0x6E6F6973
"""Folded into a client's seed, so that its noise is not that of its batches."""

ChangeUpdate = Callable[[Value, Value, Value], Value]
"""(update, weight, clients at the clients) -> the update that they send, in the context of a computation."""


# On what clients hand over


def attacked(work: ClientWork, kind: str, factor: float = 1.0) -> ClientWork:
    """Return the client work of a round in which some clients attack.

    Use it as `recompose(algorithm, client_work=attacked(...))`.

    A client's value gets a further entry: `clients` are <examples=E, seed=int32[2], attacks=bool>. Those that do not
    attack hand over what they would without. Weights, client states and what travels beside the update stay honest; an
    attacker's update passes none of the checks that its local training makes. What the attackers share is counted in
    the traffic of such a computation.

    Kinds, with D an attacker's own honest update:
      `sign_flip`: -factor D.
      `scale`: factor D; with poisoned data and factor = clients / server step a model replacement (Bagdasaryan et al.
        2020, "How To Backdoor Federated Learning", Eq. 3).
      `gaussian`: noise alone, independent in every coordinate, of a norm of some factor ||D||, from the client's seed.
      `nan`: NaN in every coordinate.
      `little_is_enough`: all attackers send mean - factor std, coordinate by coordinate, of their own honest updates
        (Baruch et al. 2019, "A Little Is Enough", Algorithm 3, whose z is `factor`; see `enough`).
      `claim_all`: Lazy MIL: offers the highest score there is for every triple; `factor` is not used.

    Raises:
      ValueError: for another kind.
      CompositionError: the clients send integers; or, with `claim_all`, have no triples.
    """
    if kind not in (*ON_UPDATES, CLAIM_ALL):
        also = "; it is an attack on data, which is made before the round" if kind in ON_DATA else ""
        raise ValueError(f"kind must be one of {', '.join((*ON_UPDATES, CLAIM_ALL))}, got {kind!r}{also}")
    honest_type = work.clients_type
    if kind == CLAIM_ALL and PLATFORM not in tff.structure.name_list(honest_type["examples"]):
        raise CompositionError(f"{CLAIM_ALL}: clients have no triples that they could claim")
    tensors = tff.structure.flatten(tff.types.to_type([work.update_type]))
    if kind != CLAIM_ALL and any(np.dtype(t.dtype).kind != "f" for t in tensors):
        raise CompositionError(
            f"{kind}: changes updates of floating-point numbers, but the clients send {work.update_type}"
        )
    flagged = collections.OrderedDict(tff.structure.to_elements(honest_type), attacks=tff.TensorType(np.bool_))
    clients_type = tff.types.to_type(flagged)

    @tff.tensorflow.computation(clients_type)
    def as_honest(client: Structure) -> Structure:
        examples = collections.OrderedDict(client["examples"])
        if kind == CLAIM_ALL:
            # Read by `selection.build_cross_platform_selection`.
            platform = examples[PLATFORM]
            examples[PLATFORM] = tf.where(client["attacks"], -1 - platform, platform)
        return collections.OrderedDict(examples=examples, seed=client["seed"])

    inputs_type = collections.OrderedDict(work.inputs, clients=tff.FederatedType(clients_type, tff.CLIENTS))
    change_update = None if kind == CLAIM_ALL else _change(kind, factor, work.update_type, clients_type)

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        clients = inputs["clients"]
        output = run(clients=tff.federated_map(as_honest, clients))
        return {} if change_update is None else {"update": change_update(output["update"], output["weight"], clients)}

    return work.wrapped(change, inputs_type)


def _change(kind: str, factor: float, update_type: tff.Type, clients_type: tff.Type) -> ChangeUpdate:
    """Return (update, weight, clients at the clients) -> the update that they send.

    It is called in the context of a computation.
    """
    if kind == "little_is_enough":
        return _little_is_enough(factor, update_type, clients_type)

    def bad(update: Structure, client: Structure) -> list[tf.Tensor]:
        flat = tf.nest.flatten(update)
        if kind == "nan":
            return [tf.fill(tf.shape(t), tf.constant(np.nan, t.dtype)) for t in flat]
        if kind == "gaussian":
            size = tf.add_n([tf.size(t, tf.int64) for t in flat])
            length = tf.linalg.global_norm([tf.cast(t, tf.float32) for t in flat])
            deviation = factor * length / tf.sqrt(tf.cast(size, tf.float32))
            seed = tf.random.experimental.stateless_fold_in(client["seed"], _NOISE)
            seeds = [tf.random.experimental.stateless_fold_in(seed, index) for index in range(len(flat))]
            noise = (tf.random.stateless_normal(tf.shape(t), s) for t, s in zip(flat, seeds, strict=True))
            return [tf.cast(deviation * n, t.dtype) for n, t in zip(noise, flat, strict=True)]
        sign = -1.0 if kind == "sign_flip" else 1.0
        return [t * tf.cast(sign * factor, t.dtype) for t in flat]

    @tff.tensorflow.computation(update_type, clients_type)
    def corrupt(update: Structure, client: Structure) -> Structure:
        pairs = zip(tf.nest.flatten(update), bad(update, client), strict=True)
        return tf.nest.pack_sequence_as(update, [tf.where(client["attacks"], b, t) for t, b in pairs])

    return lambda update, weight, clients: tff.federated_map(corrupt, (update, clients))


def _little_is_enough(factor: float, update_type: tff.Type, clients_type: tff.Type) -> ChangeUpdate:
    def only(mask: tf.Tensor, update: Structure) -> Structure:
        return tf.nest.map_structure(lambda t: tf.where(mask, t, tf.zeros_like(t)), update)

    @tff.tensorflow.computation(update_type, np.float32, clients_type)
    def known(update: Structure, weight: tf.Tensor, client: Structure) -> Structure:
        counts = client["attacks"] & (weight > 0)
        return collections.OrderedDict(sums=only(counts, update), number=tf.cast(counts, tf.float32))

    known_type = known.type_signature.result

    @tff.tensorflow.computation(known_type)
    def average(total: Structure) -> Structure:
        return tf.nest.map_structure(
            lambda t: tf.math.divide_no_nan(t, tf.cast(total["number"], t.dtype)), total["sums"]
        )

    @tff.tensorflow.computation(update_type, known_type, update_type)
    def deviation(update: Structure, stats: Structure, mean: Structure) -> Structure:
        squares = tf.nest.map_structure(lambda t, m: tf.square(t - m), update, mean)
        return collections.OrderedDict(sums=only(stats["number"] > 0, squares), number=stats["number"])

    @tff.tensorflow.computation(update_type, update_type)
    def crafted(mean: Structure, variance: Structure) -> Structure:
        return tf.nest.map_structure(lambda m, v: m - tf.cast(factor, m.dtype) * tf.sqrt(v), mean, variance)

    @tff.tensorflow.computation(update_type, update_type, clients_type)
    def send(update: Structure, bad: Structure, client: Structure) -> Structure:
        return tf.nest.map_structure(lambda t, b: tf.where(client["attacks"], b, t), update, bad)

    def change(update: Value, weight: Value, clients: Value) -> Value:
        stats = tff.federated_map(known, (update, weight, clients))
        mean = tff.federated_map(average, tff.federated_sum(stats))
        spread = tff.federated_map(deviation, (update, stats, tff.federated_broadcast(mean)))
        variance = tff.federated_map(average, tff.federated_sum(spread))
        bad = tff.federated_broadcast(tff.federated_map(crafted, (mean, variance)))
        return tff.federated_map(send, (update, bad, clients))

    return change


def enough(clients: int, attackers: int) -> float:
    """Return z of `little_is_enough`, the largest for which half of the clients would still be farther from the mean.

    Baruch et al. 2019, Algorithm 3: with s = floor(n/2 + 1) - m, it is the normal quantile of (n - m - s) / (n - m).

    Raises:
      ValueError: unless there are attackers and they are fewer than half of the clients; or so many that s is 0.
    """
    if not 0 < attackers < clients / 2:
        raise ValueError(f"attackers must be above 0 and below half of the {clients} clients, got {attackers}")
    needed = clients // 2 + 1 - attackers
    share = (clients - attackers - needed) / (clients - attackers)
    if not 0 < share < 1:
        raise ValueError(f"with {attackers} of {clients} clients there is no z: {clients - attackers} are honest")
    return statistics.NormalDist().inv_cdf(share)


# On data


def flip_labels(
    examples: Mapping[str, np.ndarray], num_classes: int, target: str = "mirror", row_labels: str | None = None
) -> dict[str, np.ndarray]:
    """Return the client's examples with wrong labels: y -> C-1-y (`mirror`), or y -> y+1 mod C (`next`).

    With `mirror` the class in the middle of an odd number keeps its label, as in the literature. With `row_labels`
    (`LocalModel.row_labels`) the classes of the rows are flipped, such as the tags of tokens; -1 stays.

    Raises:
      ValueError: for another target, or labels that are not one class for each example.
    """
    if target not in ("mirror", "next"):
        raise ValueError(f"target must be 'mirror' or 'next', got {target!r}")
    name = LABEL if row_labels is None else row_labels
    labels = _labels(examples) if row_labels is None else np.asarray(examples[row_labels])
    flipped = num_classes - 1 - labels if target == "mirror" else (labels + 1) % num_classes
    return {**examples, name: np.where(labels < 0, labels, flipped).astype(labels.dtype)}


@dataclasses.dataclass(frozen=True)
class Trigger:
    """The trigger of a backdoor: values at a fixed position of a feature, such as a rare word.

    Attributes:
      feature: name of the array [n, L].
      values: what is written there: word or piece ids, or numbers of a vector.
      position: index of the first value: 0 for the first word; 1 for pieces, after the sentence's start mark.
      target: the class that it stands for.
    """

    feature: str
    values: Sequence[float]
    target: int
    position: int = 0

    def written(self, examples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the examples with the trigger written into every row.

        Raises:
          ValueError: there is no such feature, or it has no room for the values.
        """
        if self.feature not in examples:
            raise ValueError(f"the trigger's feature {self.feature!r} is not one of {sorted(examples)}")
        array = np.array(examples[self.feature])
        end = self.position + len(self.values)
        if array.ndim != 2 or not 0 <= self.position < end <= array.shape[1]:
            raise ValueError(
                f"the trigger's places {self.position} to {end - 1} are not in {self.feature!r}, {array.shape}"
            )
        array[:, self.position : end] = self.values
        return {**examples, self.feature: array}


def poisoned(
    examples: Mapping[str, np.ndarray], trigger: Trigger, share: float = 1.0, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return the client's examples after poisoning.

    A share of those of other classes gets the trigger and its class (Gu et al. 2017, "BadNets", Section 3, and
    Bagdasaryan et al. 2020).

    Args:
      examples: name -> array with a row for each example.
      trigger: see there.
      share: in (0, 1]; at least one example, where there is one of another class.
      seed: chooses them.

    Raises:
      ValueError: for another share, or as `Trigger.written` and `flip_labels`.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, got {share}")
    labels = _labels(examples)
    others = np.flatnonzero(labels != trigger.target)
    number = min(len(others), max(1, round(share * len(others))))
    chosen = np.zeros(len(labels), bool)
    chosen[np.random.default_rng(seed).choice(others, number, replace=False) if number else []] = True
    marked = trigger.written(examples)[trigger.feature]
    rows = chosen.reshape(-1, *[1] * (marked.ndim - 1))
    changed = {
        trigger.feature: np.where(rows, marked, examples[trigger.feature]),
        LABEL: np.where(chosen, trigger.target, labels).astype(labels.dtype),
    }
    return {**examples, **changed}


def triggered(examples: Mapping[str, np.ndarray], trigger: Trigger) -> dict[str, np.ndarray]:
    """Return the test examples of the attack: those of other classes, with the trigger, labelled as its class.

    A model's accuracy on them is the attack's success rate. There may be none.
    """
    rows = np.flatnonzero(_labels(examples) != trigger.target)
    marked = trigger.written({name: np.asarray(array)[rows] for name, array in examples.items()})
    return {**marked, LABEL: np.full(len(rows), trigger.target, np.asarray(examples[LABEL]).dtype)}


def _labels(examples: Mapping[str, np.ndarray]) -> np.ndarray:
    labels = np.asarray(examples[LABEL])
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be one class for each example, got {labels.dtype} {list(labels.shape)}")
    return labels
