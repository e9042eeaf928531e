"""Every trick with surveys: a coordinator gets a refusal by name, and a site's lie ends the survey with one line."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.surveys import AboutSurveyAnswers, AboutSurveys
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.sites_for_tests import Federation, recipe_of, write_sites
from tff_re.errors import UserError
from tff_re.sites.asking import Patience
from tff_re.sites.messages import unpack
from tff_re.sites.survey import survey_sites
from tff_re.sites.transport import InMemory

LIAR = "bonn"


@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AboutSurveys)])
def test_a_trick_of_a_coordinator_with_surveys(tmp_path, trick):
    adversary = AboutSurveys(tmp_path)
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
