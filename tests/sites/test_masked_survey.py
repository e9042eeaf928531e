"""Surveys whose counts leave sites masked: the totals of a survey in the clear, and no site's own counts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.recognition_for_tests import write_texts
from tests.sites.relations_for_tests import LABELS, RELATIONS, mention
from tests.sites.sites_for_tests import NAMES, Federation, corpora, recipe_of, write_site, write_sites
from tests.sites.test_survey import asked, cells, relation_sites, relations_recipe, surveyed
from tff_re.errors import UserError
from tff_re.pages.survey_page import survey_page
from tff_re.sites import protocol
from tff_re.sites.asking import Patience
from tff_re.sites.policy import AllowOptions, read_site
from tff_re.sites.starting import start_lines
from tff_re.sites.survey import Cell, survey_sites
from tff_re.sites.survey_messages import CountTable, MaskedDistance, MaskedSurvey, MaskedSurveyAnswer
from tff_re.sites.survey_tables import NOT_LISTED, distance_of_labels
from tff_re.sites.transport import InMemory, NoAnswer

MASKS = "aggregation.secure=masks"


def masked_answers(sent):
    """(site, answer) of each masked answer."""
    for site, message, answer in sent:
        if protocol.question_of(message).kind == MaskedSurvey.kind:
            yield site, protocol.answer_of(MaskedSurvey, answer)


def test_totals_are_those_of_a_survey_in_the_clear(tmp_path):
    files, recipe = relation_sites(tmp_path), relations_recipe()
    clear, _ = surveyed(files, recipe)
    masked, sent = surveyed(files, recipe, masked=True)  # the same question: the same cells are hidden
    assert masked.tables == clear.tables and masked.sites == clear.sites and masked.masked and not clear.masked
    assert set(clear.warnings) == set(masked.warnings) and masked.words == clear.words
    assert masked.skew.mean == pytest.approx(clear.skew.mean, abs=1e-6) and masked.skew.distances == {}
    assert masked.skew.at_least and clear.skew.at_least and masked.notes == clear.notes
    assert "masked: only totals over the sites were opened" in survey_page(masked, "")
    kinds = [protocol.question_of(message).kind for _, message, _ in sent]
    assert sorted(kinds) == sorted(3 * ["masked_survey", "masked_distance", *2 * ["roster", "open"]])


def test_no_answer_has_a_sites_counts(tmp_path):
    result, sent = surveyed(relation_sites(tmp_path), relations_recipe(MASKS))
    assert cells(result, "texts") == {"texts": Cell(28 + 43 + 19)}
    seen = []
    for _, answer in masked_answers(sent):
        assert type(answer) is MaskedSurveyAnswer and not hasattr(answer.tables[0], "counts")
        (array,) = answer.arrays
        seen.append(array)
        # A count of a few texts has 63 high bits that are 0, a masked one has them with a chance of 2^-57.
        assert array.dtype == np.uint64 and array.min() >= 128
    total = sum(array.astype(object) for array in seen)
    assert not any(int(number) % 2**64 == 90 for number in total.ravel())  # own masks are on the total, too


def test_sites_of_one_client_and_of_several(tmp_path):
    files = {}
    for site in NAMES:
        clients = {"rule": "one"} if site == "bonn" else {"rule": "documents", "least_examples": 4}
        files[site] = write_site(tmp_path / site, site, corpora(6)[site], clients=clients)
    clear, _ = surveyed(files, recipe_of(), labels=["symptom", "no_symptom"])
    masked, _ = surveyed(files, recipe_of(), labels=["symptom", "no_symptom"], masked=True)
    assert masked.tables == clear.tables
    assert cells(masked, "clients")["clients"].total == 6 + 1 + 8 and masked.tables["client_sizes"].sites == 2


@pytest.mark.parametrize("protection", [{"least_count": 2}, {"epsilon": 400.0}])
def test_the_mean_distance_of_labels_is_that_of_all_counts(tmp_path, protection):
    files = relation_sites(tmp_path, allow={"survey": protection})
    clear, _ = surveyed(files, relations_recipe(), **protection)
    masked, sent = surveyed(files, relations_recipe(), masked=True, **protection)
    assert masked.skew.mean == pytest.approx(clear.skew.mean, abs=1e-6) and not masked.skew.at_least
    answers = [
        protocol.answer_of(MaskedDistance, answer).arrays[0]
        for _, message, answer in sent
        if protocol.question_of(message).kind == MaskedDistance.kind
    ]
    assert len(answers) == 3 and min(int(array.min()) for array in answers) > 1_000_000


def test_distances_of_labels():
    def tables(*counts, texts=None, scale=None):
        names = [f"l{number}" for number in range(len(counts))]
        size = (sum(counts) if texts is None else texts,)
        return (
            CountTable("texts", ("train",), ("texts",), (size,), scale),
            CountTable("labels", ("train",), (*names, NOT_LISTED), ((*counts, 0),), scale),
        )

    def distance(own, labels, counts, texts, many_labels=False):
        return distance_of_labels(own, labels, counts, texts, many_labels=many_labels)

    assert distance(tables(6, 2), ["l0", "l1"], [8, 8], 16) == pytest.approx(0.25)
    assert distance(tables(6, 2), ["l0"], [8], 16) == pytest.approx(0.25)  # the others are one
    assert distance(tables(6, None, texts=8), ["l0"], [8], 16) == pytest.approx(0.25)
    assert distance(tables(6, None, texts=8), ["l0", "l1"], [8, 8], 16) is None
    assert distance(tables(6, 2, texts=4), ["l0", "l1"], [8, 8], 9, many_labels=True) == pytest.approx(0.25)
    assert distance(tables(0, 0), ["l0", "l1"], [8, 8], 16) is None
    assert distance(tables(-3, 4, texts=9, scale=1.0), ["l0", "l1"], [8, 8], 16) == pytest.approx(0.5)
    assert distance(tables(6, 2)[:1], ["l0"], [8], 16) is None


def test_labels_are_counted_only_if_they_are_listed(tmp_path):
    result, _ = surveyed(write_sites(tmp_path), recipe_of(), masked=True)
    assert "labels" not in result.tables
    assert any("labels are not counted: with masks they have to be listed" in note for note in result.notes)


def test_noise_is_masked_too(tmp_path):
    files = relation_sites(tmp_path, allow={"survey": {"epsilon": 400.0}})
    clear, _ = surveyed(files, relations_recipe(), epsilon=400.0)
    masked, _ = surveyed(files, relations_recipe(), epsilon=400.0, masked=True)
    assert masked.tables == clear.tables and cells(masked, "labels")["stops"] == Cell(9)
    assert cells(masked, "labels")[NOT_LISTED].total in (-1, 0, 1)  # below 0, it is of a number modulo 2^64


def test_a_recipe_that_masks_sums_is_surveyed_with_masks_only(tmp_path):
    files = relation_sites(tmp_path)
    answer = asked(files, relations_recipe(MASKS))
    assert "the recipe masks sums (aggregation.secure), and so the counts of its survey leave masked" in answer.refused
    result, _ = surveyed(files, relations_recipe(MASKS))
    assert result.masked


def test_with_least_sites_a_site_answers_masked_surveys_without_digests(tmp_path):
    files = write_sites(tmp_path, allow={"least_sites": 3})
    assert "survey with a recipe that has aggregation.secure = 'masks'" in asked(files, recipe_of()).refused
    line = "surveys: counts of 0 and of at least 5, masked only; 1 of a file of training data"
    assert line in start_lines(read_site(files["bonn"]), files["bonn"])
    result, sent = surveyed(files, recipe_of("fedavgs", MASKS))
    assert result.words is None and cells(result, "texts")["texts"].total > 0
    assert all(answer.digests is None for _, answer in masked_answers(sent))
    few = {name: files[name] for name in ("aachen", "bonn")}
    with pytest.raises(UserError, match=r"it opens totals over at least 3 sites \(allow.least_sites\)"):
        surveyed(few, recipe_of("fedavgs", MASKS))
    options = AllowOptions(recipes=("any",), least_sites=3, privacy="example")
    assert options.survey_options(masked=True) is None


@pytest.mark.parametrize("kind", ["masked_survey", "roster", "open", "masked_distance"])
def test_a_site_that_is_lost_ends_the_survey_which_may_be_asked_again(tmp_path, kind):
    federation, recipe = Federation(relation_sites(tmp_path)), relations_recipe(MASKS)

    def silent(message):
        if protocol.question_of(message).kind == kind:
            raise NoAnswer("site bonn does not answer")
        return federation.services["bonn"].answer(message)

    calls = {name: federation.services[name].answer for name in NAMES}
    with pytest.raises(UserError, match="site bonn does not answer") as error:
        survey_sites(recipe, InMemory(calls | {"bonn": silent}), least_count=5, patience=Patience(30, 0))
    assert "\n" not in str(error.value)
    for name in NAMES:
        federation.restart(name)
    result = survey_sites(recipe, federation.engine, least_count=5, patience=Patience(30, 0))
    assert cells(result, "texts") == {"texts": Cell(90)}
    federation.close()


def test_of_the_same_counts_one_total_is_opened(tmp_path):
    """Else the total without a site, in another survey, would tell its counts."""
    files, recipe = relation_sites(tmp_path), relations_recipe(MASKS)
    surveyed(files, recipe)
    surveyed(files, recipe)
    few = {name: files[name] for name in ("aachen", "bonn")}
    with pytest.raises(UserError, match="a total over aachen, bonn, celle was opened before, and one over"):
        surveyed(few, recipe)


def test_tables_of_other_forms_are_one_line(tmp_path):
    files = relation_sites(tmp_path)
    table = {"dataset": "relations", "path": "texts.jsonl", "test_path": "test.jsonl"}
    assert table == RELATIONS
    write_texts(files["bonn"].parent / "texts.jsonl", [mention(n, LABELS[n % 2]) for n in range(20)])
    federation = Federation(files)

    def lying(message):
        answer = protocol.answer_of(MaskedSurvey, federation.services["bonn"].answer(message))
        tables = tuple(t for t in answer.tables if t.name != "labels")
        values = {name: getattr(answer, name) for name in ("site", "recipe", "least_count", "epsilon", "one_client")}
        more = {name: getattr(answer, name) for name in ("max_length", "check", "digests", "arrays")}
        return protocol.to_bytes(MaskedSurveyAnswer(**values, **more, tables=tables))

    calls = {name: federation.services[name].answer for name in NAMES} | {"bonn": lying}
    with pytest.raises(UserError, match="the tables of bonn have other forms than those of aachen"):
        survey_sites(relations_recipe(MASKS), InMemory(calls), least_count=5, patience=Patience(30, 0))
    federation.close()
