"""The corpora of the catalogue, from small files."""

import re

import pytest
from datasets_for_tests import SECRET, refused
from entity_files import entities_of, write

from datasets.catalogue import DATA_SETS
from datasets.entities import ade, chemprot, i2b2_2010
from datasets.entities.loading import load_entities

PUBTATOR = f"""7|t|Aspirin E. coli
7|a|A note. {SECRET} of ulcer.
7\t0\t7\tAspirin\tFIRST\tD1|D2
7\t0\t15\tAspirin E. coli\tFIRST\tD3
7\t0\t7\tAspirin\tFIRST\tD4
7\t36\t41\tulcer\tLAST\t-1
7\tCID\tD1\tD3
"""


@pytest.mark.parametrize(
    "name, first, last",
    [
        ("cdr_entities", "Chemical", "Disease"),
        ("chr_entities", "ChemMet", "ChemMet"),
        ("biored_entities", "GeneOrGeneProduct", "CellLine"),
    ],
)
def test_abstracts_in_pubtators_form(tmp_path, name, first, last):
    text = PUBTATOR.replace("FIRST", first).replace("LAST", last)
    path = write(tmp_path / DATA_SETS[name].files["dev"], text + "\n" + re.sub("^7", "8", text, flags=re.MULTILINE))
    corpus = load_entities(name, tmp_path, split="dev")
    assert (corpus.entity_types[0], corpus.entity_types[-1]) == (first, last)
    assert entities_of(corpus) == {
        f"{name}-dev-{number}": [("Aspirin E. coli", first), ("ulcer", last)] for number in (7, 8)
    }
    assert corpus.notes == (
        *("2 duplicate entities are read once", "2 entities that overlap a longer one left out"),
        "1 texts repeat an earlier one",
    )
    assert corpus.samples[0].document_id == "7"
    assert refused(load_entities, name, path=path, nested="refuse").startswith(f"{path}: line 1: the entity 0:15 ")
    sentences = load_entities(name, tmp_path, split="dev", unit="sentence", entity_types=[last])
    assert [s.text for s in sentences.samples[:3]] == ["Aspirin E. coli", "A note.", f"{SECRET} of ulcer."]
    assert entities_of(sentences)[f"{name}-dev-8/3"] == [("ulcer", last)] and sentences.entity_types == (last,)
    message = refused(load_entities, name, path=path, entity_types=["Drugs"])
    assert message.startswith(
        f"{path}: entity_types has a type that the corpus does not have (type Drugs); use some of"
    )
    path = write(path, text.replace(first, SECRET))
    assert refused(load_entities, name, path=path).startswith(f"{path}: line 3: unknown entity type in column 5; ")


def test_biored_has_relations_of_five_columns(tmp_path):
    text = "7|t|TP53\r\n7|a|A note.\r\n7\t0\t4\tTP53\tGeneOrGeneProduct\t7157,1\r\n7\tBind\t7157\tD1\tNovel\r\n\r\n"
    corpus = load_entities("biored_entities", path=write(tmp_path / "dev.pubtator.gz", text))
    assert entities_of(corpus) == {"biored_entities-train-7": [("TP53", "GeneOrGeneProduct")]}
    assert corpus.samples[0].text == "TP53 A note."


ABSTRACTS = f"7\tAspirin binds COX-2\tYes. {SECRET}\n8\tB\tNo genes.\n"
ENTITIES = "7\tT1\tCHEMICAL\t0\t7\tAspirin\n7\tT2\tGENE-Y\t14\t19\tCOX-2\n7\tT3\tGENE-N\t14\t17\tCOX\n"


def test_chemprot(tmp_path):
    write(tmp_path / "chemprot_release/chemprot_training_abstracts.tsv", ABSTRACTS)
    path = write(tmp_path / "chemprot_release/chemprot_training_entities.tsv.gz", ENTITIES)
    corpus = load_entities("chemprot_entities", tmp_path)
    assert entities_of(corpus) == {
        "chemprot_entities-train-7": [("Aspirin", "chemical"), ("COX-2", "gene")],
        "chemprot_entities-train-8": [],
    }
    assert corpus.samples[0].text == f"Aspirin binds COX-2\tYes. {SECRET}"
    assert corpus.entity_types == chemprot.TYPES and corpus.notes == ("1 entities that overlap a longer one left out",)
    sentences = load_entities("chemprot_entities", tmp_path, unit="sentence", entity_types=["gene"])
    assert entities_of(sentences)["chemprot_entities-train-7/1"] == [("COX-2", "gene")] and len(sentences.samples) == 5
    message = refused(chemprot.read, path, nested="refuse")
    assert message.startswith(f"{path}: document 7: the entity 14:19 overlaps 14:17; ")
    assert "is not named as the release names it" in refused(chemprot.read, tmp_path / "some.tsv")
    gold = tmp_path / "chemprot_test_entities_gs.tsv"
    write(gold, ENTITIES)
    assert refused(chemprot.read, gold).startswith(f"{tmp_path / 'chemprot_test_abstracts_gs.tsv'}: no such file")
    write(tmp_path / "chemprot_test_abstracts_gs.tsv", ABSTRACTS)
    assert entities_of(chemprot.read(gold, split="test"))["chemprot_entities-test-8"] == []


def ade_line(sentence, effect, drug, start=100, document=7):
    places = [(start + sentence.index(mention), mention) for mention in (effect, drug)]
    columns = [value for at, mention in places for value in (mention, at, at + len(mention))]
    return f"{document}|{sentence}|{'|'.join(map(str, columns))}\n"


def test_ade(tmp_path):
    sentence = f"Rash and codeine intoxication after codeine or aspirin, {SECRET}"
    lines = [
        ade_line(sentence, "Rash", "aspirin"),
        ade_line(sentence, "codeine intoxication", "codeine"),
        ade_line(sentence, "codeine intoxication", "aspirin"),
        ade_line("Rash by aspirin.", "Rash", "aspirin", document=8),
        ade_line(sentence, "Rash", "aspirin", start=900),
    ]
    path = write(tmp_path / "ade/DRUG-AE.rel", "".join(lines))
    corpus = load_entities("ade_entities", tmp_path)
    drug, effect = ade.TYPES
    assert entities_of(corpus) == {
        "ade_entities-7/1": [("Rash", effect), ("codeine intoxication", effect), ("aspirin", drug)],
        "ade_entities-8/1": [("Rash", effect), ("aspirin", drug)],
    }
    folder = load_entities("ade_entities", path=tmp_path / "ade", split="given")
    assert entities_of(folder) == entities_of(corpus), "a folder stands for the only file of the data set in it"
    assert corpus.samples[1].document_id == "8" and corpus.entity_types == ("drug", "adverse effect")
    assert "1 entities that overlap a longer one left out" in corpus.notes
    message = refused(ade.read, path, nested="refuse")
    assert message.startswith(f"{path}: sentence ade_entities-7/1: the entity 9:29 overlaps 9:16; ")
    assert refused(ade.read, path, negative_sentences=True).startswith(f"{tmp_path / 'ade/ADE-NEG.txt'}: no such file")
    write(tmp_path / "ade/ADE-NEG.txt", "8 NEG Rash by aspirin.\n8 NEG Aspirin helped.\n8 NEG Aspirin helped.\n")
    corpus = load_entities("ade_entities", tmp_path, negative_sentences=True)
    assert len(corpus.samples) == 3 and entities_of(corpus)["ade_entities-8/2"] == []
    assert "DRUG-AE.rel" in refused(ade.read, write(tmp_path / "DRUG-DOSE.rel", lines[0]))
    assert refused(ade.read, write(tmp_path / "a.rel", f"7|{SECRET}\n")).startswith(
        f"{tmp_path}/a.rel: line 1: has 2 col"
    )


def test_ncbi_disease(tmp_path):
    write(tmp_path / "ncbi_disease/dev.tsv", "The\tO\ncoli\tB\ntumour\tI\n\nAPC\tI\n")
    corpus = load_entities("ncbi_disease", tmp_path, split="dev")
    assert entities_of(corpus) == {
        "ncbi_disease-dev-1": [("coli tumour", "Disease")],
        "ncbi_disease-dev-2": [("APC", "Disease")],
    }
    assert corpus.samples[0].text == "The coli tumour" and "its own document" in corpus.notes[0]
    message = refused(load_entities, "ncbi_disease", tmp_path, split="dev", entity_types=["Gene"])
    assert message.endswith("(type Gene); use some of Disease")


RECORD = f"Admission :\n\nNystatin powder  for a Perianal rash after scan .\n{SECRET} pain\n"
CONCEPTS = (
    'c="nystatin powder" 3:0 3:1||t="treatment"\nc="a perianal rash" 3:3 3:5||t="problem"\n'
    'c="scan" 3:7 3:7||t="test"\nc="pain" 4:1 4:1||t="problem"\nc="scan . x" 3:7 4:0||t="test"\n'
).replace("x", SECRET)


def test_i2b2_2010(tmp_path):
    training = tmp_path / "i2b2_2010/train"
    for hospital, name in (("beth", "record-1"), ("partners", "record-2")):
        write(training / hospital / "txt" / f"{name}.txt", RECORD)
        write(training / hospital / "concept" / f"{name}.con", CONCEPTS)
    corpus = load_entities("i2b2_2010_entities", tmp_path)
    assert len(corpus.samples) == 6 and corpus.entity_types == ("problem", "treatment", "test")
    first = [("Nystatin powder", "treatment"), ("a Perianal rash", "problem"), ("scan", "test")]
    assert list(entities_of(corpus).items())[:3] == [
        ("i2b2_2010_entities-train-record-1/1", []),
        ("i2b2_2010_entities-train-record-1/3", first),
        ("i2b2_2010_entities-train-record-1/4", [("pain", "problem")]),
    ]
    assert corpus.samples[3].document_id == "record-2"
    assert corpus.notes == ("2 concepts over the end of a line left out", "3 texts repeat an earlier one")
    only = i2b2_2010.read(training / "beth", entity_types=["test"])
    assert entities_of(only)["i2b2_2010_entities-train-record-1/3"] == [("scan", "test")]
    assert only.notes[-1] == "3 entities of other types left out"
    concepts = write(training / "beth/concept/record-1.con", f'c="{SECRET}" 4:1 4:1||t="problem"\n')
    assert refused(i2b2_2010.read, training) == (
        f"{concepts}: line 1: the words are not those at the place; repair the words or the place"
    )
    write(training / "beth/txt/record-2.txt", RECORD)
    write(concepts, "")
    write(concepts.with_name("record-2.con"), "")
    assert "record record-2: duplicate record; " in refused(i2b2_2010.read, training)
    assert "has no .txt file" in refused(i2b2_2010.read, tmp_path)


def test_an_option_that_a_reader_does_not_take(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tB\n")
    message = refused(load_entities, "ncbi_disease", path=path, unit="sentence")
    assert message == "data set ncbi_disease: has no use for unit; leave unit out"
