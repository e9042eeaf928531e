import pytest
from datasets_for_tests import SECRET, refused
from relation_files import shown, write

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
    folders = [folder / part for part in ("txt", "concept", "rel")]
    for part in folders:
        part.mkdir(exist_ok=True)
    write(folders[0] / f"{name}.txt", *TEXT)
    write(folders[1] / f"{name}.con", *concepts)
    write(folders[2] / f"{name}.rel", *relations)
    return i2b2.find_records(*folders)


def test_records(tmp_path):
    record(tmp_path)
    both = (f'{DRUG}||r="TrAP"||{RASH}', f'{DRUG}||r="TrCP"||{RASH}', f'{PAIN}||r="PIP"||{RASH}')
    corpus = i2b2.read_records(record(tmp_path, both, name="record-2"))
    assert shown(corpus) == [
        ("i2b2_2010-train-record-1/1", "Nystatin powder", "a Perianal rash", "TrAP"),
        ("i2b2_2010-train-record-2/1", "Nystatin powder", "a Perianal rash", "TrAP"),
        ("i2b2_2010-train-record-2/2", "Nystatin powder", "a Perianal rash", "TrCP"),
    ]
    assert corpus.mentions[0].text == TEXT[1] and corpus.mentions[0].document_id == "record-1"
    assert (corpus.mentions[0].head_type, corpus.mentions[0].tail_type) == ("treatment", "problem")
    assert corpus.relation_names == tuple(i2b2.RELATIONS) and corpus.negative is None
    assert set(corpus.notes) == {"1 relations that are not within a line left out", "1 pairs have several relations"}


def test_negatives(tmp_path):
    two = (*CONCEPTS, 'c="given" 2:3 2:3||t="problem"')
    corpus = i2b2.read_records(record(tmp_path, concepts=two), negatives=True)
    assert [m[1:] for m in shown(corpus)] == [
        ("Nystatin powder", "a Perianal rash", "TrAP"),
        ("Nystatin powder", "given", "no_relation"),
        ("given", "a Perianal rash", "no_relation"),
        ("Ärm scan", "given", "no_relation"),
        ("Ärm scan", "a Perianal rash", "no_relation"),
    ]
    assert corpus.negative == "no_relation" and len(corpus.relation_names) == 9


def test_a_concept_over_two_lines_is_left_out(tmp_path):
    over = (*CONCEPTS, 'c="scan . x" 2:11 3:0||t="test"')
    assert i2b2.read_records(record(tmp_path, concepts=over)).notes == ("1 concepts over the end of a line left out",)


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
        (
            {"concepts": ('c="x" 3:1 3:2||t="test"',)},
            "concept/record-1.con: line 1: the place 3:2 lies beyond the text",
        ),
        ({"concepts": ('c="x" 3:1 3:0||t="test"',)}, "concept/record-1.con: line 1: a concept ends before it starts"),
        (
            {"concepts": ('c="x" 3:1 3:1||t="test"',)},
            "concept/record-1.con: line 1: the words are not those at the place",
        ),
        ({"relations": (SECRET,)}, "rel/record-1.rel: line 1: is not a relation"),
        ({"relations": (f'{DRUG}||r="TrXP"||{RASH}',)}, "rel/record-1.rel: line 1: unknown relation;"),
        ({"relations": (f'{DRUG}||r="TeRP"||{RASH}',)}, "rel/record-1.rel: line 1: argument 1 is no test"),
        ({"relations": (f'{DRUG}||r="TrAP"||c="was" 2:2 2:2',)}, "rel/record-1.rel: line 1: argument 2 is no problem"),
        ({"relations": (f'{DRUG}||r="TrAP"||{RASH}',) * 2}, "rel/record-1.rel: line 2: duplicate relation"),
        ({"relations": ()}, "txt/record-1.txt: gives no pair of mentions"),
    ],
)
def test_malformed_records(tmp_path, changes, expected):
    assert refused(i2b2.read_records, record(tmp_path, **changes)).startswith(f"{tmp_path}/{expected}")


def test_missing_files(tmp_path):
    files = record(tmp_path)
    assert "duplicate record" in refused(i2b2.read_records, files * 2)
    files[0].relations.unlink()
    folders = [tmp_path / part for part in ("txt", "concept", "rel")]
    assert refused(i2b2.find_records, *folders).startswith(f"{tmp_path}/rel/record-1.rel: no such file")
    assert "has no .txt file" in refused(i2b2.find_records, tmp_path, *folders[1:])
    assert "cannot be read" in refused(i2b2.find_records, tmp_path / "none", *folders[1:])
    assert "gives no pair" in refused(i2b2.read_records, ())
