"""Keys of [task] that the choice of another key leaves unread are refused, files that are not there included."""

from __future__ import annotations

import pytest

from tests.upper_floors import consultations, sentence, text_recipe, write_json
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.tasks.data_paths import DataPaths

MISSING = "/no/such/file"

BAGS = {"name": "bag_relations", "encoding": "words"}
DOCUMENTS = {"name": "document_relations", "tokenizer": "x"}
ENTITIES = {"name": "entity_recognition"}
TAGGED_PIECES = {**ENTITIES, "encoding": "pieces", "tokenizer": "x"}
SENTENCES = {"name": "sentence_relations", "encoding": "words"}
SYMPTOMS = {"name": "symptom_classification", "dataset": "shipped"}
PIECES = {**SYMPTOMS, "encoding": "pieces", "tokenizer": "x"}
OWN_VOCABULARY = "encoding = 'words' or 'characters'"


@pytest.mark.parametrize(
    ("task", "key", "value", "needs"),
    [
        (SYMPTOMS, "vectors_path", MISSING, "vectors = 'file'"),
        ({**SYMPTOMS, "encoding": "characters"}, "symptoms", MISSING, "encoding = 'words'"),
        (SYMPTOMS, "vectors_corpus", MISSING, "vectors = 'trained'"),
        (SYMPTOMS, "vectors_epochs", 3, "vectors = 'trained'"),
        (SYMPTOMS, "vectors_width", 3, "vectors = 'file' or 'trained'"),
        (SYMPTOMS, "dev_path", MISSING, "test = 'official'"),
        (SYMPTOMS, "tokenizer", MISSING, "encoding = 'pieces'"),
        (PIECES, "symptoms", MISSING, "encoding = 'words'"),
        (PIECES, "min_count", 2, OWN_VOCABULARY),
        (PIECES, "min_clients", 1, OWN_VOCABULARY),
        (PIECES, "max_words", 100, OWN_VOCABULARY),
        (PIECES, "vectors", "file", OWN_VOCABULARY),
        (PIECES, "vectors_path", MISSING, "vectors = 'file'"),
        (SENTENCES, "tokenizer", MISSING, "encoding = 'pieces'"),
        ({**SENTENCES, "encoding": "pieces", "tokenizer": "x"}, "vectors_path", MISSING, "encoding = 'words'"),
        (SENTENCES, "test_path", MISSING, "test = 'official'"),
        (ENTITIES, "test_path", MISSING, "test = 'official'"),
        (ENTITIES, "test_dataset", "cdr_entities", "test = 'official'"),
        (ENTITIES, "test_split", "test", "test = 'official'"),
        (ENTITIES, "test_subset", 5, "test = 'documents' or 'official'"),
        (ENTITIES, "tokenizer", MISSING, "encoding = 'pieces'"),
        (ENTITIES, "other_types", "leave_out", "dataset = 'entities'"),
        (TAGGED_PIECES, "min_count", 2, OWN_VOCABULARY),
        (TAGGED_PIECES, "min_clients", 1, OWN_VOCABULARY),
        (TAGGED_PIECES, "max_words", 100, OWN_VOCABULARY),
        (TAGGED_PIECES, "vectors_path", MISSING, OWN_VOCABULARY),
        ({**DOCUMENTS, "dataset": "chr"}, "mesh_tree", MISSING, "dataset = 'cdr'"),
        ({**BAGS, "dataset": "nyt10"}, "knowledge_base", MISSING, "dataset = 'cdr_aligned'"),
        ({**BAGS, "dataset": "planted"}, "na_rate", 0.5, "dataset = 'cdr_aligned'"),
        ({**BAGS, "dataset": "cdr_aligned"}, "rel2id", MISSING, "dataset = 'nyt10' or 'mirgene'"),
        ({**BAGS, "dataset": "planted"}, "misplaced", "refuse", "dataset = 'nyt10' or 'mirgene'"),
        ({**BAGS, "dataset": "nyt10"}, "noise_rate", 0.5, "dataset = 'planted'"),
        ({**BAGS, "dataset": "cdr_aligned"}, "planted_bags", 5, "dataset = 'planted'"),
        ({**BAGS, "dataset": "planted"}, "path", MISSING, "dataset = 'nyt10' or 'mirgene' or 'cdr_aligned'"),
    ],
)
def test_a_key_that_would_not_be_read(task, key, value, needs):
    recipe = {"task": {**task, key: value}, "model": {"name": "lstm"}, "algorithm": {"name": "fedavg"}}
    with pytest.raises(UserError) as caught:
        resolve(recipe, "r.toml")
    assert str(caught.value) == f"r.toml: 'task.{key}' needs {needs}"


def test_the_default_value_is_no_setting():
    task = {**BAGS, "dataset": "nyt10", "noise_rate": 0.4, "planted_seed": 0}
    assert resolve({"task": task, "model": {"name": "pcnn"}, "algorithm": {"name": "fedavg"}}, "r.toml")


@pytest.mark.parametrize("model", [{"name": "logistic_regression"}, {"name": "lstm", "units": 3}], ids=str)
def test_vectors_and_a_model_that_has_none(tmp_path, model):
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\n宝 1 2 3\n烧 4 5 6\n", "utf-8")
    corpus = write_json(tmp_path / "corpus.json", consultations())
    recipe_table = text_recipe(corpus, encoding="characters", vectors="file", vectors_path=str(path))
    recipe = resolve({**recipe_table, "model": model}, "r.toml")
    prepared = ExperimentBuilder(DataPaths()).prepare(recipe)
    assert prepared.local_model(recipe.model)
    recipe = resolve({**recipe_table, "model": {"name": "logistic_regression", "features": "word_presence"}}, "r.toml")
    with pytest.raises(UserError) as caught:
        prepared.local_model(recipe.model)
    assert str(caught.value) == (
        "with this recipe the model 'logistic_regression' does not read word vectors; "
        "leave task.vectors_path (or task.vectors) out, or choose another model"
    )


def test_the_split_to_test_on(tmp_path):
    data = tmp_path / "data"
    (data / "mie").mkdir(parents=True)
    for split, number in (("train", 1), ("test", 2)):
        dialogues = {
            f"{split}{d}": {"dialogue": [sentence(n, "宝宝发烧", "1") for n in range(number)]} for d in range(3)
        }
        write_json(data / "mie" / f"{split}.imcs_v2.json", dialogues)
    recipe = text_recipe("unused", dataset="mie", test="official", test_split="test")
    del recipe["task"]["path"]
    recipe["partition"] = {"name": "iid", "num_clients": 1}
    prepared = ExperimentBuilder(DataPaths(data=data)).prepare(resolve(recipe, "r.toml"))
    assert (prepared.examples.size("train"), prepared.examples.size("test")) == (3, 6)
