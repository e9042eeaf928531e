import sys

import numpy as np
import pytest
from datasets_for_tests import dialogue, refused, sentence, write_gz, write_json

import datasets.relations
from datasets.catalogue import DATA_SETS, KINDS, files_there, split_file
from datasets.dialogues.imcs_v2 import DIALOGUE_ACTS, read_dialogues
from datasets.dialogues.loading import load_corpus, symptom_vocabulary
from datasets.encoded_clients import encode_partition, training_texts
from datasets.partition import ByField, build_partition
from datasets.relations.loading import load_relations
from datasets.text import CharacterEncoding

DIAGNOSES = 10


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    (tmp_path / "imcs_v2").mkdir()
    write_json(tmp_path / "imcs_v2" / "IMCS-V2_train.json", {"1": dialogue(sentence(dialogue_act="Other"))})
    dev = write_json(tmp_path / "dev", {"2": dialogue()}).read_bytes()
    write_gz(tmp_path / "imcs_v2" / "IMCS-V2_dev.json.gz", dev)
    return tmp_path


def test_files_are_found_in_the_data_folder(folder, monkeypatch):
    assert load_corpus("imcs_v2", folder).samples[0].sample_id == "1/1"
    monkeypatch.setenv("TFF_RE_DATA", str(folder))
    assert load_corpus("imcs_v2", split="dev").samples[0].sample_id == "2/1"
    assert load_corpus("imcs_v2", label="dialogue_act").label_names == DIALOGUE_ACTS
    there = files_there("imcs_v2")
    assert [file for file, is_there in there.items() if is_there] == [
        "imcs_v2/IMCS-V2_train.json",
        "imcs_v2/IMCS-V2_dev.json",
    ]
    assert not any(files_there("mie").values()) and not files_there("i2b2_2010")["i2b2_2010/train"]
    (folder / "i2b2_2010" / "train").mkdir(parents=True)
    assert files_there("i2b2_2010") == {"i2b2_2010/train": True, "i2b2_2010/test": False}
    path = folder / "imcs_v2" / "IMCS-V2_dev.json.gz"
    assert load_corpus("mie", path=path).name == "mie", "a path stands in for the catalogue"
    monkeypatch.delenv("TFF_RE_DATA")
    assert refused(load_corpus, "mie", split="dev") == (
        "data set mie: needs the file mie/dev.imcs_v2.json in a data folder, and none is given; "
        "name the folder by --data DIR or the environment variable TFF_RE_DATA"
    )
    assert symptom_vocabulary("dxy") == ()
    assert "needs the file mie/symptom_norm.csv" in refused(symptom_vocabulary, "mie")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"name": "imcs"}, "data set imcs: there is no such data set; did you mean 'imcs_v2'?"),
        ({"name": "synthetic"}, 'data set synthetic: holds no texts with a label; use it with task.name = "synthetic"'),
        ({"name": "imcs_v2", "split": "valid"}, "data set imcs_v2: has no such split (split valid); use one of train,"),
        ({"name": "mie", "label": "mood"}, "data set mie: has no such label choice (label mood); use one of symptom"),
        ({"name": "mie", "label": "宝宝 昨晚"}, "data set mie: has no such label choice (label); use one of symptom"),
        ({"name": "imcs_v2", "split": "test"}, "{d}/imcs_v2/IMCS-V2_test.json: no such file (nor with .gz); the split"),
        ({"name": "nyt10"}, 'data set nyt10: holds no texts with a label; use it with task.name = "bag_relations"'),
        ({"name": "dxy"}, "{d}/dxy/train.jsonl: no such file (nor with .gz); put it there (copied in lemuria-wchen"),
    ],
)
def test_what_cannot_be_loaded(folder, arguments, expected):
    assert refused(load_corpus, data_dir=folder, **arguments).startswith(expected.format(d=folder))


def test_the_entries():
    for name, data_set in DATA_SETS.items():
        assert data_set.task and data_set.licence and data_set.citation and data_set.available_from
        assert bool(data_set.labels) == (name != "synthetic")
        without = ("synthetic", "relations", "entities", "documents")
        assert bool(data_set.files) == (name not in without), "made up, or files of your own"
        assert not data_set.files or next(iter(data_set.files)) == "train", "the default split"
    # An aligned corpus is made from the files of another data set, and so are texts with entities.
    of_their_own = [s for name, s in DATA_SETS.items() if name != "cdr_aligned" and s.kind != "entities"]
    files = [file for data_set in of_their_own for file in data_set.files.values()]
    assert len(set(files)) == len(files) and not any(file.startswith("/") or ".." in file for file in files)
    assert {kind: [name for name, data_set in DATA_SETS.items() if data_set.kind == kind] for kind in KINDS} == {
        "texts": ["dxy", "imcs_v2", "mie", "mie_windows", "shipped"],
        "relations": [
            *("ade", "chemprot", "chemprot_release", "euadr", "gad", "i2b2_2010", "pgr", "relations"),
            "semeval2010_task8",
        ],
        "bags": ["cdr_aligned", "mirgene", "nyt10"],
        "documents": ["biored", "cdr", "chr", "docred", "documents", "gda"],
        "entities": [
            *("ade_entities", "biored_entities", "cdr_entities", "chemprot_entities", "chr_entities", "entities"),
            *("i2b2_2010_entities", "imcs_v2_entities", "imcs_v2_sentences", "ncbi_disease", "shipped_entities"),
        ],
        "vectors": ["synthetic"],
    }


NEW_FILE = """
import json
from datasets.catalogue import data_set
from datasets.relations.records import RelationCorpus, RelationMention


@data_set(
    "toy", title="Toy", kind="relations", task="letters", labels=("all",), files={"train": "t"},
    licence="none", citation="none", available_from="this test",
)
def read(path, *, name, label, split):
    mentions = [RelationMention(f"{name}-{split}-{i}", "d", text, (0, 1), (2, 3), "a", "b", label, 0)
                for i, text in enumerate(path.read_text().split(","))]
    return RelationCorpus(name, tuple(mentions), (label,))
"""


def test_a_data_set_is_one_file(folder, monkeypatch):
    (folder / "toy_of_a_test.py").write_text(NEW_FILE)
    (folder / "t").write_text("A B,C D")
    monkeypatch.setattr(datasets.relations, "__path__", [*datasets.relations.__path__, str(folder)])
    try:
        assert DATA_SETS["toy"].title == "Toy" and "toy" in list(DATA_SETS)
        corpus = load_relations("toy", folder)
        assert [(m.mention_id, m.relation) for m in corpus.mentions] == [("toy-train-0", "all"), ("toy-train-1", "all")]
        (folder / "toy_again.py").write_text(NEW_FILE)
        with pytest.raises(ValueError, match=r"data set 'toy' is registered by .*toy_of_a_test and .*toy_again"):
            list(DATA_SETS)
    finally:
        DATA_SETS.remove("toy")
        for name in ("toy_of_a_test", "toy_again"):
            sys.modules.pop(f"datasets.relations.{name}", None)


def test_the_shipped_corpus_is_what_its_readme_says():
    texts, vocabulary = [], set(symptom_vocabulary("shipped"))
    for split, count, sentences, with_symptom in (("train", 40, 279, 110), ("dev", 10, 66, 30)):
        dialogues = read_dialogues(split_file("shipped", split))
        assert len(dialogues) == count and len({d.diagnosis for d in dialogues}) == DIAGNOSES
        for d in dialogues:
            assert 5 <= len(d.utterances) <= 9 and d.self_report
            for u in d.utterances:
                assert u.dialogue_act is not None and set(u.symptom_norm) <= vocabulary
                texts.append(u.text)
        labels = [s.label for s in load_corpus("shipped", split=split).samples]
        assert (len(labels), sum(labels)) == (sentences, with_symptom)
        acts = {s.label for s in load_corpus("shipped", split=split, label="dialogue_act").samples}
        assert len(acts) >= 15
    assert len(set(texts)) == len(texts) == 345 and len(vocabulary) == 83


def test_from_the_shipped_corpus_to_the_clients_arrays():
    train, dev = (load_corpus("shipped", split=split) for split in ("train", "dev"))
    partition = build_partition(train, ByField(field="diagnosis"), dev_corpus=dev)
    texts = training_texts(partition, train, dev)
    assert len(texts) == DIAGNOSES and sum(map(len, texts.values())) == 279
    encoding = CharacterEncoding.build(texts, max_length=30)
    federated = encode_partition((train, dev), partition, encoding)
    assert (federated.size("train"), federated.size("test")) == (279, 66)
    sample_of = {s.sample_id: s for s in train.samples + dev.samples}
    for client in federated.clients:
        for split in ("train", "test"):
            samples = [sample_of[i] for i in getattr(partition.clients[client.client_id], split)]
            arrays = getattr(client, split)
            np.testing.assert_array_equal(arrays["tokens"], encoding.encode([s.text for s in samples]), strict=True)
            assert arrays["y"].tolist() == [s.label for s in samples] and arrays["y"].dtype == np.int32
    assert "is not in the corpus" in refused(encode_partition, train, partition, encoding)
