"""Own relations: what is written in either form is read, and what is malformed is refused with its place."""

import gzip
import re
import tempfile
from pathlib import Path

import pytest
from datasets_for_tests import SECRET, refused, write_gz
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.partition import ByField, build_partition
from datasets.relations.loading import load_relations
from datasets.relations.neutral import UNLABELLED, is_named_so, read
from tests.relations_for_tests import record_bytes, write_records

TEXT = f"Aspirin hemmt COX-2. {SECRET}"
FIRST = {
    "id": "1",
    "document": "letter-7",
    "text": TEXT,
    "head": [0, 7],
    "tail": [14, 19],
    "head_type": "drug",
    "tail_type": "enzyme",
    "label": "inhibits",
    "group": "patient-3",
    "ward": "north",
}
SECOND = {"id": "2", "text": "𝄞 é binds x", "head": [10, 11], "tail": [0, 1], "label": "binds"}
RECORDS = [FIRST, SECOND]
ENDINGS = (".jsonl", ".tsv", ".jsonl.gz", ".tsv.gz")


def changed(**values):
    """The first record with other values; without those that are None."""
    return {key: value for key, value in (FIRST | values).items() if value is not None}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_in_either_form(tmp_path, ending):
    corpus = load_relations("relations", path=write_records(tmp_path, RECORDS, ending))
    assert (corpus.name, corpus.relation_names, corpus.negative, corpus.notes) == (
        *("relations", ("binds", "inhibits"), None),
        (),
    )
    first, second = corpus.mentions
    assert (first.mention_id, first.document_id, first.group_id) == ("train-1", "letter-7", "patient-3")
    assert (first.head_text, first.tail_text, first.relation, first.label) == ("Aspirin", "COX-2", "inhibits", 1)
    assert first.fields == {
        **{"group": "patient-3", "ward": "north", "relation": "inhibits"},
        **{"head_type": "drug", "tail_type": "enzyme"},
    }
    assert (second.head_text, second.tail_text, second.head_type, second.tail_type) == ("x", "𝄞", "entity", "entity")
    assert (second.document_id, second.group_id) == ("2", "2"), "a record without a document is one"
    assert SECRET not in repr(corpus.mentions) and is_named_so(tmp_path / f"own{ending}")


def test_classes_and_the_negative_one(tmp_path):
    path = write_records(tmp_path, RECORDS)
    corpus = read(path, negative_label="inhibits")
    assert (corpus.relation_names, corpus.negative, corpus.positive_labels) == (("inhibits", "binds"), "inhibits", (1,))
    assert [mention.label for mention in corpus.mentions] == [0, 1]
    corpus = read(path, class_names=("inhibits", "none", "binds"), negative_label="none")
    assert corpus.relation_names == ("none", "inhibits", "binds") and [m.label for m in corpus.mentions] == [1, 2]
    message = refused(read, path, negative_label="None")
    assert message.startswith(f"{path}: negative_label is not a label of any record; use one of binds, inhibits")
    assert "not one of class_names" in refused(read, path, class_names=("inhibits", "binds"), negative_label="none")
    message = refused(read, path, class_names=("inhibits", "none"))
    assert message == f"{path}: line 2: unknown label; use one of inhibits, none"


@pytest.mark.parametrize("ending", ENDINGS[:2])
def test_records_without_labels_are_for_prediction(tmp_path, ending):
    records = [{key: value for key, value in record.items() if key != "label"} for record in RECORDS]
    path = write_records(tmp_path, records, ending)
    corpus = read(path, split="given", labelled=False)
    assert corpus.relation_names == (UNLABELLED,) and corpus.mentions[0].mention_id == "given-1"
    line = 1 if ending == ".jsonl" else 2
    assert refused(read, path) == f'{path}: line {line}: has no "label"; add the key "label"'
    # Labels that are there, even unknown ones, are not read.
    assert len(read(write_records(tmp_path, RECORDS, ending), labelled=False).mentions) == 2


def test_a_partition_by_any_field(tmp_path):
    records = [changed(id=str(i), ward=["north", "south"][i % 2], age=40 + i // 4) for i in range(8)]
    corpus = read(write_records(tmp_path, records, ".tsv"))
    for field, values in {"ward": {"north", "south"}, "age": {"40", "41"}, "group": {"patient-3"}}.items():
        assert set(build_partition(corpus, ByField(field), seed=0).clients) == values
    assert "7 records repeat an earlier one's document, text and mentions" in corpus.notes
    assert "no such field" in refused(build_partition, corpus, ByField("hospital"), seed=0)


REFUSED = {
    "has an empty text": changed(text=" \n "),
    'has no "text"': changed(text=None),
    'has no "id"': changed(id=None),
    'has no "head"': changed(head=None),
    '"id" is not an id': changed(id=""),
    '"document" is not an id': changed(document=""),
    '"text" is not a string': changed(text=5),
    '"head" is not [start, end]': changed(head=[0, 1, 2]),
    '"head" is not a list': changed(head="0 7"),
    'an offset of "head" is not a whole number': changed(head=[0, True]),
    'an offset of "tail" is not a whole number': changed(tail=[14.0, 19]),
    f"its tail is empty or lies beyond the text of {len(TEXT)} characters": changed(tail=[14, len(TEXT) + 1]),
    "its head is empty": changed(head=[7, 7]),
    "its head is empty or lies beyond": changed(head=[-1, 7]),
    "its head and tail share characters": changed(tail=[6, 9]),
    "head and tail share characters": changed(tail=FIRST["head"]),
    '"head_type" is blank': changed(head_type=" "),
    '"head_type" is not a string': changed(head_type=["drug"]),
    '"label" is not an id': changed(label=""),
    '"label" is not one line of text': changed(label="a\nb"),
    '"label" is not one line': changed(label=" inhibits"),
    "duplicate id (record 2)": changed(id="2"),
    "duplicate id (id)": changed(id=SECRET),
    "field wards is neither a string nor a number": changed(wards=["north"]),
    "has a field named relation": changed(relation="x"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_malformed_record_is_refused_with_its_line_and_without_its_text(tmp_path, reason):
    earlier = [SECOND] if "(id)" not in reason else [changed(id=SECRET)]
    path = write_records(tmp_path, [*earlier, REFUSED[reason]])
    reason = reason.replace("duplicate id (record 2)", "duplicate id (id 2)")
    message = refused(read, path)
    assert message.startswith(f"{path}: line 2: ") and reason in message and "; " in message, message


GOOD = record_bytes(RECORDS, ".jsonl")
TABLE = record_bytes(RECORDS, ".tsv")
BROKEN = {
    (".jsonl", "line 1: begins with a byte order mark"): b"\xef\xbb\xbf" + GOOD,
    (".tsv", "line 1: begins with a byte order mark"): b"\xef\xbb\xbf" + TABLE,
    (".jsonl", "line 1: ends with a carriage return"): GOOD.replace(b"\n", b"\r\n"),
    (".tsv", "line 1: ends with a carriage return"): TABLE.replace(b"\n", b"\r\n"),
    (".jsonl", "line 2: is empty"): GOOD.replace(b"\n", b"\n\n", 1),
    (".tsv", "line 4: is empty"): TABLE + b"\n",
    (".jsonl", "line 2: the file ends within this line"): GOOD[:-1],
    (".tsv", "line 3: the file ends within this line"): TABLE[:-3],
    (".jsonl", "line 1: byte 7: is not JSON"): b'{"id": x}\n',
    (".jsonl", "line 1: the line is not an object"): b"[1]\n",
    (".jsonl", "line 1: an object has the same key twice"): b'{"id": "1", "id": "2"}\n',
    (".jsonl", "line 3: byte"): GOOD + b'{"id": "\xff"}\n',
    (".tsv", "line 1: the header has no column id"): b"\n".join(TABLE.split(b"\n")[1:]),
    (".tsv", "line 1: the header has no column tail_end"): TABLE.replace(b"tail_end", b"tailend"),
    (".tsv", "line 1: the header has a column twice"): TABLE.replace(b"ward", b"text"),
    (".tsv", "line 2: has "): TABLE.replace(b"\tnorth", b"\tnorth\tx"),
    (".tsv", "line 2: head_end is not a whole number"): TABLE.replace(b"\t7\t", b"\t-7\t"),
    (".tsv", "line 2: head_end is not"): TABLE.replace(b"\t7\t", b"\t\t"),
    (".jsonl", "holds no record"): b"",
    (".tsv", "holds no record"): TABLE.split(b"\n")[0] + b"\n",
    (".csv", "is not .jsonl or .tsv"): GOOD,
    (".gz", "is not .jsonl or .tsv"): GOOD,
    (".jsonl.gz", "the gzip file is truncated"): gzip.compress(GOOD)[:-9],
}


@pytest.mark.parametrize("ending, reason", BROKEN)
def test_a_malformed_file_is_refused_with_its_place(tmp_path, ending, reason):
    path = tmp_path / f"own{ending}"
    path.write_bytes(BROKEN[ending, reason])
    message = refused(read, path)
    assert message.startswith(f"{path}: {reason}") and "; " in message, message


def test_without_a_file_it_says_how_to_name_one(tmp_path):
    message = refused(load_relations, "relations", tmp_path)
    assert message == "data set relations: has no files of its own; name yours by task.path or --file"
    assert "no such file" in refused(load_relations, "relations", path=tmp_path / "own.jsonl")
    write_gz(tmp_path / "own.tsv", TABLE)
    assert len(read(tmp_path / "own.tsv").mentions) == 2, "compressed is told by the content"


# Written, then read

words = st.text("abä头𝄞 -.", min_size=1, max_size=6).filter(lambda word: word.strip() == word)


@st.composite
def records(draw, number):
    text = draw(st.text("abcé头𝄞 -.", min_size=2, max_size=30).filter(str.strip))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), min_size=3, max_size=4)))
    cuts = [cuts[0], cuts[1], cuts[-2], cuts[-1]]
    if cuts[0] == cuts[1] or cuts[2] == cuts[3]:
        cuts = [0, 1, len(text) - 1, len(text)]
    spans = draw(st.permutations([cuts[:2], cuts[2:]]))
    record = {"id": f"{number}-{draw(words)}", "text": text, "head": spans[0], "tail": spans[1], "label": draw(words)}
    more = {"document": words, "group": words, "head_type": words, "tail_type": words, "ward": words}
    return record | {name: draw(value) for name, value in more.items() if draw(st.booleans())}


@settings(deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(*(records(number) for number in range(n)))))
def test_what_is_written_is_read_the_same_from_every_form(wanted):
    with tempfile.TemporaryDirectory() as folder:
        corpora = [read(write_records(folder, wanted, ending)) for ending in ENDINGS]
    assert all(corpus == corpora[0] for corpus in corpora)
    assert corpora[0].relation_names == tuple(sorted({record["label"] for record in wanted}))
    for record, mention in zip(wanted, corpora[0].mentions, strict=True):
        ids = {name: record.get(name, mention.mention_id.removeprefix("train-")) for name in ("id", "document")}
        assert ids == {"id": mention.mention_id.removeprefix("train-"), "document": mention.document_id}
        assert (mention.text, [*mention.head], [*mention.tail]) == (record["text"], record["head"], record["tail"])
        assert (mention.head_type, mention.tail_type) == tuple(
            record.get(f"{side}_type", "entity") for side in ("head", "tail")
        )
        assert (mention.relation, corpora[0].relation_names[mention.label]) == (record["label"],) * 2
        assert mention.more == {name: record[name] for name in record if name in ("group", "ward")}


def test_the_example_of_the_page_is_read(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text("utf-8")
    section = page[page.index("## Your own relations") :].split("\n## ")[0]
    (lines,) = re.findall(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    path = tmp_path / "ours.jsonl"
    path.write_text(lines, "utf-8")
    corpus = read(path, negative_label="none")
    assert [(m.head_text, m.tail_text, m.relation) for m in corpus.mentions] == [
        ("Aspirin", "COX-2", "inhibits"),
        ("aspirin", "IL-6", "none"),
    ]
    assert corpus.relation_names == ("none", "inhibits") and corpus.mentions[1].fields["ward"] == "south"
