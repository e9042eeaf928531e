"""values.csv and values.json: what each run of a comparison measured, and the tables made from these two files."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from datasets.files import csv_text, write_atomically
from tff_re.comparison.rows import ComparisonRow, Guarantee, PublishedGain, Table
from tff_re.comparison.statistics import MetricSummary
from tff_re.errors import UserError

if TYPE_CHECKING:
    from tff_re.comparison.outcome import Outcome
    from tff_re.comparison.suite import ClaimOptions, Entry, Suite
    from tff_re.comparison.units_file import Units
    from tff_re.tasks.measured_units import MeasuredUnits

VALUES, FACTS, FORMAT = "values.csv", "values.json", 1


class Value(NamedTuple):
    """A number that a run left, a row of values.csv.

    Attributes:
      group, entry: the table and its row.
      kind: `method`, `control`, `local`, `pooled`, `trivial` or `oracle`.
      seed: of the run.
      metric: as metrics.csv names it, in its own unit, or one of `bytes_up`, `bytes_down` (a client, a round),
        `seconds_per_round`, `steps`, `epsilon`, `rounds to METRIC TARGET`.
      values: `best` over the rounds, `chosen` (in the round that dev chose), `final` (mean over the last tenth of the
        rounds); '' for what a run has once.
      round: that of a best or chosen value, the last one of a final value; None: none.
      value: None: never reached.
      test_examples: that the run was tested on; None: unknown.
      commit, processor: of the code and of the machine; '' where the run does not say.
    """

    group: str
    entry: str
    kind: str
    seed: int
    metric: str
    values: str
    round: int | None
    value: float | None
    test_examples: int | None = None
    commit: str = ""
    processor: str = ""


def metric_options(metric: str) -> dict[str, bool]:
    """How a summary shows a metric: losses as they are and lower is better, others in percent."""
    return dict.fromkeys(("higher_is_better", "percent"), not metric.endswith("loss"))


def collect(suite: Suite, outcomes: Mapping[str, Mapping[int, Outcome]]) -> list[Value]:
    """All numbers of a comparison's runs, table by table."""
    values = []
    for group, entries in suite.groups().items():
        for entry in entries:
            role = entry.recipe_for(suite.seeds[0]).role
            kind = role if role != "federated" else "control" if entry.control else "method"
            for seed, outcome in outcomes[entry.name].items():
                origin = outcome.test_examples, outcome.commit, outcome.processor
                for metric, which, round_num, value in _of_run(suite, outcome):
                    values.append(Value(group, entry.title, kind, seed, metric, which, round_num, value, *origin))
        values += _references(group, entries, suite.metrics, outcomes)
    return values


def _of_run(suite: Suite, outcome: Outcome) -> Iterator[tuple[str, str, int | None, float | None]]:
    """(metric, values, round, value)."""
    chosen = {} if suite.choose_by is None else outcome.of_run | outcome.at_best(suite.choose_by)
    for name in suite.metrics:
        measured = [(row.get("round"), row[name]) for row in (*outcome.history, outcome.of_run) if name in row]
        if not measured:
            continue
        summary = MetricSummary.from_rounds({0: [value for _, value in measured]}, **metric_options(name))
        best = next((number for number, value in measured if value == summary.best[0]), None)
        yield name, "best", _whole(best), summary.best[0]
        if suite.choose_by is not None:
            yield name, "chosen", _whole(chosen.get("round")), chosen.get(name, math.nan)
        yield name, "final", _whole(measured[-1][0]), summary.final[0]
    for name, target in suite.targets.items():
        yield _target(name, target), "", None, outcome.rounds_to(name, target)
    for name in ("bytes_up", "bytes_down", "seconds_per_round"):
        yield name, "", None, getattr(outcome, name)
    if suite.steps and outcome.steps is not None:
        yield "steps", "", None, outcome.steps
    if outcome.privacy:
        epsilon = outcome.privacy["epsilon"]
        yield "epsilon", "", None, math.inf if epsilon is None else epsilon


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _target(metric: str, target: float) -> str:
    return f"rounds to {metric} {target:g}"


def _references(
    group: str, entries: Sequence[Entry], metrics: Sequence[str], outcomes: Mapping[str, Mapping[int, Outcome]]
) -> Iterator[Value]:
    """What a table's data give without training: a row for each title, or for each entry where entries on different
    data share a title."""
    by_title: dict[str, dict[str, dict[tuple[str, int], Value]]] = {}  # title -> entry -> (metric, seed) -> value
    for entry in entries:
        for seed, outcome in outcomes[entry.name].items():
            for title, measured in outcome.references.items():
                of_entry = by_title.setdefault(title, {}).setdefault(entry.title, {})
                kind = "oracle" if title.startswith("oracle") else "trivial"
                for name in metrics:
                    if name in measured:
                        number = measured[name]
                        of_entry[name, seed] = Value(
                            group, title, kind, seed, name, "", None, number, outcome.test_examples
                        )
    for title, by_entry in by_title.items():
        first, *others = ({key: v.value for key, v in of_entry.items()} for of_entry in by_entry.values())
        for entry, of_entry in by_entry.items():
            name = title if all(other == first for other in others) else f"{title}, {entry}"
            yield from (value._replace(entry=name) for value in of_entry.values())
            if name == title:
                break


def collect_units(
    suite: Suite, outcomes: Mapping[str, Mapping[int, Outcome]]
) -> dict[tuple[str, str, int], MeasuredUnits]:
    """(group, entry, seed) -> what was measured on each test unit, of the runs that kept it.

    Only of runs whose weights are those that the tables compare: of the round that the suite's metric chose, or of the
    last round where the suite chooses none.
    """
    return {
        (group, entry.title, seed): outcome.test_units
        for group, entries in suite.groups().items()
        for entry in entries
        for seed, outcome in outcomes[entry.name].items()
        if outcome.test_units is not None and outcome.chosen.get("by") == suite.choose_by
    }


def facts_of(suite: Suite, outcomes: Mapping[str, Mapping[int, Outcome]]) -> dict[str, Any]:
    """Names, published values and notes of the tables, as plain values for JSON."""
    entries, gains = [], []
    for group, of_group in suite.groups().items():
        for entry in of_group:
            some = next(iter(outcomes[entry.name].values()))
            unit = {key: some.privacy[key] for key in ("delta", "unit")} if some.privacy else None
            entries.append(
                {"name": entry.name, "group": group, "title": entry.title, "control": entry.control}
                | {
                    "published": entry.published,
                    "tried": "; ".join(filter(None, (entry.tried, some.tuned and some.tuned.words))),
                }
                | {"notes": list(entry.recipe_for(suite.seeds[0]).notes), "privacy": unit}
            )
        title = {entry.name: entry.title for entry in of_group}
        gains += [
            {"group": group, "method": title[claim.method], "baseline": title[claim.baseline]}
            | {"metric": claim.metric, "published": claim.published}
            for claim in _claims(suite, of_group)
        ]
    return {
        **{"format": FORMAT, "title": suite.title, "command": suite.command, "seeds": list(suite.seeds)},
        **{"metrics": list(suite.metrics), "chosen_by": suite.choose_by, "targets": dict(suite.targets)},
        **{"median": suite.median, "made_up": suite.made_up, "entries": entries, "gains": gains},
        "explained": [vars(gain) for gain in suite.gain],
    }


def _claims(suite: Suite, entries: Sequence[Entry]) -> list[ClaimOptions]:
    """The suite's claims on a table: those of [[claim]], and what its entries' published values say against the first
    entry's."""
    from tff_re.comparison.suite import ClaimOptions

    names = {entry.name for entry in entries}
    first, *others = entries
    implied = [
        ClaimOptions(method=e.name, baseline=first.name, metric=metric, published=value - first.published[metric])
        for metric in suite.metrics
        for e in others
        if not e.control and (value := e.published.get(metric)) is not None and metric in first.published
    ]
    listed = {(claim.method, claim.baseline, claim.metric) for claim in suite.claim}
    implied = [claim for claim in implied if (claim.method, claim.baseline, claim.metric) not in listed]
    return [claim for claim in (*suite.claim, *implied) if claim.method in names and claim.published != 0]


def write_values(folder: Path, values: Sequence[Value], facts: Mapping[str, Any]) -> list[Path]:
    """Writes both files. Raises DataError where one cannot be written."""
    facts = {**facts, "values": len(values)}
    write_atomically(folder / VALUES, csv_text([Value._fields, *values]).encode("utf-8"))
    text = json.dumps(facts, ensure_ascii=False, indent=1)
    write_atomically(folder / FACTS, f"{text}\n".encode())
    return [folder / VALUES, folder / FACTS]


def read_values(folder: Path) -> tuple[list[Value], dict[str, Any]]:
    """Both files of a comparison. Raises UserError where one is missing or damaged."""
    try:
        facts, text = (_text_of(folder / name) for name in (FACTS, VALUES))
        facts = json.loads(facts)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename}: is missing; give a folder that `compare` wrote, or run its `compare` with --resume"
        ) from None
    except ValueError:
        raise UserError(f"{folder / FACTS}: is damaged (not JSON); run its `compare` again with --resume") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise UserError(f"{folder / FACTS}: was written by another version; run its `compare` again with --resume")
    if missing := sorted(_FACTS - facts.keys()):
        raise UserError(f"{folder / FACTS}: has no '{missing[0]}'; run its `compare` again with --resume")
    reader = csv.reader(io.StringIO(text))
    if next(reader, None) != list(Value._fields):
        raise UserError(f"{folder / VALUES}, line 1: must be {','.join(Value._fields)}")
    values = []
    for row in reader:
        try:
            group, entry, kind, seed, metric, which, round_num, value, examples, commit, processor = row
            numbers = _number(round_num), _number(value), _number(examples)
            values.append(Value(group, entry, kind, int(seed), metric, which, *numbers, commit, processor))
        except ValueError:
            raise UserError(
                f"{folder / VALUES}, line {reader.line_num}: is malformed; run its `compare` again with --resume"
            ) from None
    _require_whole(folder, values, facts)
    return values, facts


_FACTS = {
    "title",
    "command",
    "seeds",
    "metrics",
    "chosen_by",
    "targets",
    "median",
    "made_up",
    "entries",
    "gains",
    "explained",
}
"""Keys of values.json that every version has written."""


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is damaged (not UTF-8); run its `compare` again with --resume") from None


def _require_whole(folder: Path, values: Sequence[Value], facts: Mapping[str, Any]) -> None:
    """Raises UserError if there are fewer values than were written, if one is of an unknown entry, or if an entry lacks
    a seed."""
    path, remedy = folder / VALUES, "run its `compare` again with --resume"
    if len(values) != facts.get("values", len(values)):  # not in values.json of earlier versions
        raise UserError(f"{path}: has {len(values)} values, but {facts['values']} were written; {remedy}")
    seeds: dict[tuple[str, str], set[int]] = {}
    entries = {(entry["group"], entry["title"]) for entry in facts["entries"]}
    for value in values:
        seeds.setdefault((value.group, value.entry), set()).add(value.seed)
        if value.kind not in ("trivial", "oracle") and (value.group, value.entry) not in entries:
            raise UserError(f"{path}: has values of '{value.entry}', which {FACTS} does not have; {remedy}")
    for entry in facts["entries"]:
        if lacking := set(facts["seeds"]) - seeds.get((entry["group"], entry["title"]), set()):
            raise UserError(f"{path}: has no values of '{entry['name']}' with seed {min(lacking)}; {remedy}")


def _number(text: str) -> float | None:
    """A whole number stays one."""
    return None if text == "" else int(text) if text.lstrip("-").isdigit() else float(text)


def tables_of(values: Sequence[Value], facts: Mapping[str, Any], units: Units | None = None) -> list[Table]:
    """The tables of a comparison.

    All that they show is computed from these. A row that lacks a metric on one of its seeds does not have it.
    """
    entries = {(entry["group"], entry["title"]): entry for entry in facts["entries"]}
    rows: dict[str, dict[str, list[Value]]] = {}
    for value in values:
        rows.setdefault(value.group, {}).setdefault(value.entry, []).append(value)
    tables = []
    for group, by_entry in rows.items():
        made = [_row(of_entry, entries.get((group, name)), facts) for name, of_entry in by_entry.items()]
        for (of_group, name, seed), measured in (units or {}).items():
            for row in made if of_group == group else ():
                if row.algorithm == name:
                    row.test_units[seed] = measured
        trained = [name for name in by_entry if (group, name) in entries]
        gains = (
            PublishedGain(*(gain[key] for key in PublishedGain._fields))
            for gain in facts["gains"]
            if gain["group"] == group
        )
        baseline = trained[0] if len(trained) > 1 else None
        tables.append(Table(made, baseline, tuple(gains), facts["made_up"], group))
    return tables


def best_values(values: Sequence[Value], facts: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Entry's name -> seed -> best value of the first metric over the rounds."""
    named = {(entry["group"], entry["title"]): entry["name"] for entry in facts["entries"]}
    best: dict[str, dict[int, float]] = {}
    for v in values:
        if v.values == "best" and v.metric == facts["metrics"][0] and (v.group, v.entry) in named:
            best.setdefault(named[v.group, v.entry], {})[v.seed] = v.value
    return best


def _row(values: Sequence[Value], entry: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> ComparisonRow:
    """A row from its numbers and what values.json says of its entry (None for a row that was not trained)."""
    kind, seeds = values[0].kind, list(dict.fromkeys(value.seed for value in values))
    numbers: dict[tuple[str, str], dict[int, float | None]] = {}
    for value in values:
        numbers.setdefault((value.metric, value.values), {})[value.seed] = value.value
    published = {} if entry is None else entry["published"]
    first = "best" if facts["chosen_by"] is None else "chosen"
    metrics = {}
    for name in facts["metrics"]:
        best, final = (numbers.get((name, "" if entry is None else which), {}) for which in (first, "final"))
        if best and (entry is None or len(best) == len(seeds)):
            options = {"chosen": first == "chosen", "published": published.get(name), **metric_options(name)}
            metrics[name] = MetricSummary(best, final, **options)
    if entry is None:
        return ComparisonRow(values[0].entry, metrics, role=kind)

    def of_run(metric: str) -> list[float | None]:
        return list(numbers.get((metric, ""), {}).values())

    steps, epsilons = of_run("steps"), of_run("epsilon")
    return ComparisonRow(
        algorithm=entry["title"],
        metrics=metrics,
        rounds_to={(name, t): tuple(of_run(_target(name, t))) for name, t in facts["targets"].items()},
        median=facts["median"],
        bytes_up=of_run("bytes_up")[0],
        bytes_down=of_run("bytes_down")[0],
        seconds_per_round=statistics.median(of_run("seconds_per_round")),
        steps=statistics.fmean(steps) if len(steps) == len(seeds) else None,
        control=entry["control"],
        role="federated" if kind in ("method", "control") else kind,
        notes=tuple(entry["notes"]),
        tried=entry["tried"],
        privacy=Guarantee(max(epsilons), **entry["privacy"]) if len(epsilons) == len(seeds) else None,
    )
