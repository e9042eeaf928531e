import pickle

import pytest

from datasets.errors import DataError, counted, named


def test_the_error_is_one_line_of_place_reason_and_remedy():
    error = DataError("is empty", path="a\nb\x1b[31m", line=3, byte=12, record="dialogue 1", remedy="remove it")
    assert str(error) == "a b [31m: line 3: byte 12: dialogue 1: is empty; remove it"
    assert str(pickle.loads(pickle.dumps(error))) == str(error) and isinstance(error, ValueError)


def test_an_id_that_could_be_a_text_is_not_shown():
    assert named("dialogue", "10001003", 7) == "dialogue 10001003"
    assert named("dialogue", "宝宝昨晚高烧不退", 7) == named("dialogue", "x" * 65, 7) == "dialogue number 7"


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (1, ("document",), "1 document"),
        (0, ("document", " without text"), "0 documents without text"),
        (1, ("entity",), "1 entity"),
        (2, ("entity",), "2 entities"),
    ],
)
def test_numbers_agree_with_their_nouns(count, words, said):
    assert counted(count, *words) == said
