"""The coordinator's survey: how the data of all sites fit a recipe, before a run, as sums of protected counts."""

from __future__ import annotations

import collections
import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.shares import sums_are_masked
from tff_re.sites.asking import Patience, SiteLost, SiteRefused, Sites
from tff_re.sites.check import FEW_EXAMPLES, MANY_CUT
from tff_re.sites.count_noise import deviation
from tff_re.sites.masked_survey import MaskedOpening, ask_masked, masked_skew, opened_tables
from tff_re.sites.policy import for_sites, recipe_digest
from tff_re.sites.prepared import require_task
from tff_re.sites.survey_messages import DEV, TEST, TRAIN, CountTable, Survey, SurveyAnswer, Surveyed
from tff_re.sites.survey_result import Cell, Skew, SurveyResult, TotalTable, WordOverlap
from tff_re.sites.survey_tables import (
    EARLIER,
    NOT_LISTED,
    OTHERS,
    UNKNOWN,
    cut_columns,
    require_form,
    splits_of,
)
from tff_re.sites.transport import Engine
from tff_re.sites.words import require_one_secret
from tff_re.tasks import TASKS

LEAST_SITES = 2
"""A survey of one site would be no sum."""


def survey_sites(
    recipe: Recipe,
    engine: Engine,
    *,
    least_count: int | None = None,
    epsilon: float | None = None,
    labels: Sequence[str] = (),
    masked: bool = False,
    patience: Patience | None = None,
    on_line: Callable[[str], None] = lambda line: None,
) -> SurveyResult:
    """Ask all sites for protected counts, and add them.

    Args:
      recipe: resolved.
      engine: reaches the sites.
      least_count: see `Survey`; one of it and `epsilon` is set.
      epsilon: see `Survey`.
      labels: see `Survey`; empty: those of the sites' files.
      masked: whether counts leave masked, also if the recipe does not mask sums.
      patience, on_line: see `Sites`.

    Raises:
      UserError: there are fewer than two sites, one of them does not answer or refuses, or counts do not fit together.
    """
    require_task(recipe.task)
    if len(engine.sites) < LEAST_SITES:
        raise UserError(
            f"a survey adds the counts of at least {LEAST_SITES} sites, and only {', '.join(engine.sites)} is named; "
            "a site looks at its own data with: site SITE.TOML --check RECIPE"
        )
    question = Survey(
        run=secrets.token_hex(16),
        recipe=for_sites(recipe),
        least_count=least_count,
        epsilon=epsilon,
        labels=tuple(labels) or None,
    )
    sites = Sites(engine, patience or Patience(), on_line=on_line)
    try:
        if masked or sums_are_masked(recipe):
            return _masked(recipe, question, sites)
        answers = sites.ask_every(dict.fromkeys(engine.sites, question))
    except (SiteRefused, SiteLost) as error:
        raise UserError(str(error)) from None
    return added(recipe, question, answers)


def added(recipe: Recipe, question: Survey, answers: Mapping[str, SurveyAnswer]) -> SurveyResult:
    """Return the sums of the sites' answers.

    Raises:
      UserError: the answers do not fit together, or do not answer the question.
    """
    _require_answered(recipe, question, answers)
    names = dict.fromkeys(table.name for answer in answers.values() for table in answer.tables)
    tables = {name: _total(name, answers) for name in names}
    one_clients = [answer for answer in answers.values() if answer.one_client]
    if one_clients:
        tables["clients"] = _with_one_clients(tables.get("clients"), one_clients)
    skew = _skew(answers, TASKS[recipe.task.name].many_labels)
    return _result(recipe, question, answers, tables, skew, masked=False)


def _masked(recipe: Recipe, question: Survey, sites: Sites) -> SurveyResult:
    """Return the opened totals of counts that leave masked."""
    opening, many_labels = MaskedOpening(sites, question.run), TASKS[recipe.task.name].many_labels
    answers, attempt = ask_masked(opening, question)
    _require_answered(recipe, question, answers)
    tables = opened_tables(answers, opening, attempt)
    skew = masked_skew(tables, opening, many_labels=many_labels) if "labels" in tables else None
    return _result(recipe, question, answers, tables, skew, masked=True)


def _result(
    recipe: Recipe,
    question: Survey,
    answers: Mapping[str, Surveyed],
    tables: dict[str, TotalTable],
    skew: Skew | None,
    *,
    masked: bool,
) -> SurveyResult:
    (max_length,) = {answer.max_length for answer in answers.values()}
    words, note = _overlap(answers)
    least_counts = [answer.least_count for answer in answers.values() if answer.least_count is not None]
    result = SurveyResult(
        recipe=recipe.name,
        digest=recipe_digest(recipe),
        sites=tuple(answers),
        least_counts=(min(least_counts), max(least_counts)) if least_counts else None,
        epsilon=question.epsilon,
        max_length=max_length,
        own_vocabulary=recipe.task.get("encoding") in ("words", "characters"),
        masked=masked,
        tables=tables,
        skew=skew,
        words=words,
    )
    notes = list(_notes(result))
    if note is not None and result.own_vocabulary:
        notes.append(note)
    return dataclasses.replace(result, warnings=tuple(_warnings(result)), notes=tuple(notes))


def _require_answered(recipe: Recipe, question: Survey, answers: Mapping[str, Surveyed]) -> None:
    digest, splits = recipe_digest(recipe), splits_of(recipe)
    for site, answer in answers.items():
        if answer.recipe != digest:
            raise UserError(
                f"site {site} reads another recipe than the coordinator's; use the same version of tff-re everywhere"
            )
        least = answer.least_count
        if answer.epsilon != question.epsilon or (least is not None and least < question.least_count):
            raise UserError(f"site {site}: its counts are protected in another way than asked for")
        _require_tables(site, answer, splits)
    if len({answer.max_length for answer in answers.values()}) > 1:
        raise UserError("the sites cut texts at other lengths; use the same tokenizer and version everywhere")


def _require_tables(site: str, answer: Surveyed, splits: tuple[str, ...]) -> None:
    names = {table.name for table in answer.tables}
    if missing := {"texts", "lengths", "repeats"} - names:
        raise UserError(f"site {site}: its answer lacks the table of {min(missing)}; use the same version everywhere")
    try:
        for table in answer.tables:
            require_form(table, splits, answer.max_length)
    except ValueError as error:
        raise UserError(f"site {site}: {error} than the recipe has; use the same version everywhere") from None


def _total(name: str, answers: Mapping[str, SurveyAnswer]) -> TotalTable:
    tables = {site: table for site, answer in answers.items() if (table := answer.table(name)) is not None}
    columns = dict.fromkeys(column for table in tables.values() for column in table.columns)
    if name == "labels":
        columns = {c: None for c in columns if c not in (NOT_LISTED, OTHERS)} | {
            c: None for c in columns if c in (NOT_LISTED, OTHERS)
        }
    splits = [split for split in (TRAIN, DEV, TEST) if any(split in table.rows for table in tables.values())]
    rows = {
        split: {column: sum((_cell(t, split, column) for t in tables.values()), Cell()) for column in columns}
        for split in splits
    }
    scales = [table.scale for table in tables.values() if table.scale is not None]
    noise = float(np.sqrt(sum(deviation(scale) ** 2 for scale in scales))) if scales else None
    return TotalTable(tuple(columns), rows, len(tables), noise)


def _cell(table: CountTable, split: str, column: str) -> Cell:
    """Return a site's count, which of a label that it does not name is hidden unless it has no other ones."""
    if split not in table.rows:
        return Cell()
    row = table.row(split)
    if column in table.columns:
        count = row[table.columns.index(column)]
    else:
        count = 0 if OTHERS in table.columns and row[table.columns.index(OTHERS)] == 0 else None
    return Cell(0, 1) if count is None else Cell(count, 0)


def _with_one_clients(table: TotalTable | None, answers: Sequence[SurveyAnswer]) -> TotalTable:
    """Add sites that are one client each, which has texts of a split if the site has some."""
    cells = collections.defaultdict(Cell)
    if table is not None:
        cells |= {split: row["clients"] for split, row in table.rows.items()}
    for answer in answers:
        texts = answer.table("texts")
        for split in texts.rows:
            count = texts.row(split)[0]
            hidden = count is None and answer.least_count is not None
            cells[split] += Cell(0, 1) if hidden else Cell(1 if answer.epsilon is not None else min(count, 1), 0)
    rows = {split: {"clients": cells[split]} for split in (TRAIN, DEV, TEST) if split in cells}
    sites = len(answers) + (0 if table is None else table.sites)
    return TotalTable(("clients",), rows, sites, None if table is None else table.noise)


def _skew(answers: Mapping[str, SurveyAnswer], many_labels: bool) -> Skew | None:
    """Return the label skew over the labels that every site shows.

    All others are one class. Where texts have any number of labels, how many others there are is not known, and they
    are left out.
    """
    counts: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for site, answer in answers.items():
        table, texts = answer.table("labels"), answer.table("texts").row(TRAIN)[0]
        if table is None or texts is None or TRAIN not in table.rows:
            return None
        row = dict(zip(table.columns, table.row(TRAIN), strict=True))
        noisy = answer.epsilon is not None
        if not noisy and row.get(OTHERS) == 0:
            row |= {name: row.get(name, 0) for other in answers.values() for name in other.table("labels").columns}
        counts[site] = {n: max(0, c) for n, c in row.items() if c is not None and n not in (NOT_LISTED, OTHERS)}
        totals[site] = sum(counts[site].values()) if noisy or many_labels else texts
    named = dict.fromkeys(name for of_site in counts.values() for name in of_site)
    common = [name for name in named if all(name in of_site for of_site in counts.values())]
    if many_labels:
        totals = {site: sum(of_site[name] for name in common) for site, of_site in counts.items()}
    if not common or not all(totals.values()):
        return None
    numbers = np.array([[counts[site][name] for name in common] for site in counts], float)
    size = np.array([totals[site] for site in counts], float)
    numbers = np.column_stack([numbers, np.maximum(0, size - numbers.sum(1))])
    shares, together = numbers / size[:, None], numbers.sum(0) / size.sum()
    distances = dict(zip(counts, (0.5 * np.abs(shares - together).sum(1)).tolist(), strict=True))
    tables = [answer.table("labels") for answer in answers.values()]
    hides = any(None in table.row(TRAIN) or (OTHERS in table.columns and table.row(TRAIN)[-1]) for table in tables)
    silent = sum(not answer.show_distance for answer in answers.values())
    # One that is not shown would follow from the mean and the others.
    allowed = {site: d for site, d in distances.items() if answers[site].show_distance and silent != 1}
    return Skew(float(np.mean(list(distances.values()))), hides and not many_labels, hides and many_labels, allowed)


def _overlap(answers: Mapping[str, Surveyed]) -> tuple[WordOverlap | None, str | None]:
    """(how many words sites share, why it is not known)."""
    without = [site for site, answer in answers.items() if answer.digests is None]
    if without:
        why = "noise" if answers[without[0]].epsilon is not None else "vocabulary.secret or allow.survey.vocabulary"
        return None, f"how many words the sites share is not known: {', '.join(without)} sent no digests ({why})"
    require_one_secret({site: answer.check for site, answer in answers.items()})
    held = {site: {row.tobytes() for row in answer.digests} for site, answer in answers.items()}
    sites = collections.Counter(digest for digests in held.values() for digest in digests)
    shares = [sum(sites[d] > 1 for d in digests) / len(digests) for digests in held.values() if digests]
    if not shares:
        return None, "how many words the sites share is not known: no word is in enough training texts of a site"
    counts = np.array(list(sites.values()))
    least = max(answer.least_count for answer in answers.values())
    everywhere = int((counts == len(answers)).sum())
    return WordOverlap(least, len(sites), int((counts > 1).sum()), everywhere, float(np.mean(shares))), None


def _notes(result: SurveyResult) -> Iterator[str]:
    tables, noisy = result.tables, result.epsilon is not None
    for name, table in tables.items():
        if table.sites < len(result.sites) and name != "client_sizes":
            yield f"{name.replace('_', ' ')}: counted at {table.sites} of {len(result.sites)} sites"
    if "labels" not in tables:
        why = "with masks" if result.masked else "with noise"
        yield f"labels are not counted: {why} they have to be listed, by the recipe or with --labels"
    elif result.skew is None:
        yield "the label skew is not known: the sites do not show enough counts of the same labels"
    if noisy and "unknown" not in tables:
        yield "unknown tokens are not counted: a vocabulary of the sites' own words depends on all texts"


def _warnings(result: SurveyResult) -> Iterator[str]:
    """Lines about what is clear in spite of hidden counts and noise."""
    tables = result.tables
    texts = {split: row["texts"].total for split, row in tables["texts"].rows.items()}

    def of_texts(table: str, split: str, columns: Sequence[str], least_share: float = 0.0) -> int:
        """Return the number of texts in these columns, or 0 if it is not clear that their share is larger."""
        count = sum(tables[table].rows[split][column].total for column in columns)
        noise = (tables[table].noise or 0) * np.sqrt(len(columns))
        return count if count - 2 * noise > least_share * max(0, texts[split]) else 0

    for split in texts:
        if count := of_texts("lengths", split, cut_columns(result.max_length), MANY_CUT):
            yield f"{split}: {count} of {texts[split]} texts are cut at {result.max_length} tokens"
        largest = list(UNKNOWN)[-1]
        if "unknown" in tables and (count := of_texts("unknown", split, [largest], MANY_CUT)):
            yield f"{split}: in {count} of {texts[split]} texts {largest} of the tokens are unknown"
        for column in tables["repeats"].columns[:-1]:
            if count := of_texts("repeats", split, [column]):
                where = "occur earlier in the split" if column == EARLIER else f"are {column}, too"
                yield f"{split}: {count} of {texts[split]} texts {where}"
    if "labels" in tables:
        yield from _warnings_of_labels(tables["labels"])


def _warnings_of_labels(table: TotalTable) -> Iterator[str]:
    limit = max(FEW_EXAMPLES, 2 * (table.noise or 0))
    train = {name: cell for name, cell in table.rows[TRAIN].items() if name not in (NOT_LISTED, OTHERS)}
    none = [name for name, cell in train.items() if cell == Cell()] if table.noise is None else []
    few = [name for name, cell in train.items() if cell.total < limit and name not in none]
    if none:
        yield f"labels without a training text: {', '.join(none)}"
    if few:
        why = "of which no site shows enough training texts" if table.noise is None else "with few texts for the noise"
        yield f"labels {why}: {', '.join(few)}"
    unlisted = sum(row[NOT_LISTED].total for row in table.rows.values() if NOT_LISTED in row)
    if unlisted > 2 * (table.noise or 0):
        yield f"at least {unlisted} texts have a label that the recipe does not list: their sites would refuse a run"
