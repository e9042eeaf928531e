import string

import numpy as np
import pytest
from datasets_for_tests import refused
from hypothesis import example, given, settings
from hypothesis import strategies as st
from relation_files import mention, mentions

from datasets.errors import DataError
from datasets.text.relation_encoding import MIN_LENGTH, RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS, as_text, blinded, marked


@pytest.mark.parametrize(
    "head, tail, expected, blind",
    [
        ((0, 2), (3, 5), "<e1> ab </e1> <e2> cd </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((3, 5), (0, 2), "<e2> ab </e2> <e1> cd </e1> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 3), (3, 4), "<e1> ab </e1> <e2> c </e2> d e", "<e1> drug </e1> <e2> gene </e2> d e"),
        ((0, 5), (1, 2), "<e1> a <e2> b </e2> cd </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((1, 2), (0, 5), "<e2> a <e1> b </e1> cd </e2> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 5), (0, 2), "<e1> <e2> ab </e2> cd </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((0, 2), (0, 5), "<e2> <e1> ab </e1> cd </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((0, 5), (3, 5), "<e1> ab <e2> cd </e2> </e1> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((3, 5), (0, 5), "<e2> ab <e1> cd </e1> </e2> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((0, 4), (1, 5), "<e1> a <e2> b c </e1> d </e2> e", "<e1> drug </e1> <e2> gene </e2> e"),
        ((1, 5), (0, 4), "<e2> a <e1> b c </e2> d </e1> e", "<e2> gene </e2> <e1> drug </e1> e"),
        ((3, 5), (3, 5), "ab <e1> <e2> cd </e2> </e1> e", "ab <e1> drug </e1> <e2> gene </e2> e"),
    ],
)
def test_where_the_markers_go(head, tail, expected, blind):
    sample = mention("ab cd e", head, tail)
    assert as_text(marked(sample)) == expected
    assert as_text(blinded(sample)) == blind


@given(mentions())
def test_marking_keeps_every_character(sample):
    parts = marked(sample)
    assert "".join(part.text for part in parts) == sample.text
    assert "".join(part.text for part in parts if part.head) == sample.head_text
    assert "".join(part.text for part in parts if part.tail) == sample.tail_text
    assert sorted(part.marker for part in parts if part.marker >= 0) == [0, 1, 2, 3]
    stack = []
    for part in parts:
        if part.marker >= 0 and part.marker % 2 == 0:
            stack.append(part.marker)
        elif part.marker >= 0:
            assert part.marker - 1 in stack
            crossing = sample.overlapping and stack[-1] != part.marker - 1
            assert stack[-1] == part.marker - 1 or crossing
            stack.remove(part.marker - 1)


@given(mentions())
def test_blinding_leaves_what_neither_mention_covers(sample):
    parts = blinded(sample, {"drug": "D"})
    covered = {i for span in (sample.head, sample.tail) for i in range(*span)}
    rest = "".join(c for i, c in enumerate(sample.text) if i not in covered)
    assert "".join(part.text for part in parts if part.marker < 0 and not (part.head or part.tail)) == rest
    assert [part.text for part in parts if part.head] == ["D"] and [p.text for p in parts if p.tail] == ["gene"]
    assert "text" not in repr(parts[0])


VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]", "[unused3]", "[unused4]"),
    *(letter for letter in "abcde頭𝄞" + string.punctuation),
    *(f"##{letter}" for letter in "abcde"),
    *("ab", "##ab", "bad", "drug", "gene", "dr", "##ug", "e1", "sep"),
]


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory):
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(path))


@pytest.fixture(scope="module")
def tokenizer(plain_tokenizer):
    return with_markers(plain_tokenizer)[0]


def encode(tokenizer, *some, max_length=200, **options):
    return RelationEncoding(tokenizer, max_length, **options).encode(some)


def row(encoded, index=0):
    return {key: array[index] for key, array in encoded.arrays.items()}


def pieces(tokenizer, arrays, mask="attention_mask"):
    return tokenizer.convert_ids_to_tokens(arrays["input_ids"][arrays[mask] == 1].tolist())


def test_an_example(tokenizer):
    encoded = encode(tokenizer, mention("a bad ab", (0, 1), (6, 8)), max_length=12)
    arrays = row(encoded)
    assert pieces(tokenizer, arrays) == ["[CLS]", "<e1>", "a", "</e1>", "bad", "<e2>", "ab", "</e2>", "[SEP]"]
    assert arrays["head_mask"].tolist() == [0, 0, 1] + [0] * 9
    assert arrays["tail_mask"].tolist() == [0] * 6 + [1] + [0] * 5
    assert (arrays["head_start"], arrays["tail_start"]) == (1, 5)
    assert arrays["attention_mask"].tolist() == [1] * 9 + [0] * 3 and set(arrays["input_ids"][9:]) == {0}
    assert all(array.dtype == np.int32 for array in encoded.arrays.values())
    assert encoded.report.notes() == () and encoded.report.mentions == 1
    assert encode(tokenizer).arrays["input_ids"].shape == (0, 200)


@given(st.lists(mentions(), min_size=1, max_size=3))
def test_as_the_tokenizer_reads_the_markers_in_a_string(tokenizer, samples):
    """Where nothing is cut and no special piece is spelled out, the ids are those of the marked string."""
    encoded = encode(tokenizer, *samples)
    for index, sample in enumerate(samples):
        inline = "".join(MARKERS[part.marker] if part.marker >= 0 else part.text for part in marked(sample))
        expected = tokenizer(inline)["input_ids"]
        arrays = row(encoded, index)
        ids = arrays["input_ids"][arrays["attention_mask"] == 1].tolist()
        if tokenizer.tokenize(sample.head_text) and tokenizer.tokenize(sample.tail_text):
            assert ids == expected
        if not sample.overlapping:
            for mask, text in (("head_mask", sample.head_text), ("tail_mask", sample.tail_text)):
                assert pieces(tokenizer, arrays, mask) == (tokenizer.tokenize(text) or ["[UNK]"])
    assert encoded.report.cut == 0


def check_a_row(tokenizer, arrays, sample, encoding):
    """What holds for every row, cut or not."""
    length = encoding.max_length
    used = int(arrays["attention_mask"].sum())
    assert arrays["attention_mask"].tolist() == [1] * used + [0] * (length - used)
    words = pieces(tokenizer, arrays)
    assert (words[0], words[-1]) == ("[CLS]", "[SEP]")
    assert all(words.count(marker) == 1 for marker in encoding.markers)
    assert words[arrays["head_start"]] == encoding.markers[0] and words[arrays["tail_start"]] == encoding.markers[2]
    for which, mask in enumerate(("head_mask", "tail_mask")):
        places = np.flatnonzero(arrays[mask])
        start, end = (words.index(encoding.markers[2 * which + k]) for k in (0, 1))
        inside = [i for i in range(start + 1, end) if words[i] not in encoding.markers]
        assert places.tolist() == inside and inside, "the mask is what the markers enclose, and not empty"


@settings(max_examples=300)
@given(mentions(longest=60), st.integers(MIN_LENGTH, 40), st.booleans())
def test_both_mentions_are_always_in_the_window(tokenizer, sample, length, blind):
    encoding = RelationEncoding(tokenizer, length, blind)
    encoded = encoding.encode([sample])
    arrays, report = row(encoded), encoded.report
    check_a_row(tokenizer, arrays, sample, encoding)
    whole = row(encode(tokenizer, sample, blind=blind, max_length=400))
    full, shortened = pieces(tokenizer, whole), pieces(tokenizer, arrays)
    assert report.cut == (len(full) > length) and len(shortened) == min(len(full), length)
    assert report.middle_cut + report.mention_cut <= 2 * report.cut
    if not report.mention_cut:
        for mask in ("head_mask", "tail_mask"):
            assert pieces(tokenizer, arrays, mask) == pieces(tokenizer, whole, mask)
    if not report.middle_cut and not report.mention_cut:  # one window of the whole, around the mentions
        places = [i for i in range(len(full)) if full[i : i + len(shortened) - 2] == shortened[1:-1]]
        assert places
    remaining = iter(full)
    assert all(piece in remaining for piece in shortened), "the pieces keep their order"


@given(st.integers(0, 20), st.integers(0, 4), st.integers(0, 20), st.booleans(), st.integers(16, 40))
def test_the_context_is_kept_evenly(tokenizer, before, between, after, turned, length):
    text = "a " * before + "bad " + "b " * between + "bad " + "c " * after
    spans = [(2 * before, 2 * before + 3), (2 * (before + between) + 4, 2 * (before + between) + 7)]
    encoded = encode(tokenizer, mention(text, *(spans[::-1] if turned else spans)), max_length=length)
    words = pieces(tokenizer, row(encoded))
    left, right = words.count("a"), words.count("c")
    assert encoded.report.cut == (before + between + after + 8 > length) and not encoded.report.middle_cut
    assert words.count("b") == between and left + right == min(before + after, length - between - 8)
    assert left in (before, right, right + 1) or (left > right and right == after)
    assert right in (after, left, left - 1) or (right > left and left == before)


def test_cutting_in_numbers(tokenizer):
    text = "a b c d e bad a b c d e ab a b c d e"
    sample = mention(text, (10, 13), (24, 26))

    def cut_to(length):
        encoded = encode(tokenizer, sample, max_length=length)
        return " ".join(pieces(tokenizer, row(encoded))[1:-1]), encoded.report

    assert cut_to(23)[1].cut == 0
    assert cut_to(17)[0] == "d e <e1> bad </e1> a b c d e <e2> ab </e2> a b"
    words, report = cut_to(12)
    assert words == "<e1> bad </e1> a b d e <e2> ab </e2>"
    assert report.notes() == (
        "1 of 1 texts cut to the length limit around their mentions",
        "1 of 1 texts cut between their mentions",
    )
    assert cut_to(8)[0] == "<e1> bad </e1> <e2> ab </e2>"
    long = mention("abcdeabcdeabcde ab", (0, 15), (16, 18))
    encoded = encode(tokenizer, long, max_length=10)
    assert pieces(tokenizer, row(encoded))[1:-1] == ["<e1>", "ab", "##c", "##d", "</e1>", "<e2>", "ab", "</e2>"]
    assert encoded.report.mention_cut == encoded.report.cut == 1 and encoded.report.middle_cut == 0
    arrays = row(encode(tokenizer, mention("a " * 30 + "bad" + " b" * 30, (0, 123), (60, 63)), max_length=12))
    assert pieces(tokenizer, arrays, "tail_mask") == ["bad"], "a mention deep in a long one stays"


@example(mention("[SEP] <e1> a </e2> [PAD][UNK] bad[CLS]", (11, 12), (30, 38)))
@given(mentions("[]SEPADCLUNK<e1>/ 2"))
def test_no_text_can_spell_a_marker(tokenizer, sample):
    check_a_row(tokenizer, row(encode(tokenizer, sample)), sample, RelationEncoding(tokenizer, 200))


@pytest.mark.parametrize("text", ["\u200b a \u200b", "\u0301 a \u0301", "\x00 a \x00", "  a  "])
def test_a_mention_that_the_tokenizer_drops(tokenizer, text):
    spans = (((0, 1), (4, 5)), ((0, 1), (0, 1)), ((0, 5), (4, 5)), ((0, 5), (0, 5)))
    encoded = encode(tokenizer, *(mention(text, *both) for both in spans))
    assert encoded.report.unknown == 3
    assert encoded.report.notes() == ("3 of 4 texts have a mention without word pieces, which is read as unknown",)
    masked = [[pieces(tokenizer, row(encoded, i), mask) for mask in ("head_mask", "tail_mask")] for i in range(4)]
    assert masked == [[["[UNK]"]] * 2, [["[UNK]"]] * 2, [["a", "[UNK]"], ["[UNK]"]], [["a"]] * 2]


def test_pieces_of_the_vocabulary_as_markers(plain_tokenizer):
    markers = tuple(f"[unused{n}]" for n in range(1, 5))
    encoding = RelationEncoding(plain_tokenizer, 20, markers=markers)
    sample = mention("a bad [unused1]", (0, 1), (2, 5))
    arrays = row(encoding.encode([sample]))
    assert pieces(plain_tokenizer, arrays)[1:7] == ["[unused1]", "a", "[unused2]", "[unused3]", "bad", "[unused4]"]
    check_a_row(plain_tokenizer, arrays, sample, encoding)


def test_markers_are_added_to_a_copy(plain_tokenizer):
    before = len(plain_tokenizer)
    plain_tokenizer.add_special_tokens({"additional_special_tokens": ["[unused1]"]})
    copy, size = with_markers(plain_tokenizer)
    assert size == len(copy) == before + 4 and len(plain_tokenizer) == before
    assert copy.convert_tokens_to_ids(list(MARKERS)) == [before, before + 1, before + 2, before + 3]
    assert set(copy.additional_special_tokens) == {*MARKERS, "[unused1]"}
    assert with_markers(copy)[1] == size


def test_what_is_refused(plain_tokenizer, tokenizer):
    for length in (7, 8.0, True):
        assert "max_length is not a whole number of at least 8" in refused(RelationEncoding, tokenizer, length)
    assert "there are not 4 different markers" in refused(RelationEncoding, tokenizer, 20, markers=("<e1>",) * 4)
    with pytest.raises(DataError, match="the tokenizer does not know the marker e1; add the markers with with_markers"):
        RelationEncoding(plain_tokenizer, 20)
    assert "the tokenizer has no cls_token_id" in refused(RelationEncoding, object(), 20)
