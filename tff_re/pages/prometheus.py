"""A run's numbers in Prometheus' text form (version 0.0.4)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tff_re.pages.live_page import EPSILON
from tff_re.runs.live import FINISHED, SECONDS, TRAINING, LiveRun

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, Any], float]


def exposition(run: LiveRun) -> str:
    """All metrics of a run: its state, the last value of each metric, seconds, bytes, sites, privacy, log."""
    lines: list[str] = []

    def add(name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        rows = [f"tff_re_{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
        if rows:
            lines.extend(
                (f"# HELP tff_re_{name} {_escaped(text, quotes=False)}", f"# TYPE tff_re_{name} {kind}", *rows)
            )

    for name, kind, text, samples in (*_state(run), *_costs(run), *_of_sites(run), *_privacy(run), *_metrics(run)):
        add(name, kind, text, samples)
    counts = [({"event": event, "level": level}, n) for (event, level), n in sorted(run.log.counts.items())]
    add("log_events_total", "counter", "Lines of the log by event.", counts)
    return "\n".join(lines) + "\n"


def _state(run: LiveRun):
    recipe = run.recipe
    labels = {"recipe": recipe.get("name", "")}
    if "privacy" not in recipe:  # its noise may be drawn from the seed
        labels["seed"] = recipe.get("seed", "")
    labels |= {table: recipe.get(table, {}).get("name", "") for table in ("algorithm", "model", "task")}
    yield "run_info", "gauge", "What is trained.", [(labels, 1)]
    yield "training", "gauge", "1 while a process trains in the folder.", [({}, run.state == TRAINING)]
    yield "finished", "gauge", "1 after the results are written.", [({}, run.state == FINISHED)]
    yield "round", "gauge", "The last round whose row is written; 0 before the first.", [({}, run.done)]
    yield "rounds", "gauge", "Rounds of the recipe.", [({}, run.rounds)]
    changed = [] if run.changed is None else [({}, run.changed)]
    yield "last_round_timestamp_seconds", "gauge", "When the last round was written.", changed
    end = [] if run.end is None else [({}, run.end)]
    yield "estimated_end_timestamp_seconds", "gauge", "The estimated end, while a process trains.", end


def _costs(run: LiveRun):
    last, totals = [], []
    for name in SECONDS:
        values = [seconds[name] for _, seconds in sorted(run.timings.items()) if name in seconds]
        if values:
            labels = {"stage": name.partition("/")[2]}
            last.append((labels, values[-1]))
            totals.append((labels, math.fsum(values)))
    sizes = []
    for (purpose, stage), rounds in sorted(run.log.stages.items()):
        labels, newest = {"stage": f"{purpose}/{stage}"}, rounds[max(rounds)]
        last.append((labels, newest["seconds"]))
        totals.append((labels, math.fsum(values["seconds"] for values in rounds.values())))
        if not _hides_sampling(run):
            sizes += [({**labels, "direction": way}, newest[f"bytes_{way}"]) for way in ("down", "up")]
    yield "stage_seconds", "gauge", "Seconds of the last training, evaluation and stages at sites.", last
    yield "stage_seconds_total", "counter", "Seconds of all rounds.", totals
    yield "stage_bytes", "gauge", "Bytes of arrays of the last stage at sites.", sizes
    each = [] if run.bytes_of_client is None else zip(("down", "up"), run.bytes_of_client, strict=True)
    text = "Bytes that the algorithm sends to and from a client in a round."
    yield "client_round_bytes", "gauge", text, [({"direction": way}, size) for way, size in each]


def _hides_sampling(run: LiveRun) -> bool:
    """Whether who was sampled is a secret, which numbers of sites and bytes of a round would tell."""
    return run.recipe.get("privacy", {}).get("unit") == "client"


def _of_sites(run: LiveRun):
    sites = () if _hides_sampling(run) else run.sites
    rounds = [({"site": site}, sum(site in row for row in run.took_part.values())) for site in sites]
    yield "site_rounds_total", "counter", "Rounds in which a site's answers count.", rounds
    quorum = run.log.last.get("sites.agreed", {}).get("quorum")
    text = "Fraction of a round's clients that is enough if sites fail."
    yield "quorum_ratio", "gauge", text, [] if quorum is None else [({}, quorum)]
    least = run.recipe.get("training", {}).get("min_clients")
    yield "quorum_clients", "gauge", "Clients whose answers a round needs.", [({}, least)] if least else []


def _privacy(run: LiveRun):
    table, spent = run.recipe.get("privacy", {}), run.last.get(EPSILON)
    yield "epsilon_spent", "gauge", "ε that the rounds so far have spent.", [] if spent is None else [({}, spent)]
    for name, key, text in (("epsilon_budget", "epsilon", "ε of the recipe."), ("delta", "delta", "δ of the recipe.")):
        yield name, "gauge", text, [({}, table[key])] if table.get(key) is not None else []


def _metrics(run: LiveRun):
    """The last value of each column of metrics.csv, with a label for columns that would have one name."""
    columns = defaultdict(list)
    for column in run.last:
        if column != EPSILON:
            columns[re.sub(r"[^a-zA-Z0-9_]", "_", column)].append(column)
    for name, of_name in columns.items():
        several = len(of_name) > 1
        samples = [({"metric": column} if several else {}, run.last[column]) for column in of_name]
        yield name, "gauge", f"The last {', '.join(of_name)} of metrics.csv.", samples


def _labels(labels: Mapping[str, Any]) -> str:
    parts = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]
    return "{" + ",".join(parts) + "}" if parts else ""


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
