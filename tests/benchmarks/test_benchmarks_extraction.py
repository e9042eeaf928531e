"""The benchmark of extractions: its abstracts are the same each time, and its table says whether memory is flat."""

import pytest

from benchmarks import extraction

pytestmark = pytest.mark.tools


def test_the_table_says_whether_memory_is_flat():
    measured = {100: (800_000_000, 12.0, 10.0, 300), 1000: (840_000_000, 30.0, 10.0, 3000)}
    markdown = extraction.table(measured)
    assert "| 1,000 | 3,000 | 0.84 | 30.0 | 10.0 | 50 |" in markdown
    assert "at most 10% above that of 100; here +5.0%, met." in markdown
    measured[1000] = (900_000_000, 30.0, 10.0, 3000)
    assert "here +12.5%, not met." in extraction.table(measured)


def test_abstracts_are_the_same_each_time_and_have_both_entities():
    texts = list(extraction.abstracts(5))
    assert texts == list(extraction.abstracts(6))[:5] and len(set(texts)) == 5
    assert all(any(name in text for name in extraction._DRUGS) for text in texts)


def test_sentences_have_their_entities_at_their_offsets():
    import random

    draw = random.Random(3)
    for _ in range(50):
        text, spans, relation = extraction._sentence(draw, 0.5)
        assert (relation is None) == (spans == {})
        for kind, names in (("drug", extraction._DRUGS), ("disease", extraction._DISEASES)):
            assert not spans or text[slice(*spans[kind])] in names
