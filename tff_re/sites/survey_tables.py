"""What a survey counts at a site, and how the counts are protected before they leave.

Texts are counted, each once in a row of a table:

    texts         all of a split
    clients       clients that have texts of the split
    client_sizes  clients by the number of their training texts
    labels        the text's label; where texts have any number of labels, a text counts for each of them
    lengths       number of tokens, before the text is cut
    unknown       share of its tokens that the vocabulary does not have
    repeats       whether it occurs earlier in its split, else in train, else in dev, else in none of them
    left_out      texts of clients that are too small

A least count hides small counts (`suppression`). Noise is drawn for each count (`count_noise`); its scale is what one
text changes the table by at most (`sensitivity`), times the number of tables, divided by ε.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from tff_re.recipes.reading import Recipe
from tff_re.sites.check import LONGEST_LABEL, MOST_LABELS, ReadData, token_numbers
from tff_re.sites.count_noise import discrete_laplace
from tff_re.sites.fields import NAME
from tff_re.sites.suppression import protected_row, protected_shares
from tff_re.sites.survey_messages import DEV, TEST, TRAIN, CountTable
from tff_re.tasks import TASKS
from tff_re.tasks.duplicates import example_key

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
"""Tokens at which a column of lengths ends; so does one at the recipe's limit."""

SIZES = {"1 to 9": 9, "10 to 99": 99, "100 to 999": 999}
"""Training texts of a client at which a column ends."""

LARGEST = "1000 and more"

UNKNOWN = {"none": 0.0, "up to 10 %": 0.1, "more than 10 %": 1.0}
"""Shares of a text's tokens at which a column ends."""

EARLIER, ONLY = "earlier in the split", "not before"

NOT_LISTED, OTHERS = "not in the list", "others"
"""Columns of labels that are not named."""


LEFT_OUT = ("texts of clients that are too small",)


@dataclass(frozen=True)
class RawTable:
    """Counts before they are protected.

    Attributes:
      name, rows, columns, counts: see `CountTable`.
      sensitivity: the most by which one text changes all counts of the table together.
      shares: whether a text may count for several columns of a row.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    sensitivity: int = 1
    shares: bool = False


class SiteCounts:
    """Counts the texts of a site under a recipe."""

    def __init__(self, read: ReadData, labels: Sequence[str] | None):
        """Count nothing yet.

        Args:
          read: the site's data.
          labels: those to count where the recipe lists none; None: those of the files.
        """
        self._read, self._data = read, read.data
        self._task = TASKS[self._data.recipe.task.name]
        self.listed = read.listed or tuple(labels or ())
        samples = self._data.split_samples
        self.samples = {split: samples.get(split, []) for split in splits_of(self._data.recipe)}

    def tables(self, *, one_client: bool, least: int | None) -> list[RawTable]:
        """Return all tables that can be protected.

        Args:
          one_client: whether the site is one client, so that its clients need no count.
          least: the least count; None: the counts get noise, so that only what the recipe or the coordinator lists can
            be a column, and what depends on other texts is left out.
        """
        tables = [self._table("texts", ("texts",), lambda sample: ("texts",))]
        if not one_client:
            tables += [self._clients(), self._client_sizes()]
        if self.listed or least is not None:
            tables.append(self._labels(least))
        tables += [self._lengths(), self._repeats()]
        if self._read.has_words and (least is not None or self._read.own_words is None):
            tables.append(self._unknown())
        if least is not None and self._data.share is None:
            tables.append(self._left_out())
        return tables

    def _table(self, name: str, columns: Sequence[str], columns_of, **ways) -> RawTable:
        """Count samples by the columns that `columns_of` gives for each."""
        rows = []
        for samples in self.samples.values():
            counted = collections.Counter(column for sample in samples for column in columns_of(sample))
            rows.append(tuple(counted[column] for column in columns))
        return RawTable(name, tuple(self.samples), tuple(columns), tuple(rows), **ways)

    def _clients(self) -> RawTable:
        rows, held = [], self._data.clients.values()
        ids = {split: {sample.sample_id for sample in samples} for split, samples in self.samples.items()}
        for split in self.samples:
            of_client = (client.test if split == TEST else client.train for client in held)
            rows.append((sum(any(i in ids[split] for i in samples) for samples in of_client),))
        return RawTable("clients", tuple(self.samples), ("clients",), tuple(rows))

    def _client_sizes(self) -> RawTable:
        ids = {sample.sample_id for sample in self.samples[TRAIN]}
        sizes = [sum(i in ids for i in client.train) for client in self._data.clients.values()]
        counts = collections.Counter(_column(size, SIZES, LARGEST) for size in sizes if size)
        columns = (*SIZES, LARGEST)
        return RawTable("client_sizes", (TRAIN,), columns, (tuple(counts[c] for c in columns),), sensitivity=2)

    def _labels(self, least: int | None) -> RawTable:
        corpus = self._data.corpora[0]
        rest = NOT_LISTED if self.listed else OTHERS
        labels_of = {
            id(sample): [name for name, count in self._task.label_counts(corpus, [sample]).items() if count]
            for samples in self.samples.values()
            for sample in samples
        }
        named = self.listed or self._frequent(labels_of, least)
        columns = (*named, rest)

        def columns_of(sample):
            return {name if name in named else rest for name in labels_of[id(sample)]}

        sensitivity = len(columns) if self._task.many_labels else 1
        return self._table("labels", columns, columns_of, sensitivity=sensitivity, shares=self._task.many_labels)

    def _frequent(self, labels_of: dict[int, list[str]], least: int) -> tuple[str, ...]:
        """Return the labels of the files that at least `least` texts of a split have.

        As in `check.shown_labels`, names that may be texts are left out.
        """
        frequent: dict[str, None] = {}
        for samples in self.samples.values():
            counts = collections.Counter(name for sample in samples for name in labels_of[id(sample)])
            frequent |= dict.fromkeys(name for name, count in counts.items() if count >= least)
        names = [name for name in self._data.corpora[0].label_names if name in frequent and _is_name(name)]
        return tuple(names) if len(names) <= MOST_LABELS else ()

    def _lengths(self) -> RawTable:
        limit = self._read.max_length if self._read.cuts else None
        columns = length_columns(limit)
        ends = dict(zip(columns[:-1], length_ends(limit), strict=True))
        lengths = self._numbers(0)
        return self._table("lengths", columns, lambda sample: (_column(lengths[id(sample)], ends, columns[-1]),))

    def _unknown(self) -> RawTable:
        tokens, unknown = self._numbers(1), self._numbers(2)

        def columns_of(sample):
            return (_column(unknown[id(sample)] / max(1, tokens[id(sample)]), UNKNOWN, ""),)

        return self._table("unknown", tuple(UNKNOWN), columns_of)

    def _numbers(self, index: int) -> dict[int, int]:
        """See `token_numbers`."""
        if not hasattr(self, "_token_numbers"):
            every = [sample for samples in self.samples.values() for sample in samples]
            self._token_numbers = dict(zip(map(id, every), token_numbers(self._read.encoding, every), strict=True))
        return {sample: numbers[index] for sample, numbers in self._token_numbers.items()}

    def _repeats(self) -> RawTable:
        """Count texts by where they occur before.

        One text changes its own row by 1. In each later split it may move the first text that equals it to another
        column, which changes two counts.
        """
        columns = repeat_columns(tuple(self.samples))
        seen: dict[str, set[int]] = {}
        rows = []
        for split, samples in self.samples.items():
            counts: collections.Counter = collections.Counter()
            here: set[int] = set()
            for key in map(example_key, samples):
                before = next((f"in {other}" for other, keys in seen.items() if key in keys), ONLY)
                counts[EARLIER if key in here else before] += 1
                here.add(key)
            seen[split] = here
            rows.append(tuple(counts[column] for column in columns))
        sensitivity = 1 + 2 * (len(rows) - 1)
        return RawTable("repeats", tuple(self.samples), columns, tuple(rows), sensitivity=sensitivity)

    def _left_out(self) -> RawTable:
        clients = self._data.partition.clients
        small = [held for client, held in clients.items() if client not in self._data.clients]
        texts = sum(len(held.train) + len(held.test) for held in small)
        return RawTable("left_out", (TRAIN,), LEFT_OUT, ((texts,),))

    def frequent_words(self, least: int) -> list[str]:
        """Return the words that at least `least` training texts hold and that occur `task.min_count` times."""
        options = self._data.recipe.task.options
        texts = self._task.words(
            self._task.at_site(options), self._data.corpora, self._data.partition, self._data.data_paths
        )
        holding: collections.Counter = collections.Counter()
        for client, of_client in texts.items():
            if client in self._data.clients:
                holding.update(word for words in of_client for word in set(words))
        counted = self._data.word_counts()
        frequent = zip(counted.words, counted.counts, strict=True)
        return [word for word, count in frequent if count >= options.min_count and holding[word] >= least]


def splits_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the splits that clients may have under a recipe."""
    if TASKS[recipe.task.name].server_tests:
        return (TRAIN,)
    return (TRAIN, DEV, TEST) if recipe.has_choice else (TRAIN, TEST)


def require_form(table: CountTable, splits: tuple[str, ...], limit: int | None) -> None:
    """Raise ValueError unless a site's table has the rows and columns that `SiteCounts` makes.

    Args:
      table: of an answer.
      splits: see `splits_of`.
      limit: tokens of a text that are used; None: all.
    """
    columns = {
        **{"texts": ("texts",), "clients": ("clients",), "client_sizes": (*SIZES, LARGEST), "left_out": LEFT_OUT},
        **{"lengths": length_columns(limit), "unknown": tuple(UNKNOWN), "repeats": repeat_columns(splits)},
    }
    if table.rows != ((TRAIN,) if table.name in ("client_sizes", "left_out") else splits):
        raise ValueError(f"its table of {table.name} has other rows")
    if table.name == "labels":
        if table.columns[-1] not in (NOT_LISTED, OTHERS) or {NOT_LISTED, OTHERS} & {*table.columns[:-1]}:
            raise ValueError("its table of labels has other columns")
    elif table.columns != columns[table.name]:
        raise ValueError(f"its table of {table.name} has other columns")


def repeat_columns(splits: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns of repeats."""
    return (EARLIER, *(f"in {split}" for split in splits[:-1]), ONLY)


def length_ends(limit: int | None) -> list[int]:
    """Return the numbers of tokens at which columns of lengths end."""
    return sorted({*LENGTHS} | ({limit} if limit is not None else set()))


def length_columns(limit: int | None) -> tuple[str, ...]:
    """Return the names of the columns of lengths."""
    ends = length_ends(limit)
    return (*(f"{low + 1} to {high}" for low, high in zip([0, *ends], ends, strict=False)), f"more than {ends[-1]}")


def cut_columns(limit: int | None) -> tuple[str, ...]:
    """Return those columns of lengths whose texts are cut."""
    return () if limit is None else length_columns(limit)[length_ends(limit).index(limit) + 1 :]


def with_least_count(tables: Iterable[RawTable], least: int) -> list[CountTable]:
    """Return the tables with small counts hidden, so that none can be computed from the others.

    Every row of `labels`, `lengths`, `unknown` and `repeats` sums to the texts of its split, and `client_sizes` to the
    clients that train. So nothing of a split is told that has fewer texts.
    """
    tables = list(tables)
    totals = {table.name: dict(zip(table.rows, table.counts, strict=True)) for table in tables}
    return [
        _protected(table, totals.get("clients" if table.name == "client_sizes" else "texts"), least) for table in tables
    ]


def _protected(table: RawTable, totals: dict[str, tuple[int, ...]], least: int) -> CountTable:
    rows = []
    for split, counts in zip(table.rows, table.counts, strict=True):
        total = totals[split][0]
        if table.name in ("texts", "clients", "left_out"):
            rows.append(tuple(None if 0 < count < least else count for count in counts))
        elif 0 < total < least:
            rows.append((None,) * len(counts))
        elif table.shares:
            rows.append(protected_shares(counts, total, least))
        else:
            rows.append(protected_row(counts, least))
    hidden = {i for i in range(len(table.columns) - 1) if all(row[i] is None for row in rows)}
    if hidden and table.columns[-1] == OTHERS:
        return _protected(_folded(table, hidden), totals, least)
    return CountTable(table.name, table.rows, table.columns, tuple(rows))


def _folded(table: RawTable, hidden: set[int]) -> RawTable:
    """Return a table without the names of these columns, whose texts become those of `OTHERS`.

    Where a text counts for several columns, their counts are left out.
    """
    named = [i for i in range(len(table.columns)) if i not in hidden]
    columns, rows = tuple(table.columns[i] for i in named), []
    for row in table.counts:
        more = 0 if table.shares else sum(row[i] for i in hidden)
        rows.append((*(row[i] for i in named[:-1]), row[-1] + more))
    return dataclasses.replace(table, columns=columns, counts=tuple(rows))


def common_tables(
    tables: Sequence[CountTable], *, one_client: bool, listed: bool, splits: tuple[str, ...]
) -> list[CountTable]:
    """Return a site's tables in the form that all sites have, whatever they hold: that of counts that are masked.

    A site that is one client counts itself. Labels that are only in the site's files have no column, and so that table
    is left out.

    Args:
      tables: protected.
      one_client: whether the site is one client.
      listed: whether the recipe or the coordinator lists the labels.
      splits: see `splits_of`.
    """
    common = {table.name: table for table in tables}
    if not listed:
        common.pop("labels", None)
    least = all(table.scale is None for table in tables)
    if one_client:
        texts = common["texts"]
        rows = [texts.row(split)[0] for split in splits]
        counts = tuple((None if least and row is None else min(row, 1) if least else 1,) for row in rows)
        common["clients"] = CountTable("clients", splits, ("clients",), counts)
        columns = (*SIZES, LARGEST)
        common["client_sizes"] = CountTable("client_sizes", (TRAIN,), columns, ((0,) * len(columns),))
    if least:
        common.setdefault("left_out", CountTable("left_out", (TRAIN,), LEFT_OUT, ((0,),)))
    return [common[name] for name in sorted(common)]


def cells_of(tables: Sequence[CountTable]) -> np.ndarray:
    """Return (count, 0) of each cell that is shown and (0, 1) of each hidden one, int64 [cells, 2], table by table."""
    counts = [count for table in tables for row in table.counts for count in row]
    return np.array([(0, 1) if count is None else (count, 0) for count in counts], np.int64)


def distance_of_labels(
    tables: Sequence[CountTable], labels: Sequence[str], counts: Sequence[int], texts: int, *, many_labels: bool
) -> float | None:
    """Return the total variation distance between a site's training labels and those of all sites, or None.

    Labels that are not named count as one more, unless texts have any number of labels: then they are left out.

    Args:
      tables: of the site, protected; the distance is made of nothing else.
      labels, counts: those that every site shows, with their texts at all sites.
      texts: at all sites.
      many_labels: whether texts have any number of labels.
    """
    of_names = {table.name: table for table in tables}
    if "labels" not in of_names:
        return None
    row = dict(zip(of_names["labels"].columns, of_names["labels"].row(TRAIN), strict=True))
    here = [row.get(label) for label in labels]
    size = of_names["texts"].row(TRAIN)[0]
    if size is None or None in here:
        return None
    here = [max(0, count) for count in here]
    if of_names["labels"].scale is not None or many_labels:
        size, texts = sum(here), sum(counts)
    if size <= 0 or texts <= 0:
        return None
    rest = max(0, size - sum(here)) / size, max(0, texts - sum(counts)) / texts
    shares = [(count / size, total / texts) for count, total in zip(here, counts, strict=True)]
    return 0.5 * sum(abs(first - second) for first, second in [*shares, rest])


def with_noise(tables: Sequence[RawTable], epsilon: float) -> list[CountTable]:
    """Return the tables with noise, which is ε-differentially private for one text.

    ε is divided equally among the tables. A text is in one row of a table, except for `repeats`, whose sensitivity is
    over all rows.
    """
    share = Fraction(str(epsilon)) / len(tables)
    noisy = []
    for table in tables:
        scale = table.sensitivity / share
        counts = tuple(tuple(count + discrete_laplace(scale) for count in row) for row in table.counts)
        noisy.append(CountTable(table.name, table.rows, table.columns, counts, float(scale)))
    return noisy


def _column(number: float, ends: dict[str, Any], last: str) -> str:
    return next((name for name, end in ends.items() if number <= end), last)


def _is_name(label: str) -> bool:
    try:
        NAME(None, attrs.fields(CountTable).columns, label)
    except ValueError:
        return False
    return len(label) <= LONGEST_LABEL and label not in (NOT_LISTED, OTHERS)
