import copy

import numpy as np
import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.relations.records import RelationMention
from datasets.text import Vocabulary
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS
from datasets.text.word_tokenizer import SPECIAL, split_words, word_tokenizer, word_vocabulary

CLIENTS = {"a": ["Aspirin blocks COX-1.", "Aspirin!"], "b": ["aspirin helps"]}
WORDS = ("aspirin", "!", "-", ".", "1", "blocks", "cox", "helps")


def mention(text, head, tail):
    return RelationMention("m/1", "m", text, head, tail, "drug", "gene", "x", 0)


def ids(tokenizer, text):
    return tokenizer([text], add_special_tokens=False)["input_ids"][0]


def test_words():
    assert split_words(["Café, IL-2 (p<0.05)\u3000头痛\tß", " \n", ""]) == [
        ["cafe", ",", "il", "-", "2", "(", "p", "<", "0", ".", "05", ")", "头", "痛", "ß"],
        [],
        [],
    ]


def test_the_special_words_stand_behind_the_others():
    vocabulary = word_vocabulary(CLIENTS)
    assert vocabulary.words == (*WORDS, *SPECIAL)
    assert SPECIAL == ("[CLS]", "[SEP]", "<e1>", "</e1>", "<e2>", "</e2>")


def test_a_word_that_one_client_alone_holds_does_not_enter():
    clients = {"a": ["rash rash rash", "Müller itch"], "b": ["itch"], "c": ["MULLER"]}
    assert word_vocabulary(clients, min_clients=2).words == ("itch", "muller", *SPECIAL)
    assert word_vocabulary({"a": ["x <e1> y"], "b": ["[CLS] y"]}, min_clients=2).words == ("y", *SPECIAL)
    with pytest.raises(DataError, match="no word is left for the vocabulary; lower min_count or min_clients"):
        word_vocabulary({"a": ["rash"], "b": ["itch"]}, min_clients=2)


def test_the_other_bounds():
    assert word_vocabulary(CLIENTS, min_count=2).words == ("aspirin", *SPECIAL)
    assert word_vocabulary(CLIENTS, max_size=4).words == ("aspirin", "!", *SPECIAL), "two words, two reserved ids"
    assert "max_size is 2" in refused(word_vocabulary, CLIENTS, max_size=2)
    assert "no word is left" in refused(word_vocabulary, {"a": ["", " "]})


@pytest.mark.parametrize("special", [*SPECIAL, "[PAD]", "[UNK]"])
def test_what_a_text_spells_is_no_special_word(special):
    vocabulary = word_vocabulary({"a": [f"{special} x {special}"] * 5, "b": [special]})
    assert vocabulary.words[-len(SPECIAL) :] == SPECIAL, "each of them once, behind the others"
    assert not {special, special.lower()} & set(vocabulary.words[: -len(SPECIAL)])
    assert {"[" if special[0] == "[" else "<", special[-1]} < set(vocabulary.words)


def test_the_tokenizer_has_the_ids_of_the_vocabulary():
    vocabulary = word_vocabulary(CLIENTS)
    tokenizer = word_tokenizer(vocabulary)
    assert len(tokenizer) == tokenizer.vocab_size == len(vocabulary) == len(WORDS) + len(SPECIAL) + 2
    assert tokenizer.convert_tokens_to_ids(list(vocabulary.words)) == vocabulary.ids(vocabulary.words)
    assert tokenizer.get_vocab().keys() == {"[PAD]", "[UNK]", *vocabulary.words}
    special = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert special == (0, 1, len(WORDS) + 2, len(WORDS) + 3)
    assert set(tokenizer.all_special_tokens) == {"[PAD]", "[UNK]", *SPECIAL}
    assert with_markers(tokenizer)[1] == len(tokenizer), "it has the markers"


def test_texts():
    vocabulary = word_vocabulary(CLIENTS)
    tokenizer = word_tokenizer(vocabulary)
    assert ids(tokenizer, "ASPÍRIN blöcks;rash") == vocabulary.ids(["aspirin", "blocks", ";", "rash"]) == [2, 7, 1, 1]
    assert ids(tokenizer, "") == ids(tokenizer, " \n\t") == []
    assert ids(copy.deepcopy(tokenizer), "cox-1") == [8, 4, 6]


@pytest.fixture(scope="module")
def some():
    vocabulary = word_vocabulary({"a": ["a b c ab [ ] < > / e 1 2 e1 cls sep pad unk 头 痛 . ,"]})
    return vocabulary, word_tokenizer(vocabulary)


@given(text=st.text("abcdeéß İ头痛𝄞.,;-\u0301\u00a0\u200b\n"))
def test_vocabulary_and_tokenizer_see_the_same_words(some, text):
    vocabulary, tokenizer = some
    assert ids(tokenizer, text) == vocabulary.ids(split_words([text])[0])


pieces = st.sampled_from(
    [*SPECIAL, "[PAD]", "[UNK]", "[cls]", "[", "]", "<", "/", ">", "e1", "CLS", "é", " ", "头", "rash"]
)


@given(before=st.lists(pieces, max_size=8).map("".join), after=st.lists(pieces, max_size=8).map("".join))
def test_markers_and_special_words_in_a_text_are_plain_text(some, before, after):
    vocabulary, tokenizer = some
    text = f"{before} a b {after}"
    start = len(before) + 1
    one = mention(text, (start, start + 1), (start + 2, start + 3))
    arrays = RelationEncoding(tokenizer, 200).encode([one]).arrays
    cls, sep, *markers = vocabulary.ids(SPECIAL)
    a, b = vocabulary.ids("ab")
    around = [vocabulary.ids(split_words([part])[0]) for part in (before, after)]
    expected = [cls, *around[0], markers[0], a, markers[1], markers[2], b, markers[3], *around[1], sep]
    assert arrays["input_ids"][0, : arrays["attention_mask"].sum()].tolist() == expected
    assert not {0, cls, sep, *markers} & {i for part in around for i in part}


def test_an_example_by_hand():
    tokenizer = word_tokenizer(word_vocabulary(CLIENTS))
    encoding = RelationEncoding(tokenizer, 14)
    encoded = encoding.encode(
        [mention("Aspirin blocks COX-1?", (0, 7), (15, 20)), mention("[CLS] aspirin", (0, 5), (6, 13))]
    )
    arrays = encoded.arrays
    assert {key: (array.dtype, array.shape) for key, array in arrays.items()} == {
        **dict.fromkeys(("input_ids", "attention_mask", "head_mask", "tail_mask"), (np.dtype(np.int32), (2, 14))),
        **dict.fromkeys(("head_start", "tail_start"), (np.dtype(np.int32), (2,))),
    }
    # aspirin 2, - 4, 1 6, blocks 7, cox 8; [CLS] 10, [SEP] 11, markers 12 to 15; "?", "[", "]" and "cls" are unknown
    assert arrays["input_ids"].tolist() == [
        [10, 12, 2, 13, 7, 14, 8, 4, 6, 15, 1, 11, 0, 0],
        [10, 12, 1, 1, 1, 13, 14, 2, 15, 11, 0, 0, 0, 0],
    ]
    assert arrays["attention_mask"].tolist() == [[1] * 12 + [0] * 2, [1] * 10 + [0] * 4]
    assert arrays["head_mask"].tolist() == [[0, 0, 1] + [0] * 11, [0, 0, 1, 1, 1] + [0] * 9]
    assert arrays["tail_mask"].tolist() == [[0] * 6 + [1, 1, 1] + [0] * 5, [0] * 7 + [1] + [0] * 6]
    assert arrays["head_start"].tolist() == [1, 1] and arrays["tail_start"].tolist() == [5, 6]
    assert encoded.report.notes() == ()


def test_blinded_mentions_are_their_types():
    vocabulary = word_vocabulary({"a": ["drug helps"]})
    encoding = RelationEncoding(word_tokenizer(vocabulary), 12, blind=True)
    arrays = encoding.encode([mention("Aspirin helps COX-1", (0, 7), (14, 19))]).arrays
    # drug 2, helps 3, [CLS] 4, [SEP] 5, markers 6 to 9; the type "gene" is unknown
    assert arrays["input_ids"].tolist() == [[4, 6, 2, 7, 3, 8, 1, 9, 5, 0, 0, 0]]


def test_the_vocabulary_comes_back_from_its_file():
    vocabulary = word_vocabulary(CLIENTS)
    again = word_tokenizer(Vocabulary.from_json(vocabulary.to_json()))
    assert again.get_vocab() == word_tokenizer(vocabulary).get_vocab()


@pytest.mark.parametrize("words", [("aspirin",), ("aspirin", "[CLS]", "[SEP]", *MARKERS[:3]), (*SPECIAL, "aspirin")])
def test_a_vocabulary_of_another_making_is_refused(words):
    with pytest.raises(DataError, match="does not end with the special words; make it with word_vocabulary"):
        word_tokenizer(Vocabulary(words))
