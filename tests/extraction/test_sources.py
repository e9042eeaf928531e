"""Raw documents from files: one by one, offsets in code points, damaged files named by file and byte."""

from __future__ import annotations

import gzip

import pytest

from datasets.errors import DataError
from tests.extraction.stubs import SECRET, write
from tff_re.extraction.sources import Source

PUBTATOR = "7|t|A 💊 title.\r\n7|a|And more.\r\n7\t2\t3\t💊\tDrug\tD1\r\n\r\n8|t|Alone\r\n8|a|\r\n"


def read(path, lines=False):
    return [(d.document_id, d.text, d.title_length) for d in Source(path, lines).documents()]


@pytest.mark.parametrize("packed", [False, True])
def test_the_three_forms_with_and_without_gz(tmp_path, packed):
    def file(name, text):
        data = text.encode()
        return write(tmp_path / (name + ".gz" * packed), gzip.compress(data, mtime=0) if packed else data)

    text = "Vorher 💊\r\nAspirin\r\n"
    assert read(file("note.v2.txt", text)) == [("note.v2", text, None)]
    by_line = [("note:1", "Vorher 💊", None), ("note:3", "Aspirin", None)]
    assert read(file("note.txt", text.replace("\r\n", "\r\n\r\n")), lines=True) == by_line
    records = '{"id": 1, "text": "a\\n💊b"}\r\n{"id": "x", "text": "", "other": 2}\n'
    assert read(file("n.jsonl", records)) == [("1", "a\n💊b", None), ("x", "", None)]
    assert read(file("n.pubtator", PUBTATOR)) == [("7", "A 💊 title. And more.", 10), ("8", "Alone ", 5)]


def test_a_byte_order_mark_is_not_in_the_text(tmp_path):
    mark = "\ufeff".encode()
    assert read(write(tmp_path / "a.txt", mark + b"abc")) == [("a", "abc", None)]
    assert read(write(tmp_path / "b.pubtator", mark + PUBTATOR.encode()))[0][0] == "7"


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.txt", "a.txt", "c.jsonl", "no.csv"):
        write(tmp_path / name, '{"id": "c", "text": "c"}\n' if name == "c.jsonl" else name)
    (tmp_path / "deeper.txt").mkdir()
    assert [document[0] for document in read(tmp_path)] == ["a", "b", "c"]
    before = Source(tmp_path).digest()
    write(tmp_path / "b.txt", "other")
    assert Source(tmp_path).digest() != before


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.txt", b"", "a.txt: has no text"),
        ("a.txt", b" \r\n", "a.txt: has no text"),
        ("a.jsonl", b"", "a.jsonl: has no text"),
        ("a.pubtator", b"\n\n", "a.pubtator: has no text"),
        ("a.txt", SECRET.encode() + b"\n\xff", "a.txt: line 2: byte 11: is not UTF-8"),
        ("a.jsonl", b'{"id": 1, "text": "a"}\n{"id": 2, "text": "\xff"}\n', "a.jsonl: line 2: byte 42: is not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n', 'a.jsonl: line 1: has no "id"'),
        ("a.jsonl", b'{"id": 1, "text": 5}\n', 'a.jsonl: line 1: "text" is not a string'),
        ("a.jsonl", b"[1]\n", "a.jsonl: line 1: it is not an object"),
        (
            "a.jsonl",
            b'{"id": 1, "text": ""}\n{"id": 2, "text": "\\ud83d"}\n',
            "a.jsonl: line 2: holds half of a surrogate pair",
        ),
        (
            "a.jsonl",
            b'{"id": 2, "text": "\\ud83d"}\n',
            "a.jsonl: line 1: holds half of a surrogate pair",
        ),
        ("a.pubtator", b"7|t|A\n8|a|B\n", "a.pubtator: line 2: the document's id changes"),
        ("a.pubtator", b"7|t|A\n", "a.pubtator: line 1: the document has no abstract"),
        ("a.pubtator", b"7|t|A\n7|a|\xc3\n", "a.pubtator: line 2: byte 10: is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"abc" * 99, mtime=0)[:-9], "a.txt.gz: the gzip file is truncated"),
        ("a.doc", b"abc", "a.doc: must end in one of .txt, .jsonl, .pubtator"),
        (None, b"", "no such file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, said):
    path = tmp_path / "missing.txt" if name is None else write(tmp_path / name, data)
    with pytest.raises(DataError) as raised:
        list(Source(path).documents())
    assert said in str(raised.value) and SECRET not in str(raised.value)


def of_data_set(path, dataset):
    return [(d.document_id, d.text, d.title_length) for d in Source(path, dataset=dataset).documents()]


def test_files_in_the_form_of_a_data_set(tmp_path):
    abstracts = write(tmp_path / "c_abstracts.tsv", "7\tA 💊\tAnd more.\n8\tB\tC\n")
    assert of_data_set(abstracts, "chemprot_release") == [("7", "A 💊\tAnd more.", 3), ("8", "B\tC", 1)]
    before = Source(abstracts, dataset="chemprot_release").digest()
    write(abstracts, "7\tA 💊\tAnd more.\n8\tB\tD\n")
    assert Source(abstracts, dataset="chemprot_release").digest() != before
    records = '{"id": "a", "text": "x 💊", "entities": [[0, 1, "drug"]]}\n{"id": "b", "text": "y"}\n'
    assert of_data_set(write(tmp_path / "n.jsonl", records), "entities") == [("a", "x 💊", None), ("b", "y", None)]
    cdr = write(tmp_path / "c.pubtator", "7|t|Aspirin\n7|a|B\n7\t0\t7\tAspirin\tChemical\tD1\n\n")
    assert of_data_set(cdr, "cdr") == [("7", "Aspirin B", 7)]
    assert of_data_set(cdr, "cdr_entities") == [("7", "Aspirin B", None)]


def test_data_sets_without_documents_are_refused(tmp_path):
    path = write(tmp_path / "a.txt", b"abc")
    with pytest.raises(DataError, match="data set ade: has no documents; use one of ade_entities, biored, biored_ent"):
        Source(path, dataset="ade")
    with pytest.raises(DataError, match=r"--lines is only for \.txt; leave --lines out"):
        Source(path, lines=True, dataset="cdr")
    with pytest.raises(DataError, match="is not named as the release names it"):
        list(Source(path, dataset="chemprot_release").documents())


def test_lines_are_of_texts_only(tmp_path):
    with pytest.raises(DataError, match=r"only lines of \.txt"):
        Source(write(tmp_path / "a.jsonl", b"{}"), lines=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no file to read"):
        Source(tmp_path / "empty")
