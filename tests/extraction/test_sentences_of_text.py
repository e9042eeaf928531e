"""Sentences of English and Chinese texts; no boundary cuts a mention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.relations.sentences import sentences_of_text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two!  Three? 4", ["One.", "Two!", "Three?", "4"]),
        ("患者发热。“咳嗽吗？”没有！好", ["患者发热。", "“咳嗽吗？”", "没有！", "好"]),
        ("No fever\nsince May\r\n \r\nPlan: rest", ["No fever\nsince May", "Plan: rest"]),
        ("E.g. this, by Dr. Who. 💊 Next", ["E.g. this, by Dr. Who. 💊 Next"]),
        ("血压120。Stable. 好。", ["血压120。", "Stable.", "好。"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_sentences(text, sentences):
    assert [text[a:b] for a, b in sentences_of_text(text)] == sentences


def test_titles_and_mentions_are_whole():
    text = "A title\tand B。Cc. D"
    assert [text[a:b] for a, b in sentences_of_text(text, (), 7)] == ["A title", "and B。", "Cc.", "D"]
    mention = (text.index("B"), text.index("D") + 1)
    assert [text[a:b] for a, b in sentences_of_text(text, [(0, 1), mention], 7)] == ["A title", "and B。Cc. D"]
    text = "甲。乙\n\n丙"
    assert [text[a:b] for a, b in sentences_of_text(text, [(2, 6), (0, 1)])] == ["甲。", "乙\n\n丙"]


@given(st.text(st.sampled_from("Aa1。？. \n\r）")), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5))))
def test_sentences_hold_all_characters_but_blanks(text, mentions):
    spans = [(a, min(len(text), a + n)) for a, n in mentions if a < len(text)]
    sentences = sentences_of_text(text, spans)
    assert all(a < b and text[a:b].strip() == text[a:b] for a, b in sentences)
    inside = {i for a, b in sentences for i in range(a, b)}
    assert all(text[i].isspace() for i in set(range(len(text))) - inside)
    assert sentences == sorted(sentences) and len(inside) == sum(b - a for a, b in sentences)
    for start, end in spans:
        part = [i for i in range(start, end) if not text[i].isspace()]
        assert len({n for n, (a, b) in enumerate(sentences) for i in part if a <= i < b}) <= 1
