"""How a site answers surveys: what its policy allows, counted and protected once for each question.

    state/surveys/DATA-QUESTION    the tables of an answer, with the ε that they spent

DATA and QUESTION are digests: of the file of training data, and of the recipe, its seed and what was asked for. The
same question gets the same tables, so that noise cannot be averaged away and nothing can be drawn again. Tables are
written before they leave.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import attrs

from datasets.errors import DataError
from datasets.files import replace_file, sha256_of
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runtime.events import DATA_UNREADABLE, SURVEY_ANSWERED
from tff_re.sites.check import ReadData, read_data
from tff_re.sites.decisions import Decisions
from tff_re.sites.ledger import training_data
from tff_re.sites.messages import Malformed, Refused
from tff_re.sites.policy import Site, recipe_digest
from tff_re.sites.structuring import structured, unstructured
from tff_re.sites.survey_messages import CountTable, Survey, SurveyAnswer
from tff_re.sites.survey_options import SurveyOptions
from tff_re.sites.survey_tables import SiteCounts, with_least_count, with_noise
from tff_re.sites.words import digests, secret_check
from tff_re.tasks import TASKS

FOLDER = "surveys"
"""In the site's folder of state."""

_log = logging.getLogger("tff_re.sites")


@attrs.frozen
class _Stored:
    """An answer on the disk: the ε that it spent, 0.0 for a least count, and its tables."""

    epsilon: float
    tables: tuple[CountTable, ...]


class Surveys:
    """Answers the surveys of a site."""

    def __init__(self, site: Site, decisions: Decisions):
        self._site, self._decisions = site, decisions
        self._folder = site.state / FOLDER

    def answer(self, question: Survey) -> SurveyAnswer:
        """Return the protected counts.

        Raises:
          Refused: the policy does not allow the survey, or the data cannot be read for this recipe.
        """
        options = self._allowed(question)
        recipe = self._decisions.recipe(question.recipe)
        least = None if question.least_count is None else max(question.least_count, options.least_count)
        read = self._read(recipe, least)
        data, name = self._names(recipe, read, question, least)
        counts = SiteCounts(read, question.labels)
        path = self._folder / f"{data}-{name}"
        tables = _read_stored(path).tables if path.exists() else None
        if tables is None:
            self._require_budget(options, data, question.epsilon)
            raw = counts.tables(one_client=self._is_one_client, least=least)
            made = with_noise(raw, question.epsilon) if least is None else with_least_count(raw, least)
            self._store(path, _Stored(question.epsilon or 0.0, tuple(made)))
            tables = tuple(made)
            what = f"ε = {question.epsilon:g}" if least is None else f"a least count of {least}"
            SURVEY_ANSWERED.log(_log, data=data[:8], recipe=recipe_digest(recipe)[:8], protection=what)
        secret, words = self._site.secret(), None
        if secret is not None and least is not None and options.vocabulary and read.own_words is not None:
            words = digests(secret, question.run, "word", counts.frequent_words(least))
        return SurveyAnswer(
            site=self._site.options.name,
            recipe=recipe_digest(recipe),
            least_count=least,
            epsilon=question.epsilon,
            tables=tables,
            one_client=self._is_one_client,
            max_length=read.max_length if read.cuts else None,
            show_distance=options.distance,
            check=None if words is None else secret_check(secret, question.run),
            digests=words,
        )

    @property
    def _is_one_client(self) -> bool:
        return self._site.options.clients.rule == "one"

    def _allowed(self, question: Survey) -> SurveyOptions:
        allow = self._site.options.allow
        options = allow.survey_options
        if options is None:
            if allow.survey is None:
                raise Refused(
                    "nothing leaves it without noise or a mask (allow.privacy, allow.least_sites); its operator allows "
                    "surveys by allow.survey"
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
