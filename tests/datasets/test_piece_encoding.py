"""Whole texts as word pieces: rows, cuts, special pieces in a text, what the report counts, clients' arrays, JSON."""

import json
import string

import numpy as np
import pytest
from datasets_for_tests import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.dialogues.loading import load_corpus
from datasets.encoded_clients import encode_pieces
from datasets.encoding_files import piece_encoding_from_json, piece_encoding_to_json, relation_encoding_from_json
from datasets.errors import DataError
from datasets.partition import ByField, Natural, build_partition
from datasets.text.piece_encoding import PieceEncoding, PieceReport

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIAL, *"宝咳嗽发烧天了，？", *string.digits, *"abc[]", "##a", "##b", "sep")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(path))


def rows(tokenizer, encoded):
    """The pieces of each row, padding left out."""
    ids, mask = (encoded.arrays[name] for name in ("input_ids", "attention_mask"))
    return [
        tokenizer.convert_ids_to_tokens(row[row_mask == 1].tolist()) for row, row_mask in zip(ids, mask, strict=True)
    ]


def test_rows_and_report(tokenizer):
    encoded = PieceEncoding(tokenizer, 6).encode(["宝宝咳嗽", "发烧3天了，咳嗽？", "", "嗯，AB"])
    assert rows(tokenizer, encoded) == [
        ["[CLS]", *"宝宝咳嗽", "[SEP]"],
        ["[CLS]", *"发烧3天", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "[UNK]", "，", "a", "##b", "[SEP]"],
    ]
    assert encoded.arrays["input_ids"].dtype == encoded.arrays["attention_mask"].dtype == np.int32
    assert encoded.arrays["input_ids"].shape == (4, 6) and encoded.arrays["input_ids"][2].tolist() == [2, 3, 0, 0, 0, 0]
    assert encoded.report == PieceReport(texts=4, cut=1, pieces=17, unknown=1)
    assert encoded.report.notes() == (
        "1 of 4 texts cut to the length limit, at their end",
        "5.88% of the pieces of all texts are unknown",
    )
    assert PieceReport().notes() == () and PieceReport().unknown_share == 0
    assert PieceEncoding(tokenizer, 6).describe() == "word pieces: 6 a text"
    assert PieceEncoding(tokenizer, 6).prepare(" 宝 ") == " 宝 "


@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_piece_in_a_text_is_plain_text(tokenizer, special):
    (row,) = rows(tokenizer, PieceEncoding(tokenizer, 40).encode([f"咳{special}嗽[SEP]"]))
    assert not set(row[1:-1]) & (set(SPECIAL) - {"[UNK]"}) and row[-3:-1] == ["sep", "]"]


@given(st.lists(st.text("宝咳ab[SEP] 3，\u0301\x00", max_size=12), max_size=4), st.integers(3, 9))
@settings(max_examples=40)
def test_a_row_is_the_beginning_of_the_texts_pieces(tokenizer, texts, length):
    whole = rows(tokenizer, PieceEncoding(tokenizer, 200).encode(texts))
    cut = PieceEncoding(tokenizer, length).encode(texts)
    assert rows(tokenizer, cut) == [[*row[:-1][: length - 1], "[SEP]"] for row in whole]
    assert cut.report.cut == sum(len(row) > length for row in whole)


def test_the_clients_arrays(tokenizer):
    train, dev = (load_corpus("shipped", split=split) for split in ("train", "dev"))
    partition = build_partition(train, ByField(field="diagnosis"), dev_corpus=dev)
    encoding = PieceEncoding(tokenizer, 20)
    federated, report = encode_pieces((train, dev), partition, encoding)
    assert (federated.size("train"), federated.size("test"), report.texts) == (279, 66, 345)
    sample_of = {s.sample_id: s for s in train.samples + dev.samples}
    for client in federated.clients:
        for split in ("train", "test"):
            samples = [sample_of[i] for i in getattr(partition.clients[client.client_id], split)]
            arrays = getattr(client, split)
            wanted = encoding.encode([s.text for s in samples]).arrays
            lengths = wanted["attention_mask"].sum(axis=1)
            order = np.argsort(lengths, kind="stable") if split == "test" else np.arange(len(samples))
            for name, array in wanted.items():
                np.testing.assert_array_equal(arrays[name], array[order])
            assert arrays["y"].tolist() == [samples[i].label for i in order]
    assert "is not in the corpus" in refused(encode_pieces, dev, build_partition(train, Natural()), encoding)


def test_json(tokenizer):
    encoding = PieceEncoding(tokenizer, 12)
    text = piece_encoding_to_json(encoding)
    again = piece_encoding_from_json(text)
    texts = ["宝宝咳嗽[SEP]，发烧3天", "", "嗯嗯"]
    for name, array in encoding.encode(texts).arrays.items():
        np.testing.assert_array_equal(again.encode(texts).arrays[name], array)
    assert "is not the JSON of an encoding of sentences" in refused(relation_encoding_from_json, text)
    assert "is not the JSON of an encoding of pieces" in refused(piece_encoding_from_json, "{}")
    damaged = json.dumps({**json.loads(text), "tokenizer": {}})
    assert "is not the JSON of a tokenizer" in refused(piece_encoding_from_json, damaged)
    with pytest.raises(DataError, match="max_length"):
        piece_encoding_from_json(json.dumps({**json.loads(text), "max_length": 2}))


@pytest.mark.parametrize("length", [2, 0, True, 3.0, None])
def test_a_length_that_is_none(tokenizer, length):
    assert "max_length is not a whole number of at least 3" in refused(PieceEncoding, tokenizer, length)


def test_a_tokenizer_without_special_pieces():
    assert "the tokenizer has no cls_token_id" in refused(PieceEncoding, object(), 20)
