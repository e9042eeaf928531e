import gzip
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.text import (
    CharacterEncoding,
    Segmenter,
    Vocabulary,
    WordEncoding,
    WordVectors,
    encoding_from_json,
    load_word_vectors,
    train_word_vectors,
)

TEXTS = ["宝宝 咳嗽三天了", "先天性心脏病怎么办？\n体温37.5℃", "", " \u3000\t"]


def test_segmentation_knows_the_symptom_vocabulary():
    assert Segmenter(("喉骨软化症状",)).segment(["喉骨软化症状"]) == [["喉骨软化症状"]]
    assert Segmenter().segment(["喉骨软化症状"]) != [["喉骨软化症状"]]


@given(st.text(max_size=30))
def test_segmentation_keeps_all_but_blanks(text):
    (words,) = Segmenter(("咳嗽",)).segment([text])
    assert not any(c.isspace() for word in words for c in word)
    assert "".join(words) == "".join(text.split())


def test_segmenters_are_plain_values():
    first, second = Segmenter(("咳嗽", "发热", "咳嗽")), Segmenter(("发热", "咳嗽"))
    assert first == second and hash(first) == hash(second) and "咳嗽" not in repr(first)
    again = pickle.loads(pickle.dumps(first))
    assert again.segment(TEXTS) == first.segment(TEXTS) and len(pickle.dumps(first)) < 500
    for word in ("", "咳 嗽", " 咳嗽", 3):
        assert "is empty or holds a blank" in refused(Segmenter, (word,))


def test_jieba_is_quiet_and_its_shared_cache_is_not_touched(tmp_path):
    planted = tmp_path / "jieba.cache"
    planted.write_bytes(b"planted")
    program = "from datasets.text import Segmenter; print(Segmenter().segment(['宝宝咳嗽']))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd(), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "[['宝宝', '咳嗽']]\n" and result.stderr == ""
    assert [p.name for p in tmp_path.iterdir()] == ["jieba.cache"] and planted.read_bytes() == b"planted"


def test_vocabulary_order_and_thresholds():
    clients = {"a": [["x", "y", "x"], ["z"]], "b": [["y", "w"]], "c": [["z", "", "[UNK]"]]}
    assert Vocabulary.build(clients).words == ("x", "y", "z", "w")
    assert Vocabulary.build(clients, min_count=2).words == ("x", "y", "z")
    assert Vocabulary.build(clients, min_clients=2).words == ("y", "z")
    assert Vocabulary.build(clients, max_size=4).words == ("x", "y")
    v = Vocabulary.build(clients, min_clients=2)
    assert len(v) == 4 and v.ids(["z", "x", "y"]) == [3, 1, 2]
    assert repr(v) == "Vocabulary()"
    assert "no word is left" in refused(Vocabulary.build, clients, min_clients=4)
    for options in ({"min_count": 0}, {"min_clients": 0}, {"max_size": 2}):
        with pytest.raises(DataError, match=r"m\w+ must be a whole number of at least [13]"):
            Vocabulary.build(clients, **options)


def test_vocabularies_refuse_what_is_no_word():
    for words in (("a", "a"), ("",), ("[UNK]",), (3,)):
        with pytest.raises(DataError, match=r"word with id [23]: is not a string, is reserved, or is a duplicate"):
            Vocabulary(words)


@given(st.lists(st.text("咳嗽 a\n😀é", max_size=8), min_size=1, max_size=5), st.integers(1, 6))
def test_characters_are_code_points(texts, length):
    known = Vocabulary(tuple("咳嗽 \n😀"))
    encoding = CharacterEncoding(known, length)
    ids = encoding.encode(texts)
    assert ids.shape == (len(texts), length) and ids.dtype == np.int32
    for row, text in zip(ids, texts, strict=True):
        expected = [known.words.index(c) + 2 if c in known.words else 1 for c in text][:length]
        assert row.tolist() == expected + [0] * (length - len(expected))
        assert encoding.prepare(text) == text
    again = encoding_from_json(encoding.to_json())
    assert again == encoding and "characters" in again.describe()


def test_words():
    segmenter = Segmenter(("咳嗽三天",))
    encoding = WordEncoding.build({"a": TEXTS[:1], "b": TEXTS[:2]}, max_length=4, segmenter=segmenter, min_clients=2)
    assert set(encoding.vocabulary.words) == {"宝宝", "咳嗽三天", "了"}
    ids = encoding.encode([*TEXTS, "了了了了了"])
    assert ids.dtype == np.int32 and ids.shape == (5, 4)
    assert sorted(ids[0].tolist()) == [0, 2, 3, 4] and ids[1].tolist() == [1] * 4
    assert not ids[2].any() and not ids[3].any() and ids[4].all()
    assert encoding.prepare(TEXTS[0]) == "宝宝 咳嗽三天 了" and encoding.prepare("") == ""
    again = encoding_from_json(encoding.to_json())
    assert again == encoding and np.array_equal(again.encode(TEXTS), ids[:4])
    assert encoding.describe() == "words: 3 in the vocabulary, 4 a text, 1 added to the dictionary"


def test_encodings_refuse():
    assert "word with id 2: holds a blank" in refused(WordEncoding, Vocabulary(("a b",)), 3)
    assert "word with id 3: is not one character" in refused(CharacterEncoding, Vocabulary(("a", "bc")), 3)
    for length in (0, 2.5, True, None):
        with pytest.raises(DataError, match="max_length must be a whole number of at least 1"):
            CharacterEncoding(Vocabulary(("a",)), length)
    good = json.loads(WordEncoding(Vocabulary(("a",)), 3).to_json())
    changes = {"encoding": [""], "version": [2], "vocabulary": ["a", [1]], "max_length": ["3"], "added_words": [0, [1]]}
    for change in [{key: wrong} for key, values in changes.items() for wrong in values]:
        with pytest.raises(DataError):
            encoding_from_json(json.dumps({**good, **change}))


VECTORS = WordVectors(("咳嗽", "发热", "宝宝"), np.arange(6, dtype=np.float32).reshape(3, 2) / 4, "test")


@pytest.mark.parametrize("binary", [False, True])
def test_word2vec_formats(tmp_path, binary):
    path = tmp_path / "vectors"
    VECTORS.save(path, binary=binary)
    read = load_word_vectors(path)
    assert read.words == VECTORS.words and read.width == 2 and read.source == str(path)
    np.testing.assert_array_equal(read.values, VECTORS.values)
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 4):
        path.write_bytes(whole[:-cut])
        if binary and cut == 1:  # the last line feed, which not every program writes
            continue
        with pytest.raises(DataError, match=f"^{path}: "):
            load_word_vectors(path)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, (Bomb.target,))


def test_a_pickle_is_not_read_without_trust(tmp_path):
    from gensim.models import KeyedVectors

    Bomb.target = str(tmp_path / "it ran")
    path = tmp_path / "vectors.kv"
    path.write_bytes(pickle.dumps(Bomb()))
    assert refused(load_word_vectors, path) == (
        f"{path}: is a pickle (gensim's own format), which can run any code when it is loaded; "
        "convert it to word2vec's format, or pass --trust if you know where it comes from"
    )
    assert not os.path.exists(Bomb.target)
    native = KeyedVectors(2)
    native.add_vectors(list(VECTORS.words), VECTORS.values)
    native.save(str(path))
    assert "--trust" in refused(load_word_vectors, path)
    read = load_word_vectors(path, trust=True)
    assert read.words == VECTORS.words and np.array_equal(read.values, VECTORS.values)
    path.write_bytes(pickle.dumps({"a": 1}))
    assert "is not a gensim file" in refused(load_word_vectors, path, trust=True)


def test_the_matrix_for_a_vocabulary():
    vocabulary = Vocabulary(("发热", "黄疸", "腹泻", "咳嗽"))
    matrix = VECTORS.matrix_for(vocabulary, 2)
    assert matrix.shape == (6, 2) and matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[0], [0, 0])
    np.testing.assert_allclose(matrix[1], [0.5, 0.75])
    np.testing.assert_array_equal(matrix[[2, 5]], VECTORS.values[[1, 0]])
    assert not np.array_equal(matrix[3], matrix[4]) and matrix[3:5].any(axis=1).all()
    np.testing.assert_array_equal(VECTORS.matrix_for(Vocabulary(("黄疸", "发热")))[2], matrix[3])
    assert not np.array_equal(VECTORS.matrix_for(vocabulary, seed=1)[3], matrix[3])
    many = VECTORS.matrix_for(Vocabulary((*(f"w{i}" for i in range(3000)), "发热")))[2:-1]
    assert many.std() == pytest.approx(VECTORS.values.std(), rel=0.05) and abs(many.mean()) < 0.03
    assert VECTORS.coverage(vocabulary) == 0.5
    assert refused(VECTORS.matrix_for, Vocabulary(("fever", "cough"))) == (
        "test: has a vector for none of the 2 words of the vocabulary; "
        "use vectors of the texts' language, cut and spelled like them, or none (they are learned then)"
    )
    assert refused(VECTORS.matrix_for, vocabulary, 100) == (
        "test: its vectors have 2 components, not 100; ask for a width of 2 or use other vectors"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "line 1: does not start with the number of words and their width"),
        (b"0 2\n", "line 1: has no vectors"),
        (b"5 2\na 1 2\n", "is too short for 5 vectors of width 2"),
        (b"1 2\na 1 2\nb 1 2\n", "has 2 vectors where its first line says 1"),
        (b"3 2\n. . . 1 2\n2010 3 4\n2010 5 6\n", (". . .", "2010")),
    ],
)
def test_small_files(tmp_path, content, expected):
    path = tmp_path / "v"
    path.write_bytes(content)
    if isinstance(expected, str):
        assert refused(load_word_vectors, path).startswith(f"{path}: {expected}")
        return
    read = load_word_vectors(path)
    assert read.words == expected and read.values.tolist() == [[1, 2], [3, 4]]
    assert read.notes == ("1 words occur more than once in the file; their first vector counts",)


def rows(count=40, width=8):
    """Lines of word2vec's text format, and their values."""
    values = np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)
    return [f"词{n} {' '.join(f'{v:.6f}' for v in row)}".encode() for n, row in enumerate(values)], values


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"0.1 0.2", "line 2: is not a word, 8 numbers and a line feed"),
        ("词0 0.1 x 0.2 0.3 0.4 0.5 0.6 0.7".encode(), "line 2: is not a word in UTF-8 and 8 numbers"),
        (b"\xb4\xca 0.1 1 0.2 0.3 0.4 0.5 0.6 0.7", "line 2: is not a word in UTF-8 and 8 numbers"),
        (b"a\x00b 0.1 1 0.2 0.3 0.4 0.5 0.6 0.7", "line 2: has a word with a control character"),
        (b"a 0.1 1 0.2 0.3 0.4 0.5 0.6 0.7 0.8", "line 2: has more than the 8 numbers that the first line says"),
        (b"a 0.1 1 0.2 0.3 0.4 0.5 0.6 inf", "a vector holds NaN or infinity"),
    ],
)
def test_a_malformed_first_row_does_not_make_text_binary(tmp_path, first, reason):
    path = tmp_path / "vectors.txt"
    lines, values = rows()
    path.write_bytes(b"40 8\n" + b"\n".join(lines) + b"\n")
    np.testing.assert_allclose(load_word_vectors(path).values, values, atol=1e-6)
    for data in (path, tmp_path / "vectors.txt.gz"):
        content = b"40 8\n" + b"\n".join([first, *lines[1:]]) + b"\n"
        data.write_bytes(gzip.compress(content) if data.suffix == ".gz" else content)
        assert refused(load_word_vectors, data).startswith(f"{data}: {reason}")


@pytest.mark.parametrize("said", [7, 9])
def test_a_first_line_with_another_width_than_the_rows(tmp_path, said):
    path = tmp_path / "vectors.txt"
    lines, values = rows()
    path.write_bytes(b"40 %d\n" % said + b"\n".join(lines) + b"\n")
    text = refused(load_word_vectors, path)
    assert "line 2: " in text and f"{said} numbers" in text
    WordVectors(tuple(f"词{n}" for n in range(40)), values, "test").save(path, binary=True)
    whole = path.read_bytes()
    for count, width in ((40, said), (30, 8)):
        path.write_bytes(b"%d %d\n" % (count, width) + whole.partition(b"\n")[2])
        with pytest.raises(DataError, match=f"^{path}: (does not hold|is damaged|is too short)"):
            load_word_vectors(path)


@pytest.mark.parametrize(("scale", "binary"), [(1e-19, True), (1e-40, False), (0.0, True), (1e20, False)])
def test_components_that_no_vectors_have(tmp_path, scale, binary):
    path = tmp_path / "vectors"
    values = (np.ones((2, 3)) * scale).astype(np.float32)
    WordVectors(("a", "b"), values, "test").save(path, binary=binary)
    wrong = "large" if scale > 1 else "small"
    with pytest.raises(
        DataError, match=f"^{path}: its largest component is .*, too {wrong} for word vectors; the file"
    ):
        load_word_vectors(path)


def test_training_word_vectors():
    sentences = [["a", "b", "c"], ["a", "d"]] * 10
    first, second = (train_word_vectors(sentences, width=4, seed=s) for s in (0, 1))
    program = "from datasets.text import *; v = train_word_vectors([['a', 'b', 'c'], ['a', 'd']] * 10, width=4, seed=0)"
    elsewhere = subprocess.run(
        [sys.executable, "-c", f"{program}; print(*v.words, v.values.tobytes().hex())"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.split() == [*first.words, first.values.tobytes().hex()], (
        "whatever the seed of Python's hash"
    )
    assert not np.array_equal(first.values, second.values) and first.width == 4 and set(first.words) == set("abcd")
    for bad in ({"sentences": []}, {"sentences": sentences, "min_count": 99}, {"sentences": sentences, "width": 0}):
        with pytest.raises(DataError, match=r"no word is left|width must be"):
            train_word_vectors(**bad)
