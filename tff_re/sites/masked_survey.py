"""The coordinator's survey of counts that leave sites masked, and are opened only as totals over all sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from tff_re.errors import UserError
from tff_re.sites.asking import Sites
from tff_re.sites.count_noise import deviation
from tff_re.sites.fields import MAX_OCCURRENCES
from tff_re.sites.masks import Layout
from tff_re.sites.opening import Opening, SitesFailed
from tff_re.sites.survey_messages import MaskedSurvey, MaskedSurveyAnswer, Survey, TableForm
from tff_re.sites.survey_result import Cell, TotalTable

Answers = Mapping[str, MaskedSurveyAnswer]


def ask_masked(sites: Sites, question: Survey) -> tuple[Answers, MaskedOpening]:
    """Ask all sites of the engine, and return their masked answers and what opens the total.

    Raises SiteRefused or SiteLost, of the first site that does not answer.
    """
    opening = Opening(sites, question.run)
    values = {field.name: getattr(question, field.name) for field in attrs.fields(Survey)}
    names = tuple(sites.engine.sites)
    masked = MaskedSurvey(**values, attempt=opening.next_attempt(), sites=names)
    return sites.ask_every(dict.fromkeys(names, masked)), MaskedOpening(opening, masked.attempt)


@attrs.frozen
class MaskedOpening:
    """Opens the total of one attempt."""

    opening: Opening
    attempt: int

    def total(self, answers: Answers, cells: int) -> np.ndarray:
        """Return the total over the sites, int64 [cells, 2].

        Raises UserError: a site refuses, is lost, or sent counts of another form.
        """
        layout = Layout(np.dtype(np.int64), (cells, 2))
        for site, answer in answers.items():
            if len(answer.arrays) != 1 or not layout.fits(answer.arrays[0]):
                raise UserError(f"site {site}: its masked counts are not of the form of its tables")
        try:
            (total,) = self.opening.total_of([layout], self.attempt, tuple(answers), answers, ("survey",))
        except SitesFailed as error:
            raise UserError(f"the survey's total was not opened: {error}; survey again once all sites answer") from None
        return total


def opened_tables(answers: Answers, opening: MaskedOpening) -> dict[str, TotalTable]:
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
    total = opening.total(answers, sum(len(table.rows) * len(table.columns) for table in tables))
    _require_possible(tables, total, answers)
    cells = (Cell(count, hidden) for count, hidden in total.tolist())
    of_names = {table.name: _table(number, answers, cells) for number, table in enumerate(tables)}
    if all(answer.one_client for answer in answers.values()):
        of_names.pop("client_sizes", None)
    order = ("texts", "clients", "client_sizes", "labels", "lengths", "repeats", "unknown", "left_out")
    return {name: of_names[name] for name in order if name in of_names}


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
