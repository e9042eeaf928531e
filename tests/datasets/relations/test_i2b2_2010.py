import pytest
from datasets_for_tests import SECRET, refused
from relation_files import mentions_of, write

from datasets.relations import i2b2_2010 as i2b2

TEXT = ("Admission :", "Nystatin powder  was given for a Perianal rash after an Ärm scan .", f"{SECRET} pain")
DRUG, RASH, SCAN, PAIN = (
    'c="nystatin powder" 2:0 2:1',
    'c="a perianal rash" 2:5 2:7',
    'c="ärm scan" 2:10 2:11',
    'c="pain" 3:1 3:1',
)
CONCEPTS = (
    f'{DRUG}||t="treatment"',
    f'{RASH}||t="problem"',
    f'{SCAN}||t="test"',
    f'{PAIN}||t="problem"',
)


def record(folder, relations=(f'{DRUG}||r="TrAP"||{RASH}',), concepts=CONCEPTS, name="record-1"):
    for part, ending, lines in (("txt", "txt", TEXT), ("concept", "con", concepts), ("rel", "rel", relations)):
        write(folder / part / f"{name}.{ending}", *lines)
    return folder


def test_records(tmp_path):
    record(tmp_path)
    over = (*CONCEPTS, 'c="scan . x" 2:11 3:0||t="test"')
    both = (f'{DRUG}||r="TrAP"||{RASH}', f'{DRUG}||r="TrCP"||{RASH}', f'{PAIN}||r="PIP"||{RASH}')
    corpus = i2b2.read(record(tmp_path, both, over, name="record-2"))
    assert mentions_of(corpus) == [
        ("i2b2_2010-train-record-1/1", "Nystatin powder", "a Perianal rash", "TrAP"),
        ("i2b2_2010-train-record-2/1", "Nystatin powder", "a Perianal rash", "TrAP"),
        ("i2b2_2010-train-record-2/2", "Nystatin powder", "a Perianal rash", "TrCP"),
    ]
    assert corpus.mentions[0].text == TEXT[1] and corpus.mentions[0].document_id == "record-1"
    assert (corpus.mentions[0].head_type, corpus.mentions[0].tail_type) == ("treatment", "problem")
    assert corpus.relation_names == tuple(i2b2.RELATIONS) and corpus.negative is None
    assert set(corpus.notes) == {
        "1 concepts over the end of a line left out",
        "1 relations that are not within a line left out",
        "1 pairs have several relations",
    }


def test_negatives(tmp_path):
    two = (*CONCEPTS, 'c="given" 2:3 2:3||t="problem"')
    corpus = i2b2.read(record(tmp_path, concepts=two), label="with_negatives")
    assert [m[1:] for m in mentions_of(corpus)] == [
        ("Nystatin powder", "a Perianal rash", "TrAP"),
        ("Nystatin powder", "given", "no_relation"),
        ("given", "a Perianal rash", "no_relation"),
        ("Ärm scan", "given", "no_relation"),
        ("Ärm scan", "a Perianal rash", "no_relation"),
    ]
    assert corpus.negative == "no_relation" and len(corpus.relation_names) == 9


def test_the_folders_of_the_release(tmp_path):
    training = tmp_path / "concept_assertion_relation_training_data"
    for hospital, name in (("beth", "record-1"), ("partners", "record-2")):
        record(training / hospital, name=name)
    assert [m.document_id for m in i2b2.read(training).mentions] == ["record-1", "record-2"]
    record(training / "partners", name="record-1")
    assert "record record-1: duplicate record" in refused(i2b2.read, training)
    standard = record(tmp_path / "reference_standard_for_test_data", name="0001")
    (standard / "txt").rename(tmp_path / "test_data")
    (standard / "concept").rename(standard / "concepts")
    assert mentions_of(i2b2.read(standard, split="test"))[0][0] == "i2b2_2010-test-0001/1"
    (standard / "rel" / "0001.rel").unlink()
    assert refused(i2b2.read, standard).startswith(f"{standard}/rel/0001.rel: no such file")
    for folder in (standard, tmp_path / "none"):
        (tmp_path / "test_data" / "0001.txt").unlink(missing_ok=True)
        assert "has no .txt file; name the folder of txt, concept and rel" in refused(i2b2.read, folder)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"concepts": (SECRET,)}, "concept/record-1.con: line 1: is not a concept"),
        ({"concepts": (f'{DRUG}||t="drug"',)}, "concept/record-1.con: line 1: unknown type;"),
        ({"concepts": (CONCEPTS[0],) * 2}, "concept/record-1.con: line 2: duplicate concept"),
        (
            {"concepts": ('c="x" 4:0 4:0||t="test"',)},
            "concept/record-1.con: line 1: the place 4:0 lies beyond the text",
        ),
        (
            {"concepts": ('c="x" 0:0 0:0||t="test"',)},
            "concept/record-1.con: line 1: the place 0:0 lies beyond the text",
        ),
        ({"concepts": ('c="x" 3:1 3:0||t="test"',)}, "concept/record-1.con: line 1: a concept ends before it starts"),
        (
            {"concepts": ('c="x" 3:1 3:1||t="test"',)},
            "concept/record-1.con: line 1: the words are not those at the place",
        ),
        ({"relations": (SECRET,)}, "rel/record-1.rel: line 1: is not a relation"),
        ({"relations": (f'{DRUG}||r="TrXP"||{RASH}',)}, "rel/record-1.rel: line 1: unknown relation;"),
        ({"relations": (f'{DRUG}||r="TeRP"||{RASH}',)}, "rel/record-1.rel: line 1: argument 1 is not a test"),
        (
            {"relations": (f'{DRUG}||r="TrAP"||c="was" 2:2 2:2',)},
            "rel/record-1.rel: line 1: argument 2 is not a problem",
        ),
        ({"relations": (f'{DRUG}||r="TrAP"||{RASH}',) * 2}, "rel/record-1.rel: line 2: duplicate relation"),
    ],
)
def test_malformed_records(tmp_path, changes, expected):
    assert refused(i2b2.read, record(tmp_path, **changes)).startswith(f"{tmp_path}/{expected}")
