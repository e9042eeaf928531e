"""Texts with entities as arrays: words, characters and pieces; offsets in the text as it is; JSON; what is refused."""

import itertools
import json
import string

import numpy as np
import pytest
from datasets_for_tests import refused
from entities_for_tests import TYPES, marked, sample
from hypothesis import given
from hypothesis import strategies as st

from datasets.encoding_files import (
    piece_encoding_from_json,
    piece_encoding_to_json,
    tagged_encoding_from_json,
    tagged_encoding_to_json,
)
from datasets.entities.encoding import EntityReport, TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.tags import spans_of
from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.piece_offsets import located_pieces
from datasets.text.relation_encoding import tokenized

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
JAMO = "\u1112\u1161\u11ab"
"""What the syllable 한 is decomposed to."""
VOCABULARY = (
    *SPECIAL,
    *"宝咳嗽发烧天了，。❤",
    *string.digits,
    *string.ascii_lowercase,
    *(c for c in string.punctuation),
    *(f"##{c}" for c in string.ascii_lowercase),
    *("cafe", "sep", JAMO[0], f"##{JAMO[1]}", f"##{JAMO[2]}"),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(path))


def characters(max_length=12, scheme="BIO"):
    vocabulary = Vocabulary(tuple("宝咳嗽发烧 ,abc"))
    return TaggedTokenEncoding(CharacterEncoding(vocabulary, max_length), TYPES, scheme)


def words(max_length=12, added=("咳嗽",)):
    return TaggedTokenEncoding(
        WordEncoding(Vocabulary(("宝宝", "咳嗽", "aspirin")), max_length, Segmenter(added)), TYPES
    )


def cells(text, offsets):
    """The text of each column's token, None where there is none."""
    return [None if start < 0 else text[start:end] for start, end in offsets.tolist()]


def decoded(encoding, samples):
    """The spans of each text, from the arrays alone."""
    tags = encoding.encode(samples).arrays["tags"]
    _, offsets = encoding.encode_texts([s.text for s in samples])
    assert ((tags >= 0) == (offsets[..., 0] >= 0)).all() and ((tags >= 0) == (offsets[..., 1] >= 0)).all()
    return [
        spans_of(row[row >= 0].tolist(), where[row >= 0].tolist(), encoding.entity_types, encoding.scheme)
        for row, where in zip(tags, offsets, strict=True)
    ]


def test_characters():
    samples = [
        marked("1", "宝[Disease 咳嗽] \n[Drug ab]"),
        marked("2", ""),
        marked("3", "[Drug 发]烧 and [Disease more c]"),
    ]
    encoded = characters().encode(samples)
    assert {name: (array.dtype, array.shape) for name, array in encoded.arrays.items()} == {
        **dict.fromkeys(("tokens", "tags"), (np.int32, (3, 12))),
        **dict.fromkeys(("unrepresented", "annotated"), (np.int32, (3, 2))),
        "y": (np.int32, (3,)),
    }
    assert encoded.arrays["tokens"].tolist() == [
        [2, 3, 4, 7, 1, 9, 10, 0, 0, 0, 0, 0],
        [0] * 12,
        [5, 6, 7, 9, 1, 1, 7, 1, 1, 1, 1, 7],
    ]
    assert encoded.arrays["tags"].tolist() == [[0, 3, 4, 0, 0, 1, 2] + [-1] * 5, [-1] * 12, [1] + [0] * 11]
    assert encoded.arrays["unrepresented"].tolist() == [[0, 0], [0, 0], [0, 1]]
    assert encoded.arrays["annotated"].tolist() == [[1, 1]] * 3 and encoded.arrays["y"].tolist() == [1, 0, 1]
    assert encoded.report == EntityReport(texts=3, cut=1, entities=4, cut_off=1, inside=0, tokens=20, unknown=7)
    assert encoded.report.notes() == (
        "1 of 3 texts cut to the length limit, at their end",
        "1 of 4 entities are not represented by tags: 1 reach into what was cut, 0 begin or end inside of a token",
        "35.00% of the tokens of all texts are unknown",
    )
    assert EntityReport().notes() == ()
    assert characters().describe() == "characters: 10 in the vocabulary, 12 a text, BIO tags of Drug, Disease"
    assert characters(scheme="BIOES").tag_names[-1] == "S-Disease"


def test_words_count_the_blanks_that_segmentation_drops():
    text = " 宝宝\t咳嗽 了\r\n\u3000aspirin  吃 "
    inputs, offsets = words().encode_texts([text])
    assert cells(text, offsets[0])[:6] == ["宝宝", "咳嗽", "了", "aspirin", "吃", None]
    assert offsets[0, :4].tolist() == [[1, 3], [4, 6], [7, 8], [11, 18]] and (offsets[0, 5:] == -1).all()
    assert inputs["tokens"].tolist() == [[2, 3, 1, 4, 1] + [0] * 7] and list(inputs) == ["tokens"]
    inside, whole = sample("1", text, (4, 5, "Drug")), sample("2", text, (1, 6, "Disease"), (11, 18, "Drug"))
    encoded = words().encode([inside, whole])
    assert encoded.arrays["tags"][:, :5].tolist() == [[0] * 5, [3, 4, 0, 1, 0]]
    assert encoded.arrays["unrepresented"].tolist() == [[1, 0], [0, 0]] and encoded.report.inside == 1
    assert decoded(words(), [whole]) == [whole.spans]


def test_pieces(tokenizer):
    samples = [marked("1", "宝[Disease 咳嗽]，[Drug cab] 3天"), marked("2", "[Drug 烧]"), marked("3", "")]
    encoding = TaggedPieceEncoding(tokenizer, TYPES)
    encoded = encoding.encode(samples)
    assert tokenizer.convert_ids_to_tokens(encoded.arrays["input_ids"][0].tolist()) == [
        *("[CLS]", "宝", "咳", "嗽", "，", "c", "##a", "##b", "3", "天", "[SEP]")
    ]
    assert encoded.arrays["attention_mask"].sum(axis=1).tolist() == [11, 3, 2]
    assert encoded.arrays["tags"].tolist() == [
        [-1, 0, 3, 4, 0, 1, 2, 2, 0, 0, -1],
        [-1, 1] + [-1] * 9,
        [-1] * 11,
    ]
    assert encoded.report == EntityReport(texts=3, entities=3, tokens=10) and encoded.arrays["y"].tolist() == [1, 1, 0]
    assert encoding.describe() == "word pieces: of whole texts, BIO tags of Drug, Disease"
    cut = TaggedPieceEncoding(tokenizer, TYPES, "BIOES", 8)
    encoded = cut.encode(samples)
    assert encoded.arrays["tags"].tolist()[0] == [-1, 0, 5, 7, 0, 0, 0, -1], "the drug is cut"
    assert encoded.arrays["input_ids"].shape == (3, 8) and encoded.arrays["unrepresented"].tolist()[0] == [1, 0]
    assert (encoded.report.cut, encoded.report.cut_off, encoded.report.inside) == (1, 1, 0)
    assert cut.describe() == "word pieces: 8 a text, BIOES tags of Drug, Disease"
    assert encoding.encode([]).arrays["tags"].shape == (0, 3)


@pytest.mark.parametrize(
    "text, mention, expected",
    [
        ("caf\u00e9 [SEP] 咳", "咳", ["cafe", "[", "sep", "]", "咳"]),  # an accent, a special piece spelled out
        ("a\r\n\r\n\U0001f600\U0001f468\u200d\U0001f469 咳", "咳", ["a", "[UNK]", "咳"]),  # CRLF, emoji in a sequence
        ("caf\u00e9, \u3000b", "caf\u00e9", ["cafe", ",", "b"]),
        ("ca\u0301fe\x00\u200bb 咳", "咳", ["cafe", "##b", "咳"]),  # accents of their own, characters that are dropped
        ("❤\ufe0f宝[MASK]", "宝", ["❤", "宝", "[", "m", "##a", "##s", "##k", "]"]),  # a variation selector
        ("[CLS][CLS]宝", "宝", ["[", *"c", "##l", "##s", "]", "[", "c", "##l", "##s", "]", "宝"]),
    ],
)
def test_offsets_are_those_of_the_text_as_it_is(tokenizer, text, mention, expected):
    start = text.index(mention)
    marked_text = sample("1", text, (start, start + len(mention), "Drug"))
    encoding = TaggedPieceEncoding(tokenizer, TYPES)
    arrays = encoding.encode([marked_text]).arrays
    assert tokenizer.convert_ids_to_tokens(arrays["input_ids"][0, 1:-1].tolist()) == expected
    assert decoded(encoding, [marked_text]) == [marked_text.spans] and not arrays["unrepresented"].any()


def test_a_letter_of_several_pieces_is_one_token(tokenizer):
    samples = [sample("1", "한b宝", (0, 1, "Drug")), sample("2", "한b宝", (0, 2, "Disease"))]
    encoding = TaggedPieceEncoding(tokenizer, TYPES)
    encoded = encoding.encode(samples)
    pieces = tokenizer.convert_ids_to_tokens(encoded.arrays["input_ids"][0].tolist())
    assert pieces == ["[CLS]", JAMO[0], f"##{JAMO[1]}", f"##{JAMO[2]}", "##b", "宝", "[SEP]"]
    assert encoded.arrays["tags"].tolist() == [[-1, 1, -1, -1, 0, 0, -1], [-1, 3, -1, -1, 4, 0, -1]]
    assert decoded(encoding, samples) == [s.spans for s in samples]


class Pieces:
    """A fast tokenizer that gives what a test says."""

    cls_token_id, sep_token_id, pad_token_id, unk_token_id = 1, 2, 0, 3
    all_special_tokens = ("[CLS]",)
    is_fast = True

    def __init__(self, offsets):
        self.offsets = offsets

    def __call__(self, texts, **options):
        assert options.pop("return_offsets_mapping") and not any(options.values())
        return {"input_ids": [[5] * len(self.offsets)] * len(texts), "offset_mapping": [self.offsets] * len(texts)}

    def convert_tokens_to_ids(self, tokens):
        return 4


def test_pieces_that_overlap_have_no_characters_or_bring_blanks():
    """As of tokenizers that cut bytes, or write a blank before a word as part of it."""
    text = "é ab  c"
    encoding = TaggedPieceEncoding(Pieces([(0, 1), (0, 1), (1, 4), (3, 5), (4, 6), (4, 4), (6, 7)]), TYPES)
    samples = [sample("1", text, (0, 1, "Drug"), (2, 4, "Disease"), (6, 7, "Drug"))]
    assert encoding.encode(samples).arrays["tags"].tolist() == [[-1, 1, -1, 3, -1, -1, -1, 1, -1]]
    assert cells(text, encoding.encode_texts([text])[1][0])[1:-1] == ["é", None, "ab", None, None, None, "c"]
    assert decoded(encoding, samples) == [samples[0].spans]


def test_a_piece_that_reaches_further_extends_the_token_before_it():
    encoding = TaggedPieceEncoding(Pieces([(0, 1), (0, 2), (2, 3)]), TYPES)
    samples = [sample("1", "abc", (0, 2, "Drug"))]
    assert encoding.encode(samples).arrays["tags"].tolist() == [[-1, 1, -1, 0, -1]]
    assert decoded(encoding, samples) == [samples[0].spans]


PARTS = [*"宝咳aB1, \n\t\r[]\u0301é한\u200b\x00❤\U0001f600", "[SEP]", "[UNK]", "\r\n", "\u3000"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(TEXTS)
def test_located_pieces_are_the_pieces(tokenizer, text):
    ((ids, offsets),) = located_pieces(tokenizer, [text])
    assert [ids] == list(tokenized(tokenizer, [text])) and len(ids) == len(offsets)
    assert all(0 <= start < end <= len(text) for start, end in offsets)
    for (start, end), piece in zip(offsets, tokenizer.convert_ids_to_tokens(ids), strict=True):
        if piece.removeprefix("##") in string.ascii_lowercase + string.punctuation:
            assert text[start:end].lower() in (piece.removeprefix("##"), "é")


@pytest.mark.parametrize("kind", ["characters", "words", "pieces"])
@given(st.data())
def test_spans_of_whole_tokens_come_back(tokenizer, kind, data):
    encoding = {
        "characters": characters(max_length=60),
        "words": words(max_length=60),
        "pieces": TaggedPieceEncoding(tokenizer, TYPES, "BIOES"),
    }[kind]
    texts = data.draw(st.lists(TEXTS, min_size=1, max_size=3))
    _, offsets = encoding.encode_texts(texts)
    samples = []
    for index, (text, where) in enumerate(zip(texts, offsets, strict=True)):
        tokens = where[where[:, 0] >= 0].tolist()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(tokens))
        borders = sorted(data.draw(st.sets(st.integers(0, len(tokens)))))
        spans = [
            (tokens[first][0], tokens[after - 1][1], data.draw(st.sampled_from(TYPES)))
            for first, after in itertools.pairwise(borders)
        ]
        samples.append(sample(str(index), text, *spans))
    assert decoded(encoding, samples) == [s.spans for s in samples]
    assert encoding.encode(samples).report.unrepresented == 0


@given(st.lists(TEXTS, max_size=3))
def test_the_inputs_are_those_of_the_encodings_without_tags(tokenizer, texts):
    inputs, _ = TaggedPieceEncoding(tokenizer, TYPES, "BIO", 7).encode_texts(texts)
    plain = PieceEncoding(tokenizer, 7).encode(texts).arrays
    assert list(inputs) == list(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(inputs[name], array, strict=True)
    for encoding in (characters(5), words(5)):
        tokens = encoding.encode_texts(texts)[0]["tokens"]
        np.testing.assert_array_equal(tokens, encoding.text_encoding.encode(texts), strict=True)


def test_types_that_a_text_is_not_annotated_with(tokenizer):
    samples = [marked("1", "[Drug a] [Disease b] [Disease cab]")] * 3
    encoding = TaggedPieceEncoding(tokenizer, TYPES, "BIO", 5)
    encoded = encoding.encode(samples, np.array([[1, 1], [1, 0], [0, 1]]))
    assert encoded.arrays["tags"].tolist() == [[-1, 1, 3, 0, -1], [-1, 1, 0, 0, -1], [-1, 0, 3, 0, -1]]
    assert encoded.arrays["unrepresented"].tolist() == [[0, 1], [0, 0], [0, 1]]
    assert encoded.arrays["annotated"].tolist() == [[1, 1], [1, 0], [0, 1]]
    assert encoded.arrays["y"].tolist() == [2, 1, 2] and encoded.report.entities == 6
    assert refused(encoding.encode, samples, np.ones((3, 1))) == (
        "annotated has the shape [3, 1], not [3, 2]; give texts × types"
    )


def test_json_and_back(tokenizer):
    samples = [marked("1", "宝[Disease 咳嗽] [Drug aspirin]")]
    for encoding in (
        characters(scheme="BIOES"),
        words(),
        TaggedPieceEncoding(tokenizer, TYPES, "BIOES"),
        TaggedPieceEncoding(tokenizer, TYPES, "BIO", 9),
    ):
        text = tagged_encoding_to_json(encoding)
        again = tagged_encoding_from_json(text)
        assert type(again) is type(encoding) and again.describe() == encoding.describe()
        assert tagged_encoding_to_json(again) == text
        arrays = again.encode(samples).arrays
        for name, array in encoding.encode(samples).arrays.items():
            np.testing.assert_array_equal(arrays[name], array, strict=True)


@pytest.mark.parametrize("kind", ["tokens", "pieces"])
def test_json_of_other_things_is_refused(tokenizer, kind):
    encoding = words() if kind == "tokens" else TaggedPieceEncoding(tokenizer, TYPES)
    value = json.loads(tagged_encoding_to_json(encoding))
    last = "text" if kind == "tokens" else "max_length"
    for changes, expected in (
        ({"version": 2}, f"is not the JSON of an encoding of tagged {kind}; export the model again"),
        ({"encoding": "pieces"}, "is not the JSON of an encoding of tagged pieces; export the model again"),
        ({"entity_types": "Drug"}, '"entity_types" is not a list of strings; export the model again'),
        ({"scheme": None}, '"scheme" is not a string; export the model again'),
        ({"scheme": "IOB"}, "scheme must be one of 'BIO', 'BIOES', got 'IOB'"),
        (
            {"entity_types": ["Drug", "Drug"]},
            "there are no entity types, or one is empty or a duplicate; name every type once",
        ),
        ({last: ...}, f'has no "{last}"; export the model again'),
    ):
        changed = {key: item for key, item in {**value, **changes}.items() if item is not ...}
        assert refused(tagged_encoding_from_json, json.dumps(changed)) == expected
    for text in ("", "[1]", "null", piece_encoding_to_json(PieceEncoding(tokenizer, 5))):
        assert "is not the JSON of an encoding of tagged pieces" in refused(tagged_encoding_from_json, text)
    message = refused(piece_encoding_from_json, tagged_encoding_to_json(encoding))
    assert message == "is not the JSON of an encoding of pieces; export the model again"


def test_what_is_refused(tokenizer):
    message = refused(characters().encode, [sample("d/1", "abc", (0, 1, "Gene"), types=("Gene",))])
    assert message == (
        "sample d/1: the entity 0:1 has a type that is not one of Drug, Disease; encode with the corpus's entity_types"
    )
    assert "max_length must be a whole number of at least 3, got 2" in refused(
        TaggedPieceEncoding, tokenizer, TYPES, "BIO", 2
    )
    assert "scheme must be one of" in refused(TaggedPieceEncoding, tokenizer, TYPES, "IO")
    assert "there are no entity types" in refused(TaggedTokenEncoding, characters().text_encoding, ())
    no_offsets = Pieces([])
    no_offsets.is_fast = False
    assert refused(TaggedPieceEncoding, no_offsets, TYPES) == (
        "the tokenizer is not a fast one and knows no offsets; use a fast tokenizer"
    )
