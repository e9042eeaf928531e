"""What a BERT tokenizer does with each character, read off the tokenizer."""

import pytest
from datasets_for_tests import refused
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datasets.errors import DataError
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.relation_encoding import RelationEncoding
from datasets.text.relation_layout import MARKERS
from datasets.text.tokenizer_tables import ALONE, BLANK, LETTER, NOTHING, PAGE, kinds_of, tables_of

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *MARKERS)


def tokenizer(model="WordPiece", normalizer=None, splitter=None, extra=()):
    ids = {piece: number for number, piece in enumerate([*SPECIAL, "a", "##b", "é"])}
    made = {
        "WordPiece": lambda: models.WordPiece(ids, unk_token="[UNK]"),
        "WordLevel": lambda: models.WordLevel(ids, unk_token="[UNK]"),
        "BPE": lambda: models.BPE(),
    }[model]()
    result = Tokenizer(made)
    result.normalizer = normalizer or normalizers.BertNormalizer()
    result.pre_tokenizer = splitter or pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=result,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        additional_special_tokens=list(MARKERS),
    )
    fast.add_tokens(list(extra))
    return RelationEncoding(fast, 16)


def becomes(table, character):
    page, index = divmod(ord(character), PAGE)
    entry = table.entry_of[table.page_of[page], index]
    present = table.kind[entry] > NOTHING
    return [
        (chr(ord(character) + s), k)
        for s, k in zip(table.shift[entry][present], table.kind[entry][present], strict=True)
    ]


def test_characters():
    table = tables_of(tokenizer()).characters
    assert becomes(table, "a") == becomes(table, "A") == becomes(table, "Á") == [("a", LETTER)]
    assert becomes(table, "\x00") == becomes(table, "\u0301") == becomes(table, "\u200d") == []
    assert kinds_of(table, "\u3000") == kinds_of(table, "\n") == kinds_of(table, " ") == [BLANK]
    assert becomes(table, "[") == [("[", ALONE)] and becomes(table, "$") == [("$", ALONE)]
    assert kinds_of(table, "中") == [BLANK, LETTER, BLANK]
    assert [c for c, _ in becomes(table, "각")] == list("\u1100\u1161\u11a8")
    assert len(table.page_of) == 0x110000 // PAGE and len(table.entry_of) < 200
    assert tables_of(tokenizer("WordLevel")).characters is table, "equal normalizers share a table"
    cased = tables_of(tokenizer(normalizer=normalizers.BertNormalizer(lowercase=False))).characters
    assert becomes(cased, "Á") == [("Á", LETTER)] and becomes(cased, "\u0301") == [("\u0301", LETTER)]


def test_pieces_and_special_ids():
    tables = tables_of(tokenizer())
    assert tables.pieces == (*SPECIAL, "a", "##b", "é") and tables.ids.tolist() == list(range(11))
    assert (tables.prefix, tables.max_characters) == ("##", 100)
    assert (tables.pad_id, tables.unknown_id, tables.cls_id, tables.sep_id) == (0, 1, 2, 3)
    assert tables.marker_ids == (4, 5, 6, 7)
    assert tables_of(PieceEncoding(tokenizer().tokenizer, 16)).marker_ids == ()
    words = tables_of(tokenizer("WordLevel"))
    assert (words.prefix, words.max_characters) == (None, None)


def test_other_tokenizers_are_refused():
    assert "model is BPE; use an encoder with BERT's own" in refused(tables_of, tokenizer("BPE"))
    assert "normalizer is NFC" in refused(tables_of, tokenizer(normalizer=normalizers.NFC()))
    assert "pre_tokenizer is Whitespace" in refused(tables_of, tokenizer(splitter=pre_tokenizers.Whitespace()))
    with pytest.raises(DataError, match=r"piece with id 11: the tokenizer has a piece outside its vocabulary"):
        tables_of(tokenizer(extra=["il2"]))
    slow = tokenizer()
    object.__setattr__(slow, "tokenizer", object())
    assert "not a fast one" in refused(tables_of, slow)
