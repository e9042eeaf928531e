"""Whether the trained model tells that an example was among the training examples.

The loss threshold is Yeom et al.'s (2018, "Privacy Risk in Machine Learning", Section 3.2): members have lower losses.
The attack with shadow models is the likelihood ratio of Carlini et al. (2022, "Membership Inference Attacks From First
Principles", Algorithm 1, "LiRA"), with one variance for all examples, as they advise where shadow models are few.
Both are judged as they ask for: by the true positive rate at a low false positive rate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from computations.local_model import LABEL, LocalModel, features_of
from tff_re.auditing.advice import Advice
from tff_re.auditing.one_round import is_finite, train_again
from tff_re.auditing.pictures import membership_png
from tff_re.auditing.sections import CONFIDENCE, Finding, Section, exact_interval
from tff_re.errors import UserError
from tff_re.runs.experiment import Experiment
from tff_re.runs.finished import FinishedRun

FALSE_POSITIVE_RATES = (0.001, 0.01)
LARGEST_SHADOW = 2_000_000
"""Weights of a model that is trained again as a shadow."""

RESAMPLES = 300
_BATCH = 256
_TITLE = "Membership: does the model reveal who was in the training data?"


@dataclass(frozen=True)
class Attack:
    """How well scores separate members from others.

    Attributes:
      auc, auc_interval: area under the ROC curve and its bootstrap interval.
      rates: false positive rate -> (true positive rate, its Clopper-Pearson interval at that threshold).
      curve: (false positive rates, true positive rates), increasing.
    """

    auc: float
    auc_interval: tuple[float, float]
    rates: dict[float, tuple[float, tuple[float, float]]]
    curve: tuple[np.ndarray, np.ndarray]


def judge(members: np.ndarray, others: np.ndarray, seed: int) -> Attack:
    """Scores [n] and [m], higher for what looks like a member, of which there is at least one each.

    The threshold for a false positive rate p lets at most a share p of the others pass: with fewer than 1/p others
    none of them.
    """
    truth = np.repeat([1, 0], [len(members), len(others)])
    auc = float(roc_auc_score(truth, np.concatenate([members, others])))
    draw = np.random.default_rng([seed, 4])
    drawn = [
        roc_auc_score(truth, np.concatenate([draw.choice(members, len(members)), draw.choice(others, len(others))]))
        for _ in range(RESAMPLES)
    ]
    outside = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [outside, 100 - outside])
    ranked = np.sort(others)[::-1]
    rates = {}
    for rate in FALSE_POSITIVE_RATES:
        threshold = ranked[math.floor(rate * len(others))]  # that one and those below it do not pass
        hits = int((members > threshold).sum())
        rates[rate] = (hits / len(members), exact_interval(hits, len(members)))
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    curve = tuple(
        np.concatenate([[0.0], 1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)])
        for scores in (others, members)
    )
    return Attack(auc, (float(low), float(high)), rates, curve)


def outputs_of(model: LocalModel, weights, examples) -> tuple[np.ndarray, np.ndarray]:
    """(losses, confidences), float64 [n] each.

    The confidence is log p - log (1 - p) of the example's label.
    """
    keras = model.keras_model(weights)
    losses, confidences = [], []
    for start in range(0, len(examples[LABEL]), _BATCH):
        batch = {name: tf.constant(value[start : start + _BATCH]) for name, value in examples.items()}
        outputs = keras(features_of(batch), training=False)
        losses.append(np.asarray(model.losses(batch[LABEL], outputs), np.float64))
        logits = np.asarray(outputs["logits"], np.float64)
        labels = np.asarray(batch[LABEL])
        rows = np.arange(len(labels))
        of_label = logits[rows, labels]
        logits[rows, labels] = -np.inf
        highest = logits.max(axis=1)
        confidences.append(of_label - highest - np.log(np.exp(logits - highest[:, None]).sum(axis=1)))
    return np.concatenate(losses), np.concatenate(confidences)


def likelihood_ratios(confidences: np.ndarray, shadows: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Log likelihood ratios [n] of "was trained on" against "was not".

    Args:
      confidences: [n], of the audited model.
      shadows: [S, n], of the shadow models.
      inside: bool [S, n], whether a shadow model was trained on the example; of each example both occur.
    """
    ratios = np.zeros(len(confidences))
    for member, sign in ((True, 1), (False, -1)):
        mask = inside == member
        mean = np.sum(shadows * mask, axis=0) / mask.sum(axis=0)
        freedom = mask.sum() - mask.shape[1]
        variance = np.sum(((shadows - mean) * mask) ** 2) / max(freedom, 1)
        variance = max(variance, 1e-12)
        ratios -= sign * ((confidences - mean) ** 2 / variance + np.log(variance)) / 2  # the normal density's
    return ratios


def audit_membership(run: FinishedRun, seed: int, shadows: int, out: Path, say: Callable[[str], None]) -> Section:
    """Returns the report's section on membership and writes its picture to `out`."""
    section, experiment = Section(_TITLE), run.experiment
    federated, model = experiment.prepared.examples, experiment.model
    if model.rows is not None:
        section.not_applicable = (
            "its examples are documents with many pairs, and a single pair is not a member"
            if model.row_labels is None
            else "its examples are texts with a tag for each token, but the attacks need examples with one label"
        )
        return section
    if not federated.size("test"):
        section.not_applicable = (
            "its clients have no test examples; the bags and documents at the server differ from the training "
            "examples in more than membership"
        )
        return section
    members, others = (model.arrange(federated.pooled(split)) for split in ("train", "test"))
    n, m = len(members[LABEL]), len(others[LABEL])
    say("losses of training and test examples")
    of_members, of_others = (outputs_of(model, run.weights, arrays) for arrays in (members, others))
    attacks = {"loss threshold": judge(-of_members[0], -of_others[0], seed)}
    section.tried.append(
        f"{n:,} training examples (members) and {m:,} test examples (others) of all clients were put together, which "
        "only an audit of a simulation can do. The loss threshold calls an example a member if the model's loss on it "
        "is low."
    )
    reason = _why_no_shadows(experiment, shadows)
    if reason is None:
        attacks["shadow models"] = _shadow_attack(experiment, seed, shadows, of_members[1], of_others[1], say)
        section.tried.append(
            f"{shadows} shadow models were trained by the same recipe, each on a random half of the clients' examples. "
            "For each example, those trained with it and without it are compared with the audited model (LiRA)."
        )
    else:
        section.not_tried.append(f"Shadow models: {reason}.")
    cover = Advice(experiment.recipe.privacy).membership
    table, csv = [], [["attack", "false_positive_rate", "true_positive_rate"]]
    for name, attack in attacks.items():
        low, high = attack.auc_interval
        cells = [f"{attack.auc:.3f} ({low:.3f} to {high:.3f})"]
        for rate in FALSE_POSITIVE_RATES:
            value, (below, above) = attack.rates[rate]
            cells.append(f"{value:.1%} ({below:.1%} to {above:.1%})")
        table.append([name, *cells])
        section.findings.append(Finding(f"membership, {name}: AUC", attack.auc, attack.auc_interval, 0.5, cover, False))
        rate = FALSE_POSITIVE_RATES[-1]
        value, interval = attack.rates[rate]
        section.findings.append(
            Finding(f"membership, {name}: members found at {rate:.0%} false alarms", value, interval, rate, cover)
        )
        section.numbers[name] = {
            "auc": attack.auc,
            "auc_interval": attack.auc_interval,
            "true_positive_rate_at": {str(rate): true_rate for rate, true_rate in attack.rates.items()},
        }
        csv += [[name, float(x), float(y)] for x, y in zip(*attack.curve, strict=True)]
    section.numbers |= {"members": n, "others": m, "shadows": shadows if reason is None else 0}
    section.files["membership.csv"] = csv
    membership_png(out / "membership.png", {name: attack.curve for name, attack in attacks.items()})
    section.pictures.append((out / "membership.png", "Members found against false alarms, both on a logarithmic scale"))
    heading = ("attack", "AUC", *(f"members found at {rate:.1%} false alarms" for rate in FALSE_POSITIVE_RATES))
    section.tables.append(("Membership", heading, table))
    best = max(attacks, key=lambda name: attacks[name].auc_interval[0])
    low = attacks[best].auc_interval[0]
    section.results.append(
        f"The better attack ({best}) tells members from others with an AUC of {attacks[best].auc:.3f}, where 0.5 is a "
        "guess and 1 is certainty."
    )
    if m < 1 / FALSE_POSITIVE_RATES[0]:
        section.results.append(
            f"With {m:,} others a rate of false alarms below {1 / m:.1%} cannot be measured; for lower rates in the "
            "table not a single false alarm is allowed."
        )
    section.means.append(_meaning(low))
    section.not_tried += [
        "Membership of a whole client, patient or document with several examples.",
        "Attacks with hundreds of shadow models, which find more; a low number here is not a proof.",
    ]
    return section


def _why_no_shadows(experiment: Experiment, shadows: int) -> str | None:
    """Why no shadow models are trained, or None if they are."""
    size = sum(int(np.prod(t.shape)) for t in experiment.model.weights_type.trainable)
    if shadows == 0:
        return "--shadows 0 was given"
    if experiment.algorithm.server_type is not None:
        return "the run's server trains on its own examples, and all shadow models would share them"
    if size > LARGEST_SHADOW:
        return f"the model has {size:,} trained weights, and shadow models are trained only up to {LARGEST_SHADOW:,}"
    return None


def _meaning(low: float) -> str:
    if low <= 0.5:
        return "The model does not measurably reveal who was in the training data."
    if low < 0.6:
        return (
            "The model reveals a little about who was in the training data. For a single person it is hardly better "
            "than a guess, but look at the share found at few false alarms: these are the people at risk."
        )
    return (
        "Anyone who has the model and a person's text can tell better than by a guess whether it was in the training "
        "data. If being in the data says something about a person (a ward's patients), treat the model as personal "
        "data."
    )


def _shadow_attack(
    experiment: Experiment, seed: int, shadows: int, of_members: np.ndarray, of_others: np.ndarray, say
) -> Attack:
    model = experiment.model
    clients = experiment.prepared.examples.clients
    order = [(client, split) for split in ("train", "test") for client in clients]
    sizes = [len(getattr(client, split)[LABEL]) for client, split in order]
    starts = np.cumsum([0, *sizes])
    total, half = int(starts[-1]), shadows // 2
    pooled = [experiment.prepared.examples.pooled(split) for split in ("train", "test")]
    everything = model.arrange({name: np.concatenate([part[name] for part in pooled]) for name in pooled[0]})
    # Of the shadow models half are trained on an example, so that each has some on both sides.
    draw = np.random.default_rng([seed, 5])
    inside = np.argsort(draw.random([shadows, total]), axis=0) < max(half, 1)
    confidences = np.zeros([shadows, total])
    for number in range(shadows):
        say(f"shadow model {number + 1} of {shadows}")
        ids, examples = [], []
        for index, client in enumerate(clients):
            rows = [
                start + np.flatnonzero(inside[number, start : start + sizes[at]])
                for at in (index, index + len(clients))
                for start in [starts[at]]
            ]
            rows = np.concatenate(rows)
            if len(rows):
                ids.append(client.client_id)
                examples.append(collected(everything, rows))
        # A client may be left without examples.
        shadow = dataclasses.replace(experiment, clients_per_round=min(experiment.clients_per_round, len(ids)))
        weights = train_again(shadow, experiment.algorithm, ids, examples, seed + number + 1)
        if not is_finite(weights):
            raise UserError(
                f"{experiment.recipe.source}: the weights of shadow model {number + 1} became NaN or infinite; give "
                "another --seed, or --shadows 0"
            )
        confidences[number] = outputs_of(model, weights, everything)[1]
    ratios = likelihood_ratios(np.concatenate([of_members, of_others]), confidences, inside)
    return judge(ratios[: len(of_members)], ratios[len(of_members) :], seed)


def collected(examples, rows: np.ndarray):
    """The rows of examples, in the model's order of names."""
    return type(examples)((name, value[rows]) for name, value in examples.items())
