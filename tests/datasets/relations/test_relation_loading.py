import gzip
import json
from collections import Counter

import pytest
from datasets_for_tests import SECRET, refused
from relation_files import shown, write

from datasets.catalogue import DATA_SETS, files_there
from datasets.dialogues.loading import load_corpus
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
RELATION_DATA_SETS = [name for name, data_set in DATA_SETS.items() if data_set.relations]

ADE_PAIRS = [
    ("A", "rash", "adverse_effect"),
    ("A", "itch", "no_relation"),
    ("B", "rash", "no_relation"),
    ("B", "itch", "adverse_effect"),
    ("Codeine", "dry mouth", "adverse_effect"),
]

# (data set, label choice): number of classes, the negative one, the samples of the files above
SAMPLES = {
    ("chemprot", "groups"): (5, None, [("A", "B", "CPR:4")]),
    ("chemprot", "names"): (13, None, [("A", "B", "INHIBITOR")]),
    ("chemprot_release", "groups"): (5, None, [("A", "B", "CPR:4")]),
    ("chemprot_release", "names"): (13, None, [("A", "B", "INHIBITOR")]),
    ("chemprot_release", "groups_with_negatives"): (
        6,
        "no_relation",
        [("A", "B", "CPR:4"), ("C", "B", "no_relation")],
    ),
    ("chemprot_release", "names_with_negatives"): (
        14,
        "no_relation",
        [("A", "B", "INHIBITOR"), ("C", "B", "no_relation")],
    ),
    ("pgr", "relation"): (2, "no_relation", [("G", "short hands", "true")]),
    ("pgr", "confirmed"): (2, "no_relation", [("G", "short hands", "true")]),
    ("ade", "with_negatives"): (2, "no_relation", ADE_PAIRS),
    ("ade", "positives"): (
        1,
        None,
        [
            ("A", "rash", "adverse_effect"),
            ("B", "itch", "adverse_effect"),
            ("Codeine", "dry mouth", "adverse_effect"),
        ],
    ),
    ("ade", "with_negative_sentences"): (
        2,
        "no_relation",
        [
            *ADE_PAIRS,
            ("codeine", "rash", "no_relation"),
            ("codeine", "itch", "no_relation"),
        ],
    ),
    ("semeval2010_task8", "directed"): (19, "Other", [("fire", "spark", "Cause-Effect(e2,e1)")]),
    ("semeval2010_task8", "undirected"): (10, "Other", [("fire", "spark", "Cause-Effect")]),
    ("gad", "relation"): (2, "no_relation", [("@GENE$", "@DISEASE$", "associated")]),
    ("euadr", "relation"): (2, "no_relation", [("@GENE$", "@DISEASE$", "associated")]),
    ("i2b2_2010", "positives"): (8, None, [("Drug", "rash", "TrAP")]),
    ("i2b2_2010", "with_negatives"): (
        9,
        "no_relation",
        [("Drug", "rash", "TrAP"), ("Drug", "itch", "no_relation"), ("rash", "itch", "no_relation")],
    ),
}


def put(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, *lines)


def put_split(root, name, split):
    """Writes the small files of a split where the catalogue looks for them; the path that it names."""
    path = root / DATA_SETS[name].files[split]
    if name == "i2b2_2010":
        for file, lines in I2B2.items():
            put(path / file, lines)
    elif name == "chemprot_release":
        for kind, lines in RELEASE.items():
            put(path.with_name(path.name.replace("relations", kind)), lines)
    else:
        put(path, LINES[name])
    if name == "ade":
        put(path.with_name("ADE-NEG.txt"), ["9 NEG codeine, no rash, A or itch"])
    return path


def pack(folder):
    """Compresses every file of a folder."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    return tmp_path


def test_every_label_choice_is_tried_here():
    assert set(SAMPLES) == {(name, label) for name in RELATION_DATA_SETS for label in DATA_SETS[name].labels}


@pytest.mark.parametrize("name, label", SAMPLES)
def test_label_choices(folder, name, label):
    put_split(folder, name, "train")
    corpus = load_relations(name, folder, label=label)
    classes, negative, samples = SAMPLES[name, label]
    assert sorted(m[1:] for m in shown(corpus)) == sorted(samples)
    assert (corpus.name, len(corpus.relation_names), corpus.negative) == (name, classes, negative)
    assert all(corpus.relation_names[m.label] == m.relation for m in corpus.mentions)
    if label == DATA_SETS[name].labels[0]:
        assert load_relations(name, folder) == corpus, "the first choice is the default"


@pytest.mark.parametrize("name", RELATION_DATA_SETS)
def test_splits(folder, monkeypatch, name):
    monkeypatch.setenv("TFF_RE_DATA", str(folder))
    ids = []
    for split in DATA_SETS[name].files:
        assert not files_there(name)[DATA_SETS[name].files[split]]
        put_split(folder, name, split)
        assert files_there(name)[DATA_SETS[name].files[split]]
        found = [m.mention_id for m in load_relations(name, split=split).mentions]
        assert found[0].startswith("ade-7/1" if name == "ade" else f"{name}-{split}-")
        ids += found
    assert len(set(ids)) == len(ids), "an official split needs ids that differ"


@pytest.mark.parametrize("name", [name for name in RELATION_DATA_SETS if name != "i2b2_2010"])
def test_compressed_files(folder, name):
    put_split(folder, name, "train")
    plain = load_relations(name, folder)
    pack(folder)
    assert load_relations(name, folder) == plain
    assert files_there(name, folder)[DATA_SETS[name].files["train"]]


@pytest.mark.parametrize("name", ["chemprot", "pgr", "ade", "semeval2010_task8", "gad", "euadr"])
def test_a_path_stands_in_for_the_catalogue(folder, name):
    corpus = load_relations(name, path=put(folder / "mine", LINES[name]))
    assert [m[1:] for m in shown(corpus)] == SAMPLES[name, DATA_SETS[name].labels[0]][2]
    assert load_relations(name, folder / "none", path=str(folder / "mine")) == corpus


def test_the_path_of_i2b2_is_a_folder(folder):
    path = put_split(folder, "i2b2_2010", "train").rename(folder / "mine")
    assert shown(load_relations("i2b2_2010", path=path, split="test")) == [
        ("i2b2_2010-test-r/1", "Drug", "rash", "TrAP")
    ]
    (path / "concept" / "r.con").unlink()
    assert refused(load_relations, "i2b2_2010", path=path).startswith(f"{path}/concept/r.con: no such file")
    assert f"{folder}/none/txt: cannot be read" in refused(load_relations, "i2b2_2010", path=folder / "none")


def release(folder, *names):
    """The release's files under these names: of abstracts, of entities, of relations."""
    for name, lines in zip(names, RELEASE.values(), strict=True):
        path = put(folder / name, lines)
    return path


def test_the_release_under_its_names(folder):
    gold = put(folder / "c_training_gold_standard.tsv", ["11\tCPR:4\tArg1:T1\tArg2:T2"])
    training = release(folder, "c_training_abstracts.tsv", "c_training_entities.tsv", "c_training_relations.tsv")
    corpus = load_relations("chemprot_release", path=training)
    assert load_relations("chemprot_release", path=gold) == corpus
    assert "has the group and no relation" in refused(load_relations, "chemprot_release", path=gold, label="names")
    # In the test split the tables end in _gs, the gold standard does not.
    test = release(folder, "c_test_abstracts_gs.tsv", "c_test_entities_gs.tsv", "c_test_relations_gs.tsv")
    assert load_relations("chemprot_release", path=test) == corpus
    assert load_relations("chemprot_release", path=gold.rename(folder / "c_test_gold_standard.tsv")) == corpus


def test_the_releases_files_may_be_compressed_each_by_itself(folder):
    path = release(folder, "c_abstracts.tsv", "c_entities.tsv", "c_relations.tsv")
    corpus = load_relations("chemprot_release", path=path)
    pack(folder)
    packed = path.with_name(path.name + ".gz")
    assert load_relations("chemprot_release", path=packed) == corpus
    put(folder / "c_entities.tsv", RELEASE["entities"])
    put(path, RELEASE["relations"])
    assert load_relations("chemprot_release", path=path) == load_relations("chemprot_release", path=packed) == corpus


@pytest.mark.parametrize("name", ["pairs.tsv", "relations.tsv", "c_relations.txt", "c_relations_old.tsv"])
def test_a_file_of_relations_under_another_name(folder, name):
    release(folder, "c_abstracts.tsv", "c_entities.tsv", "c_relations.tsv")
    path = put(folder / name, RELEASE["relations"])
    assert refused(load_relations, "chemprot_release", path=path).startswith(
        f"{path}: is not named as the release names it; use *_relations.tsv, *_relations_gs.tsv or *_gold_standard.tsv"
    )


@pytest.mark.parametrize("kind", ["abstracts", "entities"])
def test_a_file_of_the_release_is_missing(folder, kind):
    path = put_split(folder, "chemprot_release", "test")
    missing = path.with_name(path.name.replace("relations", kind))
    missing.unlink()
    assert refused(load_relations, "chemprot_release", folder, split="test") == (
        f"{missing}: no such file; check the path"
    )


@pytest.mark.parametrize("name", RELATION_DATA_SETS)
def test_a_missing_file_is_named(folder, name):
    for split, file in DATA_SETS[name].files.items():
        expected = (
            f"{folder}/{file}: no such file (nor with .gz); put it there ({DATA_SETS[name].available_from}), or name"
        )
        assert refused(load_relations, name, folder, split=split).startswith(expected)
        expected = f"data set {name}: needs the file {file} in a data folder, and none is given; name the folder by --d"
        assert refused(load_relations, name, split=split).startswith(expected)


def test_the_message_names_the_split_that_is_there(folder):
    put_split(folder, "i2b2_2010", "train")
    expected = f"{folder}/i2b2_2010/test: no such file (nor with .gz); the split train is there; or put it there"
    assert refused(load_relations, "i2b2_2010", folder, split="test").startswith(expected)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"name": "chemprott"}, "data set chemprott: there is no such data set; did you mean 'chemprot'?"),
        ({"name": "ade", "split": "dev"}, "data set ade: has no such split (split dev); use one of train"),
        ({"name": "pgr", "split": SECRET}, "data set pgr: has no such split (split); use one of train, test"),
        (
            {"name": "chemprot", "label": "groups_with_negatives"},
            "data set chemprot: has no such label choice (label groups_with_negatives); use one of groups, names",
        ),
        ({"name": "i2b2_2010", "label": ""}, "data set i2b2_2010: has no such label choice (label); use one of posit"),
        (
            {"name": "mie"},
            'data set mie: holds no pairs of mentions; use it with task.name = "symptom_classification"',
        ),
        (
            {"name": "synthetic", "path": "x"},
            "data set synthetic: holds no pairs of mentions; use it with task.name = ",
        ),
    ],
)
def test_what_cannot_be_loaded(folder, arguments, expected):
    assert refused(load_relations, data_dir=folder, **arguments).startswith(expected)


@pytest.mark.parametrize("name", RELATION_DATA_SETS)
def test_a_relation_data_set_is_no_text_corpus(folder, name):
    put_split(folder, name, "train")
    assert refused(load_corpus, name, folder) == (
        f'data set {name}: holds no texts with a label; use it with task.name = "sentence_relations"'
    )


def test_a_malformed_file_is_named(folder):
    path = put(folder / "chemprot" / "train.jsonl", [CHEMPROT, json.dumps({"text": SECRET, "label": "INHIBITOR"})])
    assert refused(load_relations, "chemprot", folder).startswith(f"{path}: line 2: the mark << >> opens 0 times")
    path.unlink()
    path.mkdir()
    assert refused(load_relations, "chemprot", folder).startswith(f"{path}: cannot be read (Is a directory)")


@pytest.mark.real_data
@pytest.mark.parametrize(
    "name, split, size, documents, commonest",
    [
        ("chemprot", "train", 4169, None, ("CPR:4", 2260)),
        ("chemprot", "dev", 2427, None, ("CPR:4", 1103)),
        ("pgr", "train", 4081, None, ("no_relation", 2638)),
        ("ade", "train", 5688, None, ("adverse_effect", 5547)),
        ("semeval2010_task8", "train", 8000, 8000, ("Other", 1410)),
    ],
)
def test_counts_of_the_published_corpora(data_dir, name, split, size, documents, commonest):
    corpus = load_relations(name, data_dir, split=split)
    assert len(corpus.mentions) == size
    assert Counter(m.relation for m in corpus.mentions).most_common(1) == [commonest]
    assert documents in (None, len({m.document_id for m in corpus.mentions}))
