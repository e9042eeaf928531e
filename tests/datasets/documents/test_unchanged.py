"""The arrays and gold facts of CDR, CHR and GDA, by digests taken before documents of any kind were read."""

import hashlib

import pytest
from test_document_encoding import VOCABULARY
from test_document_loading import folder

from datasets.documents.encoding import DocumentEncoding
from datasets.documents.loading import load_documents
from datasets.documents.scoring import gold_facts

ARRAYS = (
    *("input_ids", "attention_mask", "mention_place", "mention_entity"),
    *("pair_head", "pair_tail", "pair_labels", "y"),
)


@pytest.fixture(scope="module")
def encoding(tmp_path_factory):
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return DocumentEncoding(BertTokenizerFast(str(path)))


def digest(corpus, encoding):
    encoded, result = encoding.encode(corpus), hashlib.sha256()
    for name in ARRAYS:
        array = encoded.arrays[name]
        result.update(f"{name}{array.dtype}{array.shape}".encode() + array.tobytes())
    pairs = [[(p.document_id, p.head_id, p.tail_id, p.intra) for p in document] for document in encoded.pairs]
    gold = gold_facts(corpus)
    result.update(repr((pairs, sorted(getattr(gold, "facts", gold).items()))).encode())
    assert set(encoded.arrays) == set(ARRAYS), "types are told only if they are asked for"
    return result.hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("cdr", None, "faa5a5121df83894"),
        ("chr", "both", "6b7de2685d3354ee"),
        ("chr", "once", "2239aeb475585d4c"),
        ("gda", None, "c2ecc97a4e298b92"),
    ],
)
def test_small_files(tmp_path, encoding, name, label, expected):
    assert digest(load_documents(name, folder(tmp_path, name), label=label), encoding) == expected


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "split", "label", "expected"),
    [
        ("cdr", "train", None, "357ee11c82798d1c"),
        ("cdr", "dev", None, "00c7a40010499161"),
        ("chr", "train", "both", "cf9a98f970a5c5f8"),
        ("chr", "train", "once", "54aae13dbb0dbf23"),
    ],
)
def test_the_corpora(data_dir, encoding, name, split, label, expected):
    assert digest(load_documents(name, data_dir, split=split, label=label), encoding) == expected
