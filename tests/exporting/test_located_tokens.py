"""Tokens and their offsets in the graph are those of the training encodings, for every text."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.loading import load_entities
from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding
from datasets.text.tokenizer_tables import tables_of
from tests.exporting.test_export_text_pieces import generated
from tests.models.encoders_for_tests import chinese_encoder, encoder
from tests.relations_for_tests import HARD
from tff_re.exporting.in_graph.located_tokens import LocatedPieces, LocatedWords

TYPES = ("symptom",)
SHORT = 8
PIECES = {"pieces": None, "pieces, cut": SHORT, "pieces of English": None}
KINDS = (*PIECES, "characters", "words")


@functools.cache
def encoding(kind: str):
    if kind in PIECES:
        folder = encoder(layers=1) if "English" in kind else chinese_encoder()
        return TaggedPieceEncoding(AutoTokenizer.from_pretrained(str(folder)), TYPES, "BIO", PIECES[kind])
    if kind == "characters":
        text_encoding = CharacterEncoding(Vocabulary((*"宝咳嗽发烧 the\r\n\x00", "👨")), SHORT)
    else:
        text_encoding = WordEncoding(Vocabulary(("宝宝", "咳嗽", "drug", "the", "e")), SHORT, Segmenter(("肚子疼",)))
    return TaggedTokenEncoding(text_encoding, TYPES, "BIO")


@functools.cache
def graph(kind: str):
    encoded_by = encoding(kind)
    if kind in PIECES:
        located = LocatedPieces(encoded_by, tables_of(encoded_by))
    else:
        located = LocatedWords(encoded_by.text_encoding, characters=kind == "characters")
    return tf.function(located, (tf.TensorSpec([None], tf.string),), autograph=False)


def in_graph(texts, kind: str) -> dict[str, np.ndarray]:
    """The arrays of the graph; offsets of words are those in the text, as far as the words are the same."""
    encoded_by = encoding(kind)
    sent = texts if kind in PIECES else [encoded_by.text_encoding.prepare(text) for text in texts]
    return {name: value.numpy() for name, value in graph(kind)(tf.constant(sent, tf.string)).items()}


def assert_same(texts, kind: str) -> None:
    trained, offsets = encoding(kind).encode_texts(texts)
    arrays = in_graph(texts, kind)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.int32)}
    width = arrays["starts"].shape[1]
    expected = {**trained, "starts": offsets[..., 0], "ends": offsets[..., 1]}
    if kind == "words":
        words = [[text[a:b] for a, b in rows if a >= 0] for text, rows in zip(texts, offsets, strict=True)]
        sent = [encoding(kind).text_encoding.prepare(text) for text in texts]
        places = zip(sent, arrays.pop("starts"), arrays.pop("ends"), strict=True)
        assert words == [[text[a:b] for a, b in zip(*rows, strict=True) if a >= 0] for text, *rows in places]
    for name, array in arrays.items():
        if name == "token_mask":
            np.testing.assert_array_equal(array, expected["starts"][:, :width] >= 0)
            continue
        differing = np.flatnonzero((expected[name][:, :width] != array).any(axis=1))
        assert not len(differing), (name, differing[:5])
        assert len(np.unique(expected[name][:, width:])) <= 1, "what lies behind the longest text is padding"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["", " ", "\x00"], ["a"], list(HARD), [*HARD, " ".join(HARD)]], ids=len)
def test_hard_texts_and_none(kind, texts):
    assert_same(texts, kind)


parts = st.one_of(
    st.sampled_from((*HARD, "宝宝咳嗽", "the drug", "👨\u200d👩", "e\u0301", "\r\n", "한국", "１２", "ﬁ")),
    st.text("ab X.-é\u0301中\r\n", max_size=5),
    st.text(max_size=4),
)
texts = st.lists(parts, max_size=8).map("".join).map(lambda text: text.encode("utf-8", "replace").decode())


@pytest.mark.parametrize("kind", KINDS)
def test_any_text(kind):
    @given(st.lists(texts, max_size=5))
    def same(several):
        assert_same(several, kind)

    same()


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_texts(kind):
    made = generated(1000, seed=2)
    for start in range(0, len(made), 64):
        assert_same(made[start : start + 64], kind)


@pytest.mark.slow
def test_every_code_point():
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    made = [" ".join(f"a{chr(code)}b" for code in codes[i : i + 64]) for i in range(0, len(codes), 64)]
    for start in range(0, len(made), 64):
        assert_same(made[start : start + 64], "pieces")


@pytest.mark.real_data
@pytest.mark.skipif("TFF_RE_DATA" not in os.environ, reason="TFF_RE_DATA names no folder")
@pytest.mark.parametrize("name", ["imcs_v2_entities", "cdr_entities", "chr_entities"])
def test_every_text_of_the_data_at_hand(name):
    """With a tokenizer of a real vocabulary."""
    folder = str(Path(os.environ["TFF_RE_DATA"]) / "encoders" / "e5_small_zh_6")
    encoded_by = TaggedPieceEncoding(AutoTokenizer.from_pretrained(folder), TYPES, "BIO", None)
    located = tf.function(LocatedPieces(encoded_by, tables_of(encoded_by)), (tf.TensorSpec([None], tf.string),))
    made = [sample.text for sample in load_entities(name, split="dev").samples]
    assert len(made) > 100
    for start in range(0, len(made), 256):
        part = made[start : start + 256]
        arrays, (trained, offsets) = located(tf.constant(part)), encoded_by.encode_texts(part)
        for name, expected in {**trained, "starts": offsets[..., 0], "ends": offsets[..., 1]}.items():
            np.testing.assert_array_equal(arrays[name], expected)


WORDS_OF = {
    "👨\u200d👩 the drug\r\n发烧": ["👨\u200d👩", "the", "drug", "发", "烧"],
    "e\u0301 gene, é.": ["e", "gene", ",", "é", "."],
    "ＡＢ drug [SEP]": ["ＡＢ", "drug", "[", "s", "e", "p", "]"],
    "\ufeffthe\u00a0drug\x00咳": ["the", "drug", "咳"],
    "w" * 101 + " the": ["w" * 101, "the"],
    "한 gene": ["한", "gene"],
}


def test_what_tokens_are_in_the_text():
    """Not only as the encoding has it: an accent, an emoji or a line end before a token does not move it."""
    arrays = in_graph(list(WORDS_OF), "pieces")
    for text, expected, starts, ends in zip(WORDS_OF, WORDS_OF.values(), arrays["starts"], arrays["ends"], strict=True):
        pieces = [text[a:b] for a, b in zip(starts, ends, strict=True) if a >= 0]
        assert [piece.lower() for piece in pieces] == [piece.lower() for piece in expected]


def test_texts_of_words_may_have_any_blanks():
    """Whoever joins words otherwise than with one blank gets the same words."""
    made = graph("words")(tf.constant([" 宝宝\t咳嗽\r\n\u3000drug  x ", ""]))
    np.testing.assert_array_equal(made["tokens"].numpy(), [[2, 3, 4, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(made["starts"].numpy(), [[1, 4, 9, 15], [-1] * 4])
    np.testing.assert_array_equal(made["ends"].numpy(), [[3, 6, 13, 16], [-1] * 4])
