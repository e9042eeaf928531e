"""Whole documents by recipe: what a run measures and leaves, its threshold, resume, refusals."""

from __future__ import annotations

import csv
import functools
import json

import numpy as np
import pytest

from datasets.documents.loading import load_documents
from datasets.partition import ClientSamples, Partition, write_partition
from tests.bags_for_tests import (
    assert_best_round_is_chosen,
    assert_has_weights,
    assert_tunes_without_test,
    prepare,
)
from tests.documents_for_tests import (
    DISEASES,
    HIDDEN,
    MEASURES,
    data_folder,
    document_table,
    marking_encoder,
    pubtator_block,
    stated,
    train_table,
    trained,
    write_documents,
)
from tests.models.encoders_for_tests import encoder
from tests.runs.resuming import assert_same_files, resumed
from tests.upper_floors import assert_same_weights, command, refusal, share_computations, write_recipe
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime, plots=True)
        yield


# What a run measures and leaves.


def test_a_run_is_that_of_the_round_which_dev_chose(runtime):
    run = trained(runtime)
    chosen = assert_best_round_is_chosen(run, "dev/f1", MEASURES)
    assert 0 < chosen["dev/threshold"] < 1 and "test/threshold" not in chosen and "test/loss" not in chosen
    assert_has_weights(run.folder, run.result.weights)
    for start, end in zip(run.experiment.model.initial_weights(0).trainable, run.result.weights.trainable, strict=True):
        assert (np.asarray(start) != np.asarray(end)).any()
    left = {path.name for path in (run.folder / "plots").iterdir()}
    assert {"curves.png", "partition.png", "precision-recall.png", "documents.png", "entropy.csv"} <= left
    assert "confusion-test.png" not in left


def test_a_run_that_tunes_leaves_test_out(runtime, tmp_path):
    assert_tunes_without_test(trained(runtime), tmp_path / "run", runtime)


def probabilities(run, split) -> dict[tuple[str, str], float]:
    """(document, disease) -> the chosen model's probability, from Keras alone."""
    encoded = run.experiment.prepared.held_out._documents[split].encoded
    model = run.experiment.model.keras_model(run.result.weights)
    arrays = {name: encoded.arrays[name] for name in run.experiment.prepared.inputs.specs}
    logits = np.asarray(model(arrays, training=False)["logits"], np.float64)
    keys = [(pair.document_id, pair.tail_id) for pairs in encoded.pairs for pair in pairs]
    return dict(zip(keys, 1 / (1 + np.exp(-logits[:, 0])), strict=True))


def counted(probability: dict, threshold: float, diseases=DISEASES) -> tuple[float, float, float]:
    """Precision, recall, F1 of the pairs with these diseases: counted one by one."""
    correct = predicted = facts = 0
    for (document, disease), value in probability.items():
        if disease in diseases:
            holds, predicts = disease in stated(int(document)), value >= threshold
            correct, predicted, facts = correct + (holds and predicts), predicted + predicts, facts + holds
    return correct / max(predicted, 1), correct / max(facts, 1), 2 * correct / max(predicted + facts, 1)


def test_the_measures_are_those_of_a_count_by_hand(runtime):
    """The threshold is the best on dev, tried one by one; the first disease alone shares a sentence with the drug."""
    run = trained(runtime)
    dev, test = probabilities(run, "dev"), probabilities(run, "test")
    assert len(dev) + len(test) == sum(3 if number % 4 == 0 else 2 for number in range(100, 110))
    metrics = run.result.server_evaluation.metrics
    tried = {value: counted(dev, value)[2] for value in dev.values()}
    threshold = metrics["dev/threshold"]
    best = min(value for value in tried if value > threshold)
    lower = max((value for value in tried if value < threshold), default=0.0)
    assert threshold == pytest.approx((best + lower) / 2, abs=1e-6), "midway between two scores"
    assert tried[best] == max(tried.values())
    assert not any(tried[value] == tried[best] for value in tried if value > best), "the largest of equals"
    for split, probability in (("dev", dev), ("test", test)):
        for name, value in zip(("precision", "recall", "f1"), counted(probability, threshold), strict=True):
            assert metrics[f"{split}/{name}"] == pytest.approx(value), (split, name)
        for name, diseases in (("f1_intra", DISEASES[:1]), ("f1_inter", DISEASES[1:])):
            assert metrics[f"{split}/{name}"] == pytest.approx(counted(probability, threshold, diseases)[2])
    references = json.loads(RunFolder(run.folder).summary.read_text("utf-8"))["references"]
    trivial, by_types = references.values()
    for split, probability in (("dev", dev), ("test", test)):
        for name, value in zip(("precision", "recall", "f1"), counted(probability, 0.0), strict=True):
            assert trivial[f"{split}/{name}"] == pytest.approx(value), "every pair is predicted"
    # One pair of types: what is predicted is all pairs, those in a sentence or the others.
    chosen = [
        {
            split: {pair: float(pair[1] in some) for pair in of_split}
            for split, of_split in (("dev", dev), ("test", test))
        }
        for some in (DISEASES, DISEASES[:1], DISEASES[1:])
    ]
    best = max(chosen, key=lambda scores: counted(scores["dev"], 0.5)[2])
    for split, scores in best.items():
        for name, value in zip(("precision", "recall", "f1"), counted(scores, 0.5), strict=True):
            assert by_types[f"{split}/{name}"] == pytest.approx(value), (split, name)


def scores_of(held_out, split, score) -> np.ndarray:
    """[D, P, 1] from (document's number, disease) -> score."""
    encoded = held_out._documents[split].encoded
    values = np.zeros([*encoded.arrays["pair_head"].shape, 1], np.float32)
    for row, pairs in enumerate(encoded.pairs):
        for column, pair in enumerate(pairs):
            values[row, column] = score(int(pair.document_id), pair.tail_id)
    return values


def test_the_threshold_comes_from_dev_alone(runtime):
    """Scores that are 0.3 for what is stated and 0.2 else: 0.25 finds all. On test the same but for one stated pair."""
    held_out = trained(runtime).experiment.prepared.held_out
    plain = scores_of(held_out, "dev", lambda number, disease: 0.3 if disease in stated(number) else 0.2)
    test = scores_of(held_out, "test", lambda number, disease: 0.3 if disease in stated(number) else 0.2)
    facts = held_out._documents["test"].gold.facts
    missed = next(iter(facts))
    row = [pairs[0].document_id for pairs in held_out._documents["test"].encoded.pairs].index(missed[0])
    column = [pair.tail_id for pair in held_out._documents["test"].encoded.pairs[row]].index(missed[3])
    test[row, column] = 0.24
    metrics = held_out.metrics({"dev": plain, "test": test})
    assert metrics["dev/threshold"] == pytest.approx(0.25) and metrics["dev/f1"] == 1
    assert metrics["test/recall"] == pytest.approx(1 - 1 / len(facts)) and metrics["test/precision"] == 1
    apart = ("f1_intra", "f1_inter") if facts[missed] else ("f1_inter", "f1_intra")
    assert metrics[f"test/{apart[0]}"] < metrics[f"test/{apart[1]}"] == 1
    only_test = held_out.metrics({"test": test})
    assert only_test["test/recall"] == 0 and "dev/threshold" not in only_test, "0.5 without dev"
    none = held_out.metrics({"dev": 0 * plain - 1, "test": np.where(test, np.nan, 0)})
    assert all(np.isnan(value) for value in none.values()) and held_out.points({"test": test * np.nan}) is None


@pytest.mark.slow  # of bags and of clients' classes the command is among the quick tests
def test_the_commands_of_a_run(runtime, capsys):
    typed = command(capsys, "evaluate", trained(runtime).folder, "--split", "train")
    assert typed.code == 0 and typed.err == "" and HIDDEN not in typed.out and "f1_worst" in typed.out


@pytest.mark.slow
def test_a_run_that_was_broken_off_comes_to_the_same(runtime, tmp_path):
    """Bit for bit, with the client states of the contrast, dropout and the chosen round."""
    wanted, folder = trained(runtime), tmp_path / "run"
    _, again = resumed(functools.partial(train_table, wanted.table, folder, runtime, details=False), "save", 3, True)
    names = ("metrics.csv", "summary.json", "precision_recall.csv", "partition.json")
    assert_same_files(folder, wanted.folder, *names)
    assert_same_weights(again.weights, wanted.result.weights)


@pytest.mark.slow
def test_the_contrast_counts_from_the_second_round_on(runtime, tmp_path):
    """Clients keep no contexts before they have trained; without the contrast the rest is the same."""
    run = trained(runtime)
    with_contrast = read_history(RunFolder(run.folder))
    train_table(document_table(algorithm={"mu": 0.0}), tmp_path / "run", runtime, details=False)
    rows = read_history(RunFolder(tmp_path / "run"))
    assert rows[0]["local/loss"] == with_contrast[0]["local/loss"]
    assert rows[-1]["local/loss"] != with_contrast[-1]["local/loss"]


# Who holds what.


def test_clients_hold_documents_by_their_entropy_and_the_server_those_to_judge_by():
    from datasets.documents.statistics import document_statistics

    prepared = prepare(document_table())
    assert prepared.held_out.splits == ("dev", "test") and prepared.held_out.criterion == "f1"
    assert sum(len(client.train["y"]) for client in prepared.examples.clients) == 12
    assert not any(len(client.test["y"]) for client in prepared.examples.clients)
    corpus = load_documents("cdr", data_folder(), path=data_folder() / "cdr" / "train.pubtator")
    values = [row["entropy"] for row in document_statistics(prepared.partition, corpus).rows]
    assert values == sorted(values) and len(set(values)) == len(values) == 3
    assert any(note == "training: 12 documents, 10 positive and 17 negative pairs, 12 of them in one sentence" for note
               in prepared.notes)  # fmt: skip
    assert "no hypernym filtering: all 17 negative pairs are kept" in prepared.notes
    assert not any(HIDDEN in note for note in prepared.notes)


def test_the_partition_command_shows_the_clients_documents(capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", document_table())
    typed = command(capsys, "partition", recipe, "--out", tmp_path / "out")
    assert typed.code == 0 and typed.err == "" and HIDDEN not in typed.out
    assert all(heading in typed.out for heading in ("Documents", "entities", "mentions", "pairs", "entropy"))
    names = {"partition.json", "partition.png", "documents.csv", "documents.png", "entropy.csv", "entropy.png"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert all(name in typed.out for name in names)
    with open(tmp_path / "out" / "documents.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["documents"]) for row in rows) == 12 and sum(int(row["positive"]) for row in rows) == 10
    assert [row["client"] for row in rows] == list(prepare(document_table()).partition.clients)


def documents_of(prepared, split) -> set:
    return {pairs[0].document_id for pairs in prepared.held_out._documents[split].encoded.pairs}


def test_dev_documents_are_drawn_by_a_seed_of_their_own(tmp_path):
    dev = documents_of(prepare(document_table()), "dev")
    iid = {"partition": {"name": "iid", "num_clients": 3}}
    other_run = prepare(document_table(**iid), seed=1)
    assert documents_of(other_run, "dev") == dev and len(dev) == 5
    assert other_run.partition.clients != prepare(document_table(**iid)).partition.clients
    seeds = {frozenset(documents_of(prepare(document_table(task={"dev_seed": s})), "dev")) for s in range(4)}
    assert len(seeds) > 1
    few = prepare(document_table(task={"subset": 5}))
    assert sum(len(client.train["y"]) for client in few.examples.clients) == 5
    assert any(note == "5 of 12 documents, drawn" for note in few.notes)
    fewer = prepare(document_table(task={"test_subset": 6}))
    assert [len(documents_of(fewer, split)) for split in ("dev", "test")] == [3, 3]
    assert "test: 6 of 10 documents, drawn" in fewer.notes


def test_dev_may_be_a_split(tmp_path):
    for name, numbers in (("train", range(12)), ("dev", range(100, 104)), ("test", range(200, 206))):
        write_documents(tmp_path / "cdr" / f"{name}.pubtator.gz", numbers)
    task = {"path": None, "test_path": None, "test_split": "test", "dev_split": "dev"}
    prepared = prepare(document_table(task=task), data=tmp_path)
    assert documents_of(prepared, "dev") == {str(n) for n in range(100, 104)}
    assert documents_of(prepared, "test") == {str(n) for n in range(200, 206)}


def test_hypernyms_are_left_out_by_a_file_of_mesh(tmp_path):
    """The third disease is above the second, which is stated of every third drug: there its pair is left out."""
    mesh = tmp_path / "tree.txt"
    mesh.write_text(f"{DISEASES[1]}\tC01.100\n{DISEASES[2]}\tC01\n", "utf-8")
    prepared = prepare(document_table(task={"mesh_tree": str(mesh)}))
    lost = sum(n % 4 == 0 and n % 3 == 1 for n in range(12))
    assert lost and f"training: 12 documents, 10 positive and {17 - lost} negative pairs" in "\n".join(prepared.notes)
    assert not any("no hypernym filtering" in note for note in prepared.notes if note.startswith("hyper"))
    assert f"hypernym filtering with 2 descriptors of MeSH: {17 - lost} of 17 negative pairs" in "\n".join(
        prepared.notes
    )


# Other models and algorithms.


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        *({"algorithm": {"name": name}} for name in ("fedavgs", "fedprox", "fedatts", "fedpap", "scaffold")),
        {"algorithm": {"name": "moon"}},
        {"model": {"loss": "adaptive_threshold", "frozen_layers": 1}},
        {"model": {"window": 24, "recompute": True}},
    ],
    ids=str,
)
def test_others_train_by_recipe(sections, runtime, tmp_path):
    table = document_table(training={"rounds": 2, "client_fraction": 0.67}, **sections)
    _, result = train_table(table, tmp_path / "run", runtime)
    rows = read_history(RunFolder(tmp_path / "run"))
    assert [row["clients/counted"] for row in rows] == [2, 2] and result.chosen[1] == "dev/f1"


# What is refused.


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ({"task": {"longest": 20}}, "pieces, more than the 20 allowed"),
        ({"task": {"label": "both"}}, "label"),
        ({"task": {"mesh_tree": "none.bin"}}, "none.bin"),
        ({"task": {"test_path": None}}, "dev.pubtator"),
        ({"task": {"tokenizer": "plain"}}, 'does not know the marker of mentions, "*"; use an encoder that has it'),
        ({"model": {"block_size": 5}}, "its width 16 is not a multiple of model.block_size, 5"),
        ({"algorithm": {"name": "fedrs"}}, "fedrs: needs examples with one class"),
        ({"partition": {"name": "structural_entropy", "num_clients": 3, "form": "released_code"}}, "cuts"),
        ({"partition": {"name": "by_field", "field": "speaker"}}, "speaker"),
    ],
    ids=str,
)
def test_what_does_not_fit(sections, wanted, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("TFF_RE_DATA", raising=False)
    if sections.get("task") == {"tokenizer": "plain"}:
        sections = {"task": {"tokenizer": str(encoder())}}
    recipe = write_recipe(tmp_path / "r.toml", document_table(**sections))
    (tmp_path / "empty").mkdir()
    typed = command(capsys, "train", recipe, "--data", tmp_path / "empty", "--out", tmp_path / "out")
    assert HIDDEN not in refusal(typed, wanted) + typed.out
    assert not (tmp_path / "out").exists()


def test_partition_files(runtime, capsys, tmp_path):
    file = trained(runtime).folder / "partition.json"
    same = prepare(document_table(), seed=5, partition=file)
    assert same.partition.clients == prepare(document_table()).partition.clients
    ids = [sample_id for client in same.partition.clients.values() for sample_id in client.train]
    everything = ClientSamples(tuple(ids[3:]), ())
    for partition, part in (
        (Partition("iid", {}, 0, {"a": ClientSamples(tuple(ids[3:]), tuple(ids[:3]))}), "holds documents out"),
        (Partition("iid", {}, 0, {"a": everything}, (), tuple(ids[:3])), "holds documents out"),
        (Partition("iid", {}, 0, {"a": everything}), "p.json"),
    ):
        write_partition(partition, tmp_path / "p.json")
        recipe = write_recipe(tmp_path / "r.toml", document_table())
        typed = command(capsys, "train", recipe, "--partition", tmp_path / "p.json", "--out", tmp_path / "out")
        assert HIDDEN not in refusal(typed, part)
    assert not (tmp_path / "out").exists()


def test_splits_that_cannot_judge(capsys, tmp_path):
    def refused(numbers, *parts, **task):
        path = write_documents(tmp_path / "own.pubtator", numbers)
        recipe = write_recipe(tmp_path / "r.toml", document_table(task={"test_path": str(path), **task}))
        typed = command(capsys, "train", recipe, "--out", tmp_path / "out")
        assert HIDDEN not in refusal(typed, *parts) + typed.out

    refused([100], "setting documents apart needs at least two documents", "use a split of its own")
    nothing = ["none of its", "documents states a relation", "choose other splits or another dev_share"]
    refused([102, 108], "documents of dev", *nothing)
    refused([102, 108], "documents of test", *nothing, dev_share=0.0)
    refused([3, 101], "held-out documents", "1 documents are also among those of the clients", dev_share=0.0)
    empty = tmp_path / "empty.pubtator"
    empty.write_text("", "utf-8")
    recipe = write_recipe(tmp_path / "r.toml", document_table(task={"path": str(empty)}))
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "out"), "empty.pubtator")
    assert not (tmp_path / "out").exists()


def test_a_bad_line_is_named_and_not_shown(capsys, tmp_path):
    """The other faults of a line are in tests/datasets/documents."""
    lines = pubtator_block(1)
    assert lines[2] == "1\t6\t10\tdrug\tChemical\tC1"
    lines[2] = f"1\tsix\t10\t{HIDDEN}\tChemical\tC1"
    path = tmp_path / "own.pubtator"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    recipe = write_recipe(tmp_path / "r.toml", document_table(task={"path": str(path)}))
    typed = command(capsys, "train", recipe, "--out", tmp_path / "out")
    assert HIDDEN not in refusal(typed, path, "line 3") + typed.out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"frozen_layers": 1}, {"adapter": {"kind": "lora", "rank": 4}}])
def test_fedlcc_with_frozen_layers_and_with_an_adapter(keys, runtime, tmp_path):
    table = document_table(model=keys, task={"tokenizer": str(marking_encoder(layers=2))})
    experiment, result = train_table(table, tmp_path / "run", runtime)
    assert 0 <= result.server_evaluation.metrics["test/f1"] <= 1 and not result.weights.non_trainable
    start = experiment.model.initial_weights(0)
    assert not all(np.array_equal(a, b) for a, b in zip(start.trainable, result.weights.trainable, strict=True))


@pytest.mark.slow
def test_fedlcc_with_all_layers_frozen_is_the_unweighted_mean(runtime, tmp_path):
    """The localized context is made of the encoder's weights alone: the contrast is the constant ln 2, at any mu."""
    keys = {
        "model": {"frozen_layers": 2, "encoder_dropout": 0.0},
        "task": {"tokenizer": str(marking_encoder(layers=2))},
    }
    plain = document_table(**keys, algorithm={"name": "fedavgs", "weighting": "uniform", "local_epochs": 1})
    tables = {"mean": plain, "contrast": document_table(**keys, algorithm={"mu": 5.0})}
    trained = {name: train_table(table, tmp_path / name, runtime)[1].weights for name, table in tables.items()}
    for ours, theirs in zip(trained["mean"].trainable, trained["contrast"].trainable, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    first, second, _ = (
        [row["local/loss"] for row in rows]
        for rows in zip(*(read_history(RunFolder(tmp_path / name)) for name in tables), strict=True)
    )
    assert first[0] == first[1] and second[0] < second[1] <= second[0] + 5 * np.log(2) + 1e-5
