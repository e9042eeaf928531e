"""Every trick with the bytes of a message, with every kind: a question to a site, and an answer to the coordinator."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.sites.adversaries.samples import SAMPLES, SITE
from tests.sites.adversaries.tricks import tricks_of
from tests.sites.adversaries.wire import AnyAnswer, AnyQuestion
from tests.sites.sites_for_tests import write_site
from tff_re.sites import protocol
from tff_re.sites.asking import BadAnswer, Patience, Sites
from tff_re.sites.policy import read_site
from tff_re.sites.site import SiteService
from tff_re.sites.transport import InMemory

QUICK = Patience(stage_seconds=5, retry_seconds=0.05)
KINDS = list(protocol.QUESTIONS)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = SiteService(read_site(write_site(tmp_path_factory.mktemp("site"), SITE, {})))
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AnyQuestion)])
def test_a_question_that_is_none(service, tmp_path, kind, trick):
    honest = SAMPLES[kind].question
    message = protocol.to_bytes(honest)
    assert protocol.to_bytes(protocol.question_of(message)) == message
    before = sorted(service._site.folder.rglob("*"))
    tracemalloc.start()
    for sent in trick.play(AnyQuestion(honest, message, tmp_path / "planted")):
        sent, line = sent if isinstance(sent, tuple) else (sent, trick.holds)
        answer = protocol.answer_of(type(honest), service.answer(sent))
        assert isinstance(answer, protocol.No) and line in (answer.refused or ""), (answer, line)
        assert answer.refused.startswith(f"site {SITE}: ") and answer.refused.isprintable()
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
    assert sorted(service._site.folder.rglob("*")) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trick", [pytest.param(trick, id=trick.name) for trick in tricks_of(AnyAnswer)])
def test_an_answer_that_is_none(tmp_path, kind, trick):
    question, honest = SAMPLES[kind].question, SAMPLES[kind].answer
    message = protocol.to_bytes(honest)
    assert protocol.to_bytes(protocol.answer_of(type(question), message)) == message
    tracemalloc.start()
    for sent in trick.play(AnyAnswer(honest, message, tmp_path / "planted")):
        sent, line = sent if isinstance(sent, tuple) else (sent, trick.holds)
        sites = Sites(InMemory({SITE: lambda message, sent=sent: sent}), QUICK)
        outcome = sites.ask_all({SITE: question})[SITE]
        assert type(outcome) is BadAnswer and line in str(outcome), (outcome, line)
        assert str(outcome).startswith(f"site {SITE}: ") and str(outcome).isprintable()
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
