"""Every trick with surveys: a coordinator gets a refusal by name, and a site's lie ends the survey with one line."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.masked_surveys import RECIPE, AboutMaskedSurveyAnswers, AboutMaskedSurveys
from tests.sites.adversaries.surveys import AboutSurveyAnswers, AboutSurveys
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.adversaries.wire import repacked
from tests.sites.sites_for_tests import Federation, recipe_of, write_sites
from tff_re.errors import UserError
from tff_re.sites.asking import Patience
from tff_re.sites.messages import unpack
from tff_re.sites.survey import survey_sites
from tff_re.sites.transport import InMemory

LIAR = "bonn"


OF_SURVEYS = [(AboutSurveys, trick) for trick in tricks_of(AboutSurveys)]
OF_MASKED = [(AboutMaskedSurveys, t) for t in tricks_of(AboutMaskedSurveys) if t not in tricks_of(AboutSurveys)]


@pytest.mark.parametrize(("who", "trick"), [pytest.param(*pair, id=pair[1].name) for pair in OF_SURVEYS + OF_MASKED])
def test_a_trick_of_a_coordinator_with_surveys(tmp_path, who, trick):
    adversary = who(tmp_path)
    for site, question, *line in trick.play(adversary) or ():
        site.require_refusal(question, *(line or [trick.holds]))
    adversary.close()


def survey_of(answers, lie=None, **ways):
    """A survey of recorded answers, of which one site's is a lie."""
    calls = {site: lambda message, answer=answer: answer for site, answer in answers.items()}
    if lie is not None:
        calls[LIAR] = lambda message: lie
    return survey_sites(recipe_of(), InMemory(calls), patience=Patience(stage_seconds=5, retry_seconds=0.01), **ways)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """(options of a survey, site -> its answer), with a least count and with noise."""
    surveys = []
    for ways in ({"least_count": 5}, {"epsilon": 1.0}):
        federation = Federation(write_sites(tmp_path_factory.mktemp("sites"), allow={"survey": ways}))
        survey_sites(recipe_of(), federation.engine, patience=Patience(30, 0), **ways)
        federation.close()
        surveys.append((ways, {site: answer for site, _, answer in federation.sent}))
    return surveys


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutSurveyAnswers)])
def test_a_trick_of_a_site_with_surveys(honest, trick):
    for ways, answers in honest:
        assert survey_of(answers, **ways).sites == tuple(answers)
    for lie, line, *with_noise in trick.play(AboutSurveyAnswers(*(unpack(answers[LIAR]) for _, answers in honest))):
        ways, answers = honest[bool(with_noise)]
        with pytest.raises(UserError) as refused:
            survey_of(answers, lie, **ways)
        assert line in str(refused.value), (refused.value, line)
        assert len(str(refused.value)) < 1000 and str(refused.value).isprintable()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Sites that answer masked surveys, again with other masks."""
    opened = Federation(write_sites(tmp_path_factory.mktemp("masked sites")))
    yield opened
    opened.close()


def masked_survey_of(federation, lie=None):
    """A masked survey in which one site's answer is a lie: of bytes for its counts, of a change for its distance."""

    def lying(message):
        answer, kind = federation.services[LIAR].answer(message), unpack(message)[0]["kind"]
        if kind == "masked_distance" and callable(lie):
            table, (units,) = unpack(answer)
            return repacked(table, [lie(units)])
        return lie if kind == "masked_survey" and isinstance(lie, bytes) else answer

    calls = {site: service.answer for site, service in federation.services.items()} | {LIAR: lying}
    patience = Patience(stage_seconds=5, retry_seconds=0.01)
    return survey_sites(RECIPE, InMemory(calls), least_count=5, labels=["symptom"], patience=patience)


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutMaskedSurveyAnswers)])
def test_a_trick_of_a_site_with_masked_surveys(federation, trick):
    del federation.sent[:]
    survey_sites(RECIPE, federation.engine, least_count=5, labels=["symptom"], patience=Patience(5, 0))
    (honest,) = [
        unpack(answer)
        for site, message, answer in federation.sent
        if site == LIAR and unpack(message)[0]["kind"] == "masked_survey"
    ]
    for lie, line in trick.play(AboutMaskedSurveyAnswers(honest)):
        with pytest.raises(UserError) as refused:
            masked_survey_of(federation, lie)
        assert line in str(refused.value), (refused.value, line)
        assert len(str(refused.value)) < 1000 and str(refused.value).isprintable()
    assert masked_survey_of(federation).masked
