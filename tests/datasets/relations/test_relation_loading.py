import json

import pytest
from datasets_for_tests import refused, write_gz
from relation_files import mentions_of, write

from datasets.catalogue import DATA_SETS
from datasets.relations import pgr
from datasets.relations.loading import load_relations

CHEMPROT = json.dumps({"text": "<< A >> inhibits [[ B ]].", "label": "INHIBITOR"})
ADE = "A and B: rash, itch"
RELEASE = {
    "abstracts": ["11\tA cuts B.\tC binds B."],
    "entities": [
        "11\tT1\tCHEMICAL\t0\t1\tA",
        "11\tT2\tGENE-Y\t7\t8\tB",
        "11\tT3\tCHEMICAL\t10\t11\tC",
        "11\tT4\tGENE-N\t18\t19\tB",
    ],
    "relations": ["11\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2"],
}
DRUG, RASH, ITCH = 'c="drug" 1:0 1:0', 'c="rash" 1:2 1:2', 'c="itch" 1:4 1:4'
I2B2 = {
    "txt/r.txt": ["Drug for rash and itch ."],
    "concept/r.con": [f'{DRUG}||t="treatment"', f'{RASH}||t="problem"', f'{ITCH}||t="problem"'],
    "rel/r.rel": [f'{DRUG}||r="TrAP"||{RASH}'],
}
LINES = {
    "chemprot": [CHEMPROT],
    "pgr": ["\t".join(pgr.HEADER), "19\tG causes short hands\tG\tshort hands\t1\tHP_1\t0\t1\t9\t20\tTrue"],
    "ade": [
        f"7|{ADE}|rash|9|13|A|0|1",
        f"7|{ADE}|itch|15|19|B|6|7",
        "8|Codeine: dry mouth|dry mouth|9|18|Codeine|0|7",
    ],
    "semeval2010_task8": ['1\t"<e1>fire</e1> after <e2>spark</e2>"', "Cause-Effect(e2,e1)", "Comment:", ""],
    "gad": ["@GENE$ in @DISEASE$\t1"],
    "euadr": ["index\tsentence\tlabel", "0\t@GENE$ in @DISEASE$\t1"],
}

NO = "no_relation"
CPR4, INHIBITOR, CB = ("A", "B", "CPR:4"), ("A", "B", "INHIBITOR"), ("C", "B", NO)
AE = [("A", "rash", "adverse_effect"), ("B", "itch", "adverse_effect"), ("Codeine", "dry mouth", "adverse_effect")]
NO_AE = [("A", "itch", NO), ("B", "rash", NO)]
ASSOCIATED = ("@GENE$", "@DISEASE$", "associated")
TRAP = ("Drug", "rash", "TrAP")

# (data set, label choice): number of classes, the negative one, the samples of the files above
SAMPLES = {
    ("chemprot", "groups"): (5, None, [CPR4]),
    ("chemprot", "names"): (13, None, [INHIBITOR]),
    ("chemprot_release", "groups"): (5, None, [CPR4]),
    ("chemprot_release", "names"): (13, None, [INHIBITOR]),
    ("chemprot_release", "groups_with_negatives"): (6, NO, [CPR4, CB]),
    ("chemprot_release", "names_with_negatives"): (14, NO, [INHIBITOR, CB]),
    ("pgr", "relation"): (2, NO, [("G", "short hands", "true")]),
    ("pgr", "confirmed"): (2, NO, [("G", "short hands", "true")]),
    ("ade", "with_negatives"): (2, NO, [*AE, *NO_AE]),
    ("ade", "positives"): (1, None, AE),
    ("ade", "with_negative_sentences"): (2, NO, [*AE, *NO_AE, ("codeine", "rash", NO), ("codeine", "itch", NO)]),
    ("semeval2010_task8", "directed"): (19, "Other", [("fire", "spark", "Cause-Effect(e2,e1)")]),
    ("semeval2010_task8", "undirected"): (10, "Other", [("fire", "spark", "Cause-Effect")]),
    ("gad", "relation"): (2, NO, [ASSOCIATED]),
    ("euadr", "relation"): (2, NO, [ASSOCIATED]),
    ("i2b2_2010", "positives"): (8, None, [TRAP]),
    ("i2b2_2010", "with_negatives"): (9, NO, [TRAP, ("Drug", "itch", NO), ("rash", "itch", NO)]),
}


def put_split(root, name, split):
    """Writes the small files of a split where the catalogue looks for them."""
    path = root / DATA_SETS[name].files[split]
    if name == "i2b2_2010":
        for file, lines in I2B2.items():
            write(path / file, *lines)
    elif name == "chemprot_release":
        for kind, lines in RELEASE.items():
            write(path.with_name(path.name.replace("relations", kind)), *lines)
    else:
        write(path, *LINES[name])
    if name == "ade":
        write(path.with_name("ADE-NEG.txt"), "9 NEG codeine, no rash, A or itch")


def test_every_label_choice_is_tried_here():
    with_files = {name: data_set for name, data_set in DATA_SETS.items() if data_set.relations and data_set.files}
    assert set(SAMPLES) == {(name, label) for name, data_set in with_files.items() for label in data_set.labels}


@pytest.mark.parametrize("name, label", SAMPLES)
def test_label_choices(tmp_path, name, label):
    put_split(tmp_path, name, "train")
    corpus = load_relations(name, tmp_path, label=label)
    classes, negative, samples = SAMPLES[name, label]
    assert sorted(m[1:] for m in mentions_of(corpus)) == sorted(samples)
    assert (corpus.name, len(corpus.relation_names), corpus.negative) == (name, classes, negative)
    if label == DATA_SETS[name].labels[0]:
        assert load_relations(name, tmp_path) == corpus, "the first choice is the default"
        if name != "i2b2_2010":
            for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
                write_gz(path.with_name(path.name + ".gz"), path.read_bytes())
                path.unlink()
            assert load_relations(name, tmp_path) == corpus


@pytest.mark.parametrize("name", sorted({name for name, _ in SAMPLES}))
def test_splits(tmp_path, name):
    ids = []
    for split in DATA_SETS[name].files:
        put_split(tmp_path, name, split)
        ids_of_split = [m.mention_id for m in load_relations(name, tmp_path, split=split).mentions]
        assert ids_of_split[0].startswith("ade-7/1" if name == "ade" else f"{name}-{split}-")
        ids += ids_of_split
    assert len(set(ids)) == len(ids), "an official split needs ids that differ"


def test_the_message_names_the_split_that_is_there(tmp_path):
    put_split(tmp_path, "i2b2_2010", "train")
    expected = f"{tmp_path}/i2b2_2010/test: no such file (nor with .gz); the split train is there; or put it there"
    assert refused(load_relations, "i2b2_2010", tmp_path, split="test").startswith(expected)
