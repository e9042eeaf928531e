"""What a run with [privacy] guarantees and what it does not: one statement, made from what the run is.

The terminal, summary.json, the model card, the report and the audit all show this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tff_re.runs.experiment import Experiment
from tff_re.runs.features.privacy import EPSILON, accounting_in
from tff_re.runs.features.shares import noise_is_shared
from tff_re.runs.warm_start import WarmStart, with_start


@dataclass(frozen=True)
class NotCovered:
    """What the guarantee of a run does not cover.

    Attributes:
      text: what it is, with the files of such a run that hold it.
      by_server: whether the server (the coordinator of sites) sees it; else readers of the run's folder do.
    """

    text: str
    by_server: bool = True


def guarantee_of(
    experiment: Experiment, history: Sequence[Mapping[str, float]], start: WarmStart | None
) -> dict[str, Any] | None:
    """What a run guarantees, including the cost of the weights that it started from (see `description`).

    None without [privacy].
    """
    if accounting_in(experiment) is None:
        return None
    return with_start(description(experiment, history), start)


def description(experiment: Experiment, history: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What a run with [privacy] guarantees after the rounds of its history, as plain values for JSON.

    `epsilon` is None where there is no guarantee. `covered` and `not_covered` name what leaves the clients;
    `seen_by_server` is the part of `not_covered` that the server sees.
    """
    privacy, accounting = experiment.recipe.privacy, accounting_in(experiment)
    spent = max((row.get(EPSILON, 0.0) for row in history), default=0.0)
    left_open = not_covered(experiment)
    return {
        "unit": privacy.unit,
        "epsilon": spent if math.isfinite(spent) else None,
        "delta": accounting.delta,
        "budget": accounting.budget,
        "noise_multiplier": accounting.noise_multiplier,
        "clip": privacy.clip,
        "clip_quantile": privacy.clip_quantile,
        "mechanism": "discrete gaussian, in shares" if noise_is_shared(experiment.recipe) else privacy.mechanism,
        "sampling": accounting.sampling,
        "accountant": accounting.accountant,
        "neighbours": f"{accounting.relation} one {privacy.unit}",
        "noise": _noise(experiment),
        "statement": accounting.statement(spent, _server(experiment)),
        "covered": [
            "the clients' weight updates in all rounds, and everything computed from them"
            + ("; all clients have the same weight" if privacy.unit == "client" else "")
        ],
        "not_covered": [line.text for line in left_open],
        "seen_by_server": [line.text for line in left_open if line.by_server],
    }


def not_covered(experiment: Experiment) -> list[NotCovered]:
    """What leaves the clients of a run with [privacy], or stands in its folder, outside of the guarantee."""
    of_clients = experiment.recipe.privacy.unit == "client"
    return [
        *(_of_updates(experiment) if of_clients else _of_participation(experiment)),
        *_of_evaluations(experiment),
        *_of_data(experiment),
        NotCovered("the choice of hyperparameters by looking at other runs on these data", by_server=False),
    ]


def _at_sites(experiment: Experiment) -> bool:
    return bool(experiment.prepared.sites)


def _server(experiment: Experiment) -> str:
    return "coordinator" if _at_sites(experiment) else "server"


def _noise(experiment: Experiment) -> str:
    """Where the noise comes from, as the end of the sentence "the noise comes …"."""
    privacy = experiment.recipe.privacy
    if _at_sites(experiment) and noise_is_shared(experiment.recipe):
        return "in shares, from a secret of each site, which no other party has and nothing in this run's files tells"
    if _at_sites(experiment) and privacy.unit != "client":
        return "from a secret of each site, which no other party has and which is not in this run's files"
    source = {
        "run": "from the run's seed, which is in recipe.toml: anyone who has it can subtract the noise; only for "
        "simulations",
        "system": "from the operating system's randomness, which is not stored",
        "file": "from a secret file, which is not stored with the run",
    }[privacy.noise_seed.partition(":")[0]]
    return f"from the coordinator, {source}" if _at_sites(experiment) else source


def _of_updates(experiment: Experiment) -> list[NotCovered]:
    """With `unit = "client"`, whose noise the server adds, or the sites in shares."""
    duration = "how long rounds took (timings.csv, run.log), which depends on the number of clients"
    if _at_sites(experiment) and noise_is_shared(experiment.recipe):
        return [NotCovered("which sites took part in a round (took_part.csv, run.log)"), NotCovered(duration)]
    lines = [NotCovered("the sum of the clipped updates before the server adds the noise")]
    if _at_sites(experiment):
        lines = [
            NotCovered("each site's sum of clipped updates, to which the coordinator adds the noise"),
            NotCovered(
                "which sites took part in a round (took_part.csv, run.log); sampling protects less against anyone who "
                "knows this"
            ),
        ]
    return [*lines, NotCovered(duration)]


def _of_participation(experiment: Experiment) -> list[NotCovered]:
    """With `unit = "example"` or "group"."""
    recipe = experiment.recipe
    files = ["took_part.csv"] if _at_sites(experiment) else []
    files += ["answers.csv"] if recipe.is_unreliable else []
    named = f" ({', '.join(files)})" if files else ""
    groups = "" if recipe.privacy.unit == "example" else " and of its groups"
    return [
        NotCovered(f"the number of a client's examples{groups}, and in which rounds it took part{named}"),
        NotCovered("how long rounds took (timings.csv, run.log), which depends on the examples that were drawn"),
    ]


def _of_evaluations(experiment: Experiment) -> list[NotCovered]:
    recipe, prepared = experiment.recipe, experiment.prepared
    of_sites, lines = _at_sites(experiment), []
    if recipe.privacy.training_metrics:
        lines.append(
            "the training loss, the number of steps and the number of clients that counted: sums without "
            "noise (metrics.csv)"
        )
    if recipe.evaluation.train_split:
        lines.append("the evaluation of all training examples, without noise (train/... in metrics.csv)")
    if prepared.examples.size("test"):
        lines.append(
            "the evaluation of the sites' test examples: each site's sums without noise (test/... in metrics.csv)"
            if of_sites
            else "the evaluation of every client's test examples, without noise (clients.csv, test/... in metrics.csv, "
            "in comparisons test_units.npz)"
        )
    if prepared.held_out is not None:
        lines.append(f"the choice of the round on the dev split at the {_server(experiment)}")
    elif recipe.choice is not None:
        lines.append("the clients' dev metrics of every round (metrics.csv), and the choice of the round by them")
    if recipe.personalise is not None and recipe.personalise.epochs:
        lines.append("the evaluation of every client after fine-tuning, without noise (clients.csv)")
    return [NotCovered(line) for line in lines]


def _of_data(experiment: Experiment) -> list[NotCovered]:
    prepared, recipe = experiment.prepared, experiment.recipe
    lines = []
    if _at_sites(experiment):
        lines.append(NotCovered("how many examples each client has (sites.json)"))
    if prepared.counts is not None:
        files = "labels.csv" if prepared.partition is None else "partition.json, labels.csv"
        lines.append(NotCovered(f"the clients' sizes and label counts ({files}, plots of them)", by_server=False))
    if recipe.task.get("encoding") in ("words", "characters"):
        counts = "; each site's counts of its words" if _at_sites(experiment) else ""
        lines.append(
            NotCovered(f"the vocabulary: words that at least {recipe.task.options.min_clients} clients hold{counts}")
        )
    if recipe.task.get("dataset") is not None:
        lines.append(NotCovered("the list of classes: every label that occurs"))
    if _at_sites(experiment) and prepared.num_triples is not None:
        lines.append(
            NotCovered("how many facts the sites' bags have, and which sites share them (compared by digests)")
        )
    if prepared.examples.server is not None:
        lines.append(NotCovered(f"the {_server(experiment)}'s own examples"))
    return lines
