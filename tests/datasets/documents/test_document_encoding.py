import string

import numpy as np
import pytest
from datasets_for_tests import refused
from documents_for_tests import CHR, corpus, document, worked
from hypothesis import given
from hypothesis import strategies as st
from test_pubtator import TEXTS

from datasets.documents.clients import encode_document_clients
from datasets.documents.encoding import DocumentEncoding, PairId, Widths
from datasets.documents.records import Document, EntityMention
from datasets.errors import DataError
from datasets.partition import Iid, build_partition

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(letter for letter in string.ascii_lowercase + string.punctuation + "µ𝄞"),
    *(f"##{letter}" for letter in string.ascii_lowercase),
    *("ab", "causes", "bad", "ce", "then", "ends", "sep"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(path))


def pieces(tokenizer, arrays, row=0):
    ids = arrays["input_ids"][row][arrays["attention_mask"][row] == 1]
    return " ".join(tokenizer.convert_ids_to_tokens(ids.tolist()))


def test_a_document_by_hand(tokenizer):
    """A composite mention stands once per entity; a nested one has its own marker, its end is shared."""
    made = corpus(worked())
    encoded = DocumentEncoding(tokenizer).encode(made)
    arrays = encoded.arrays
    assert pieces(tokenizer, arrays) == "[CLS] * ab * causes * bad * ce * . then * ab * ends . [SEP]"
    assert arrays["mention_place"].tolist() == [[1, 12, 5, 5, 7]]
    assert arrays["mention_entity"].tolist() == [[0, 0, 1, 2, 2]]
    assert arrays["pair_head"].tolist() == [[0, 0]] and arrays["pair_tail"].tolist() == [[1, 2]]
    assert arrays["pair_labels"].tolist() == [[[0.0], [1.0]]] and arrays["y"].tolist() == [1]
    assert encoded.pairs == ((PairId("7", "C1", "D1", True), PairId("7", "C1", "D2", True)),)
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: np.float32 if name == "pair_labels" else np.int32 for name in arrays
    }
    assert encoded.lengths.tolist() == [18]
    assert encoded.notes() == ("documents of 18 pieces in the median, 18 at most, 0 of 1 longer than 512",)


def test_touching_overlapping_and_equal_mentions(tokenizer):
    mentions = [("abce", 0, "C1"), ("ce", 0, "D1"), ("cebad", 0, "D2"), ("bad", 0, "D3 D4"), ("bad", 0, "D5")]
    made = corpus(document("1", "abcebad ends", "", mentions))
    arrays = DocumentEncoding(tokenizer).encode(made).arrays
    # ab, then ce begins; abce and ce end where bad begins: the end's marker first, one for both
    assert pieces(tokenizer, arrays) == "[CLS] * ab * ce * * bad * ends [SEP]"
    entities = [entity.entity_id for entity in made.samples[0].entities]
    positions = {}
    for position, entity in zip(arrays["mention_place"][0], arrays["mention_entity"][0], strict=True):
        positions.setdefault(entities[entity], []).append(int(position))
    assert positions == {"C1": [1], "D1": [3], "D2": [3], "D3": [6], "D4": [6], "D5": [6]}


def test_padding_and_widths(tokenizer):
    bare = document("2", "ends", "", [])
    made = corpus(worked(), bare)
    encoding = DocumentEncoding(tokenizer)
    arrays = encoding.encode(made).arrays
    assert pieces(tokenizer, arrays, 1) == "[CLS] ends [SEP]" and arrays["input_ids"].shape == (2, 18)
    assert (arrays["input_ids"][1, 3:] == tokenizer.pad_token_id).all()
    for name in ("mention_place", "mention_entity", "pair_head", "pair_tail"):
        assert (arrays[name][1] == -1).all()
    assert (arrays["pair_labels"][1] == 0).all() and arrays["y"].tolist() == [1, 0]
    wide = encoding.encode(made, made.samples[1:], widths=Widths(20, 7, 4)).arrays
    assert [wide[name].shape for name in ("input_ids", "mention_place", "pair_labels")] == [(1, 20), (1, 7), (1, 4, 1)]
    alone = encoding.encode(made, made.samples[1:]).arrays
    assert [alone[name].shape for name in ("input_ids", "mention_place", "pair_labels")] == [(1, 3), (1, 1), (1, 1, 1)]


def test_special_pieces_in_a_text_are_plain(tokenizer):
    made = corpus(document("1", "[SEP] ab", "[CLS]", [("ab", 0, "C1")]))
    text = pieces(tokenizer, DocumentEncoding(tokenizer).encode(made).arrays)
    assert text == "[CLS] [ sep ] * ab * [ c ##l ##s ] [SEP]"


def test_what_cannot_be_encoded(tokenizer):
    assert DocumentEncoding(tokenizer, 18).encode(corpus(worked())).lengths.tolist() == [18]
    with pytest.raises(DataError, match="document 7: has 18 pieces, more than the 17 allowed"):
        DocumentEncoding(tokenizer, 17).encode(corpus(worked()))
    with pytest.raises(DataError, match="document number 2: has 18 pieces"):  # the id may be a piece of text
        DocumentEncoding(tokenizer, 17).encode(corpus(document("1", "ab", "", [("ab", 0, "C1")]), worked("a title")))
    assert "longest" in refused(DocumentEncoding, tokenizer, 2)
    assert "does not know the marker" in refused(DocumentEncoding, tokenizer, marker="<mention>")


@given(st.data(), TEXTS, TEXTS)
def test_every_mention_has_its_marker(tokenizer, data, title, abstract):
    text = f"{title} {abstract}"
    mentions = []
    for number in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(text) - 1))
        end = data.draw(st.integers(start + 1, len(text)))
        mentions.append(EntityMention(start, end, "Chemical", (f"C{number % 2}", f"C{number}")[: 1 + number // 3]))
    made = corpus(Document("1", text, len(title), tuple(mentions), ()))
    arrays = DocumentEncoding(tokenizer).encode(made).arrays
    ids, marker = arrays["input_ids"][0], tokenizer.convert_tokens_to_ids("*")
    owners = [(e, m) for e, entity in enumerate(made.samples[0].entities) for m in entity.mentions]
    positions = arrays["mention_place"][0][: len(owners)]
    assert arrays["mention_entity"][0][: len(owners)].tolist() == [e for e, _ in owners]
    assert (ids[positions] == marker).all()
    ends = {m.end for _, m in owners}
    assert (ids == marker).sum() == len({m.start for _, m in owners}) + len(ends) + text.count("*")
    for position, (_, mention) in zip(positions, owners, strict=True):
        before = len({m.start for _, m in owners if m.start < mention.start}) + sum(
            end <= mention.start for end in ends
        )
        assert (ids[:position] == marker).sum() == text[: mention.start].count("*") + before


def test_clients_and_held_out_documents(tokenizer):
    train = corpus(*(worked(str(i)) for i in range(4)), document("9", "ends", "", []))
    dev = corpus(
        document("21", "ab bad ce ends then causes", "ends " * 20, [("ab", 0, "C1"), ("bad", 0, "D1")]),
        worked("20"),
        split="dev",
    )
    encoding = DocumentEncoding(tokenizer)
    partition = build_partition(train, Iid(2), test_share=0.4)
    federated, held_out = encode_document_clients(train, partition, encoding, {"dev": dev})
    assert federated.label_names == ("unrelated", "related")
    encoded = encoding.encode(train)
    lengths = dict(zip((s.sample_id for s in train.samples), encoded.lengths, strict=True))
    for client in federated.clients:
        ids = partition.clients[client.client_id]
        assert client.train["attention_mask"].sum(axis=1).tolist() == [lengths[i] for i in ids.train]
        assert client.test["attention_mask"].sum(axis=1).tolist() == sorted(lengths[i] for i in ids.test)
    dev_documents = held_out["dev"]
    assert [ids[0].document_id for ids in dev_documents.encoded.pairs] == ["20", "21"]
    assert dev_documents.encoded.arrays["input_ids"].shape[1] == dev_documents.encoded.lengths.max() == 32
    assert federated.pooled("train")["input_ids"].shape[1] == 32
    assert dev_documents.gold.facts == {("20", "C1", 0, "D2"): True}
    for wrong, reason in (
        ({"dev": train}, "5 documents are also among those of the clients"),
        ({"dev": dev, "test": dev}, "2 documents are also among those of dev"),
        ({"dev": corpus(document("30", "x", "", [], relation="React"), rule=CHR)}, "differ in their relations"),
    ):
        with pytest.raises(DataError, match=reason):
            encode_document_clients(train, partition, encoding, wrong)
    assert "is not in the corpus" in refused(encode_document_clients, dev, partition, encoding)
