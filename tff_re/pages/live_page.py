"""The live page of a run: what its folder says at one moment. It holds no text of data and no free text of the log."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from computations.privacy.options import rounded_up
from tff_re.comparison.costs import in_words, megabytes_by_round
from tff_re.pages.page import Block, Chart, Code, Facts, Section, Table, Words, page
from tff_re.pages.run_page import bytes_text, comparison_blocks, curve_blocks
from tff_re.runs.live import SECONDS, LiveRun

REFRESH_SECONDS = 5

_MOST_ROUNDS, _MOST_CLIENTS = 20, 30
_PARTS = ("x", "mean", "low", "high")
EPSILON = "privacy/epsilon"


def live_page(run: LiveRun, *, part: bool = False) -> str:
    """The page as HTML.

    Args:
      run: the run's folder at this moment.
      part: leaves out the library and the charts' drawings: an open page takes their numbers from it.
    """
    sections = [
        Section("now", "Now", [Facts(_now(run))]),
        Section("curves", "Curves", curve_blocks(run.history, _bytes_each(run))),
        Section("rounds", "Rounds", _rounds(run)),
        Section("asked", "Asked and answered", _asked(run)),
        Section("stages", "Seconds and bytes", _stages(run)),
        Section("sites", "Was it worth it at the sites?", comparison_blocks(run.summary or {})),
        Section("privacy", "Privacy", _privacy(run)),
        Section("log", "Log", _log(run)),
    ]
    data = _chart_data(sections)
    filled = [section for section in sections if section.blocks]
    return page(
        run.title,
        headline(run),
        sections,
        "Made by tff-re watch. This page only reads the run's folder.",
        template="live.html",
        draws=not part,
        window=f"{run.done} of {run.rounds} – {run.title}",
        live={"shape": [*(section.anchor for section in filled), *data], "data": data},
        seconds=REFRESH_SECONDS,
    )


def problem_page(title: str, line: str) -> str:
    """A page that says why the run's folder cannot be shown at this moment."""
    live = {"shape": ["problem"], "data": {}}
    more = {"window": title, "live": live, "seconds": REFRESH_SECONDS}
    sections = [Section("problem", "Not readable now", [Words(line)])]
    return page(title, "the folder cannot be read at this moment", sections, "", template="live.html", **more)


def headline(run: LiveRun) -> str:
    """The state of the run in one line."""
    parts = [f"{run.state}, round {run.done} of {run.rounds}"]
    if not run.history:
        parts = [f"{run.state}, no round is finished yet"]
    if run.end is not None:
        parts.append(f"about {in_words(run.end - run.now)} left")
    epsilon = run.last.get(EPSILON)
    if epsilon is not None:
        parts.append(f"ε {rounded_up(epsilon)} spent")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """A moment as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _now(run: LiveRun) -> dict[str, str]:
    recipe, each = run.recipe, run.seconds_a_round
    training = recipe.get("training", {})
    share = training.get("client_fraction")
    asked = f"{share:.0%} of the clients" if share is not None else training.get("clients_per_round")
    facts = {
        "state": run.state,
        "round": f"{run.done} of {run.rounds}",
        "last round written": "" if run.changed is None else clock(run.changed),
        "a round takes": "" if each is None else f"{in_words(each)} (mean of the last {min(len(run.timings), 20)})",
        "estimated end": "" if run.end is None else f"{clock(run.end)}, or earlier if training stops before",
        "algorithm": recipe.get("algorithm", {}).get("name", ""),
        "model": recipe.get("model", {}).get("name", ""),
        "task": str(recipe.get("task", {}).get("name", "")).replace("_", " "),
        "clients a round": asked or "",
        "quorum": quorum(run),
        "read": clock(run.now),
    }
    return {name: str(value) for name, value in facts.items() if str(value)}


def quorum(run: LiveRun) -> str:
    """How many answers a round needs, in words, or an empty text if all have to answer."""
    training, parts = run.recipe.get("training", {}), []
    if training.get("min_clients"):
        parts.append(f"{training['min_clients']} clients")
    share = run.log.last.get("sites.agreed", {}).get("quorum")
    if share is not None:
        parts.append(f"{share:.0%} of a round's clients, if sites fail")
    return "; ".join(parts)


def _bytes_each(run: LiveRun) -> float | None:
    return None if run.bytes_of_client is None else float(sum(run.bytes_of_client))


def _rounds(run: LiveRun) -> list[Block]:
    """The last rounds, the newest first."""
    if not run.history:
        return [Words("No round is finished yet.")]
    columns = {
        "clients asked": lambda row: _count(row.get("clients/asked", _trained(row))),
        "counted": lambda row: _count(row.get("clients/counted")),
        "lost": lambda row: _count(row.get("clients/lost")),
        "attempts": lambda row: _count(row.get("clients/attempts")),
        "sites": lambda row: _of_sites(row),
        "training": lambda row: _seconds(run, row, SECONDS[0]),
        "evaluation": lambda row: _seconds(run, row, SECONDS[1]),
        "ε": lambda row: rounded_up(row[EPSILON]) if EPSILON in row else "",
    }
    rows = run.history[-1 : -_MOST_ROUNDS - 1 : -1]
    cells = [[column(row) for row in rows] for column in columns.values()]
    used = [number for number, column in enumerate(cells) if any(column)]
    names = list(columns)
    table = [
        [f"{row['round']:.0f}", *(cells[number][index] or "–" for number in used)] for index, row in enumerate(rows)
    ]
    caption = f"The last {len(rows)} of {run.done} rounds." if run.done > len(rows) else ""
    return [Table(["round", *(names[number] for number in used)], table, caption=caption)]


def _trained(row: Mapping[str, float]) -> float | None:
    counted = row.get("clients/counted")
    return None if counted is None else counted + row.get("clients/non_finite", 0.0)


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _of_sites(row: Mapping[str, float]) -> str:
    if "sites/asked" not in row:
        return ""
    return f"{row['sites/answered']:.0f} of {row['sites/asked']:.0f}"


def _seconds(run: LiveRun, row: Mapping[str, float], name: str) -> str:
    value = run.timings.get(int(row["round"]), {}).get(name)
    return "" if value is None else f"{value:.2f} s"


def _asked(run: LiveRun) -> list[Block]:
    """Sites by the rounds that they took part in, and the clients of the last rounds whose answers do not count."""
    blocks: list[Block] = []
    if run.sites:
        rows = []
        for site, (clients, examples) in run.sites.items():
            rounds = [number for number, sites in run.took_part.items() if site in sites]
            last = str(max(rounds)) if rounds else "–"
            rows.append([site, f"{clients}", f"{examples:,}", f"{len(rounds)} of {len(run.took_part)}", last])
        blocks.append(Table(["site", "clients", "training examples", "answered in rounds", "last answer"], rows))
    if run.answers:
        last = run.answers[-1][0]
        of_last = [row for row in run.answers if row[0] == last]
        counted = [client for _, _, client, outcome in of_last if outcome == "counted"]
        blocks.append(Facts({f"counted in round {last}": _named(counted)}))
        others = [row for row in run.answers if row[3] != "counted"][-1 : -_MOST_CLIENTS - 1 : -1]
        rows = [[client, number, attempt, outcome.replace("_", " ")] for number, attempt, client, outcome in others]
        if rows:
            caption = "The newest first; outcomes are those of answers.csv."
            blocks.append(Table(["client that does not count", "round", "attempt", "outcome"], rows, caption=caption))
    elif run.history and not run.sites:
        blocks.append(Words("No client of this run can fail: all that were asked have answered."))
    return blocks


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_CLIENTS} more" if len(names) > _MOST_CLIENTS else ""
    return (", ".join(names[:_MOST_CLIENTS]) or "nobody") + more


def _stages(run: LiveRun) -> list[Block]:
    rows = []
    for name in SECONDS:
        values = [seconds[name] for _, seconds in sorted(run.timings.items()) if name in seconds]
        if values:
            rows.append([name.partition("/")[2], *_times(values), "", ""])
    for (purpose, stage), rounds in sorted(run.log.stages.items(), key=lambda item: (item[0][0] != "train", item[0])):
        newest = rounds[max(rounds)]
        times = _times([values["seconds"] for _, values in sorted(rounds.items())])
        sizes = [bytes_text(newest[name]) for name in ("bytes_down", "bytes_up")]
        rows.append([f"{purpose}, stage {stage}", *times, *sizes])
    blocks: list[Block] = []
    if rows:
        wide = any(row[-1] for row in rows)
        heading = ["", "last", "median", "in all", *(("bytes down", "bytes up") if wide else ())]
        caption = "Stages are messages to the sites, with the bytes of the last one." if wide else ""
        blocks.append(Table(heading, [row[: len(heading)] for row in rows], caption=caption))
    if run.bytes_of_client is not None:
        down, up = run.bytes_of_client
        facts = {"down, per client and round": bytes_text(down), "up, per client and round": bytes_text(up)}
        if (sent := megabytes_by_round(run.history, down + up)) is not None:
            facts["all clients, all rounds so far"] = bytes_text(max(sent.values()) * 1e6)
        blocks.append(Facts(facts))
    return blocks


def _times(values: Sequence[float]) -> list[str]:
    return [f"{values[-1]:.2f} s", f"{statistics.median(values):.2f} s", in_words(sum(values))]


def _privacy(run: LiveRun) -> list[Block]:
    table = run.recipe.get("privacy")
    if table is None:
        return [Words("Trained without differential privacy: nothing is guaranteed.")]
    spent, budget = run.last.get(EPSILON), table.get("epsilon")
    facts = {
        "ε spent": "–" if spent is None else rounded_up(spent),
        "ε of the recipe": "" if budget is None else f"{budget:g}",
        "δ": f"{table.get('delta', '')}",
        "unit": str(table.get("unit", "")),
    }
    blocks: list[Block] = [Facts({name: value for name, value in facts.items() if value})]
    blocks.append(Words("What ε covers is in summary.json at the end of the run, and on the page of report."))
    return blocks


def _log(run: LiveRun) -> list[Block]:
    lines = [str(line) for line in run.log.lines]
    blocks: list[Block] = [Code("\n".join(lines))] if lines else [Words("The log has no lines yet.")]
    if run.log.left_out:
        number = f"{run.log.left_out} lines" if run.log.left_out > 1 else "1 line"
        blocks.append(Words(f"{number} with notes, warnings or errors in free words: see run.log."))
    return blocks


def _chart_data(sections: Sequence[Section]) -> dict[str, dict[str, list[float]]]:
    """Names the data of all lines of the charts, and returns them by name."""
    data: dict[str, dict[str, list[float]]] = {}
    for section in sections:
        for block in section.blocks:
            sources: dict[str, Any] = {}
            for renderer in block.figure.renderers if isinstance(block, Chart) else ():
                sources.setdefault(renderer.data_source.id, renderer.data_source)
            for number, source in enumerate(sources.values()):
                source.name = f"{section.anchor}: {block.title}: {number}"
                data[source.name] = {part: _finite(source.data[part]) for part in _PARTS}
    return data


def _finite(values: Sequence[float]) -> list[float]:
    return [float(value) if math.isfinite(value) else 0.0 for value in values]
