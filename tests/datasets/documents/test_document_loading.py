import gzip

import pytest

from datasets.documents.loading import load_documents
from datasets.errors import DataError

LINES = {
    "cdr": (
        *("1|t|Ab and cd.", "1|a|Ef.", "1\t0\t2\tAb\tChemical\tD000001", "1\t7\t9\tcd\tDisease\tD000002"),
        *("1\t11\t13\tEf\tDisease\tD000003", "1\tCID\tD000001\tD000002"),
    ),
    "chr": (
        *("1|t|Ab and cd.", "1|a|Ef.", "1\t0\t2\tAb\tChemMet\tH:1|C:1", "1\t7\t9\tcd\tChemMet\tC:2"),
        *("1\t11\t13\tEf\tChemMet\tC:3", "1\tReact\tC:1|H:1\tC:2"),
    ),
    "gda": (
        *("1|t|Ab and cd.", "1|a|Ef.", "1\t0\t2\tAb\tGene\t11;12", "1\t7\t9\tcd\tDisease\tD2"),
        *("1\t11\t13\tEf\tDisease\tD3", "1\tGDA\t11\tD2"),
    ),
}


def folder(tmp_path, name, split="train"):
    (tmp_path / name).mkdir(exist_ok=True)
    data = "".join(line + "\n" for line in LINES[name]).encode()
    (tmp_path / name / f"{split}.pubtator.gz").write_bytes(gzip.compress(data))
    return tmp_path


@pytest.mark.parametrize(("name", "pairs"), [("cdr", 2), ("chr", 6), ("gda", 4)])
def test_by_name(tmp_path, name, pairs):
    made = load_documents(name, folder(tmp_path, name))
    counts = made.counts()
    assert (counts["pairs"], counts["positive"], made.name) == (pairs, 1, name)
    assert made.samples[0].sample_id == f"{name}-train-1"
    file = tmp_path / name / "train.pubtator.gz"
    assert load_documents(name, path=file, split="dev").samples[0].sample_id == f"{name}-dev-1"


def test_choices(tmp_path):
    made = load_documents("chr", folder(tmp_path, "chr"), label="once")
    assert [(p.head, p.tail, p.labels) for p in made.samples[0].pairs] == [(0, 1, (0,)), (0, 2, ()), (1, 2, ())]
    folder(tmp_path, "cdr")
    assert "no hypernym filtering: all 1 negative pairs are kept" in load_documents("cdr", tmp_path).notes


def test_what_is_refused(tmp_path):
    folder(tmp_path, "chr")
    for options, reason in (
        ({"name": "ade"}, "data set ade: holds no documents with pairs of entities"),
        ({"name": "chr", "label": "twice"}, "has no such label choice"),
        ({"name": "chr", "split": "test"}, "no such file"),
        ({"name": "chr", "split": "all"}, "has no such split"),
        ({"name": "chr", "mesh_tree": "mesh"}, "has no use for mesh_tree"),
        ({"name": "cdr", "path": tmp_path / "chr" / "train.pubtator.gz"}, "line 3: unknown entity type"),
    ):
        with pytest.raises(DataError, match=reason):
            load_documents(data_dir=tmp_path, **options)
