import json

import pytest
from bag_files import entity, line, write_bags
from datasets_for_tests import refused

from datasets.bags.loading import load_bags, load_unlabelled_bags
from datasets.bags.selection import without_pairs

DOCUMENT = """1|t|Aspirin and gout.
1|a|Aspirin gives ulcer. Rash with ulcer and aspirin.
1	0	7	Aspirin	Chemical	C1
1	12	16	gout	Disease	D3
1	18	25	Aspirin	Chemical	C1
1	32	37	ulcer	Disease	D1
1	39	43	Rash	Disease	D2
1	49	54	ulcer	Disease	D1
1	59	66	aspirin	Chemical	C1
1	CID	C1	D1

"""
OWN = "cdr/train.pubtator"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    write_bags(tmp_path / "nyt10", line(), split="train")
    write_bags(tmp_path / "nyt10", line(), line("Ann , Bonn", tail=entity("Bonn", 6)), split="val")
    write_bags(tmp_path / "mirgene", line(relation="r"), rel2id={"NA": 0, "r": 1}, name="mirgene", split="test")
    (tmp_path / "cdr").mkdir()
    (tmp_path / OWN).write_text(DOCUMENT)
    return tmp_path


def test_by_name(folder):
    assert load_bags("nyt10", folder).pairs == (("id of Ann", "id of Bonn"),)
    dev = load_bags("nyt10", folder, split="dev")
    assert [s.sentence_id for s in dev.sentences] == ["nyt10-dev-1", "nyt10-dev-2"]
    assert load_bags("mirgene", folder, split="test").name == "mirgene"


def test_cdr_is_aligned_with_its_own_facts(folder):
    corpus = load_bags("cdr_aligned", folder)
    pairs = (("C1", "D3"), ("C1", "D1"), ("C1", "D2"), ("C1", "D1"))
    assert [(s.sentence_id, s.pair, s.relations) for s in corpus.sentences] == [
        (f"cdr_aligned-train-1/{n}", pair, ("CID",) if "D1" in pair else ("NA",)) for n, pair in enumerate(pairs, 1)
    ]
    assert {load_bags("cdr_aligned", folder, na_rate=0.5, seed=s).pairs for s in range(9)} == {
        (pairs[0], pairs[1]),
        (pairs[1], pairs[2]),
    }


def test_bags_whose_relations_are_to_be_predicted(folder):
    path = folder / "given.jsonl"
    bare = [json.dumps({k: v for k, v in line(relation=r).items() if k != "relation"}) for r in ("born in", "x")]
    path.write_text("\n".join([*bare, json.dumps(line("Ann , Bonn", relation=5, tail=entity("Bonn", 6)))]) + "\n")
    for name in ("nyt10", "mirgene"):
        corpus = load_unlabelled_bags(name, path)
        assert [(s.sentence_id, s.relations) for s in corpus.sentences] == [
            (f"{name}-given-1", ("NA",)),
            (f"{name}-given-3", ("NA",)),
        ]
        assert corpus.relation_names == ("NA",) and corpus.pairs == (("id of Ann", "id of Bonn"),)
    labelled = load_bags("cdr_aligned", folder)
    corpus = load_unlabelled_bags("cdr_aligned", folder / OWN)
    assert corpus.pairs == labelled.pairs and {s.relations for s in corpus.sentences} == {("NA",)}
    assert [s.text for s in corpus.sentences] == [s.text for s in labelled.sentences]
    turned = load_unlabelled_bags("cdr_aligned", folder / OWN, head_kind="Disease", tail_kind="Chemical")
    assert {head for head, _ in turned.pairs} == {"D1", "D2", "D3"}
    assert "holds no bags" in refused(load_unlabelled_bags, "pgr", path)
    assert "given.jsonl" in refused(load_unlabelled_bags, "cdr_aligned", path)


def test_documents_and_a_knowledge_base_of_ones_own(folder):
    table = folder / "kb.tsv"
    table.write_text("D1\twith\tD2\nD2\tafter\tD1\nD9\tafter\tD8\n")
    kinds = {"head_kind": "Disease", "tail_kind": "Disease"}
    corpus = load_bags("cdr_aligned", path=folder / OWN, knowledge_base=table, split="own", **kinds)
    assert corpus.relation_names == ("NA", "after", "with")
    assert [(s.sentence_id, s.pair, s.relations) for s in corpus.sentences] == [
        ("cdr_aligned-own-1/1", ("D2", "D1"), ("after",)),
        ("cdr_aligned-own-1/2", ("D1", "D2"), ("with",)),
    ]
    assert "2 of 3 facts have a sentence, 1 have none" in corpus.notes


def test_files_in_place_of_the_catalogues(folder):
    path, relations = write_bags(folder / "own", line(relation="x"), rel2id={"NA": 0, "x": 1}, name="any", split="t")
    assert load_bags("nyt10", path=path, rel2id=relations).relation_names == ("NA", "x")
    assert refused(load_bags, "nyt10", path=path) == f"{folder}/own/nyt10_rel2id.json: no such file; check the path"
    wrong = write_bags(folder / "own", line(tail=entity("Bonn", 3)), line())[0]
    assert len(load_bags("nyt10", path=wrong, misplaced="leave_out").sentences) == 1


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"name": "pgr"}, 'data set pgr: holds no bags of sentences; use it with task.name = "sentence_relations"'),
        ({"name": "nyt10", "na_rate": 0.5}, "data set nyt10: has no use for na_rate; leave na_rate out"),
        ({"name": "cdr_aligned", "rel2id": "x"}, "data set cdr_aligned: has no use for rel2id; leave rel2id out"),
    ],
)
def test_what_cannot_be_loaded(folder, arguments, expected):
    assert refused(load_bags, data_dir=folder, **arguments).startswith(expected.format(d=folder))


@pytest.mark.real_data
def test_cdr(data_dir):
    train, dev = (load_bags("cdr_aligned", data_dir, split=split) for split in ("train", "dev"))
    assert train.describe() == "3780 sentences, 2078 pairs of entities, 667 facts"
    assert dev.describe() == "4044 sentences, 2197 pairs of entities, 669 facts"
    assert train.notes[1] == "667 of 928 facts have a sentence, 261 have none"
    for corpus in (train, dev):
        assert corpus.relation_names == ("NA", "CID") and corpus.notes[0].startswith("500 documents")
    left = without_pairs(dev, train)
    assert not set(left.bags) & set(train.bags) and len(left.pairs) > len(dev.pairs) // 2
