import pickle

from datasets.errors import DataError, named


def test_the_line_names_place_reason_and_remedy():
    error = DataError(
        "has no sentences",
        path="data/IMCS-V2_train.json",
        record="dialogue 10001003",
        remedy="remove it or give it at least one sentence",
    )
    assert str(error) == (
        "data/IMCS-V2_train.json: dialogue 10001003: has no sentences; remove it or give it at least one sentence"
    )
    assert str(DataError("is empty", path="x", line=3, byte=12)) == "x: line 3: byte 12: is empty"
    assert isinstance(error, ValueError)


def test_the_line_is_one_line_whatever_the_path():
    assert str(DataError("is empty", path="a\nb\x1b[31m")) == "a b [31m: is empty"


def test_errors_survive_pickling():
    error = DataError("is empty", path="x", line=3, remedy="remove it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_id_that_could_be_a_text_is_not_shown():
    assert named("dialogue", "10001003", 7) == "dialogue 10001003"
    assert named("dialogue", "宝宝昨晚高烧不退", 7) == "dialogue number 7"
    assert named("dialogue", "x" * 65, 7) == "dialogue number 7"
