"""A coordinator and a site that lie about surveys, which do not depend on the algorithm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.victims import Victim
from tests.sites.adversaries.wire import repacked
from tests.sites.sites_for_tests import corpora, recipe_of, write_site
from tff_re.sites import protocol
from tff_re.sites.policy import for_sites
from tff_re.sites.survey_messages import Survey, SurveyAnswer

RUN, OTHER_RUN = "5" * 32, "6" * 32


def survey(**changes) -> Survey:
    """An honest survey but for these changes."""
    values = {"run": RUN, "recipe": for_sites(recipe_of()), "least_count": 5, "epsilon": None, "labels": None}
    return Survey(**values | changes)


def noisy(epsilon: float, **changes) -> Survey:
    """A survey with noise."""
    return survey(least_count=None, epsilon=epsilon, **changes)


class AboutSurveys:
    """Tricks with surveys: (site, question, line).

    Attributes:
      folder: of the test.
    """

    def __init__(self, folder: Path):
        self.folder, self.opened = folder, []

    def site(self, **allow) -> Victim:
        """A site that was not surveyed, with this policy."""
        folder = self.folder / str(len(self.opened))
        write_site(folder, "bonn", corpora()["bonn"], allow=allow)
        return self.kept(Victim(None, folder))

    def kept(self, site: Victim) -> Victim:
        self.opened.append(site)
        return site

    def close(self) -> None:
        for site in self.opened:
            site.service.close()

    @trick("survey", holds="1 other surveys of its data were answered, and no more may be (allow.survey.surveys)")
    def the_difference_of_two_surveys(self):
        """It asks another question about the same data, and subtracts."""
        site = self.site()
        first = site.answer(survey())
        for _ in range(2):
            for other in (
                survey(least_count=6),
                survey(labels=("symptom",)),
                survey(run=OTHER_RUN, recipe=for_sites(recipe_of("fedavgs", "seed=2"))),
                survey(recipe=for_sites(recipe_of(min_clients=3))),
                survey(recipe=for_sites(recipe_of("fedavgs", "algorithm.learning_rate=0.2"))),
            ):
                yield site, other
            site = self.kept(site.restarted())
        assert site.answer(survey(run=OTHER_RUN)).tables == first.tables

    @trick("survey", holds="the site's own least count")
    def a_least_count_below_the_sites(self):
        """It asks for smaller counts than the site shows."""
        site = self.site(survey={"least_count": 8})
        answers = [site.answer(survey(least_count=least)) for least in (1, 2, 8)]
        for answer in answers:
            shown = {count for table in answer.tables for row in table.counts for count in row}
            assert answer.least_count == 8 and shown and not shown & set(range(1, 8))
            assert answer.tables == answers[0].tables  # hidden counts are not drawn again

    @trick("survey", holds="it answers no surveys (allow.survey = false)")
    def a_site_that_answers_none(self):
        """It surveys a site whose policy lets no count leave, or none without noise."""
        yield self.site(survey=False), survey()
        yield self.site(survey=False), noisy(0.1)
        line = "nothing leaves it without noise or a mask"
        yield self.site(least_sites=2), survey(), line
        yield self.site(privacy="example"), survey(), line
        yield self.site(recipes=["0" * 64]), survey(), "is not accepted here"

    @trick("survey", holds="(allow.survey.epsilon)")
    def more_epsilon_than_there_is(self):
        """It spends the ε several times, averages the noise away, or asks for counts without noise."""
        site = self.site(survey={"epsilon": 1.0})
        yield site, noisy(1.5)
        yield site, survey(), "its counts leave with noise only, of ε = 1 at most"
        first = site.answer(noisy(0.6))
        assert all(site.answer(noisy(0.6, run=run)).tables == first.tables for run in (RUN, OTHER_RUN))
        site = self.kept(site.restarted())
        yield site, noisy(0.6, labels=("symptom",)), "surveys of its data spent ε = 0.6 of 1"
        yield site, noisy(0.5), "and 0.5 more is asked for"
        yield self.site(), noisy(0.1), "with a least count of 5 and not with noise"
        exact = self.site()
        assert isinstance(exact.answer(survey()), SurveyAnswer)
        yield self.kept(exact.restarted(survey={"epsilon": 1.0})), noisy(0.1), "left without noise before"

    @trick("survey", "words", "alone", "compare", holds="it does not know the run")
    def a_survey_as_a_run(self):
        """It goes on as if the survey had begun a run, which no ledger would count."""
        site = self.site()
        assert isinstance(site.answer(survey()), SurveyAnswer)
        for kind in ("words", "facts", "alone"):
            yield site, protocol.QUESTIONS[kind](run=RUN)
        yield site, protocol.QUESTIONS["compare"](run=RUN, what="alone")
        assert not (site.folder / "state" / "runs").exists()


def part(table: dict, name: str) -> dict:
    """The table of counts of this name in an answer."""
    return next(part for part in table["tables"] if part["name"] == name)


class AboutSurveyAnswers:
    """What a site sends in place of its answer: (message, line), or (message, line, True) for a survey with noise.

    Attributes:
      honest: (table, arrays) of its answer with a least count.
      noisy: of its answer with noise.
    """

    def __init__(self, honest: tuple, noisy: tuple):
        self.honest, self.noisy = honest, noisy

    def changed(self, change: Callable[[dict], object], answer: tuple | None = None) -> bytes:
        """The honest answer with a changed table."""
        table, arrays = copy.deepcopy(answer or self.honest)
        change(table)
        return repacked(table, arrays)

    def with_count(self, count, answer: tuple | None = None) -> bytes:
        """The honest answer with another first count."""
        return self.changed(lambda table: table["tables"][0]["counts"][0].__setitem__(0, count), answer)

    @trick("survey", holds="'counts' must not be smaller than the least count")
    def counts_that_cannot_be(self):
        """It sends counts below the least count or below zero, counts beyond any, or fractions."""
        for count in (1, 4, -1, -1000):
            yield self.with_count(count), "'counts' must not be smaller than the least count"
        for count, line in ((1 << 60, "must be from"), (7.0, "whole number"), (True, "whole number"), ("7", "number")):
            yield self.with_count(count), line
        yield self.with_count(None, self.noisy), "'counts' must not be hidden where they have noise", True
        yield self.with_count(1 << 60, self.noisy), "must be from", True

    @trick("survey", holds="use the same version everywhere")
    def tables_of_other_shapes(self):
        """It sends tables with other rows and columns, one twice, or fewer of them."""
        line = "'counts' must have a number for each row and column"
        yield self.changed(lambda table: table["tables"][0]["counts"].pop()), line
        yield self.changed(lambda table: table["tables"][0]["counts"][0].append(9)), line
        yield self.changed(lambda table: table["tables"][0]["rows"].pop()), line
        yield self.changed(lambda table: table["tables"].append(table["tables"][0])), "must not hold the same twice"
        yield self.changed(lambda table: table["tables"].pop(0)), "'tables' must count the texts"
        yield self.changed(lambda table: table.update(tables=[])), "have a length of 1"
        for name in ("lengths", "repeats"):
            yield self.changed(lambda table, name=name: table["tables"].remove(part(table, name))), f"table of {name}"
            change = lambda table, name=name: part(table, name)["columns"].__setitem__(0, "made up")  # noqa: E731
            yield self.changed(change), f"its table of {name} has other columns"
        yield self.changed(lambda table: table["tables"][0].update(rows=["dev", "test"])), "has other rows"
        yield self.changed(lambda table: table["tables"][0].update(name="cases")), "must be"

    @trick("survey", holds="its counts are protected in another way than asked for")
    def another_protection(self):
        """It claims more or less protection than it was asked for."""
        yield self.changed(lambda table: table.update(least_count=1)), "in another way than asked for"
        yield self.changed(lambda table: table.update(least_count=None)), "must have a least count or noise"
        yield self.changed(lambda table: table.update(epsilon=1.0)), "must have a least count or noise"
        yield self.changed(lambda table: table["tables"][0].update(scale=1.0)), "'scale' must come with noise"
        yield self.changed(lambda table: table.update(epsilon=0.5), self.noisy), "in another way", True
        for epsilon in (0.0, -1.0, float("nan"), 1e300):
            yield self.changed(lambda table, e=epsilon: table.update(epsilon=e), self.noisy), "'epsilon' must", True
        for scale in (0.0, -1.0, float("nan"), float("inf"), 1e-300, 1e18, 1e300):
            change = lambda table, s=scale: table["tables"][0].update(scale=s)  # noqa: E731
            yield self.changed(change, self.noisy), "scale' must be from", True
        yield self.changed(lambda table: table["tables"][0].pop("scale"), self.noisy), "must come with noise", True

    @trick("survey", holds="one line")
    def labels_that_act_on_a_browser(self):
        """It names labels that act on the page or a terminal, or are too long or too many."""
        for name, line in (
            ("<script>alert(1)</script>", "have no HTML"),
            ("a\x1b[31m", "be one line of printable characters"),
            ("a\nb", "be one line of printable characters"),
            ("x" * 10_000, "be 1 to 200 characters"),
        ):
            yield self.changed(lambda table, name=name: part(table, "labels")["columns"].__setitem__(0, name)), line

    @trick("survey", holds="malformed answer to 'survey'")
    def shared_words_that_are_none(self):
        """It sends digests of another form, the same twice, or under another secret."""
        table, (digests,) = self.honest
        for other, line in (
            (digests[:, :8], "'digests' must be uint8 [n, 16]"),
            (digests.astype(np.int64), "'digests' must be uint8 [n, 16]"),
            (digests[[0, 0]], "'digests' must not hold the same twice"),
        ):
            yield repacked(table, [other]), f"malformed answer to 'survey': {line}"
        yield repacked(table, []), "'digests' must be the number of its array"
        yield self.changed(lambda table: table.update(check="0" * 64)), "the sites' secrets for the vocabulary differ"
        yield self.changed(lambda table: table.pop("check")), "'check' must come with digests"

    @trick("survey", holds="reads another recipe than the coordinator's")
    def counts_under_another_recipe(self):
        """It counts under another recipe, or cuts texts at another length."""
        yield self.changed(lambda table: table.update(recipe="0" * 64)), "reads another recipe than the coordinator's"
        yield self.changed(lambda table: table.update(recipe="x")), "'recipe' must be 64 hexadecimal digits"
        for length in (0, -1, 1 << 60):
            yield self.changed(lambda table, n=length: table.update(max_length=n)), "'max_length' must be from"
        yield self.changed(lambda table: table.update(max_length=7)), "use the same"
