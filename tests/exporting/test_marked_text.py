"""The tokenizer in the graph is the training tokenizer: the same arrays for every text."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from datasets.relations.loading import load_relations
from datasets.relations.records import RelationMention
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS, with_inline_markers
from datasets.text.tokenizer_tables import tables_of
from datasets.text.word_tokenizer import word_tokenizer, word_vocabulary
from tests.models.encoders_for_tests import encoder
from tests.relations_for_tests import HARD, hard_mentions
from tff_re.exporting.in_graph.marked_text import MarkedText
from tff_re.exporting.kinds.relations import span_inputs

ENCODER = "TFF_RE_ENCODER"
"""Names the folder of an encoder with a real vocabulary."""


@functools.cache
def encoding(kind: str = "pieces", length: int = 24, blind: bool = False, type_texts: tuple = ()) -> RelationEncoding:
    if kind == "words":
        texts = ["the drug inhibits é ß gene , . - ( ) β 日 x 2 catenin sep e1 한국어"]
        tokenizer = word_tokenizer(word_vocabulary({"a": texts}, min_clients=1))
    elif kind == "pieces":
        tokenizer, _ = with_markers(AutoTokenizer.from_pretrained(str(encoder(layers=1))))
    else:
        tokenizer, _ = with_markers(AutoTokenizer.from_pretrained(kind))
    return RelationEncoding(tokenizer, length, blind=blind, type_texts=dict(type_texts) or None)


@functools.cache
def graph(*arguments):
    """(from spans, from markers) of an encoding, as functions of a batch."""
    encoded_by = encoding(*arguments)
    marked = MarkedText(encoded_by, tables_of(encoded_by))
    text, span = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.int32)
    types = (text, text) if encoded_by.blind else ()
    as_exported = {"autograph": False}
    of_spans = tf.function(
        lambda t, h, a, *kinds: marked.from_spans(t, h, a, kinds), (text, span, span, *types), **as_exported
    )
    of_markers = tf.function(lambda t, *kinds: marked.from_markers(t, kinds), (text, *types), **as_exported)
    return of_spans, of_markers


def in_graph(mentions, *arguments, size: int = 64) -> dict[str, np.ndarray]:
    encoded_by, (of_spans, _) = encoding(*arguments), graph(*arguments)
    parts = []
    for start in range(0, len(mentions), size):
        inputs = span_inputs(mentions[start : start + size], encoded_by.blind)
        parts.append(of_spans(*(tf.constant(value) for value in inputs.values())))
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}


def differing(mentions, *arguments) -> list[str]:
    """The ids of the mentions that the graph encodes otherwise, the arrays' names behind them."""
    wanted, arrays = encoding(*arguments).encode(mentions).arrays, in_graph(mentions, *arguments)
    assert set(arrays) == set(wanted) and {array.dtype for array in arrays.values()} == {np.dtype(np.int32)}
    assert {name: array.shape for name, array in arrays.items()} == {n: a.shape for n, a in wanted.items()}
    return [
        f"{mention.mention_id} {name}"
        for name, array in wanted.items()
        for mention, row, other in zip(mentions, array, arrays[name], strict=True)
        if not np.array_equal(row, other)
    ]


# Cut to the least length, and to one that all but the longest have.
@pytest.mark.parametrize(
    "arguments",
    [
        *[("pieces", 24), ("pieces", 8, True), ("words", 8)],
        pytest.param(("words", 24, True), marks=pytest.mark.slow),  # of other words and of blinding each is tested
    ],
)
def test_hard_texts(arguments):
    assert not differing(hard_mentions(200), *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("kind", ["pieces", "words"])
def test_ten_thousand_hard_texts(kind, blind):
    assert not differing(hard_mentions(10_000, seed=1), kind, 40, blind)


@pytest.mark.slow
def test_every_code_point():
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    mentions = [
        RelationMention(
            f"{i:x}", "d", " ".join(f"a{chr(c)}b" for c in codes[i : i + 64]), (0, 1), (2, 3), "x", "y", "r", 0
        )
        for i in range(0, len(codes), 64)
    ]
    assert not differing(mentions, "words", 400)


letters = st.one_of(st.sampled_from(HARD), st.text("ab X.-é\u0301中", max_size=5), st.text(max_size=3))
texts = (
    st.lists(letters, min_size=1, max_size=8).map("".join).map(lambda text: text.encode("utf-8", "replace").decode())
)


@st.composite
def mentions_of_any_text(draw):
    text = draw(texts.filter(lambda text: len(text) > 0))
    spans = []
    for _ in "ab":
        start = draw(st.integers(0, len(text) - 1))
        spans.append((start, draw(st.integers(start + 1, len(text)))))
    return RelationMention("m", "d", text, *spans, draw(texts.filter(str.strip)), "gene", "r", 0)


@given(mentions_of_any_text(), st.booleans())
@settings(max_examples=50)
def test_any_text(mention, blind):
    assert not differing([mention], *(("pieces", 8, True) if blind else ("pieces", 24)))


@given(st.lists(mentions_of_any_text(), max_size=5))
@settings(max_examples=30)
def test_a_text_is_encoded_alike_in_any_batch(mentions):
    together = in_graph(mentions, "words", 8) if mentions else None
    for row, mention in enumerate(mentions):
        alone = in_graph([mention], "words", 8)
        for name, array in alone.items():
            np.testing.assert_array_equal(array[0], together[name][row], name)


@pytest.mark.parametrize("blind", [False, True])
def test_markers_in_the_text_are_the_spans(blind):
    mentions = [m for m in hard_mentions(200, seed=2) if not any(marker in m.text for marker in MARKERS)]
    assert len(mentions) > 100
    arguments = ("pieces", 8, True) if blind else ("pieces", 24)
    of_markers = graph(*arguments)[1]
    types = [[m.head_type for m in mentions], [m.tail_type for m in mentions]] if blind else []
    encoded = of_markers(tf.constant([with_inline_markers(m) for m in mentions]), *map(tf.constant, types))
    for name, array in encoding(*arguments).encode(mentions).arrays.items():
        np.testing.assert_array_equal(encoded[name].numpy(), array, name)


def test_types_are_written_as_the_encoding_says():
    mentions = [
        RelationMention(f"{i}", "d", "the drug binds gene .", (4, 8), (15, 19), *types, "r", 0)
        for i, types in enumerate([("drug", "gene"), ("gene", "drug"), ("gene", "other")])
    ]
    arguments = ("pieces", 24, True, (("gene", "the drug"), ("the drug", "gene gene")))
    assert not differing(mentions, *arguments)
    plain = encoding("pieces", 24, True).encode(mentions).arrays["input_ids"]
    assert (in_graph(mentions, *arguments)["input_ids"] != plain).any(axis=1).tolist() == [True, True, True]


def test_a_batch_of_nothing():
    encoded = graph("pieces", 24)[1](tf.constant([], tf.string))
    assert {tuple(array.shape) for array in encoded.values()} == {(0,), (0, 24)}


SECRET = "Mrs Miller's aspirin"


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET,
        f"<e1>{SECRET}</e1> and <e2>b</e2> and <e1>",
        f"<e1></e1>{SECRET} <e2>b</e2>",
        f"</e1>{SECRET}<e1> <e2>b</e2>",
        f"<e1>{SECRET}</e1> <e2>b<e/2>",
    ],
)
def test_a_text_without_its_markers_is_refused_by_number(text):
    good = "<e1>a</e1> <e2>b</e2>"
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        graph("pieces", 24)[1](tf.constant([good, good, text]))
    message = str(caught.value)
    assert "[2]" in message and ("repeated" in message or "empty" in message) and "Miller" not in message


@pytest.mark.parametrize("span", [(3, 3), (2, 1), (-1, 2), (0, 21), (21, 22)])
def test_a_span_beyond_the_text_is_refused(span):
    spans = tf.constant([[0, 1], span], tf.int32)
    for heads, tails in ((spans, spans[:1]), (spans[:1], spans)):
        heads, tails = (tf.concat([s, s], 0)[:2] for s in (heads, tails))
        with pytest.raises(tf.errors.InvalidArgumentError, match="beyond the text") as caught:
            graph("pieces", 24)[0](tf.constant([SECRET] * 2), heads, tails)
        assert "Miller" not in str(caught.value)


def test_a_blank_type_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="without a type"):
        graph("pieces", 8, True)[1](tf.constant(["<e1>a</e1> <e2>b</e2>"]), tf.constant([" "]), tf.constant(["x"]))


def test_the_one_difference_is_the_order_of_combining_marks_that_take_room():
    """Two such marks (Mc) in an order that is not canonical are exchanged by the training tokenizer alone."""
    marks = "\U0001d16d\U0001d165"  # classes 226 and 216
    vocabulary = word_vocabulary({"a": [f"a{marks}"]}, min_clients=1)
    assert f"a{marks[::-1]}" in vocabulary.words
    words = RelationEncoding(word_tokenizer(vocabulary), 8)
    same = {}
    for order in (marks, marks[::-1]):
        mention = RelationMention("m", "d", f"a{order}", (0, 3), (0, 3), "x", "y", "r", 0)
        ids = MarkedText(words, tables_of(words)).from_spans(*span_inputs([mention], False).values())["input_ids"]
        same[order] = bool((words.encode([mention]).arrays["input_ids"] == ids.numpy()).all())
    assert same == {marks: False, marks[::-1]: True}


@pytest.mark.real_data
@pytest.mark.skipif(ENCODER not in os.environ, reason=f"{ENCODER} names no encoder")
@pytest.mark.skipif("TFF_RE_DATA" not in os.environ, reason="TFF_RE_DATA names no folder")
@pytest.mark.parametrize("name", ["chemprot", "ade", "pgr", "semeval2010_task8"])
def test_every_sentence_of_published_data(name):
    splits = ("train",) if name == "ade" else ("train", "test")
    mentions = [mention for split in splits for mention in load_relations(name, split=split).mentions]
    assert len(mentions) > 3000
    assert not differing(mentions, os.environ[ENCODER], 128)
    assert not differing(mentions[::7], os.environ[ENCODER], 40, True)
