"""How a site answers surveys: what its policy allows, counted and protected once for each question.

    state/surveys/DATA-QUESTION           the tables of an answer, with the ε that they spent
    state/masked-surveys/DATA-QUESTION/   if they left masked: the recipe, and what was signed and opened

DATA and QUESTION are digests: of the file of training data, and of the recipe, its seed and what was asked for. The
same question gets the same tables, so that noise cannot be averaged away and nothing can be drawn again. Tables are
written before they leave. Of the same tables one total is opened, whatever the survey's id.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from datasets.errors import DataError
from datasets.files import replace_file, sha256_of
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.shares import sums_are_masked
from tff_re.runtime.events import DATA_UNREADABLE, SURVEY_ANSWERED
from tff_re.sites.attempts import FILE, Attempt, Attempts
from tff_re.sites.check import ReadData, read_data
from tff_re.sites.decisions import Decisions
from tff_re.sites.ledger import training_data
from tff_re.sites.masking import SiteMasks
from tff_re.sites.masks import Layout
from tff_re.sites.messages import Lost, Malformed, Refused
from tff_re.sites.policy import Site, recipe_digest
from tff_re.sites.store import RunStore
from tff_re.sites.structuring import structured, unstructured
from tff_re.sites.survey_messages import (
    DISTANCE_UNITS,
    CountTable,
    MaskedDistance,
    MaskedDistanceAnswer,
    MaskedSurvey,
    MaskedSurveyAnswer,
    Survey,
    SurveyAnswer,
    TableForm,
)
from tff_re.sites.survey_options import SurveyOptions
from tff_re.sites.survey_tables import (
    SiteCounts,
    cells_of,
    common_tables,
    distance_of_labels,
    splits_of,
    with_least_count,
    with_noise,
)
from tff_re.sites.words import digests, secret_check
from tff_re.tasks import TASKS

FOLDER, MASKED_FOLDER = "surveys", "masked-surveys"
"""In the site's folder of state."""

_log = logging.getLogger("tff_re.sites")


@attrs.frozen
class _Stored:
    """An answer on the disk: the ε that it spent, 0.0 for a least count, and its tables."""

    epsilon: float
    tables: tuple[CountTable, ...]


class MaskedSurveyStore(RunStore):
    """The folder of the surveys that sent the same tables masked, `state/masked-surveys/DATA-QUESTION`."""

    def __init__(self, state: Path, name: str):
        self.folder = state / MASKED_FOLDER / name


@attrs.frozen
class MaskedCounts:
    """What a site keeps of masked tables to sign and open their total, as `SiteMasks` needs it."""

    store: MaskedSurveyStore
    recipe: Recipe


@attrs.frozen
class _Question:
    """A survey that the policy allows, and what it is about.

    Attributes:
      recipe, read: as this site reads them.
      least: the least count, which may be more than was asked for; None with noise.
      data, name: digests of the training data and of the question about it.
    """

    asked: Survey
    options: SurveyOptions
    recipe: Recipe
    read: ReadData
    least: int | None
    data: str
    name: str


class Surveys:
    """Answers the surveys of a site."""

    def __init__(self, site: Site, decisions: Decisions, masks: SiteMasks):
        self._site, self._decisions, self._masks = site, decisions, masks
        self._folder = site.state / FOLDER

    def answer(self, question: Survey) -> SurveyAnswer:
        """Return the protected counts.

        Raises:
          Refused: the policy does not allow the survey, or the data cannot be read for this recipe.
        """
        allowed = self._question(question)
        counts = SiteCounts(allowed.read, question.labels)
        tables = self._tables(allowed, counts)
        said = self._said(allowed, counts)
        return SurveyAnswer(**said, tables=tables, show_distance=allowed.options.distance)

    def masked(self, question: MaskedSurvey) -> MaskedSurveyAnswer:
        """Return the protected counts, masked.

        Raises:
          Refused: as for `answer`, or these sites are not those with which the site masks, or another attempt was asked
            for before.
        """
        allowed = self._question(question)
        sums = f"{allowed.data}-{allowed.name}"
        store, attempt = MaskedSurveyStore(self._site.state, sums), Attempt.of_survey(question, sums)
        self._decisions.masked(Attempts(store.read(FILE)), attempt, allowed.recipe)
        counts = SiteCounts(allowed.read, question.labels)
        ways = {"listed": bool(counts.listed), "splits": splits_of(allowed.recipe)}
        tables = common_tables(self._tables(allowed, counts), one_client=self._is_one_client, **ways)
        cells = cells_of(tables)
        store.write("recipe.toml", question.recipe.encode())
        numbers = self._masks.masked_attempt(store, attempt, [Layout(cells.dtype, cells.shape)], [cells])
        forms = tuple(TableForm(table.name, table.rows, table.columns, table.scale) for table in tables)
        return MaskedSurveyAnswer(**self._said(allowed, counts), tables=forms, arrays=tuple(numbers))

    def distance(self, question: MaskedDistance) -> MaskedDistanceAnswer:
        """Return how far the site's labels are from those of all sites, masked.

        It is made of the protected tables whose total is open, once.

        Raises:
          Lost: the site has not sent counts for this survey.
          Refused: their total is not open, or the distance was asked for with other totals before.
        """
        counted = self.masked_counts(question.run)
        if counted is None:
            raise Lost("it has sent no counts for this survey")
        store, sums = counted.store, counted.store.folder.name
        attempts, attempt = Attempts(store.read(FILE)), Attempt.of_distance(question, f"{sums} distance")
        if sums not in attempts.opened:
            raise Refused("the total of its counts is not open yet")
        asked = json.dumps([question.labels, question.counts.tolist(), question.texts]).encode()
        if store.read("distance.json") not in (None, asked):
            raise Refused("the distance of its labels was asked for with other totals before; it is told once")
        self._decisions.masked(attempts, attempt, counted.recipe)
        store.write("distance.json", asked)
        distance = distance_of_labels(
            _read_stored(self._folder / sums).tables,
            question.labels,
            question.counts.tolist(),
            question.texts,
            many_labels=TASKS[counted.recipe.task.name].many_labels,
        )
        units = [0, 0] if distance is None else [round(distance * DISTANCE_UNITS), 1]
        array = np.array(units, np.int64)
        numbers = self._masks.masked_attempt(store, attempt, [Layout(array.dtype, array.shape)], [array])
        return MaskedDistanceAnswer(site=self._site.options.name, arrays=tuple(numbers))

    def masked_counts(self, run: str) -> MaskedCounts | None:
        """Return the masked tables that left last for a survey of this id, or None."""
        for folder in sorted((self._site.state / MASKED_FOLDER).glob("*-*")):
            store = MaskedSurveyStore(self._site.state, folder.name)
            newest = Attempts(store.read(FILE)).newest
            if newest is not None and newest.run == run:
                return MaskedCounts(store, self._decisions.recipe((store.read("recipe.toml") or b"").decode()))
        return None

    def _question(self, question: Survey) -> _Question:
        options = self._allowed(question)
        recipe = self._decisions.recipe(question.recipe)
        if sums_are_masked(recipe) and not isinstance(question, MaskedSurvey):
            raise Refused("the recipe masks sums (aggregation.secure), and so the counts of its survey leave masked")
        least = None if question.least_count is None else max(question.least_count, options.least_count)
        read = self._read(recipe, least)
        return _Question(question, options, recipe, read, least, *self._names(recipe, read, question, least))

    def _tables(self, allowed: _Question, counts: SiteCounts) -> tuple[CountTable, ...]:
        """Return the protected tables, which are made once for a question."""
        path, epsilon = self._folder / f"{allowed.data}-{allowed.name}", allowed.asked.epsilon
        if path.exists():
            return _read_stored(path).tables
        self._require_budget(allowed.options, allowed.data, epsilon)
        raw = counts.tables(one_client=self._is_one_client, least=allowed.least)
        made = with_noise(raw, epsilon) if allowed.least is None else with_least_count(raw, allowed.least)
        self._store(path, _Stored(epsilon or 0.0, tuple(made)))
        what = f"ε = {epsilon:g}" if allowed.least is None else f"a least count of {allowed.least}"
        said = {"recipe": recipe_digest(allowed.recipe)[:8], "protection": what}
        SURVEY_ANSWERED.log(_log, data=allowed.data[:8], **said)
        return tuple(made)

    def _said(self, allowed: _Question, counts: SiteCounts) -> dict[str, Any]:
        """Return what an answer has in addition to counts (see `Surveyed`)."""
        question, read, secret, words = allowed.asked, allowed.read, self._site.secret(), None
        with_words = secret is not None and allowed.least is not None and allowed.options.vocabulary
        if with_words and read.own_words is not None:
            words = digests(secret, question.run, "word", counts.frequent_words(allowed.least))
        return {
            "site": self._site.options.name,
            "recipe": recipe_digest(allowed.recipe),
            "least_count": allowed.least,
            "epsilon": question.epsilon,
            "one_client": self._is_one_client,
            "max_length": read.max_length if read.cuts else None,
            "check": None if words is None else secret_check(secret, question.run),
            "digests": words,
        }

    @property
    def _is_one_client(self) -> bool:
        return self._site.options.clients.rule == "one"

    def _allowed(self, question: Survey) -> SurveyOptions:
        allow = self._site.options.allow
        options = allow.survey_options(masked=isinstance(question, MaskedSurvey))
        if options is None:
            if allow.survey is None:
                raise Refused(
                    "nothing leaves it without noise or a mask (allow.privacy, allow.least_sites); survey with a "
                    "recipe that has aggregation.secure = 'masks', or its operator allows surveys by allow.survey"
                )
            raise Refused("it answers no surveys (allow.survey = false)")
        if question.epsilon is None and options.least_count is None:
            raise Refused(
                f"its counts leave with noise only, of ε = {options.epsilon:g} at most (allow.survey); survey with "
                "--epsilon"
            )
        if question.epsilon is not None and options.epsilon is None:
            raise Refused(
                f"it answers surveys with a least count of {options.least_count} and not with noise (allow.survey); "
                "leave --epsilon out"
            )
        if question.epsilon is not None and question.epsilon > options.epsilon:
            raise Refused(f"ε = {question.epsilon:g} is more than its {options.epsilon:g} (allow.survey.epsilon)")
        return options

    def _require_budget(self, options: SurveyOptions, data: str, epsilon: float | None) -> None:
        before = _of_data(self._folder, data)
        if epsilon is None:
            if len(before) >= options.surveys:
                raise Refused(
                    f"{len(before)} other surveys of its data were answered, and no more may be "
                    "(allow.survey.surveys): the difference of two may show a small count"
                )
            return
        spent = _spent(before)
        if any(not stored.epsilon for stored in before):
            raise Refused("counts of its data left without noise before; no ε holds for them")
        if spent + Fraction(str(epsilon)) > Fraction(str(options.epsilon)):
            raise Refused(
                f"surveys of its data spent ε = {float(spent):g} of {options.epsilon:g} (allow.survey.epsilon), and "
                f"{epsilon:g} more is asked for"
            )

    def _read(self, recipe: Recipe, least: int | None) -> ReadData:
        """Read the data, for noise also of clients that a run leaves out because they have few training examples.

        Otherwise one text could decide whether a client's other texts are counted.
        """
        try:
            read = read_data(self._site, recipe)
        except (UserError, DataError) as error:
            DATA_UNREADABLE.log(_log, error=error)
            raise Refused("its data cannot be read for this recipe; see the site's log") from None
        if least is None:
            read.data.count_all_clients()
        return read

    def _names(self, recipe: Recipe, read: ReadData, question: Survey, least: int | None) -> tuple[str, str]:
        """Return the digests of the training data and of the question about it."""
        data = training_data(recipe, {}, read.data.data_paths.data).digest
        test = getattr(recipe.task.options, TASKS[recipe.task.name].test_file, None)
        partition = sorted(map(repr, attrs.asdict(recipe.partition.options).items()))
        asked = [recipe_digest(recipe), recipe.seed, partition, None if test is None else sha256_of(test)]
        asked += [least, question.epsilon, question.labels]
        return data, hashlib.sha256(json.dumps(asked).encode("utf-8", "surrogatepass")).hexdigest()

    def _store(self, path: Path, stored: _Stored) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, json.dumps(unstructured(stored)[0]).encode())


def survey_lines(state: Path) -> list[str]:
    """Return a line for each file of training data that was surveyed, with what its surveys spent."""
    folder, lines = state / FOLDER, []
    for data in sorted({path.name.partition("-")[0] for path in folder.glob("*-*")}):
        stored = _of_data(folder, data)
        spent = _spent(stored)
        epsilon = f", ε = {float(spent):g} together" if spent else ""
        lines.append(f"surveys of the data {data[:8]}: {len(stored)} answered{epsilon}")
    return lines


def _of_data(folder: Path, data: str) -> list[_Stored]:
    return [_read_stored(path) for path in sorted(folder.glob(f"{data}-*"))]


def _spent(stored: Sequence[_Stored]) -> Fraction:
    return sum((Fraction(str(answer.epsilon)) for answer in stored), Fraction(0))


def _read_stored(path: Path) -> _Stored:
    try:
        return structured(_Stored, dict(json.loads(path.read_bytes())), [])
    except (ValueError, TypeError, Malformed):
        raise UserError(f"{path}: is damaged; put it back: it says what was answered") from None
