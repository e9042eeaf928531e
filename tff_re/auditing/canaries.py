"""A lower bound of epsilon from one training run, by canary clients (Andrew et al. 2023, "One-shot Empirical Privacy
Estimation for Federated Learning", arXiv 2302.03098).

A canary client sends a random direction of the greatest length that counts in place of a trained update. A model that
tells nothing of single clients has the cosine with a canary's direction that it has with one that nobody sent.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.federated_algorithm import FederatedAlgorithm, recompose
from computations.local_model import LocalModel
from tff_re.auditing.advice import Advice
from tff_re.auditing.epsilon_bounds import Estimate, estimate, log_tail
from tff_re.auditing.one_round import (
    build_update,
    first_client_state,
    is_finite,
    no_weights_sent,
    round_clients,
    train_again,
)
from tff_re.auditing.pictures import canaries_png
from tff_re.auditing.sections import Finding, Section
from tff_re.errors import UserError
from tff_re.runs.evaluation import arranged
from tff_re.runs.finished import FinishedRun
from tff_re.runs.folder import RunFolder

MOST_NUMBERS = 2e8
"""Of rounds times weights: up to it the changes of all rounds are kept. Of unobserved directions times weights."""

MOST_UNOBSERVED = 1000
LARGEST_SHOWN = 50
"""Of epsilon: beyond it there is no protection, and how large it is says only how many weights the model has."""

_TITLE = "Canary clients: how visible one client is in the model"


# Canary clients


def direction(model: LocalModel, seed) -> list[tf.Tensor]:
    """A random direction of length one over all trained weights.

    It depends only on the seed, int32 [2], and is the same in graphs and eagerly.
    """
    tensors = [
        tf.random.stateless_normal(kind.shape, tf.random.experimental.stateless_fold_in(seed, index))
        for index, kind in enumerate(model.weights_type.trainable)
    ]
    length = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tensor)) for tensor in tensors]))
    return [tensor / length for tensor in tensors]


def with_canaries(algorithm: FederatedAlgorithm, length: float, weight: float) -> FederatedAlgorithm:
    """The algorithm where a client's value has the field `canary` too: if it is true, the client sends the direction
    of its seed, `length` long and with this weight, in place of what it trained. All else is the algorithm's own."""
    work, model = algorithm.client_work, algorithm.model
    plain_type = work.clients_type
    marked = collections.OrderedDict(tff.structure.to_elements(plain_type), canary=tff.TensorType(np.bool_))
    update_type, weight_type = (work.next.type_signature.result[name].member for name in ("update", "weight"))

    @tff.tensorflow.computation(tff.types.to_type(marked))
    def plain(client):
        return collections.OrderedDict((name, client[name]) for name in ("examples", "seed"))

    sent_type = tff.types.to_type(
        collections.OrderedDict(
            update=update_type, weight=weight_type, seed=plain_type.seed, canary=tff.TensorType(np.bool_)
        )
    )

    @tff.tensorflow.computation(sent_type)
    def replaced(sent):
        def canary():
            return [length * tensor for tensor in direction(model, sent["seed"])]

        trained = tf.nest.flatten(sent["update"])
        update = tf.cond(sent["canary"], canary, lambda: [tf.identity(tensor) for tensor in trained])
        update = [tf.ensure_shape(new, old.shape) for new, old in zip(update, trained, strict=True)]
        return collections.OrderedDict(
            update=tf.nest.pack_sequence_as(sent["update"], update),
            weight=tf.where(sent["canary"], tf.constant(weight, sent["weight"].dtype), sent["weight"]),
        )

    inputs_type = collections.OrderedDict(work.inputs, clients=tff.FederatedType(marked, tff.CLIENTS))

    def change(inputs, run):
        clients = inputs["clients"]
        output = run(clients=tff.federated_map(plain, clients))
        flags = {"seed": clients["seed"], "canary": clients["canary"]}
        zipped = collections.OrderedDict(update=output["update"], weight=output["weight"], **flags)
        sent = tff.federated_map(replaced, tff.federated_zip(zipped))
        return {"update": sent["update"], "weight": sent["weight"]}

    return recompose(algorithm, client_work=work.wrapped(change, inputs_type))


@dataclass(frozen=True)
class Claim:
    """What a run's summary.json claims of privacy.

    `epsilon` is None if it makes no claim.
    """

    unit: str | None = None
    epsilon: float | None = None
    delta: float | None = None


def claim_of(folder: RunFolder) -> Claim:
    """The guarantee in summary.json. Raises UserError if that cannot be read."""
    try:
        privacy = json.loads(folder.summary.read_text("utf-8")).get("privacy") or {}
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{folder.summary}: cannot be read; finish the run with: train --resume") from None
    return Claim(privacy.get("unit"), privacy.get("epsilon"), privacy.get("delta"))


@dataclass(frozen=True)
class Cosines:
    """Of the model's changes with directions.

    Attributes:
      final: [n], of the change over all rounds.
      rounds: [T, n], of each round's change; None where they were not kept.
    """

    final: np.ndarray
    rounds: np.ndarray | None

    @property
    def largest(self) -> np.ndarray:
        """[n], of the rounds."""
        return self.rounds.max(axis=0)


@dataclass(frozen=True)
class Tried:
    """A training with canaries: cosines of those that took part in at least one round and of directions that nobody
    sent, and the number of weights and rounds."""

    observed: Cosines
    unobserved: Cosines
    dimension: int
    rounds: int


def train_with_canaries(
    run: FinishedRun, count: int, seed: int, length: float, weight: float, say: Callable[[str], None]
) -> Tried:
    """Trains once more with `count` canaries, each of which takes part in a round with the rate of the clients."""
    experiment = run.experiment
    model = experiment.model
    ids, examples = arranged(experiment, "train")
    rate = experiment.clients_per_round / len(ids)
    draw = np.random.default_rng([seed, 7])
    seeds = draw.integers(-(2**31), 2**31, [count + MOST_UNOBSERVED, 2]).astype(np.int32)
    rounds = experiment.recipe.training.rounds
    taking_part = draw.random([rounds, count]) < rate
    nothing = type(examples[0])((name, value[:0]) for name, value in examples[0].items())
    state = first_client_state(experiment, nothing, seed)

    def add_canaries(round_num, clients, states):
        chosen = np.flatnonzero(taking_part[round_num - 1])
        marked = [collections.OrderedDict(client, canary=np.bool_(False)) for client in clients]
        marked += [collections.OrderedDict(examples=nothing, seed=seeds[i], canary=np.bool_(True)) for i in chosen]
        return marked, [*states, *(list(state) * len(chosen))]

    dimension = sum(int(np.prod(t.shape)) for t in model.weights_type.trainable)
    every_round = rounds * dimension <= MOST_NUMBERS
    changes, ends = [], []

    def on_round(round_num, weights):
        if 10 * round_num // rounds > 10 * (round_num - 1) // rounds:  # some ten times
            say(f"training with canaries, round {round_num} of {rounds}")
        flat = np.concatenate([np.ravel(value) for value in weights.trainable]).astype(np.float32)
        if every_round and ends:
            changes.append(ends[-1] - flat)  # updates are global minus local
        if len(ends) > 1:
            ends.pop()
        ends.append(flat)

    algorithm = with_canaries(experiment.algorithm, length, weight)
    weights = train_again(experiment, algorithm, ids, examples, seed, change_round=add_canaries, on_round=on_round)
    if not is_finite(weights):
        raise UserError(
            f"{experiment.recipe.source}: the weights became NaN or infinite in the training with canaries; give "
            "another --seed, or fewer --canaries"
        )
    unobserved = int(np.clip(MOST_NUMBERS / dimension, count, MOST_UNOBSERVED))
    sent = np.flatnonzero(taking_part.any(axis=0))
    whole = ends[0] - ends[-1]
    say("cosines with the canaries' directions")

    def cosines(chosen):
        return _cosines(model, chosen, whole, np.stack(changes) if every_round else None)

    return Tried(cosines(seeds[sent]), cosines(seeds[count : count + unobserved]), dimension, rounds)


def _cosines(model: LocalModel, seeds: np.ndarray, whole: np.ndarray, changes: np.ndarray | None) -> Cosines:
    drawn = tf.function(lambda seed: tf.concat([tf.reshape(t, [-1]) for t in direction(model, seed)], 0))
    vectors = whole[None] if changes is None else np.concatenate([whole[None], changes])
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    cosines = np.stack([vectors @ drawn(tf.constant(seed)).numpy() for seed in seeds], axis=1)
    cosines = np.divide(cosines, lengths[:, None], out=np.zeros_like(cosines, np.float64), where=lengths[:, None] > 0)
    return Cosines(cosines[0], None if changes is None else cosines[1:])


def _usual_length(run: FinishedRun, seed: int) -> float:
    """The median length of the updates of the first round's clients."""
    experiment = run.experiment
    ids, examples = arranged(experiment, "train")
    chosen, clients = round_clients(experiment, ids, examples, 1, seed)
    update_of, weights = build_update(experiment.algorithm), experiment.model.initial_weights(seed)
    lengths = []
    for i, client in zip(chosen, clients, strict=True):
        states = [[state] for state in first_client_state(experiment, examples[i], seed)]
        (update,) = update_of(weights, [client], *states)
        lengths.append(np.sqrt(sum(float(np.sum(np.square(tensor, dtype=np.float64))) for tensor in update)))
    return float(np.median(lengths))


# The part of the report


def audit_canaries(run: FinishedRun, seed: int, count: int, out: Path, say: Callable[[str], None]) -> Section:
    """Returns the report's section on canaries and writes its picture to `out`."""
    section, experiment = Section(_TITLE), run.experiment
    if count == 0:
        section.not_applicable = "--canaries 0 was given"
        return section
    if (reason := no_weights_sent(experiment.algorithm)) is not None:
        section.not_applicable = reason
        return section
    claim = claim_of(run.folder)
    privacy = experiment.recipe.privacy
    of_clients = experiment.recipe.privacy_unit == "client"
    ids, examples = arranged(experiment, "train")
    delta = claim.delta or 0.1 / len(ids)
    say("lengths of the clients' updates")
    length = float(privacy.clip) if of_clients else _usual_length(run, seed)
    weight = 1.0 if of_clients or _uniform(experiment) else float(np.median([len(arrays["y"]) for arrays in examples]))
    tried = train_with_canaries(run, count, seed, length, weight, say)
    estimates = _estimates(tried, delta, seed)
    section.tried.append(
        f"The run was trained once more with {count} canary clients in addition to the {len(ids)} real ones. Each "
        f"takes part in a round as often as a real client ({experiment.clients_per_round} of {len(ids)}). A canary "
        f"sends a random direction, {length:.3g} long ("
        + ("the clip of the run" if of_clients else "the median of the real clients' updates in the first round")
        + f"), through the run's own aggregator. {len(tried.observed.final)} of them took part at least once. Then "
        f"the change of the model was compared with their directions and with {len(tried.unobserved.final)} "
        "directions that nobody sent."
    )
    table, csv = [], [["adversary", "kind", "cosine"]]
    for who, (result, observed, unobserved) in estimates.items():
        low, high = result.interval
        table.append([who, _text(result.lower), f"{_text(result.epsilon)} ({_text(low)} to {_text(high)})"])
        csv += [[who, kind, float(v)] for kind, values in (("canary", observed), ("none", unobserved)) for v in values]
        section.numbers[who] = {"lower_bound": result.lower, "estimate": result.epsilon, "interval": result.interval}
        section.findings.append(
            Finding(
                f"ε of a client against {who}: at least",
                min(result.lower, LARGEST_SHOWN),
                (min(result.lower, LARGEST_SHOWN), claim.epsilon if _comparable(claim) else float("inf")),
                None,
                Advice(privacy).noise_on_sum,
                False,
            )
        )
    best = max(result.lower for result, _, _ in estimates.values())
    section.numbers |= {
        "canaries": count,
        "taking_part": len(tried.observed.final),
        "unobserved": len(tried.unobserved.final),
        "delta": delta,
        "length": length,
        "weights": tried.dimension,
        "claim": dataclasses.asdict(claim),
        "below_the_claim": best <= claim.epsilon if _comparable(claim) else None,
    }
    heading = ("who looks", "ε is at least (95 %)", "estimate of ε (normal distributions)")
    section.tables.append((f"Lower bounds and estimates of ε at δ = {delta:.2g}", heading, table))
    section.files["canaries.csv"] = csv
    canaries_png(out / "canaries.png", {who: values for who, (_, *values) in estimates.items()})
    section.pictures.append((out / "canaries.png", "Cosines with the canaries' directions and with others"))
    section.results.append(_against_claim(claim, best))
    section.means += _meaning(best, claim)
    section.not_tried += [
        "Canaries that are the worst case for a certain mechanism or model; random directions give less than the "
        "true ε.",
        "Canary examples or patients inside a client.",
        "Many runs: cosines of canaries in one run are treated as independent. They nearly are if the model has many "
        "more weights than there are canaries.",
    ]
    if len(estimates) == 1:
        section.not_tried.append("An attacker who sees every round: the changes of all rounds do not fit into memory.")
    return section


def _uniform(experiment) -> bool:
    """Whether all clients have one weight."""
    return getattr(experiment.recipe.algorithm.options, "weighting", "uniform") == "uniform"


def _estimates(tried: Tried, delta: float, seed: int) -> dict[str, tuple[Estimate, np.ndarray, np.ndarray]]:
    if len(tried.observed.final) < 2:
        raise UserError("fewer than two canaries took part in a round; give more --canaries")
    final = estimate(
        tried.observed.final, (0.0, tried.dimension**-0.5), lambda t: log_tail(t, tried.dimension), delta, seed
    )
    estimates = {"the final model": (final, tried.observed.final, tried.unobserved.final)}
    if tried.observed.rounds is not None:
        seen, not_seen = tried.observed.largest, tried.unobserved.largest

        def of_any_round(thresholds):
            # That it passes in one of the rounds is at most so often as the sum over the rounds.
            return np.minimum(np.log(tried.rounds) + log_tail(thresholds, tried.dimension), 0.0)

        null = float(not_seen.mean()), float(not_seen.std(ddof=1))
        estimates["every round's model"] = (estimate(seen, null, of_any_round, delta, seed), seen, not_seen)
    return estimates


def _comparable(claim: Claim) -> bool:
    return claim.epsilon is not None and claim.unit in (None, "client")


def _against_claim(claim: Claim, lower: float) -> str:
    if claim.epsilon is None:
        return f"The run claims no ε. A client's ε is at least {_text(lower)}, as measured."
    if not _comparable(claim):
        return (
            f"The run claims ε = {claim.epsilon:.2f} for one {claim.unit} of a client. A canary is a whole client, "
            f"which the claim does not cover, so the two cannot be compared. A client's ε is at least {_text(lower)}."
        )
    claimed = f"The run claims ε = {claim.epsilon:.2f} for a client."
    if lower <= claim.epsilon:
        return f"{claimed} The lower bound, {_text(lower)}, is below it: the measurement does not contradict the claim."
    return (
        f"{claimed} THE LOWER BOUND, {_text(lower)}, IS ABOVE IT: THE CLAIM IS WRONG, or the run was not trained "
        "as claimed."
    )


def _text(epsilon: float) -> str:
    return f"{epsilon:.2f}" if epsilon <= LARGEST_SHOWN else f"more than {LARGEST_SHOWN}"


def _meaning(lower: float, claim: Claim) -> list[str]:
    said = [
        "ε limits by what factor, e^ε, taking part in the training can change what somebody believes about a client. "
        "Near 0 nothing is learned; at 1 odds change by a factor below 3, at 5 by up to 150. The claim is a proven "
        "upper bound; the audit measures a lower bound. The true value lies between them."
    ]
    if lower > 0:
        said.append("The model shows that a client took part, even to somebody without the client's data.")
    elif claim.epsilon is None:
        said.append("A lower bound of zero proves nothing: more canaries or a stronger attack may find more.")
    return said
