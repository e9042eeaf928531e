"""The coordinator's survey of counts that leave sites masked, and are opened only as totals over all sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_re.errors import UserError
from tff_re.sites.asking import Sites
from tff_re.sites.count_noise import deviation
from tff_re.sites.fields import MAX_OCCURRENCES
from tff_re.sites.masks import Layout
from tff_re.sites.opening import Opening, SitesFailed
from tff_re.sites.survey_messages import (
    DISTANCE_UNITS,
    TRAIN,
    MaskedDistance,
    MaskedSurvey,
    MaskedSurveyAnswer,
    Survey,
    TableForm,
)
from tff_re.sites.survey_result import Cell, Skew, TotalTable
from tff_re.sites.survey_tables import NOT_LISTED

Answers = Mapping[str, MaskedSurveyAnswer]


class MaskedOpening:
    """Asks all sites of an engine for masked numbers of one survey, and opens their totals."""

    def __init__(self, sites: Sites, run: str):
        self._sites, self._run, self._opening = sites, run, Opening(sites, run)
        self.names = tuple(sites.engine.sites)

    def ask(self, question: type[MaskedSurvey] | type[MaskedDistance], **values: Any) -> tuple[Mapping[str, Any], int]:
        """Return the sites' answers, and the number of the attempt.

        Raises SiteRefused or SiteLost, of the first site that does not answer.
        """
        attempt = self._opening.next_attempt()
        masked = question(run=self._run, attempt=attempt, sites=self.names, **values)
        return self._sites.ask_every(dict.fromkeys(self.names, masked)), attempt

    def total(self, answers: Mapping[str, Any], attempt: int, *shape: int) -> np.ndarray:
        """Return the total over the sites, int64 of this shape.

        Raises UserError: a site refuses, is lost, or sent numbers of another form.
        """
        layout = Layout(np.dtype(np.int64), shape)
        for site, answer in answers.items():
            if len(answer.arrays) != 1 or not layout.fits(answer.arrays[0]):
                raise UserError(f"site {site}: its masked counts are not of the form of its tables")
        try:
            (total,) = self._opening.total_of([layout], attempt, tuple(answers), answers, ("survey", shape))
        except SitesFailed as error:
            raise UserError(f"the survey's total was not opened: {error}; survey again once all sites answer") from None
        return total


def ask_masked(opening: MaskedOpening, question: Survey) -> tuple[Answers, int]:
    """Ask all sites for masked counts (see `MaskedOpening.ask`)."""
    values = {name: getattr(question, name) for name in ("recipe", "least_count", "epsilon", "labels")}
    return opening.ask(MaskedSurvey, **values)


def opened_tables(answers: Answers, opening: MaskedOpening, attempt: int) -> dict[str, TotalTable]:
    """Open the total and return its tables by name.

    Raises UserError: the sites' tables have different forms, or the total cannot be one of protected counts.
    """
    first, *others = answers
    forms = {site: [(t.name, t.rows, t.columns) for t in answer.tables] for site, answer in answers.items()}
    if different := [site for site in others if forms[site] != forms[first]]:
        raise UserError(
            f"the tables of {different[0]} have other forms than those of {first}; use the same version everywhere"
        )
    tables = answers[first].tables
    total = opening.total(answers, attempt, sum(len(table.rows) * len(table.columns) for table in tables), 2)
    _require_possible(tables, total, answers)
    cells = (Cell(count, hidden) for count, hidden in total.tolist())
    of_names = {table.name: _table(number, answers, cells) for number, table in enumerate(tables)}
    if all(answer.one_client for answer in answers.values()):
        of_names.pop("client_sizes", None)
    order = ("texts", "clients", "client_sizes", "labels", "lengths", "repeats", "unknown", "left_out")
    return {name: of_names[name] for name in order if name in of_names}


def masked_skew(tables: Mapping[str, TotalTable], opening: MaskedOpening, *, many_labels: bool) -> Skew | None:
    """Ask all sites how far their training labels are from the opened ones, and return the mean distance.

    It is over the labels that every site shows, as in a survey in the clear; None: there are none.
    """
    row, texts = tables["labels"].rows[TRAIN], tables["texts"].rows[TRAIN]["texts"]
    totals = {name: max(0, cell.total) for name, cell in row.items() if not cell.hidden and name != NOT_LISTED}
    if not totals or texts.hidden or texts.total <= 0:
        return None
    counts = np.array(list(totals.values()), np.int64)
    answers, attempt = opening.ask(MaskedDistance, labels=tuple(totals), counts=counts, texts=texts.total)
    units, sites = opening.total(answers, attempt, 2).tolist()
    if not 0 <= sites <= len(answers) or not 0 <= units <= sites * DISTANCE_UNITS:
        raise UserError(
            f"the total over {', '.join(answers)} cannot be one of their distances; look at each site's log"
        )
    if sites < len(answers):
        return None
    hides = any(cell.hidden for cell in row.values())
    return Skew(units / DISTANCE_UNITS / sites, hides and not many_labels, hides and many_labels, {})


def _table(number: int, answers: Answers, cells: Iterator[Cell]) -> TotalTable:
    of_sites = [answer.tables[number] for answer in answers.values()]
    table = of_sites[0]
    rows = {row: {column: next(cells) for column in table.columns} for row in table.rows}
    scales = [t.scale for t in of_sites if t.scale is not None]
    noise = float(np.sqrt(sum(deviation(scale) ** 2 for scale in scales))) if scales else None
    counting = [a for a in answers.values() if table.name != "client_sizes" or not a.one_client]
    return TotalTable(table.columns, rows, len(counting), noise)


def _require_possible(tables: Sequence[TableForm], total: np.ndarray, answers: Answers) -> None:
    """Raise UserError unless these may be sums of protected counts.

    A site that is one client counts itself, so that a sum of clients may be below the least count.
    """
    counts, hidden = total.T
    least = min(answer.least_count or 0 for answer in answers.values())
    counted_itself = np.concatenate([[t.name == "clients"] * (len(t.rows) * len(t.columns)) for t in tables])
    bound = len(answers) * MAX_OCCURRENCES
    if least:
        possible = (counts == 0) | (counts >= least) | (counted_itself & (counts > 0))
        possible &= (counts <= bound) & (hidden >= 0) & (hidden <= len(answers))
    else:
        possible = (np.abs(counts) <= bound) & (hidden == 0)
    if not possible.all():
        raise UserError(
            f"the total over {', '.join(answers)} cannot be one of their counts; masks hide which site sent what, so "
            "look at each site's log, and at the keys in [mask_keys]"
        )
