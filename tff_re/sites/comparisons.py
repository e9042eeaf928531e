"""[baseline] and [personalise] across sites: the coordinator's part.

After a federated run each site trains alone, or fine-tunes the federated model, and compares both models on its own
test examples. The models stay at the sites; what a site tells of its comparison is in its `allow.comparison`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from computations.algorithms.own_models import require_plain
from computations.errors import CompositionError
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.base import Feature
from tff_re.runs.features.baseline import require_tests_at_clients
from tff_re.runs.features.personalise import fine_tuning_settings
from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.events import COMPARISON_MISSING, SITE_COMPARED, SITES_TRAIN_ALONE
from tff_re.sites.asking import BadAnswer, Sites
from tff_re.sites.comparison_messages import NUMBERS, Alone, Compare, CompareAnswer
from tff_re.sites.program import arrays_of

MODELS = {"alone": ("alone", "federated"), "tuned": ("federated", "fine-tuned")}
"""What is compared -> names of the two models; the difference is the second minus the first."""

DISCLOSED = {
    "interval": "both measures, the difference and the verdict",
    "direction": "the verdict",
    "nothing": "nothing",
}
"""What a site discloses, in words."""

_DOES = {"alone": "trains alone for {rounds} rounds", "tuned": "fine-tunes the federated model"}

_TABLES = {"alone": "baseline", "tuned": "personalise"}
"""What is compared -> the table of a recipe that asks for it."""


def compared_models(recipe: Recipe) -> tuple[str, ...]:
    """Return what a recipe lets sites compare, of `MODELS`."""
    return tuple(what for what, table in _TABLES.items() if getattr(recipe, table) is not None)


def announced(recipe: Recipe, disclosed: Mapping[str, str | None]) -> Iterator[str]:
    """Return a line on what sites will do after the run, and what each will tell, if the recipe asks for it.

    `disclosed`: site -> what it discloses (see `CompareAnswer`).
    """
    if what := compared_models(recipe):
        does = " and ".join(_DOES[each].format(rounds=recipe.training.rounds) for each in what)
        told_by = ", ".join(f"{site} {DISCLOSED[answer or 'nothing']}" for site, answer in disclosed.items())
        yield (
            f"after the last round each site {does}, and compares the models on its own test examples; told to the "
            f"coordinator (allow.comparison): {told_by}"
        )


def announced_at_site(recipe: Recipe, disclosed: str) -> Iterator[str]:
    """Return a line on what this site will do after a run of the recipe, for its operator."""
    if what := compared_models(recipe):
        does = " and ".join(_DOES[each].format(rounds=recipe.training.rounds) for each in what)
        yield (
            f"after the run this site {does}, and compares the models on its own test examples; the coordinator is "
            f"told {DISCLOSED[disclosed]} (allow.comparison)"
        )


def federated_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe of the federated part of a run across sites."""
    return dataclasses.replace(recipe, baseline=None, personalise=None)


def require_comparable(recipe: Recipe, experiment: Experiment) -> None:
    """Raise UserError if sites could not train alone, or fine-tune, or measure it.

    `experiment`: the federated one.
    """
    for what in compared_models(recipe):
        table = f"[{_TABLES[what]}]"
        require_tests_at_clients(recipe, experiment.prepared, table)
        if recipe.client_model is not None:
            raise UserError(f"{recipe.source}: {table} does not go with [client_model]; leave one of the two out")
    if "alone" in compared_models(recipe):
        try:
            require_plain(experiment.algorithm.client_work, "[baseline] across sites")
        except CompositionError as error:
            raise UserError(f"{recipe.source}: {error}") from None
        if getattr(experiment.prepared.inputs, "vectors", None) is not None:
            raise UserError(
                f"{recipe.source}: [baseline] across sites: only the coordinator has the word vectors, with which a "
                "site alone would begin; leave [baseline] or task.vectors_path and task.vectors_corpus out"
            )
    if "tuned" in compared_models(recipe):
        fine_tuning_settings(recipe, experiment.model)


class Comparisons(Feature):
    """What sites tell of their comparisons after a run."""

    table = "task"

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self._summary: dict[str, Any] = {}

    def finish(self, training, result):
        """See `Feature`."""
        sites, run, names = training.runtime.sites, training.runtime.run, training.experiment.prepared.sites
        measure = training.experiment.prepared.measures.quality
        for what in compared_models(self.recipe):
            rows = compare_at_sites(
                sites, run, names, what, tuple(arrays_of(result.weights)), self.recipe.training.rounds
            )
            self._summary[what] = {"measure": measure, "models": MODELS[what], "rows": rows}
            for row in rows:
                said = {name: row[name] for name in ("site", "verdict") if name in row}
                sites.say(SITE_COMPARED, comparison=comparison_text(what, measure, row), what=what, **said)
        return result

    def summary(self, result):
        """See `Feature`."""
        return {"comparisons": self._summary} if self._summary else {}


def compare_at_sites(
    sites: Sites, run: str, names: Sequence[str], what: str, weights: tuple, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each site: `site`, `disclosed`, and what it tells of `NUMBERS` and `verdict`.

    A site that does not answer, refuses, or makes no progress with its own training has the row `no answer`.

    Args:
      sites, run, names: who is asked.
      what: see `Compare`.
      weights: the federated ones.
      rounds: of the recipe; a site trains alone for at most this many.
    """
    failed: dict[str, Any] = dict(sites.still_lost(names, run))
    if what == "alone":
        failed |= _train_alone(sites, run, [site for site in names if site not in failed], rounds)
    question = Compare(run=run, what=what, arrays=weights)
    answers: Mapping[str, Any] = sites.ask_all({site: question for site in names if site not in failed})
    failed |= {site: answer for site, answer in answers.items() if isinstance(answer, RuntimeProblem)}
    for site, reason in failed.items():
        sites.say(COMPARISON_MISSING, reason=reason, site=site)
    return [_row(site, answers.get(site)) for site in names]


def _train_alone(sites: Sites, run: str, names: Sequence[str], rounds: int) -> dict[str, RuntimeProblem]:
    """Ask sites to train alone until all have finished, and return the errors of those that do not.

    A site that has not trained further since its last answer fails, so that no site is asked forever.
    """
    failed: dict[str, RuntimeProblem] = {}
    trained = dict.fromkeys(names, 0)
    while trained:
        answers = sites.ask_all({site: Alone(run=run) for site in trained})
        failed |= {site: answer for site, answer in answers.items() if isinstance(answer, RuntimeProblem)}
        going = {site: answers[site] for site in trained if site not in failed and not answers[site].finished}
        for site, answer in going.items():
            if not trained[site] < answer.rounds < rounds:
                said = f"{answer.rounds} of {rounds} rounds, {trained[site]} before"
                failed[site] = BadAnswer(f"site {site}: its own training makes no progress ({said})")
        trained = {site: answer.rounds for site, answer in going.items() if site not in failed}
        if trained:
            sites.say(SITES_TRAIN_ALONE, progress=", ".join(f"{site} {number}" for site, number in trained.items()))
    return failed


def _row(site: str, answer: CompareAnswer | RuntimeProblem | None) -> dict[str, Any]:
    if not isinstance(answer, CompareAnswer):
        return {"site": site, "disclosed": "no answer"}
    verdict = {} if answer.verdict is None else {"verdict": answer.verdict}
    numbers = {} if answer.numbers is None else dict(zip(NUMBERS, answer.numbers.tolist(), strict=True))
    return {"site": site, "disclosed": answer.disclosed, **verdict, **numbers}


def comparison_text(what: str, measure: str, row: Mapping[str, Any]) -> str:
    """Return what a row says, in words."""
    first, second = MODELS[what]
    text = f"{second} against {first}: "
    if "difference" in row:
        text += "{before:.4f} to {after:.4f}, {difference:+.4f} ({low:+.4f} to {high:+.4f}) ".format(**row)
        return f"{text}{measure}: {row['verdict']}"
    return text + row.get("verdict", "not told" if row["disclosed"] == "nothing" else "no answer")
