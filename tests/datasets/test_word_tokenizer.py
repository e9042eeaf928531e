import pytest
from datasets_for_tests import refused
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import DataError
from datasets.text import Vocabulary
from datasets.text.relation_encoding import with_markers
from datasets.text.relation_layout import MARKERS
from datasets.text.word_tokenizer import SPECIAL, split_words, word_tokenizer, word_vocabulary

CLIENTS = {"a": ["Aspirin blocks COX-1.", "Aspirin!"], "b": ["aspirin helps"]}
WORDS = ("aspirin", "!", "-", ".", "1", "blocks", "cox", "helps")


def ids(tokenizer, text):
    return tokenizer([text], add_special_tokens=False)["input_ids"][0]


def test_a_word_that_one_client_alone_holds_does_not_enter():
    clients = {"a": ["rash rash rash", "Müller itch"], "b": ["itch"], "c": ["MULLER"]}
    assert word_vocabulary(clients, min_clients=2).words == ("itch", "muller", *SPECIAL)
    assert word_vocabulary({"a": ["x <e1> y"], "b": ["[CLS] y"]}, min_clients=2).words == ("y", *SPECIAL)
    assert word_vocabulary(CLIENTS).words == (*WORDS, *SPECIAL)
    assert word_vocabulary(CLIENTS, max_size=4).words == ("aspirin", "!", *SPECIAL), "two words, two reserved ids"
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


@pytest.fixture(scope="module")
def some():
    vocabulary = word_vocabulary({"a": ["a b c ab [ ] < > / e 1 2 e1 cls sep pad unk 头 痛 . ,"]})
    return vocabulary, word_tokenizer(vocabulary)


@given(text=st.text("abcdeéß İ头痛𝄞.,;-\u0301\u00a0\u200b\n"))
def test_vocabulary_and_tokenizer_see_the_same_words(some, text):
    vocabulary, tokenizer = some
    assert ids(tokenizer, text) == vocabulary.ids(split_words([text])[0])


@pytest.mark.parametrize("words", [("aspirin",), ("aspirin", "[CLS]", "[SEP]", *MARKERS[:3]), (*SPECIAL, "aspirin")])
def test_a_vocabulary_of_another_making_is_refused(words):
    with pytest.raises(DataError, match="does not end with the special words; make it with word_vocabulary"):
        word_tokenizer(Vocabulary(words))
