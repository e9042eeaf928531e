"""Every kind of message has its tricks: a new kind without one fails here."""

from __future__ import annotations

from tests.sites.adversaries.everyone import OF_BYTES, OF_COORDINATORS, OF_SITES
from tests.sites.adversaries.samples import SAMPLES
from tests.sites.adversaries.tricks import kinds_of, tricks_of
from tff_re.sites import protocol


def test_every_kind_of_message_has_tricks_in_both_directions():
    for who, adversaries in (("coordinator", OF_COORDINATORS), ("site", OF_SITES)):
        without = protocol.QUESTIONS.keys() - kinds_of(adversaries)
        assert not without, (
            f"list what a lying {who} could do with {sorted(without)}: tests/sites/adversaries/__init__.py"
        )
        assert kinds_of(adversaries) <= protocol.QUESTIONS.keys()


def test_every_kind_of_message_has_a_sample_for_tricks_with_bytes():
    assert SAMPLES.keys() == protocol.QUESTIONS.keys(), "add a question and its answer in samples.py"
    for kind, sample in SAMPLES.items():
        assert type(sample.question) is protocol.QUESTIONS[kind] and type(sample.answer) is sample.question.answer


def test_every_trick_says_in_a_sentence_what_it_tries_and_what_must_hold():
    tricks = [(who, trick) for who in (*OF_COORDINATORS, *OF_SITES, *OF_BYTES) for trick in tricks_of(who)]
    for _, trick in tricks:
        assert trick.kinds and trick.tries.endswith((".", ")")) and "\n" not in trick.tries, trick.name
    names = {}
    for _, trick in tricks:
        assert names.setdefault(trick.name, trick) == trick, f"two tricks are called {trick.name}"
