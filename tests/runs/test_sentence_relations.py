"""The relation of two mentions in a sentence: what clients hold and read, and whole runs on a tiny encoder."""

from __future__ import annotations

import dataclasses
import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from datasets.errors import DataError
from datasets.partition import ClientSamples, Partition, write_partition
from datasets.relations import chemprot, pgr
from tests.models.encoders_for_tests import PIECES, copy_encoder, encoder
from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import (
    SECRET,
    assert_same_run,
    assert_same_weights,
    builder,
    command,
    keras_weights,
    refusal,
    share_computations,
    write_recipe,
)
from tff_re.errors import UserError
from tff_re.models.inputs import RelationInput
from tff_re.recipes.reading import TrainingOptions, locate, read_toml, resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run
from tff_re.tasks.data_paths import DataPaths

LENGTH, LONG = 20, 60
"""A length that cuts the sentences below, and one that does not."""

LABELS = ("ACTIVATOR", "INHIBITOR", "AGONIST", "ANTAGONIST", "SUBSTRATE")
"""One of each group, in the order of the classes."""


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


# Files.


def write_chemprot(path, count=30, first=0, labels=LABELS):
    """Sentences of several lengths with SECRET in each; the label is the number's remainder, and stands as a letter."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(first, first + count):
            label = number % len(labels)
            middle = f"{'abcde'[label]} inhibits {'the ' * (number % 4)}"
            text = f"{SECRET} << drug {'a' * (number % 3)}x >> {middle}[[ gene ]] . {number}"
            file.write(json.dumps({"text": text, "label": labels[label], "metadata": []}, ensure_ascii=False) + "\n")
    return path


def write_pgr(path, documents=6, pairs=4):
    """Every second pair is one."""
    lines = ["\t".join(pgr.HEADER)]
    for document in range(documents):
        for number in range(pairs):
            sentence = f"{SECRET} {number} gene binds the drug {document} ."
            g, p = sentence.index("gene"), sentence.index("drug")
            row = [f"doc{document}", sentence, "gene", "drug", "1", "HP_1", g, g + 4, p, p + 4, str(number % 2 == 1)]
            lines.append("\t".join(map(str, row)))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    return write_chemprot(tmp_path_factory.mktemp("chemprot") / "train.jsonl")


@pytest.fixture(scope="module")
def dev_file(train_file):
    return write_chemprot(train_file.with_name("dev.jsonl"), count=15, first=100)


@pytest.fixture(scope="module")
def pgr_file(tmp_path_factory):
    return write_pgr(tmp_path_factory.mktemp("pgr") / "train.tsv")


IID = {"name": "iid", "num_clients": 3}


def table(path, *, partition=IID, **task):
    """Tables of the recipe fedcmc-chemprot, on a file and the tiny encoder."""
    result = read_toml(locate("fedcmc-chemprot"))
    task = {"name": "sentence_relations", "path": str(path), "max_length": LENGTH, **task}
    if task.get("encoding") != "words":
        task.setdefault("tokenizer", str(encoder(layers=1)))
    task = {key: value for key, value in task.items() if value is not None}
    training = {"rounds": 2, "client_fraction": 1.0, "checkpoint_every": 2}
    return {**result, "name": "tiny-relations", "task": task, "partition": partition, "training": training}


def prepare(path, *, seed=0, data_paths=None, **options):
    recipe = resolve(table(path, **options), "r.toml", seed=seed)
    return ExperimentBuilder(data_paths or DataPaths()).prepare(recipe)


def ids(prepared, split):
    """All sample ids of a split."""
    return {i for samples in prepared.partition.clients.values() for i in getattr(samples, split)}


def labels(prepared, split):
    """How often each class occurs in a split."""
    return np.bincount(prepared.examples.pooled(split)["y"], minlength=len(prepared.label_names)).tolist()


def masked(prepared, split, which):
    """The ids of a mention in every row of the clients."""
    return [
        row[mask == 1].tolist()
        for client in prepared.examples.clients
        for row, mask in zip(getattr(client, split)["input_ids"], getattr(client, split)[f"{which}_mask"], strict=True)
    ]


# What clients hold.


def test_clients_hold_out_their_share(train_file):
    prepared = prepare(train_file, test_share=0.2)
    assert prepared.label_names == tuple(chemprot.GROUPS) and prepared.measures.positive_labels == (0, 1, 2, 3, 4)
    for client in prepared.examples.clients:
        assert (len(client.train["y"]), len(client.test["y"])) == (8, 2)
    assert labels(prepared, "train") == prepared.counts.train.sum(axis=0).tolist()
    assert np.add(labels(prepared, "train"), labels(prepared, "test")).tolist() == [6] * 5
    assert prepared.inputs == RelationInput(len(PIECES) + 4, LENGTH, str(encoder(layers=1)), new_pieces=4)
    assert prepared.partition.clients == prepare(train_file, test_share=0.2).partition.clients
    assert prepared.partition.clients != prepare(train_file, test_share=0.2, seed=1).partition.clients


def test_documents_are_set_apart_by_a_seed_of_their_own(pgr_file):
    task = {"dataset": "pgr", "test": "documents", "test_share": 0.3}
    prepared = prepare(pgr_file, **task)
    assert prepared.label_names == ("no_relation", "true") and prepared.measures.positive_labels == (1,)

    def documents(prepared, split):
        return {i.split("/")[0] for i in ids(prepared, split)}

    apart = documents(prepared, "test")
    assert len(apart) == 2 and len(documents(prepared, "train")) == 4 and not apart & documents(prepared, "train")
    assert labels(prepared, "train") == [8, 8] and labels(prepared, "test") == [4, 4]
    assert "test set: 8 samples of 2 of the 6 documents" in prepared.notes
    other_run = prepare(pgr_file, seed=1, **task)
    assert documents(other_run, "test") == apart and other_run.partition.clients != prepared.partition.clients
    assert len({frozenset(documents(prepare(pgr_file, test_seed=seed, **task), "test")) for seed in range(4)}) > 1
    fewer = prepare(pgr_file, test_subset=4, **task)
    assert labels(fewer, "test") == [2, 2] and labels(fewer, "train") == [8, 8]
    assert ids(fewer, "test") == ids(prepare(pgr_file, test_subset=4, seed=1, **task), "test") < ids(prepared, "test")


def test_the_official_split_is_another_file(train_file, dev_file):
    task = {"test": "official", "test_path": str(dev_file)}
    prepared = prepare(train_file, **task)
    assert labels(prepared, "train") == [6] * 5 and labels(prepared, "test") == [3] * 5
    assert all(i.startswith("chemprot-dev-") for i in ids(prepared, "test"))
    assert all(i.startswith("chemprot-train-") for i in ids(prepared, "train"))
    fewer = prepare(train_file, test_subset=5, **task)
    assert labels(fewer, "test") == [1] * 5 and labels(fewer, "train") == [6] * 5
    with pytest.raises(DataError, match=r"missing\.jsonl"):
        prepare(train_file, test="official", test_path=str(dev_file.with_name("missing.jsonl")))


def test_subsets_of_the_training_samples(train_file, dev_file, tmp_path):
    task = {"test": "official", "test_path": str(dev_file)}
    prepared = prepare(train_file, subset=10, **task)
    assert labels(prepared, "train") == [2] * 5 and labels(prepared, "test") == [3] * 5
    assert "a subset of 10 of 30 samples, classes in proportion" in prepared.notes
    assert ids(prepared, "train") == ids(prepare(train_file, subset=10, **task), "train")
    assert ids(prepared, "train") != ids(prepare(train_file, subset=10, seed=1, **task), "train")
    skewed = write_chemprot(tmp_path / "skewed.jsonl", labels=("INHIBITOR", "INHIBITOR", "AGONIST", "INHIBITOR"))
    assert labels(prepare(skewed, **task), "train") == [0, 23, 7, 0, 0]
    assert labels(prepare(skewed, balanced_subset=9, **task), "train") == [0, 9, 7, 0, 0]
    held_out = prepare(train_file, balanced_subset=4, test_share=0.5)
    assert np.add(labels(held_out, "train"), labels(held_out, "test")).tolist() == [4] * 5


def test_the_label_choice_and_the_split(train_file):
    prepared = prepare(train_file, label="names", split="dev")
    assert len(prepared.label_names) == len(prepared.measures.positive_labels) == 13
    assert all(i.startswith("chemprot-dev-") for i in ids(prepared, "train"))


# What clients read.


def test_mentions_are_replaced_by_their_types(pgr_file):
    task = {"dataset": "pgr", "max_length": 40}
    spelled = [PIECES.index("p"), *(PIECES.index(f"##{letter}") for letter in "henotype")]
    plain, blind = prepare(pgr_file, **task), prepare(pgr_file, blind=True, **task)
    assert masked(plain, "train", "tail") == [[PIECES.index("drug")]] * len(masked(plain, "train", "tail"))
    assert masked(blind, "train", "tail") == [spelled] * len(masked(blind, "train", "tail"))
    assert not (blind.examples.pooled("train")["input_ids"] == PIECES.index("drug")).any()
    assert any("entity blinding" in note for note in blind.notes)
    assert not any("entity blinding" in note for note in plain.notes)


def test_words_of_the_clients_training_texts(pgr_file, tmp_path):
    task = {"dataset": "pgr", "encoding": "words"}
    prepared = prepare(pgr_file, **task)
    assert prepared.inputs.tokenizer is None and prepared.inputs.vectors is None
    rows = prepared.examples.pooled("train")["input_ids"]
    assert rows.max() < prepared.inputs.vocabulary_size
    (head,) = {tuple(row) for row in masked(prepared, "train", "head")}
    (tail,) = {tuple(row) for row in masked(prepared, "train", "tail")}
    assert len(head) == len(tail) == 1 and head != tail and 1 not in head + tail
    note = f"vocabulary: {prepared.inputs.vocabulary_size - 2} words, markers included"
    assert note in prepared.notes
    # A document is a client: its number is its own word.
    natural = {"partition": {"name": "natural"}, **task}
    private, known = (prepare(pgr_file, min_clients=n, **natural) for n in (2, 1))
    assert known.inputs.vocabulary_size > private.inputs.vocabulary_size
    assert (private.examples.pooled("train")["input_ids"] == 1).any()
    assert not (known.examples.pooled("train")["input_ids"] == 1).any()
    assert prepare(pgr_file, max_words=9, **task).inputs.vocabulary_size < prepared.inputs.vocabulary_size


def test_word_vectors_of_a_file(pgr_file, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 3\ndrug 1 2 3\ngene 4 5 6\nphenotype 7 8 9\n", "utf-8")
    task = {"dataset": "pgr", "encoding": "words", "vectors_path": str(path)}
    prepared = prepare(pgr_file, **task)
    matrix = prepared.inputs.vectors
    assert matrix.shape == (prepared.inputs.vocabulary_size, 3) and matrix.dtype == np.float32
    (head,), (tail,) = masked(prepared, "train", "head")[0], masked(prepared, "train", "tail")[0]
    assert matrix[head].tolist() == [4, 5, 6] and matrix[tail].tolist() == [1, 2, 3]
    assert any(note.startswith("word vectors (vectors.txt): width 3, ") for note in prepared.notes)


def test_notes_tell_of_cut_texts_and_of_clients_without_samples(train_file):
    cut = prepare(train_file, max_length=12).notes
    assert any(note.endswith("cut to the length limit around their mentions") for note in cut)
    assert not any(" cut " in note for note in prepare(train_file, max_length=LONG).notes)
    single = prepare(train_file, subset=6, partition={"name": "iid", "num_clients": 6}).notes
    assert "6 clients have no test samples" in single
    assert not any(SECRET in note for note in (*cut, *single))


# What is refused.


def test_a_recipe_that_does_not_fit_is_refused_in_a_line(train_file, tmp_path, capsys):
    def refused(*parts, name="r.toml", **task):
        recipe = write_recipe(tmp_path / name, table(train_file, **task))
        refusal(command(capsys, "train", recipe, "--out", tmp_path / "out"), *parts)
        assert not (tmp_path / "out").exists()

    refused("task.tokenizer is not set: give the folder or hub id of an encoder", tokenizer=None)
    refused("max_length is not a whole number of at least 8", max_length=7)
    missing = tmp_path / "missing"
    refused(f"tokenizer {missing}: cannot be read (", "give the folder of an encoder", tokenizer=str(missing))
    damaged = copy_encoder(tmp_path / "damaged")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (damaged / name).write_text("{")
    refused(f"tokenizer {damaged}: cannot be read (", tokenizer=str(damaged))
    weightless = copy_encoder(tmp_path / "weightless")
    (weightless / "config.json").unlink()
    refused(f"encoder {weightless}: holds no config.json", tokenizer=str(weightless))
    long = {"max_length": 65}
    refused("r.toml: encoder", "reads at most 64 word pieces, but the task gives 65; lower task.max_length", **long)


# Whole runs.


ALGORITHMS = {
    "fedcmc": {"learning_rate": 0.01},
    "moon": {"learning_rate": 0.01},
    "scaffold": {"learning_rate": 0.1},
    "feded": {"learning_rate": 0.01},
}
SECTIONS = {"feded": {"task": {"server_share": 0.25, "server_stratified": True}, "model": {"frozen_layers": 1}}}


def run(out, runtime, path, algorithm="fedcmc", data_paths=None, **options):
    """Trains the tables in a shared workshop; ("algorithm", "training", "model") as keyword tables."""
    tables = {name: options.pop(name) for name in ("training", "model", "task") if name in options}
    tables = {**SECTIONS.get(algorithm, {}), **tables}
    recipe = table(path, **tables.pop("task", {}))
    for name, values in tables.items():
        recipe[name] = {**recipe[name], **values}
    recipe["algorithm"] = {"name": algorithm, "batch_size": 8, "local_epochs": 1, **ALGORITHMS[algorithm]}
    shop = ExperimentBuilder(data_paths or DataPaths(), _computations=builder()._computations)
    options = {"details": False, **options}
    return train_run(resolve(recipe, "tiny.toml"), out, builder=shop, runtime=runtime, **options)


TRAINING = {"rounds": 4, "client_fraction": 0.6, "checkpoint_every": 2}
"""Two of three clients in a round; with dropout inside of the encoder."""


@pytest.fixture(scope="module")
def whole(runtime, train_file, tmp_path_factory):
    """A run of FedCMC that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment, result = run(folder, runtime, train_file, training=TRAINING, details=True)
    return SimpleNamespace(folder=folder, experiment=experiment, result=result)


def test_what_a_run_leaves(whole, capsys):
    rows = read_history(RunFolder(whole.folder))
    assert len(rows) == 4 and whole.experiment.clients_per_round == 2
    for row in rows:
        assert 0 <= row["test/macro_f1"] <= 1 and row["clients/counted"] == 2
        assert row["test/micro_f1"] == pytest.approx(row["test/accuracy"]), "every class is positive"
    start, end = whole.experiment.model.initial_weights(0), whole.result.weights
    assert all((np.asarray(a) != np.asarray(b)).any() for a, b in zip(start.trainable, end.trainable, strict=True))
    summary = json.loads((whole.folder / "summary.json").read_text("utf-8"))
    assert summary["final"]["test/micro_f1"] == rows[-1]["test/micro_f1"]
    assert any("entity markers" in note for note in summary["notes"])
    assert keras_weights(whole.folder / "model.keras")
    evaluated = command(capsys, "evaluate", whole.folder)
    assert evaluated.code == 0 and evaluated.err == "" and evaluated.out
    spellings = (SECRET.encode(), json.dumps(SECRET)[1:-1].encode(), b"inhibits the")
    for path in [path for path in whole.folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        assert not any(spelling in content for spelling in spellings), path
    assert not any(spelling.decode() in evaluated.out for spelling in spellings)


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(name, marks=() if name == "fedcmc" else pytest.mark.slow) for name in ALGORITHMS],
)
def test_a_run_that_was_broken_off_continues_to_the_same_numbers(algorithm, whole, train_file, runtime, tmp_path):
    folder, wanted = whole.folder, whole.result
    if algorithm != "fedcmc":
        folder = tmp_path / "whole"
        _, wanted = run(folder, runtime, train_file, algorithm, training=TRAINING)
    train = functools.partial(run, tmp_path / "run", runtime, train_file, algorithm, training=TRAINING)
    _, result = resumed_after(train, 3)
    assert_same_weights(result.weights, wanted.weights)
    assert_same_files(tmp_path / "run", folder, "metrics.csv", "clients.csv", "summary.json")


@pytest.mark.bfloat16
@pytest.mark.slow
def test_in_bfloat16_with_frozen_layers_runs_repeat(train_file, runtime, tmp_path):
    model, task = {"precision": "mixed_bfloat16", "frozen_layers": 1}, {"tokenizer": str(encoder())}
    experiment, result = run(tmp_path / "first", runtime, train_file, model=model, task=task, details=True)
    run(tmp_path / "second", runtime, train_file, model=model, task=task, details=True)
    assert_same_run(tmp_path / "first", tmp_path / "second")
    start = experiment.model.initial_weights(0)
    for before, after in zip(start.trainable, result.weights.trainable, strict=True):
        assert (np.asarray(before) != np.asarray(after)).any()
    for before, after in zip(start.non_trainable, result.weights.non_trainable, strict=True):
        np.testing.assert_array_equal(before, after)


# How many clients.


def test_a_share_of_the_clients_takes_part():
    from tff_re.runs.building import clients_per_round

    recipe = resolve(table("c.jsonl"), "r.toml")
    for fraction, clients, wanted in ((0.6, 3, 2), (0.1, 3, 1), (0.5, 7, 4), (1.0, 1, 1)):
        training = TrainingOptions(client_fraction=fraction, clients_per_round=1000)
        assert clients_per_round(dataclasses.replace(recipe, training=training), clients) == wanted


def test_without_any_training_sample_nothing_is_built(train_file, tmp_path):
    order = tuple(m.mention_id for m in chemprot.read(train_file).mentions)
    write_partition(Partition("iid", {}, 0, {"a": ClientSamples((), order)}), tmp_path / "p.json")
    recipe = resolve(table(train_file), "r.toml")
    with pytest.raises(UserError, match="no client has training examples"):
        ExperimentBuilder(DataPaths(partition=tmp_path / "p.json")).build(recipe)


def test_a_run_counts_the_clients_for_scaffold():
    from tff_re.runs.building import with_counts

    for algorithm, wanted in (({"name": "scaffold"}, 7), ({"name": "scaffold", "num_clients": 9}, 9)):
        recipe = resolve({**table("c.jsonl"), "algorithm": algorithm}, "r.toml")
        assert with_counts(recipe, 7, None).num_clients == wanted
