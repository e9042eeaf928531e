"""The rows of a table, what was published of them, and how they are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tff_re.comparison.statistics import Difference, MetricSummary
from tff_re.comparison.verdicts import Contrast, judge_all
from tff_re.tasks.measured_units import MeasuredUnits

Role = Literal["federated", "local", "pooled", "trivial", "oracle"]


class Guarantee(NamedTuple):
    """Differential privacy of runs: the largest epsilon of the seeds (infinite: none), delta, and of which unit."""

    epsilon: float
    delta: float
    unit: str


@dataclass(frozen=True)
class ComparisonRow:
    """One algorithm of a comparison.

    Attributes:
      algorithm: Its name as shown.
      metrics: Metric name to summary.
      bytes_up: Sent by a client in a round; None: unknown.
      bytes_down: Received by a client in a round; None: unknown.
      seconds_per_round: Wall time of a round; None: unknown.
      control: Whether it is a control, not a competitor.
      rounds_to: (metric, target) to the round, for each seed, in which it was first reached, or None.
      median: Whether medians over the seeds are shown, too.
      steps: Local steps of all clients in all rounds; None: not shown.
      role: `federated`; `local`: every client trained by itself; `pooled`: one client had all training examples;
        `trivial`, `oracle`: nothing was trained. Only federated rows are judged.
      notes: What has to be said of its runs, see `Recipe.notes`.
      privacy: What its runs guarantee; None: nothing.
      tried: Settings of the method that were tried.
      test_units: Seed to what was measured on each test unit; empty: the runs did not keep it.
    """

    algorithm: str
    metrics: Mapping[str, MetricSummary]
    bytes_up: float | None = None
    bytes_down: float | None = None
    seconds_per_round: float | None = None
    control: bool = field(default=False)
    rounds_to: Mapping[tuple[str, float], tuple[int | None, ...]] = field(default_factory=dict)
    median: bool = False
    steps: float | None = None
    role: Role = "federated"
    notes: tuple[str, ...] = ()
    privacy: Guarantee | None = None
    tried: str = ""
    test_units: dict[int, MeasuredUnits] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """What to say after its name: nothing of a method."""
        return "control" if self.control else "not trained" if self.role in ("trivial", "oracle") else ""

    @property
    def compared(self) -> bool:
        """Whether its difference to the baseline is one of the table's comparisons."""
        return self.role == "federated"


class PublishedGain(NamedTuple):
    """What a paper reports for `method` less `baseline`, two rows of a table, in the metric's own unit."""

    method: str
    baseline: str
    metric: str
    published: float


@dataclass(frozen=True)
class Table:
    """Rows to be compared.

    Attributes:
      rows: in order.
      baseline: the row that differences are taken to; None: there are none.
      gains: published gains to judge.
      made_up: whether the data were made up for the comparison.
      group: its name within the comparison.
    """

    rows: Sequence[ComparisonRow]
    baseline: str | None = None
    gains: tuple[PublishedGain, ...] = ()
    made_up: bool = False
    group: str = ""

    @property
    def metric_names(self) -> list[str]:
        """Of all rows."""
        return list(dict.fromkeys(name for row in self.rows for name in row.metrics))

    @property
    def base(self) -> ComparisonRow | None:
        """The row of the baseline."""
        return None if self.baseline is None else self.row(self.baseline)

    def row(self, algorithm: str) -> ComparisonRow:
        """The row of that name."""
        return next(row for row in self.rows if row.algorithm == algorithm)

    def difference(self, method: str, baseline: str, metric: str, which: str) -> Difference | None:
        """The difference of two rows' `which` ('best' or 'final') values.

        None where they share no seed or one lacks the metric.
        """
        ours, theirs = (self.row(name).metrics.get(metric) for name in (method, baseline))
        return None if ours is None or theirs is None else ours.difference(theirs, which)

    def room(self, baseline: str, metric: str, which: str) -> float | None:
        """What the best of the pooled and oracle rows has on a row, or None if no such row has a finite number."""
        names = [row.algorithm for row in self.rows if row.role in ("pooled", "oracle") and row.algorithm != baseline]
        differences = (self.difference(name, baseline, metric, which) for name in names)
        rooms = [d.mean for d in differences if d is not None and math.isfinite(d.mean)]
        higher = self.row(baseline).metrics[metric].higher_is_better if rooms else True
        return (max if higher else min)(rooms, default=None)

    def contrast(self, method: str, baseline: str, metric: str, which: str, published: float | None) -> Contrast | None:
        """The judged difference of two rows, with the gain that a paper reports.

        None if they share no seed.
        """
        difference = self.difference(method, baseline, metric, which)
        if difference is None:
            return None
        room, higher = self.room(baseline, metric, which), self.row(baseline).metrics[metric].higher_is_better
        return Contrast(difference, published, room, higher, self.made_up)


class Judged(NamedTuple):
    """A row's paired difference to the baseline, its p-value adjusted over the table's comparisons, and the verdict.

    `published` and `room` are of the published gain, see `verdicts.Contrast`. All but the difference are None for a row
    that is none of the comparisons.
    """

    difference: Difference
    p_holm: float | None
    verdict: str | None
    published: float | None = None
    room: float | None = None


def judge(table: Table, name: str, which: str) -> list[Judged | None]:
    """Each row's difference to the baseline in a metric's `which` ('best' or 'final') values, None for a row without.

    The p-values are adjusted over the rows that were trained by a federation. The others are not judged: trivial
    models, the data's own ceilings, models of the pooled data and of single clients.
    """
    base = table.base
    if base is None or name not in base.metrics:
        return [None] * len(table.rows)
    differences = [
        None if row is base else table.difference(row.algorithm, base.algorithm, name, which) for row in table.rows
    ]
    published = {g.method: g.published for g in table.gains if (g.baseline, g.metric) == (base.algorithm, name)}
    contrasts = {
        number: table.contrast(row.algorithm, base.algorithm, name, which, published.get(row.algorithm))
        for number, (row, difference) in enumerate(zip(table.rows, differences, strict=True))
        if difference is not None and row.compared
    }
    verdicts = dict(zip(contrasts, judge_all(list(contrasts.values())), strict=True))

    def judged(number: int, difference: Difference | None) -> Judged | None:
        if difference is None or number not in verdicts:
            return None if difference is None else Judged(difference, None, None)
        contrast = contrasts[number]
        room = None if contrast.published is None else contrast.room
        return Judged(difference, *verdicts[number], contrast.published, room)

    return [judged(number, difference) for number, difference in enumerate(differences)]


def judge_gains(table: Table) -> list[tuple[PublishedGain, dict[str, tuple[Contrast, str]]]]:
    """Each published gain that the rows can answer, with `best` and `final` -> (contrast, verdict).

    A gain on the table's baseline has the verdict of the table's column; others are adjusted over themselves, for each
    metric and values. A gain of a row that is not federated has no verdict ('').
    """
    words: dict[tuple[PublishedGain, str], tuple[Contrast, str]] = {}
    for which in ("best", "final"):
        for metric in table.metric_names:
            of_rows = dict(zip((row.algorithm for row in table.rows), judge(table, metric, which), strict=True))
            of_metric = [gain for gain in table.gains if gain.metric == metric]
            contrasts = (table.contrast(g.method, g.baseline, metric, which, g.published) for g in of_metric)
            gains = [(g, c) for g, c in zip(of_metric, contrasts, strict=True) if c is not None]
            others = [(g, c) for g, c in gains if g.baseline != table.baseline and table.row(g.method).compared]
            adjusted = judge_all([contrast for _, contrast in others])
            verdicts = {gain: word for (gain, _), (_, word) in zip(others, adjusted, strict=True)}
            for gain, contrast in gains:
                column = of_rows[gain.method] if gain.baseline == table.baseline else None
                word = verdicts.get(gain) if column is None else column.verdict
                words[gain, which] = contrast, word or ""
    return [
        (gain, {which: words[gain, which] for which in ("best", "final")})
        for gain in table.gains
        if (gain, "best") in words and (gain, "final") in words
    ]
