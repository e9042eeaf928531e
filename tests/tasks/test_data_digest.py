"""A rewritten file of a data set gives its examples another digest, whatever the task; their encoding does not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import bags_for_tests, documents_for_tests, recognition_for_tests
from tests.upper_floors import consultations, text_recipe, tiny, write_json
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.tasks.data_digest import with_data_digest


def texts(folder):
    return text_recipe(write_json(folder / "texts.json", consultations()))


def entities(folder):
    records = [recognition_for_tests.record(number) for number in range(24)]
    return recognition_for_tests.table(recognition_for_tests.write_texts(folder / "texts.jsonl", records))


def documents(folder):
    files = {"path": range(12), "test_path": range(100, 106)}
    task = {
        key: str(documents_for_tests.write_documents(folder / f"{key}.pubtator", numbers))
        for key, numbers in files.items()
    }
    return documents_for_tests.document_table(task=task)


def bags(folder):
    data = bags_for_tests.write_nyt10(folder) / "nyt10"
    return bags_for_tests.bag_table(
        task={"path": str(data / "nyt10_train.txt"), "test_path": str(data / "nyt10_test.txt")}
    )


def digest(table, *overrides, seed=0):
    return ExperimentBuilder().prepare(resolve(table, "r.toml", overrides, seed)).data_digest


@pytest.mark.parametrize(
    ("make", "key", "old", "new"),
    [
        pytest.param(texts, "path", "好了", "好啦", id="a word of texts"),
        pytest.param(entities, "path", '"drug"', '"symptom"', id="types of entities"),
        pytest.param(documents, "path", " drug binds", " drug blows", id="a word of documents"),
        pytest.param(documents, "test_path", "CID\tC105\tD000001", "CID\tC105\tD000002", id="a fact of dev"),
        pytest.param(bags, "path", " then ", " thus ", id="a word of sentences"),
        pytest.param(bags, "test_path", " then ", " thus ", id="a word of test sentences"),
    ],
)
def test_a_rewritten_file(make, key, old, new, tmp_path):
    table = make(tmp_path)
    before, path = digest(table), Path(table["task"][key])
    assert digest(table) == before and len(before) == 64
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    assert digest(table) != before
    path.write_text(text, "utf-8")
    assert digest(table) == before


def test_other_encodings_and_other_seeds_read_the_same_texts(tmp_path):
    table = documents(tmp_path)
    one_client = {**table, "partition": {"name": "iid", "num_clients": 1}}
    assert digest(one_client) == digest(one_client, "task.longest=60")
    assert digest(table, seed=0) == digest(table, seed=1)


def test_made_up_features_have_none():
    assert ExperimentBuilder().prepare(tiny()).data_digest is None


def test_a_sample_that_json_has_no_form_for_is_refused():
    prepared = SimpleNamespace(held_out=None, label_names=("a",), trained_on=lambda: [{1}], samples=lambda split: [])
    with pytest.raises(TypeError, match="a sample holds a set"):
        with_data_digest(prepared)
