"""Tasks: what clients hold, what the vocabulary may know, where word vectors come from."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from datasets.errors import DataError
from datasets.partition import Iid, Natural
from tests.models.encoders_for_tests import CHINESE, chinese_encoder, copy_encoder, encoder
from tests.recipe_data_for_tests import data_folder
from tests.upper_floors import consultations, sentence, text_recipe, tiny, write_json
from tff_re.errors import UserError
from tff_re.models.inputs import DenseInput, PieceInput, TokenInput
from tff_re.recipes.reading import load, resolve, shipped
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.tasks import TASKS
from tff_re.tasks.data_paths import DataPaths


def prepare(corpus, *, partition=None, seed=0, data_paths=None, **task):
    """The symptom task on a corpus file."""
    table = text_recipe(corpus, **task)
    if partition is not None:
        table["partition"] = partition
    recipe = resolve(table, "r.toml", seed=seed)
    return ExperimentBuilder(data_paths or DataPaths()).prepare(recipe)


@pytest.fixture
def corpus(tmp_path):
    return write_json(tmp_path / "corpus.json", consultations())


def held(prepared, split):
    return {c.client_id: len(getattr(c, split)["y"]) for c in prepared.examples.clients}


# What clients hold


def test_a_dialogue_is_a_client_and_holds_out_its_share(corpus):
    prepared = prepare(corpus)
    assert held(prepared, "train") == {"d0": 4, "d1": 4, "d2": 4, "d3": 4}
    assert held(prepared, "test") == {"d0": 2, "d1": 2, "d2": 2, "d3": 2}
    assert prepared.label_names == ("no_symptom", "symptom")
    assert prepared.counts.train.sum() == 16 and prepared.counts.test.sum() == 8
    assert prepared.inputs == TokenInput(len(prepared.encoding.vocabulary), 20, None)


def test_examples_are_the_encoded_sentences_of_the_client(corpus):
    prepared = prepare(corpus)
    by_id = {f"{name}/{s['sentence_id']}": s for name, d in consultations().items() for s in d["dialogue"]}
    for client in prepared.examples.clients:
        for split in ("train", "test"):
            ids = getattr(prepared.partition.clients[client.client_id], split)
            wanted = prepared.encoding.encode([by_id[i]["sentence"] for i in ids])
            np.testing.assert_array_equal(getattr(client, split)["tokens"], wanted)
            assert getattr(client, split)["y"].tolist() == [int(bool(by_id[i]["symptom_type"])) for i in ids]


def test_seeds_draw_another_split_and_partitions_follow_the_recipe(corpus):
    assert prepare(corpus).partition.clients == prepare(corpus).partition.clients
    assert prepare(corpus).partition.clients != prepare(corpus, seed=1).partition.clients
    prepared = prepare(corpus, partition={"name": "by_field", "field": "diagnosis"})
    assert held(prepared, "train") == {"肺炎": 8, "流感": 8} and held(prepared, "test") == {"肺炎": 4, "流感": 4}
    prepared = prepare(corpus, partition={"name": "iid", "num_clients": 3}, test_unit="document", test_share=0.5)
    assert sum(held(prepared, "train").values()) + sum(held(prepared, "test").values()) == 24


def test_whole_documents_are_held_out(corpus):
    partition = {"name": "by_field", "field": "diagnosis"}
    prepared = prepare(corpus, partition=partition, test_unit="document", test_share=0.5)
    for samples in prepared.partition.clients.values():
        assert not {i.split("/")[0] for i in samples.train} & {i.split("/")[0] for i in samples.test}
        assert len(samples.train) == len(samples.test) == 6


def test_the_official_split_is_the_dev_file(corpus, tmp_path):
    dev = write_json(tmp_path / "dev.json", {f"x{k}": v for k, v in consultations(2, 3).items()})
    partition = {"name": "by_field", "field": "diagnosis"}
    prepared = prepare(corpus, test="official", dev_path=str(dev), partition=partition)
    assert held(prepared, "train") == {"肺炎": 12, "流感": 12} and held(prepared, "test") == {"肺炎": 3, "流感": 3}
    assert all(i.startswith("x") for c in prepared.partition.clients.values() for i in c.test)


def test_a_partition_file_stands_in_for_the_partitioner(corpus, tmp_path):
    from datasets.partition import write_partition

    drawn = prepare(corpus, partition={"name": "iid", "num_clients": 3}, seed=7)
    write_partition(drawn.partition, tmp_path / "p.json")
    from_file = prepare(corpus, data_paths=DataPaths(partition=tmp_path / "p.json"))
    assert from_file.partition == drawn.partition
    np.testing.assert_array_equal(
        from_file.examples.pooled("train")["tokens"], drawn.examples.pooled("train")["tokens"]
    )


# The vocabulary leaves the clients


@pytest.mark.parametrize("encoding", ["characters", "words"])
def test_a_word_of_one_client_is_not_in_the_vocabulary(encoding, tmp_path):
    value = {
        name: {"dialogue": [sentence(i, f"咳嗽，{word}", "1") for i in range(3)]}
        for name, word in (("a", "麒麟"), ("b", "凤凰"), ("c", "咳嗽"))
    }
    corpus = write_json(tmp_path / "c.json", value)
    private = {"麒麟", "凤凰"} | set("麒麟凤凰")
    shared = prepare(corpus, encoding=encoding, min_clients=2)
    assert not private & set(shared.encoding.vocabulary.words)
    assert "咳嗽" in "".join(shared.encoding.vocabulary.words)
    everyone = prepare(corpus, encoding=encoding, min_clients=1)
    assert private & set(everyone.encoding.vocabulary.words)
    tokens = {c.client_id: c.train["tokens"] for c in shared.examples.clients}
    assert (tokens["a"] == 1).any() and not (tokens["c"] == 1).any(), "what is private is out of the vocabulary"


def test_test_sentences_do_not_reach_the_vocabulary(corpus, tmp_path):
    dev = write_json(tmp_path / "dev.json", {"x": {"dialogue": [sentence(1, "鑫淼垚"), sentence(2, "鑫淼垚")]}})
    prepared = prepare(corpus, test="official", dev_path=str(dev), partition={"name": "iid", "num_clients": 2})
    assert not set("鑫淼垚") & set(prepared.encoding.vocabulary.words)


def test_bounds_of_the_vocabulary(corpus):
    everything = prepare(corpus).encoding.vocabulary
    assert len(prepare(corpus, max_words=5).encoding.vocabulary) == 5
    frequent = prepare(corpus, min_count=10).encoding.vocabulary.words
    assert set(frequent) < set(everything.words)
    assert prepare(corpus, max_length=4).examples.pooled("train")["tokens"].shape == (16, 4)


def test_words_know_the_symptom_vocabulary(tmp_path):
    value = {k: {"dialogue": [sentence(1, "孩子新造症了", "1"), sentence(2, "新造症吗")]} for k in "ab"}
    corpus = write_json(tmp_path / "c.json", value)
    (tmp_path / "norm.csv").write_text("norm\n新造症\n", "utf-8")
    known = prepare(corpus, encoding="words", symptoms=str(tmp_path / "norm.csv"))
    assert "新造症" in known.encoding.vocabulary.words
    assert "新造症" not in prepare(corpus, encoding="words").encoding.vocabulary.words


# Word vectors


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 4\n宝 1 2 3 4\n烧 5 6 7 8\n鑫 9 10 11 12\n", "utf-8")
    return path


def test_vectors_of_a_file(corpus, vectors):
    prepared = prepare(corpus, vectors="file", vectors_path=str(vectors), vectors_width=4)
    matrix = prepared.inputs.vectors
    words = prepared.encoding.vocabulary.words
    assert matrix.shape == (len(words) + 2, 4) and matrix.dtype == np.float32
    assert matrix[words.index("宝") + 2].tolist() == [1, 2, 3, 4]
    assert matrix[words.index("烧") + 2].tolist() == [5, 6, 7, 8]
    assert matrix[0].tolist() == [0] * 4
    assert any(f"word vectors (vectors.txt): width 4, {2 / len(words):.0%} of the words" in n for n in prepared.notes)
    np.testing.assert_array_equal(matrix, prepare(corpus, vectors="file", vectors_path=str(vectors)).inputs.vectors)


def test_vectors_trained_on_a_corpus_that_may_be_read_centrally(corpus, tmp_path):
    central = tmp_path / "central.txt"
    central.write_text("宝宝昨晚高烧不退还咳嗽\n\n发烧好了\n" * 5, "utf-8")
    task = {"encoding": "words", "vectors": "trained", "vectors_width": 6, "vectors_epochs": 2}
    prepared = prepare(corpus, vectors_corpus=str(central), **task)
    assert prepared.inputs.vectors.shape == (len(prepared.encoding.vocabulary), 6)
    again = prepare(corpus, vectors_corpus=str(central), **task)
    np.testing.assert_array_equal(prepared.inputs.vectors, again.inputs.vectors)
    assert any("gensim on " in note for note in prepared.notes)
    shipped_ones = prepare(corpus, vectors_corpus="shipped", **task)
    assert shipped_ones.inputs.vectors.shape[1] == 6
    central.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"central\.txt: is not UTF-8 at byte 0"):
        prepare(corpus, vectors_corpus=str(central), **task)
    with pytest.raises(DataError, match="there is no such data set"):
        prepare(corpus, vectors_corpus="nowhere", **task)


# Word pieces of an encoder


def with_pieces(corpus, folder=None, **task):
    return prepare(corpus, encoding="pieces", tokenizer=str(folder or chinese_encoder()), min_clients=2, **task)


def test_examples_are_the_pieces_of_the_clients_texts(corpus):
    prepared = with_pieces(corpus)
    assert prepared.inputs == PieceInput(len(CHINESE), 20, str(chinese_encoder()))
    assert prepared.partition.clients == prepare(corpus).partition.clients, "the same samples as for words"
    by_id = {f"{name}/{s['sentence_id']}": s for name, d in consultations().items() for s in d["dialogue"]}
    for client in prepared.examples.clients:
        ids = prepared.partition.clients[client.client_id].train
        wanted = prepared.encoding.encode([by_id[i]["sentence"] for i in ids]).arrays
        for name, array in wanted.items():
            np.testing.assert_array_equal(client.train[name], array)
        assert client.train["y"].tolist() == [int(bool(by_id[i]["symptom_type"])) for i in ids]
    assert prepared.encoding.describe() in prepared.notes and not any("cut" in note for note in prepared.notes)
    assert "24 of 24 texts cut to the length limit, at their end" in with_pieces(corpus, max_length=8).notes


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        ({"dataset": "imcs_v2", "label": "symptom_presence"}, 2),
        ({"dataset": "imcs_v2", "label": "symptom_type"}, 3),
        ({"dataset": "imcs_v2", "label": "dialogue_act"}, 16),
        ({"dataset": "mie", "split": "dev"}, 2),
        ({"dataset": "mie_windows", "split": "dev", "label": "symptom_mentioned"}, 2),
        ({"dataset": "dxy", "label": "disease"}, None),
        ({"dataset": "shipped"}, 2),
    ],
)
def test_every_data_set_and_label_has_pieces(task, classes, tmp_path):
    if task["dataset"] == "imcs_v2":
        value = consultations()
        for dialogue in value.values():
            for number, utterance in enumerate(dialogue["dialogue"]):
                utterance["dialogue_act"] = ("Request-Symptom", "Inform-Symptom")[number % 2]
        task = {**task, "path": str(write_json(tmp_path / "imcs.json", value))}
    table = text_recipe("unused", encoding="pieces", tokenizer=str(chinese_encoder()), min_clients=2)
    table["partition"] = {"name": "iid", "num_clients": 2}
    del table["task"]["path"]
    table["task"].update(task)
    table["model"] = {"name": "text_encoder"}
    prepared = ExperimentBuilder(DataPaths(data=data_folder())).prepare(resolve(table, "r.toml"))
    assert len(prepared.label_names) == (classes or len(prepared.label_names)) and prepared.examples.size("test") > 0
    assert set(prepared.examples.clients[0].train) == {"input_ids", "attention_mask", "y"}


def test_a_vocabulary_without_chinese_is_refused_before_training(corpus):
    with pytest.raises(UserError) as caught:
        with_pieces(corpus, folder=encoder())
    message = str(caught.value)
    assert f"tokenizer {encoder()}: does not know 100%" in message and "a Chinese one for Chinese texts" in message
    assert "\n" not in message and not any("\u4e00" <= c <= "\u9fff" for c in message)


def test_an_encoder_folder_without_a_tokenizer(corpus, tmp_path):
    folder = copy_encoder(tmp_path / "encoder")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()
    with pytest.raises(UserError, match=r"holds neither .* nor a vocabulary"):
        with_pieces(corpus, folder=folder)
    with pytest.raises(UserError, match=r"set task\.encoding = 'words' or 'characters'"):
        prepare(corpus, encoding="pieces", min_clients=2)
    with pytest.raises(DataError, match="max_length is not a whole number of at least 3"):
        with_pieces(corpus, max_length=2)


@pytest.mark.parametrize("frozen_layers", [0, 1])
def test_models_and_encodings_that_do_not_fit(corpus, frozen_layers):
    def build(model, **task):
        table = {**text_recipe(corpus, min_clients=2, **task), "model": model}
        ExperimentBuilder().build(resolve(table, "r.toml"))

    with pytest.raises(UserError, match=r"'text_encoder' does not take .*, words or characters; .*'pieces'"):
        build({"name": "text_encoder", "encoder": str(chinese_encoder()), "frozen_layers": frozen_layers})
    with pytest.raises(UserError, match=r"'lstm' does not take .*, word pieces of whole texts; .*'text_encoder'"):
        build({"name": "lstm"}, encoding="pieces", tokenizer=str(chinese_encoder()))


# Synthetic


def test_synthetic():
    prepared = ExperimentBuilder().prepare(tiny())
    assert prepared.inputs == DenseInput(5) and prepared.encoding is None and prepared.partition is None
    assert prepared.examples.size("train") == 60 and prepared.examples.size("test") == 24
    for split in ("train", "test"):
        counts = getattr(prepared.counts, split)
        for row, client in zip(counts, prepared.examples.clients, strict=True):
            assert row.tolist() == [(getattr(client, split)["y"] == label).sum() for label in range(3)]


def test_the_largest_client_of_synthetic():
    prepared = ExperimentBuilder().prepare(tiny("task.largest_train=40"))
    sizes = prepared.counts.train.sum(axis=1)
    assert (sizes.max(), sizes.sum()) == (40, 60)
    with pytest.raises(UserError, match=r"'task\.largest_train' needs total_train and total_test"):
        ExperimentBuilder().prepare(tiny("task.largest_train=40", "task.total_train=none", "task.total_test=none"))
    with pytest.raises(DataError, match="largest_train is 59 of 60"):
        ExperimentBuilder().prepare(tiny("task.largest_train=59"))


def test_synthetic_refuses_a_partition(tmp_path):
    task = TASKS["synthetic"]
    words = "the synthetic task generates its own clients; leave .partition. out"
    with pytest.raises(UserError, match=words):
        task.prepare(task.Options(), Iid(3), 0, DataPaths())
    with pytest.raises(UserError, match=words):
        task.prepare(task.Options(), Natural(), 0, DataPaths(partition=tmp_path / "p.json"))


def test_a_model_that_does_not_take_the_inputs():
    with pytest.raises(UserError, match=r"the model 'lstm' does not take the inputs of this task; .*model\.name"):
        ExperimentBuilder().build(tiny("model={name='lstm'}"))


# Published corpora


@pytest.fixture(scope="module")
def data():
    folder = os.environ.get("TFF_RE_DATA")
    if not folder:
        pytest.skip("TFF_RE_DATA names no folder")
    return Path(folder)


@pytest.mark.real_data
@pytest.mark.parametrize("name", [name for name in shipped() if load(name).task.name == "symptom_classification"])
def test_shipped_recipes_find_their_data(name, data):
    recipe = load(name)
    if recipe.task.options.encoding == "pieces":
        recipe = load(name, (f"task.tokenizer={data / 'encoders' / 'e5_small_zh_6'}",))
    prepared = ExperimentBuilder(DataPaths(data=data)).prepare(recipe)
    trained = sum(size > 0 for size in held(prepared, "train").values())
    assert trained >= recipe.training.clients_per_round
    assert prepared.examples.size("test") > 0 and len(prepared.label_names) > 1
    train = prepared.examples.pooled("train")
    if recipe.task.options.encoding == "pieces":
        unknown = (train["input_ids"] == prepared.encoding.tokenizer.unk_token_id).sum()
        assert unknown < 0.01 * train["attention_mask"].sum()
        return
    tokens = train["tokens"]
    assert (tokens[:, 0] > 0).mean() > 0.99, "sentences without words"
    assert (tokens == 1).sum() < 0.2 * (tokens > 0).sum(), "most words are out of the vocabulary"


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("task", "clients", "samples", "classes"),
    [
        ({"dataset": "mie", "split": "dev"}, 160, 2694, 2),
        ({"dataset": "mie", "split": "dev", "label": "symptom_type"}, None, 745, 3),
        ({"dataset": "mie_windows", "split": "dev", "label": "surgery_mentioned"}, 160, 2694, 2),
        ({"dataset": "dxy", "split": "train"}, None, None, 5),
    ],
)
def test_data_sets(task, clients, samples, classes, data):
    table = text_recipe("unused", min_clients=2, **task)
    del table["task"]["path"]
    if task["dataset"] == "dxy":
        table["partition"] = {"name": "dirichlet", "num_clients": 5, "alpha": 0.5}
    prepared = ExperimentBuilder(DataPaths(data=data)).prepare(resolve(table, "r.toml"))
    assert len(prepared.label_names) == classes
    total = prepared.examples.size("train") + prepared.examples.size("test")
    assert total == (samples or total) and len(prepared.examples.clients) == (clients or len(prepared.examples.clients))
    assert total > 100
