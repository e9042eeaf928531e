"""Own texts with entities: every form is read, and what is malformed is refused with its place and without its text."""

import re
from pathlib import Path

import pytest
from datasets_for_tests import SECRET, refused
from entity_files import entities_of, json_lines, write

from datasets.entities.loading import load_entities
from datasets.entities.neutral import UNLABELLED, is_named_so, read
from datasets.partition import ByField, build_partition

FIRST = {
    "id": "1",
    "document": "letter-7",
    "text": f"😀 Aspirin hemmt COX-2. {SECRET}",
    "entities": [[16, 21, "enzyme"], {"start": 2, "end": 9, "type": "drug", "probability": 0.5}],
    "group": "patient-3",
    "ward": "north",
}
SECOND = {"id": 2, "text": "nothing here", "entities": []}

COLUMNS = f"""# id = 1
# document = letter-7
# ward = north
# text = {SECRET}
Aspirin\tNN\tB-drug
acid\tNN\tI-drug
#\tSYM\tO
COX-2\tNN\tS-enzyme

{SECRET}\tNN\tI-drug
Aspirin\tNN\tB-drug
"""
PUBTATOR = f"""7|t|😀 Aspirin
7|a|inhibits COX-2, {SECRET}.
7\t2\t9\tASPIRIN\tdrug\tD001241
7\t19\t24\tCOX-2\tenzyme
7\tInhibits\tD001241\tP35354
7\tInhibits\tD001241\tP35354\tNovel

8|t|A title.
8|a|
"""
TEXT = f"😀 Aspirin\r\ninhibits\nCOX 2, {SECRET}."
ANN = (
    "T1\tdrug 2 9\tAspirin\nR1\tInhibits Arg1:T1 Arg2:T2\nT2\tenzyme 20 23;24 25\tCOX 2\n"
    "T3\tdrug 2 4;11 13\tAs in\nT4\tboth 11 19;20 23\tinhibits COX\n#1\tAnnotatorNotes T1\tsure\n\n"
)


def brat(folder, text=TEXT, ann=ANN, name="letter", gz=""):
    write(folder / f"{name}.txt{gz}", text)
    return write(folder / f"{name}.ann{gz}", ann)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_json_lines(tmp_path, ending):
    path = write(tmp_path / f"ours{ending}", json_lines(FIRST, SECOND))
    corpus = load_entities("entities", path=path)
    assert (corpus.name, corpus.entity_types, corpus.notes) == ("entities", ("drug", "enzyme"), ())
    assert entities_of(corpus) == {"train-1": [("Aspirin", "drug"), ("COX-2", "enzyme")], "train-2": []}
    first, second = corpus.samples
    assert (first.document_id, first.group_id, first.label) == ("letter-7", "patient-3", 1)
    assert (second.document_id, second.group_id, second.label) == ("2", "2", 0)
    assert first.fields == {"group": "patient-3", "ward": "north", "document": "letter-7"}
    assert SECRET not in repr(corpus.samples) and is_named_so(path)


@pytest.mark.parametrize("ending", [".conll", ".tsv", ".bio", ".bio.gz"])
@pytest.mark.parametrize("separator", ["\t", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns(tmp_path, ending, separator, end):
    path = write(tmp_path / f"ours{ending}", COLUMNS.replace("\t", separator).replace("\n", end))
    corpus = read(path)
    first, second = corpus.samples
    assert first.text == "Aspirin acid # COX-2" and second.text == f"{SECRET} Aspirin"
    assert entities_of(corpus) == {
        "train-1": [("Aspirin acid", "drug"), ("COX-2", "enzyme")],
        "train-2": [(SECRET, "drug"), ("Aspirin", "drug")],
    }
    assert first.fields == {"document": "letter-7", "ward": "north"} and second.document_id == "2"


def test_documents_of_columns(tmp_path):
    text = "x O\n\n-DOCSTART- O\n\n# id = 9\na O\n\nb O\n\n-DOCSTART- -X- O\nc B-t\n\n# document = mine\nd O\n"
    documents = {s.sample_id: s.document_id for s in read(write(tmp_path / "a.conll", text)).samples}
    assert documents == {
        **{"train-1": "1", "train-9": "document-1", "train-3": "document-1", "train-4": "document-2"},
        "train-5": "mine",
    }


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("B I O I", [(0, 2), (3, 4)]),
        ("B B I E S", [(0, 1), (1, 4), (4, 5)]),
        ("E E I I B", [(0, 1), (1, 2), (2, 4), (4, 5)]),
        ("S I O O O", [(0, 1), (1, 2)]),
    ],
)
def test_tags_without_a_type_and_without_a_beginning(tmp_path, tags, expected):
    """As seqeval reads them."""
    lines = "".join(f"w {tag}\n" for tag in tags.split())
    corpus = read(write(tmp_path / "a.bio", lines))
    assert [(s.start // 2, (s.end + 1) // 2) for s in corpus.samples[0].spans] == expected
    assert corpus.entity_types == ("entity",)
    assert read(tmp_path / "a.bio", entity_types=["Disease"]).samples[0].spans[0].type == "Disease"


@pytest.mark.parametrize("ending", [".pubtator", ".pubtator.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_pubtator(tmp_path, ending, end):
    corpus = read(write(tmp_path / f"ours{ending}", PUBTATOR.replace("\n", end)), split="dev")
    assert entities_of(corpus) == {"dev-7": [("Aspirin", "drug"), ("COX-2", "enzyme")], "dev-8": []}
    assert corpus.samples[0].text == f"😀 Aspirin inhibits COX-2, {SECRET}." and corpus.samples[1].text == "A title."
    assert corpus.samples[0].document_id == "7" and corpus.notes == ("1 mentions differ from the text in case",)


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_brat(tmp_path, gz, end):
    path = brat(tmp_path, ann=ANN.replace("\n", end), gz=gz)
    (tmp_path / "annotation.conf").write_text("[entities]")
    message = refused(read, path)
    assert message == (
        f"{path}: the entity 20:25 overlaps 11:23; keep one of them, or set nested = 'outermost' for the longest"
    )
    for source in (tmp_path, path):
        corpus = read(source, nested="outermost")
        assert entities_of(corpus) == {"train-letter": [("Aspirin", "drug"), ("inhibits\nCOX", "both")]}
        assert corpus.samples[0].text == TEXT and corpus.samples[0].document_id == "letter"
        assert corpus.notes == (
            "1 discontinuous entities left out",
            "1 entities that overlap a longer one left out",
        )
    assert is_named_so(tmp_path) and is_named_so(path)


@pytest.mark.parametrize("form", ["a.jsonl", "a.bio", "a.pubtator", "a.ann"])
def test_texts_without_entities_are_for_prediction(tmp_path, form):
    text = {
        "a.jsonl": json_lines({"id": "1", "text": "Aspirin"}, {"id": "2", "text": "a", "entities": SECRET}),
        "a.bio": "# id = 1\nAspirin\n\nof\nno\ntag\n",
        "a.pubtator": f"1|t|Aspirin\n1|a|\n1\t{SECRET}\n",
        "a.ann": SECRET,
    }[form]
    path = write(tmp_path / form, text)
    if form == "a.ann":
        path = tmp_path
        write(tmp_path / "1.txt", "Aspirin")
        path.joinpath("a.ann").rename(path / "1.ann")
    corpus = read(path, labelled=False, split="given")
    assert (corpus.samples[0].sample_id, corpus.samples[0].text) == ("given-1", "Aspirin")
    assert corpus.entity_types == (UNLABELLED,) and not any(s.spans or s.label for s in corpus.samples)
    assert read(path, labelled=False, entity_types=["drug"]).entity_types == ("drug",)
    assert "; " in refused(read, path)


def test_types(tmp_path):
    path = write(tmp_path / "a.jsonl", json_lines(SECOND, FIRST))
    corpus = read(path, entity_types=["enzyme", "organ", "drug"])
    assert (
        corpus.entity_types == ("enzyme", "organ", "drug") and corpus.label_names[corpus.samples[1].label] == "enzyme"
    )
    message = refused(read, path, entity_types=["enzyme"])
    assert message.startswith(f"{path}: line 2: an entity's type is not in entity_types; use one of enzyme, add it")
    corpus = read(path, entity_types=["enzyme"], other_types="leave_out")
    assert entities_of(corpus)["train-1"] == [("COX-2", "enzyme")]
    assert corpus.notes == ("1 entities of other types left out",)
    path = write(tmp_path / "b.jsonl", json_lines(SECOND))
    assert refused(read, path) == f"{path}: has no entity, so its types are unknown; name entity_types"
    assert read(path, entity_types=("drug",)).entity_types == ("drug",)
    for types in ([], ["a", "a"], "drug"):
        assert "entity_types is not a list of names, or has a duplicate" in refused(read, path, entity_types=types)
    for option in ("unit", "other_types", "nested"):
        assert f"{option} is not a known choice; use one of " in refused(read, path, **{option: "some"})


def test_overlaps_duplicates_and_fields(tmp_path):
    nested = {**SECOND, "entities": [[0, 7, "a"], [0, 12, "a"], [8, 12, "b"], [0, 12, "a"]], "year": 2020}
    path = write(tmp_path / "a.jsonl", json_lines(nested, {**nested, "id": "3", "year": 2021}))
    assert refused(read, path).startswith(f"{path}: line 1: the entity 0:12 overlaps 0:7; ")
    corpus = read(path, nested="outermost")
    assert entities_of(corpus)["train-2"] == [("nothing here", "a")] and corpus.entity_types == ("a",)
    assert corpus.notes == (
        "2 duplicate entities are read once",
        "4 entities that overlap a longer one left out",
        "1 texts repeat an earlier one",
    )
    assert entities_of(read(path, entity_types=["b"], other_types="leave_out"))["train-3"] == [("here", "b")]
    assert set(build_partition(corpus, ByField("year"), seed=0).clients) == {"2020", "2021"}


def test_sentences(tmp_path):
    text = "Aspirin helps. It inhibits E. coli. Not all. And so"
    entities = [[0, 7, "drug"], [27, 34, "organism"], [36, 47, "odd"]]
    path = write(tmp_path / "a.jsonl", json_lines({**FIRST, "text": text, "entities": entities}))
    corpus = read(path, unit="sentence")
    assert [(s.sample_id, s.text) for s in corpus.samples] == [
        ("train-1/1", "Aspirin helps."),
        ("train-1/2", "It inhibits E. coli."),
        ("train-1/3", "Not all. And so"),
    ]
    assert list(entities_of(corpus).values()) == [
        *([("Aspirin", "drug")], [("E. coli", "organism")], [("Not all. An", "odd")])
    ]
    assert {s.document_id for s in corpus.samples} == {"letter-7"} and corpus.samples[2].fields["ward"] == "north"
    text = "7|t|A drug\n7|a|Inhibits. Yes\n7\t2\t15\tdrug Inhibits\tboth\n7\t17\t20\tYes\tok\n"
    corpus = read(write(tmp_path / "a.pubtator", text), unit="sentence")
    assert [s.text for s in corpus.samples] == ["A drug", "Inhibits.", "Yes"]
    assert corpus.notes == ("1 entities that are not within a sentence left out",)


def changed(**values):
    return json_lines(SECOND, {key: value for key, value in (FIRST | values).items() if value is not None})


LENGTH = len(FIRST["text"])
MALFORMED = {
    'a.jsonl: line 2: has no "entities"; ': changed(entities=None),
    'a.jsonl: line 2: "entities" is not a list; ': changed(entities={}),
    "a.jsonl: line 2: entity number 1 is not [start, end, type]; ": changed(entities=[[0, 1]]),
    'a.jsonl: line 2: entity number 2 has no "end"; ': changed(entities=[[0, 1, "a"], {"start": 1, "type": "a"}]),
    "a.jsonl: line 2: an offset of entity number 1 is not a whole number; ": changed(entities=[[True, 1, "a"]]),
    "a.jsonl: line 2: the type of entity number 1 is not a string; ": changed(entities=[[0, 1, None]]),
    "a.jsonl: line 2: an entity's type is not a name on one line; ": changed(entities=[[0, 1, f"{SECRET}\n"]]),
    "a.jsonl: line 2: an entity's type is not a name on one line; name it": changed(entities=[[0, 1, ""]]),
    f"a.jsonl: line 2: entity number 1 is empty or lies beyond the text of {LENGTH} characters; ": changed(
        entities=[[0, LENGTH + 1, "a"]]
    ),
    "a.jsonl: line 2: entity number 1 is empty or lies": changed(entities=[[4, 4, "a"]]),
    "a.jsonl: line 2: entity number 1 is empty": changed(entities=[[-3, 4, "a"]]),
    "a.jsonl: line 2: has an empty text; ": changed(text=" \n", entities=[]),
    "a.jsonl: line 2: text train-2: duplicate id; ": changed(id="2"),
    'a.jsonl: line 2: has no "text"; ': changed(text=None),
    "a.jsonl: line 2: field wards is neither a string nor a number; ": changed(wards=["north"]),
    "a.jsonl: line 1: ends with a carriage return; ": changed().replace("\n", "\r\n"),
    "a.jsonl: line 2: the file ends within this line, without a line feed; ": changed()[:-1],
    "a.jsonl: line 1: the line is not an object; ": f'["{SECRET}"]\n',
    "a.jsonl: has no texts; ": "",
    "a.conll: has no texts; ": "\n\n",
    "a.conll: line 1: has 1 columns; give it 2; write O": f"{SECRET}\n",
    "a.conll: line 2: has 3 columns; give it 2; ": f"a O\n{SECRET} x O\n",
    "a.conll: line 3: its last column is not a tag of BIO or BIOES; ": f"a O\n\nb {SECRET}\n",
    "a.conll: line 1: its last column is not a tag": "a B-\n",
    "a.conll: line 1: its last column is not a tag of": "a L-x\n",
    "a.conll: line 2: has an empty token; ": "a\tO\n\tO\n",
    "a.conll: line 2: the file ends within this line": "a O\nb B-Dis",
    "a.conll: line 1: there is no sentence after these fields; ": "# id = 3\n\na O\n",
    "a.conll: line 2: the sentence has this field twice; ": "# id = 3\n# id = 4\na O\n",
    "a.conll: line 2: -DOCSTART- is within a sentence; ": "a O\n-DOCSTART- O\n",
    "a.conll: line 3: text train-1: duplicate id; ": "a O\n\n# id = 1\na O\n",
    "a.conll: line 2: byte 4: is not UTF-8; ": "a O\n\udcff O\n",
    "a.pubtator: has no documents; ": "\n",
    "a.pubtator: line 1: the document has no title; ": f"{SECRET}\n",
    "a.pubtator: line 1: the document has no abstract; ": f"1|t|{SECRET}\n",
    "a.pubtator: line 3: the mention 0:30 is empty or lies beyond the text": "1|t|a\n1|a|b\n1\t0\t30\ta\tx\t-1\n",
    "a.pubtator: line 3: the mention is not at its offsets; ": f"1|t|a\n1|a|{SECRET}\n1\t2\t4\ta\tx\t-1\n",
    "a.pubtator: line 3: the mention's start is not a whole number": f"1|t|a\n1|a|b\n1\t{SECRET}\t1\ta\tx\t-1\n",
    "a.pubtator: line 3: has 4 columns; ": "1|t|a\n1|a|b\n1\t0\t1\ta\n",
    "a.pubtator: line 3: has 3 columns; ": "1|t|a\n1|a|b\n1\t0\t1\n",
    "a.pubtator: line 3: the document's id changes; ": "1|t|a\n1|a|b\n2\t0\t1\ta\tx\t-1\n",
    "a.pubtator: line 3: the mention has no type; ": "1|t|a\n1|a|b\n1\t0\t1\ta\t \t-1\n",
    "a.pubtator: line 4: document 1: duplicate document; ": "1|t|a\n1|a|b\n\n1|t|a\n1|a|b\n",
    "a.pubtator: line 1: the entity 1:3 overlaps 0:3; ": "1|t|abc\n1|a|b\n1\t1\t3\tbc\tx\t-1\n1\t0\t3\tabc\tx\t-1\n",
    "a.pubtator: line 3: the file ends within this line": "1|t|a\n1|a|b\n1\t0\t1\ta\tx\t-1",
    "a.pubtator: line 1: an entity lies beyond the text; ": "1|t|a\n1|a|\n1\t0\t2\ta \tx\t-1\n",
    "a.ann: line 1: is not an annotation; ": f"{SECRET}\n",
    "a.ann: line 1: is not an annotation; write": "T1\tdrug 0\tx\n",
    "a.ann: line 1: is not an annotation; write T1": f"Nothing {SECRET}\n",
    "a.ann: line 2: duplicate entity; ": "T1\tdrug 2 9\tAspirin\nT1\tdrug 2 9\tAspirin\n",
    "a.ann: line 1: the entity is not at its offsets; repair the offsets, which count code points; a Windows": (
        f"T1\tdrug 2 9\t{SECRET}\n"
    ),
    "a.ann: line 1: the entity 2:99 is empty or lies beyond the text of": "T1\tdrug 2 99\tAspirin\n",
    "a.ann: line 1: the entity 3:3 is empty": "T1\tdrug 3 3\t\n",
    "a.txt: is neither a folder nor .jsonl, .conll, .tsv, .bio, .pubtator, .ann; ": "",
}


@pytest.mark.parametrize("start", MALFORMED)
def test_what_is_malformed_is_refused(tmp_path, start):
    path = tmp_path / start.partition(":")[0]
    if path.name == "a.ann":
        write(tmp_path / "a.txt", TEXT)
    path.write_bytes(MALFORMED[start].encode("utf-8", "surrogateescape"))
    message = refused(read, path)
    assert message.startswith(f"{tmp_path}/{start}") and "; " in message, message


def test_files_of_brat_that_do_not_fit(tmp_path):
    assert "has no .txt file; name the folder" in refused(read, tmp_path)
    path = write(tmp_path / "a.ann", "")
    assert refused(read, path) == f"{tmp_path / 'a.txt'}: no such file; check the path"
    write(tmp_path / "b.txt", SECRET)
    assert refused(read, tmp_path).startswith(f"{path}: has no .txt file next to it; ")
    path.unlink()
    assert refused(read, tmp_path).startswith(f"{tmp_path / 'b.txt'}: has no .ann file next to it; ")
    assert len(read(tmp_path, labelled=False).samples) == 1
    write(tmp_path / "b.ann", "")
    assert "has no entity, so its types are unknown" in refused(read, tmp_path)
    write(tmp_path / "b.txt.gz", SECRET)
    assert "b.txt.gz: is there with and without .gz; " in refused(read, tmp_path)
    (tmp_path / "b.txt.gz").unlink()
    write(tmp_path / "b.txt", "\ufeffAspirin")
    assert "begins with a byte order mark" in refused(read, tmp_path)
    write(tmp_path / "b.txt", " ")
    assert refused(read, tmp_path) == f"{tmp_path / 'b.txt'}: has an empty text; leave it out"


def test_the_examples_of_the_documentation(tmp_path):
    """docs/data.md has each form once, all with the same entities."""
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text("utf-8")
    section = page[page.index("## Texts with entities") :].split("\n## ")[0]
    endings = (".jsonl", ".conll", ".pubtator", ".txt", ".ann")
    for ending, text in zip(endings, re.findall(r"```\w+\n(.*?)```", section, re.DOTALL), strict=True):
        write(tmp_path / f"note-1{ending}", text)
    for ending in (".jsonl", ".conll", ".pubtator", ".ann"):
        corpus = read(tmp_path / f"note-1{ending}")
        assert entities_of(corpus) == {"train-note-1": [("Aspirin", "drug"), ("gastric ulcer", "disease")]}
        assert (corpus.samples[0].fields.get("ward") == "north") == (ending in (".jsonl", ".conll"))
