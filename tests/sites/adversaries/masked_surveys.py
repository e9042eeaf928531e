"""A coordinator and a site that lie about surveys whose counts are masked."""

from __future__ import annotations

import attrs
import numpy as np

from tests.sites.adversaries.surveys import OTHER_RUN, RUN, AboutSurveys, survey
from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.victims import Victim
from tests.sites.adversaries.wire import repacked
from tests.sites.sites_for_tests import NAMES, corpora, recipe_of, write_site
from tff_re.sites import protocol
from tff_re.sites.messages import unpack
from tff_re.sites.policy import for_sites
from tff_re.sites.survey_messages import MaskedDistance, MaskedSurvey, MaskedSurveyAnswer, Survey

A, B, C = NAMES
RECIPE = recipe_of("fedavgs", "aggregation.secure=masks")


def masked_survey(attempt: int = 1, sites=NAMES, **changes) -> MaskedSurvey:
    """An honest question but for these changes."""
    honest = survey(recipe=for_sites(RECIPE))
    values = {field.name: getattr(honest, field.name) for field in attrs.fields(Survey)}
    return MaskedSurvey(**values | {"attempt": attempt, "sites": sites} | changes)


def distance(attempt: int, **changes) -> MaskedDistance:
    """A question of how far the site's labels are from those of all sites."""
    values = {"run": RUN, "sites": NAMES, "labels": ("symptom", "no_symptom"), "texts": 63}
    return MaskedDistance(attempt=attempt, **values | {"counts": np.array([27, 36])} | changes)


class AboutMaskedSurveys(AboutSurveys):
    """Tricks with masked surveys: (site, question, line)."""

    def sites(self, **allow) -> dict[str, Victim]:
        """Three sites that were not surveyed, with this policy."""
        folder = self.folder / f"sites {len(self.opened)}"
        for name in NAMES:
            write_site(folder / name, name, corpora()[name], allow=allow)
        return {name: self.kept(Victim(None, folder / name)) for name in NAMES}

    def get(self, site: Victim, question: protocol.Question) -> protocol.Answer:
        answer = site.answer(question)
        assert not isinstance(answer, protocol.No), answer
        return answer

    def signed(self, sites: dict[str, Victim], roster=NAMES, **ways):
        return [self.get(sites[name], protocol.Roster(**ways, sites=roster)).signature for name in roster]

    def opened_total(self, sites: dict[str, Victim], attempt: int = 1) -> None:
        for name in NAMES:
            assert isinstance(self.get(sites[name], masked_survey(attempt)), MaskedSurveyAnswer)
        ways = {"run": RUN, "attempt": attempt}
        signatures = np.stack(self.signed(sites, **ways))
        for name in NAMES:
            self.get(sites[name], protocol.Open(**ways, sites=NAMES, signatures=signatures))

    @trick("survey", "masked_survey", holds="and so the counts of its survey leave masked")
    def counts_of_a_masked_recipe_in_the_clear(self):
        """It surveys by a recipe that masks sums, and asks for counts in the clear."""
        sites = self.sites()
        yield sites[B], survey(recipe=for_sites(RECIPE))
        assert isinstance(self.get(sites[B], masked_survey()), MaskedSurveyAnswer)
        yield sites[B], survey(recipe=for_sites(RECIPE))
        yield self.sites(least_sites=2)[B], survey(), "nothing leaves it without noise or a mask"

    @trick("masked_survey", "roster", "open", holds="a total over aachen, bonn, celle was opened before")
    def two_surveys_that_differ_by_a_site(self):
        """It opens the total over three sites and, in a survey of another id, over two of them, and subtracts."""
        sites = self.sites()
        self.opened_total(sites)
        for run, attempt in ((RUN, 2), (OTHER_RUN, 3)):
            for name in (A, B):
                self.get(sites[name], masked_survey(attempt, sites=(A, B), run=run))
            yield sites[B], protocol.Roster(run=run, attempt=attempt, sites=(A, B))
            sites[B] = self.kept(sites[B].restarted())
            yield sites[B], protocol.Roster(run=run, attempt=attempt, sites=(A, B))

    @trick("masked_survey", holds="an attempt is answered once")
    def another_survey_under_the_same_masks(self):
        """It asks for an attempt with other sites or another id, to subtract two sums under the same masks."""
        site = self.sites()[B]
        first, again = (self.get(site, masked_survey()) for _ in range(2))
        assert first.arrays[0].tobytes() == again.arrays[0].tobytes()
        yield site, masked_survey(sites=(A, B))
        yield site, masked_survey(run=OTHER_RUN)
        later = self.get(site, masked_survey(2))
        assert (later.arrays[0] != first.arrays[0]).all()
        yield site, masked_survey(), "a newer attempt was answered already"

    @trick("masked_survey", "roster", "open", holds="totals over at least 3 sites (allow.least_sites)")
    def a_survey_over_few_sites(self):
        """It opens a total over fewer sites than a site allows, or over sites of its own making."""
        sites = self.sites(least_sites=3)
        yield sites[B], masked_survey(sites=(A, B))
        yield sites[B], masked_survey(sites=(A, C, "mallory")), "it is not among the sites"
        yield sites[B], masked_survey(sites=(A, B, "mallory")), "it has no keys of mallory"
        for name in NAMES:
            self.get(sites[name], masked_survey())
        yield sites[B], protocol.Roster(run=RUN, attempt=1, sites=(A, B))
        signed = self.signed(sites, run=RUN, attempt=1)
        forged = np.stack([signed[0], signed[1], signed[1]])
        opening = protocol.Open(run=RUN, attempt=1, sites=NAMES, signatures=forged)
        yield sites[B], opening, "the signature of celle does not hold"

    @trick("masked_survey", holds="1 other surveys of its data were answered, and no more may be")
    def the_difference_of_two_masked_surveys(self):
        """It asks another question about the same data, in the clear or masked."""
        site = self.sites()[B]
        self.get(site, masked_survey())
        yield site, masked_survey(2, least_count=6)
        yield site, masked_survey(2, labels=("symptom",))
        yield site, survey()

    @trick("masked_survey", "words", "stage", holds="it does not know the run")
    def a_masked_survey_as_a_run(self):
        """It goes on as if the survey had begun a run, or asks for what was never masked."""
        site = self.sites()[B]
        yield site, protocol.Roster(run=RUN, attempt=1, sites=NAMES)
        self.get(site, masked_survey())
        yield site, protocol.Words(run=RUN)
        yield site, protocol.Roster(run=OTHER_RUN, attempt=1, sites=NAMES)
        yield site, protocol.Roster(run=RUN, attempt=2, sites=NAMES), "it has sent no sums of this attempt"
        assert not (site.folder / "state" / "runs").exists()

    @trick("masked_distance", holds="it is told once")
    def labels_compared_with_totals_of_its_own(self):
        """It asks how far a site's labels are from counts of its own making, before the total is open and after."""
        sites = self.sites()
        yield sites[B], distance(2), "it has sent no counts for this survey"
        self.get(sites[B], masked_survey())
        yield sites[B], distance(2), "the total of its counts is not open yet"
        self.opened_total(sites)
        yield sites[B], distance(2, run=OTHER_RUN), "it has sent no counts for this survey"
        first, again = (self.get(sites[B], distance(2)) for _ in range(2))
        assert first.arrays[0].tobytes() == again.arrays[0].tobytes()
        yield sites[B], distance(3, counts=np.array([30, 30]))
        yield sites[B], distance(3, labels=("symptom",), counts=np.array([30]))
        sites[B] = self.kept(sites[B].restarted())
        yield sites[B], distance(3, texts=70)
        yield sites[B], distance(2, sites=(A, B)), "an attempt is answered once"
        later = self.get(sites[B], distance(3))
        assert (later.arrays[0] != first.arrays[0]).all()
        table, arrays = unpack(protocol.to_bytes(distance(4)))
        for values, more, line in (
            ({"texts": 0}, arrays, "'texts' must be from 1"),
            ({}, [arrays[0][:1]], "'counts' must have one for each of the labels"),
            ({}, [-arrays[0]], "'counts' must be from 0"),
        ):
            yield sites[B], repacked({**table, **values}, more), line

    @trick("masked_survey", holds="must be")
    def attempts_of_a_survey_that_are_none(self):
        """It sends numbers of attempts that are none, or sites that are none."""
        site = self.sites()[B]
        table, arrays = unpack(protocol.to_bytes(masked_survey()))
        for values, line in (
            ({"attempt": 0}, "'attempt' must be from 1"),
            ({"attempt": True}, "'attempt' must be a whole number"),
            ({"sites": [B]}, "'sites' must have a length of 2"),
            ({"sites": [B, B]}, "'sites' must not hold the same twice"),
            ({"sites": [B, "../x"]}, "'sites' must be the name of a site"),
            ({"sites": None}, "'sites' must be a list"),
            ({"epsilon": 1.0}, "a survey must ask for a least count or for noise"),
        ):
            yield site, repacked({**table, **values}, arrays), line


class AboutMaskedSurveyAnswers:
    """What a site sends in place of its masked answer: (message, line).

    Attributes:
      honest: (table, arrays) of its answer.
    """

    def __init__(self, honest: tuple):
        self.table, (self.digests, self.numbers) = honest

    def changed(self, **values) -> bytes:
        return repacked({**self.table, **values}, [self.digests, self.numbers])

    @trick("masked_survey", holds="cannot be one of their counts")
    def counts_that_spoil_the_total(self):
        """It adds numbers with which the total is no sum of counts: far too many texts, or fewer than none."""
        for number in (1 << 60, 2**64 - 1000, 1 << 63):
            numbers = self.numbers.copy()
            numbers[:, 0] += np.uint64(number)
            yield repacked(self.table, [self.digests, numbers]), "cannot be one of their counts"
        hidden = self.numbers.copy()
        hidden[:, 1] += np.uint64(9)
        yield repacked(self.table, [self.digests, hidden]), "look at each site's log"
        yield repacked(self.table, [self.digests, np.zeros_like(self.numbers)]), "cannot be one of their counts"

    @trick("masked_survey", holds="are not of the form of its tables")
    def numbers_of_another_form(self):
        """It sends numbers of another type or shape, fewer or more of them."""
        line = "site bonn: its masked counts are not of the form of its tables"
        for numbers in (
            self.numbers[:-1],
            self.numbers.T,
            self.numbers.astype(np.int64),
            self.numbers.astype(np.float64),
            self.numbers[:, :1],
        ):
            yield repacked(self.table, [self.digests, np.ascontiguousarray(numbers)]), line
        yield repacked(self.table, [self.digests]), line
        yield repacked(self.table, [self.digests, self.numbers, self.numbers]), line

    @trick("masked_survey", holds="use the same version everywhere")
    def masked_tables_of_other_forms(self):
        """It names other tables, rows and columns, or counts under another recipe or protection."""
        tables = self.table["tables"]
        other = [{**tables[0], "columns": ["made up"]}, *tables[1:]]
        yield self.changed(tables=other), "has other columns"
        yield self.changed(tables=tables[1:] + tables[:1]), "the tables of bonn have other forms than those of aachen"
        yield self.changed(tables=[*tables[:-1], tables[0]]), "'tables' must not hold the same twice"
        yield self.changed(tables=[*tables, *tables]), "'tables' must have a length of 1 to 8"
        yield self.changed(tables=[t for t in tables if t["name"] != "texts"]), "'tables' must count the texts"
        yield self.changed(tables=[{**tables[0], "counts": [[9]]}, *tables[1:]]), "unknown key"
        yield self.changed(recipe="0" * 64), "reads another recipe"
        yield self.changed(least_count=1), "protected in another way than asked for"
        yield self.changed(max_length=7), "has other columns"

    @trick("masked_distance", holds="cannot be one of their distances")
    def distances_that_cannot_be(self):
        """It sends a distance beyond one, below zero, of another form, or as that of several sites."""
        line = "site bonn: its masked counts are not of the form of its tables"
        yield from (
            (lambda a: a + np.array([2**40, 0], np.uint64), "cannot be one of their distances"),
            (lambda a: a - np.array([2**40, 0], np.uint64), "cannot be one of their distances"),
            (lambda a: a + np.array([0, 7], np.uint64), "cannot be one of their distances"),
            (lambda a: a[:1], line),
            (lambda a: a.astype(np.float64), line),
        )
