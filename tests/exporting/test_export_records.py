"""Exported models of bags and of documents: the training process's predictions, from files, by TensorFlow alone."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tools import saved_model_utils
from transformers import BertTokenizerFast

from computations.bag_evaluation import POOLINGS
from datasets.bags.loading import load_bags, load_unlabelled_bags
from datasets.documents.loading import load_documents
from datasets.encoding_files import document_encoding_from_json, relation_encoding_from_json
from tests.bags_for_tests import (
    HIDDEN,
    data_folder,
    nyt10_lines,
    share_all,
    train_table,
    trained,
    write_lines,
    write_pubtator,
)
from tests.exports_for_tests import arguments, assert_without, export_of, printed_by_the_card, with_weights
from tests.models.encoders_for_tests import PIECES, a_copy, encoder
from tests.upper_floors import command, refusal
from tff_re import models
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.export_run import export_run
from tff_re.exporting.kinds.bags.predictor import BagPredictor
from tff_re.exporting.kinds.documents.predictor import DocumentPredictor
from tff_re.exporting.prediction import load_export
from tff_re.exporting.predictors import PredictionError
from tff_re.runs.evaluation import ServerEvaluator
from tff_re.tasks.data_paths import DataPaths


@pytest.fixture(autouse=True)
def _built_once(monkeypatch, runtime):
    share_all(monkeypatch, runtime)


def document_table(folder: Path) -> dict:
    """Tables of a recipe on tiny documents in PubTator's form; the encoder knows the marker."""
    known = a_copy(folder / "encoder")
    pieces = ["*" if piece == "##z" else piece for piece in PIECES]
    (known / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    (known / "tokenizer.json").unlink()
    BertTokenizerFast(vocab_file=str(known / "vocab.txt")).save_pretrained(known)
    return {
        "name": "tiny-documents",
        "task": {
            "name": "document_relations",
            "dataset": "cdr",
            "path": str(write_pubtator(folder / "train.pubtator", range(6))),
            "test_path": str(write_pubtator(folder / "test.pubtator", range(20, 28))),
            "tokenizer": str(known),
        },
        "partition": {"name": "iid", "num_clients": 2},
        "model": {"name": "document_encoder", "block_size": 8, "frozen_layers": 1},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.01, "local_epochs": 1, "batch_size": 2},
        "training": {"rounds": 1, "client_fraction": 1.0},
        "evaluation": {"train_split": False},
    }


@pytest.fixture(scope="module")
def made(runtime, tmp_path_factory):
    """Kind -> run (folder, experiment, result), the folder of its export and what was typed for it."""
    folder = tmp_path_factory.mktemp("records")

    @functools.cache
    def make(kind):
        if kind == "bags":
            run = trained(runtime, "lazy_mil")
        else:
            experiment, result = train_table(document_table(folder), folder / "run", runtime)
            run = SimpleNamespace(folder=folder / "run", experiment=experiment, result=result)
        with pytest.MonkeyPatch.context() as patch:
            share_all(patch, runtime)
            export = export_run(run.folder, folder / kind, False, DataPaths(), "local", quantise="float16")
        return SimpleNamespace(run=run, export=export)

    return make


@pytest.fixture(scope="module")
def judged(made):
    """Kind -> what the training process says of its test examples."""

    @functools.cache
    def server_evaluator(kind):
        run = made(kind).run
        return ServerEvaluator(run.experiment)(run.result.weights)

    return server_evaluator


def test_bags_of_a_file_get_the_training_processs_scores(made, judged):
    predictor = load_export(made("bags").export)
    assert isinstance(predictor, BagPredictor) and predictor.kind == "bags"
    corpus = made("bags").run.experiment.prepared.held_out_corpora["test"]
    expected = judged("bags").scores["test"]
    assert np.ptp(expected, axis=0).max() > 1e-3, "bags are told apart"
    np.testing.assert_allclose(predictor.scores(corpus), expected, rtol=0, atol=1e-5)

    found = {(p.head_id, p.tail_id): p for p in predictor.predict_file(data_folder() / "nyt10" / "nyt10_test.txt")}
    for (pair, rows), scores in zip(corpus.bags.items(), expected, strict=True):
        prediction = found[pair]
        np.testing.assert_allclose(list(prediction.probabilities.values()), scores, rtol=0, atol=1e-5)
        assert prediction.sentences == len(rows)
        assert prediction.label == predictor.labels[1 + int(np.argmax(scores[1:]))] != "NA"
    assert HIDDEN not in repr(predictor) + repr(found)


def test_documents_of_a_file_get_the_training_processs_probabilities(made, judged):
    predictor = load_export(made("documents").export)
    assert isinstance(predictor, DocumentPredictor) and predictor.labels == ("CID",)
    held_out = made("documents").run.experiment.prepared.held_out
    encoded = held_out._documents["test"].encoded
    expected = {
        (pair.document_id, pair.head_id, pair.tail_id): row
        for pairs, rows in zip(encoded.pairs, judged("documents").scores["test"], strict=True)
        for pair, row in zip(pairs, rows, strict=False)
    }
    assert len(expected) > 5 and np.ptp(list(expected.values())) > 1e-4
    path = made("documents").run.experiment.recipe.task.options.test_path
    found = {(p.document_id, p.head_id, p.tail_id): p for p in predictor.predict_file(path)}
    for key, row in expected.items():
        np.testing.assert_allclose(list(found[key].probabilities.values()), row, rtol=0, atol=1e-5)
        if abs(row[0] - predictor.threshold) > 1e-5:
            assert found[key].labels == (("CID",) if row[0] >= predictor.threshold else ())
    assert predictor.threshold == pytest.approx(judged("documents").metrics["dev/threshold"], abs=1e-9)


def encoded_inputs(made, kind):
    """(inputs of the signature, what the training process makes of them)."""
    held_out = made(kind).run.experiment.prepared.held_out
    if kind == "bags":
        return dict(held_out._bags["test"].arrays)
    arrays = held_out._documents["test"].encoded.arrays
    return {name: array for name, array in arrays.items() if name not in ("y", "pair_labels")}


def signature_of(folder):
    definition = saved_model_utils.get_meta_graph_def(str(folder), "serve").signature_def["serving_default"]

    def form(tensors):
        return {
            name: (tf.dtypes.as_dtype(tensor.dtype).name, [d.size for d in tensor.tensor_shape.dim])
            for name, tensor in tensors.items()
        }

    return form(definition.inputs), form(definition.outputs)


@pytest.mark.parametrize("form", ["saved_model", "saved_model_float16"])
def test_the_signatures(made, form):
    inputs, outputs = signature_of(made("bags").export / form)
    rows = dict.fromkeys(("input_ids", "attention_mask", "head_mask", "tail_mask"), ("int32", [-1, 16]))
    places = dict.fromkeys(("head_start", "tail_start", "bag"), ("int32", [-1]))
    assert inputs == {**rows, **places} and outputs == {"probabilities": ("float32", [-1, 3])}
    inputs, outputs = signature_of(made("documents").export / form)
    names = ("input_ids", "attention_mask", "mention_place", "mention_entity", "pair_head", "pair_tail")
    assert inputs == dict.fromkeys(names, ("int32", [-1, -1]))
    assert outputs == {"probabilities": ("float32", [-1, -1, 1])}


def test_a_document_alone_has_the_probabilities_that_it_has_among_others(made):
    predictor = load_export(made("documents").export)
    corpus = predictor.read(made("documents").run.experiment.recipe.task.options.test_path)
    together = predictor.scores(corpus)
    for sample, scores in zip(corpus.samples[:3], together, strict=False):
        (alone,) = predictor.scores(dataclasses.replace(corpus, samples=(sample,)))
        np.testing.assert_allclose(alone, scores, atol=1e-6)


def test_bags_may_stand_in_any_order_but_none_is_left_out(made):
    arrays = encoded_inputs(made, "bags")
    signature = tf.saved_model.load(str(made("bags").export / "saved_model")).signatures["serving_default"]

    def scores(rows, bag):
        given = {name: tf.constant(array[rows]) for name, array in arrays.items() if name != "bag"}
        return signature(**given, bag=tf.constant(bag, tf.int32))["probabilities"].numpy()

    rows = np.random.default_rng(0).permutation(len(arrays["bag"]))
    whole = scores(np.arange(len(rows)), arrays["bag"])
    np.testing.assert_allclose(scores(rows, arrays["bag"][rows]), whole, atol=1e-6)
    # A bag of one sentence has that sentence's own, of which a bag's are the highest.
    alone = scores(np.arange(4), [0, 1, 2, 3])
    np.testing.assert_allclose(alone.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(scores(np.arange(4), [0, 0, 0, 0]), alone.max(axis=0)[np.newaxis], atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="bags without a sentence"):
        scores(np.arange(2), [0, 2])


# What lies in the folder


@pytest.mark.parametrize("kind", ["bags", "documents"])
def test_the_card_works_as_it_stands(made, kind, tmp_path):
    sentences = write_lines(tmp_path / "sentences.jsonl", nyt10_lines(range(3)))
    documents = write_pubtator(tmp_path / "documents.pubtator", range(2))
    printed = printed_by_the_card(made(kind).export, sentences, documents)
    card = (made(kind).export / "README.md").read_text("utf-8")
    assert card.count("```python\n") == 3
    pairs = {"bags": 3, "documents": 6}[kind]
    shape = {"bags": (2, 3), "documents": (1, 2, 1)}[kind]
    assert len(printed) == pairs + 2 and printed[-2:] == [(shape,)] * 2
    for part in ("## Data", "at the server", "## Privacy", "## Limits", "| test | ", "| dev | "):
        assert part in card, part


@pytest.mark.parametrize("kind", ["bags", "documents"])
def test_what_is_written(made, kind):
    export = made(kind).export
    description = json.loads((export / "export.json").read_text("utf-8"))
    assert description["input"]["kind"] == kind
    forms = description["forms"]
    assert set(forms) == {"model.keras", "saved_model", "saved_model_float16"}
    assert max(forms["model.keras"]["difference"], forms["saved_model"]["difference"]) <= 1e-5
    assert 0 < forms["saved_model_float16"]["difference"] < 1e-2
    files = {"README.md", "labels.json", "encoding.json", "recipe.toml", "environment.json", "export.json"}
    assert {file.name for file in export.iterdir()} == {*files, *forms, "SHA256SUMS"}
    half = load_export(export, "saved_model_float16")
    if kind == "bags":
        corpus = made(kind).run.experiment.prepared.held_out_corpora["test"]
        np.testing.assert_allclose(half.scores(corpus), load_export(export).scores(corpus), atol=1e-2)
    assert_without(export, str(encoder()), str(data_folder()), os.path.dirname(models.__path__[0]), "then Bonn")


@pytest.mark.parametrize("kind", ["bags", "documents"])
def test_smaller_forms_are_measured_on_what_the_server_holds(made, judged, kind):
    forms = json.loads((made(kind).export / "export.json").read_text("utf-8"))["forms"]
    corpus = made(kind).run.experiment.prepared.held_out_corpora["test"]
    if kind == "bags":
        key, name, count = "accuracy", "accuracy", f"{len(corpus.bags)} test bags"
        relations = [corpus.sentences[rows[0]].relations for rows in corpus.bags.values()]
        best = judged("bags").scores["test"].argmax(axis=1)
        expected = np.mean([corpus.relation_names[i] in names for i, names in zip(best, relations, strict=True)])
    else:
        key, name, count = "f1", "F1", f"{len(corpus.samples)} test documents"
        expected = judged("documents").metrics["test/f1"]
    assert forms["saved_model"][key] == forms["model.keras"][key] == pytest.approx(expected, abs=1e-9)
    assert forms["saved_model_float16"][key] == pytest.approx(expected, abs=0.2)
    card = (made(kind).export / "README.md").read_text("utf-8")
    assert f"| form | size | {name} |" in card and f"The {name} is that on {count} of the run; " in card


def test_the_stored_encodings_encode_as_in_training(made):
    corpus = made("bags").run.experiment.prepared.held_out_corpora["test"]
    own = made("bags").run.experiment.prepared.encoding
    stored = relation_encoding_from_json((made("bags").export / "encoding.json").read_text("utf-8"))
    for name, array in own.encode(corpus.sentences).arrays.items():
        np.testing.assert_array_equal(stored.encode(corpus.sentences).arrays[name], array)
    documents = made("documents").run.experiment.prepared.held_out_corpora["test"]
    own = made("documents").run.experiment.prepared.encoding
    stored = document_encoding_from_json((made("documents").export / "encoding.json").read_text("utf-8"))
    for name, array in own.encode(documents).arrays.items():
        np.testing.assert_array_equal(stored.encode(documents).arrays[name], array)


# Commands


def in_one_line(text):
    return " ".join(text.split())


def test_predict_and_evaluate_bags(made, judged, capsys, tmp_path):
    export, file = made("bags").export, data_folder() / "nyt10" / "nyt10_test.txt"
    typed = command(capsys, "predict", export, "--file", file, "--json")
    assert typed.code == 0 and HIDDEN not in typed.out
    found = [json.loads(line) for line in typed.out.splitlines()]
    assert len(found) == 12 and set(found[0]["probabilities"]) == {"NA", "/a/visits", "/b/likes"}
    # A relation that stands there is not read, and need not be there.
    lines = [{key: value for key, value in line.items() if key != "relation"} for line in nyt10_lines(range(9, 21))]
    bare = write_lines(tmp_path / "bare.jsonl", lines)
    assert command(capsys, "predict", export, "--file", bare, "--json").out == typed.out
    shown = command(capsys, "predict", export, "--file", file)
    assert shown.code == 0 and "sentences" in shown.out and "Ann" not in shown.out

    corpus = load_bags("nyt10", path=file)
    assert len(corpus.pairs) == 12
    typed = command(capsys, "evaluate", export, "--file", file)
    assert typed.code == 0 and "12 bags, 10 facts" in in_one_line(typed.out) and "p_at_100" in typed.out
    # The run's own test bags, those of new pairs that dev does not have, are scored as the run scored them.
    kept = made("bags").run.experiment.prepared.held_out_corpora["test"].bags
    wanted = [line for line in nyt10_lines(range(9, 21)) if (line["h"]["id"], line["t"]["id"]) in kept]
    own = write_lines(tmp_path / "own.jsonl", wanted)
    typed = command(capsys, "evaluate", export, "--file", own)
    assert f"{judged('bags').metrics['test/auc']:.4f}" in typed.out.split("auc")[1].split("\n")[0]


def test_predict_and_evaluate_documents(made, judged, capsys):
    export = made("documents").export
    file = made("documents").run.experiment.recipe.task.options.test_path
    typed = command(capsys, "predict", export, "--file", file, "--json")
    found = [json.loads(line) for line in typed.out.splitlines()]
    assert typed.code == 0 and len(found) == 24 and HIDDEN not in typed.out
    assert set(found[0]) == {"document_id", "head_id", "tail_id", "labels", "probability", "probabilities"}
    shown = command(capsys, "predict", export, "--file", file)
    assert shown.code == 0 and "document" in shown.out
    typed = command(capsys, "evaluate", export, "--file", file)
    assert typed.code == 0 and "8 documents, 8 facts" in in_one_line(typed.out)
    assert f"threshold │ {judged('documents').metrics['dev/threshold']:.4f}" in in_one_line(typed.out)
    corpus = load_documents("cdr", path=file)
    predictor = load_export(export)
    right = sum((p.labels == ("CID",)) and (p.head_id[1:] == p.tail_id[1:]) for p in predictor.predict(corpus))
    assert f"{right / 8:.4f}" in typed.out.split("recall")[1].split("\n")[0]


def test_what_does_not_fit_is_refused(made, capsys, tmp_path):
    bags, documents = made("bags").export, made("documents").export
    refusal(command(capsys, "predict", bags, "Ann visits Bonn"), "takes bags of sentences, not texts", "--file alone")
    refusal(command(capsys, "predict", documents), "takes documents with their entities, not texts")
    file = data_folder() / "nyt10" / "nyt10_test.txt"
    refusal(command(capsys, "predict", bags, "--file", file, "--head-type", "x"), "are for texts")
    refusal(command(capsys, "predict", bags, "--file", file, "--dataset", "cdr"), "data set cdr: holds no bags")
    refusal(command(capsys, "predict", documents, "--file", file), "nyt10_test.txt")
    refusal(command(capsys, "predict", bags, "--file", tmp_path / "none"), f"{tmp_path / 'none'}: no such file")
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"text": HIDDEN, "h": {}}) + "\n", "utf-8")
    assert HIDDEN not in refusal(command(capsys, "predict", bags, "--file", broken), "broken.jsonl: line 1")
    refusal(command(capsys, "evaluate", bags, "--file", file, "--dataset", "cdr"), "takes bags, the data set 'cdr'")
    refusal(command(capsys, "evaluate", bags, "--file", file, "--label", "x"), "has no label choices")
    (tmp_path / "nyt10_rel2id.json").write_text(json.dumps({"NA": 0, "/c/other": 1}), "utf-8")
    other = tmp_path / "other.jsonl"
    other.write_text(
        "".join(json.dumps({**line, "relation": "/c/other"}) + "\n" for line in nyt10_lines(range(2))), "utf-8"
    )
    refusal(command(capsys, "evaluate", bags, "--file", other), "1 of its 2 relations are not among the model's 3")
    none = write_lines(tmp_path / "more" / "none.jsonl", nyt10_lines(range(0, 9, 3)))
    refusal(command(capsys, "evaluate", bags, "--file", none), "none of its 3 pairs is related")
    refusal(command(capsys, "export", made("bags").run.folder, "--out", tmp_path / "e", "--tflite"), "leave --tflite")


def test_damaged_encodings(made, tmp_path):
    folder = shutil.copytree(made("documents").export, tmp_path / "e")
    for text, reason in (
        ("{}", "is not the JSON of an encoding of documents"),
        ('{"encoding": "documents", "version": 1}', 'has no "marker"'),
        ('{"encoding": "documents", "version": 1, "marker": "*", "longest": null, "special": {}, "tokenizer": 3}',
         "is not the JSON of a tokenizer"),
    ):  # fmt: skip
        (folder / "encoding.json").write_text(text, "utf-8")
        with pytest.raises(PredictionError, match=reason):
            load_export(folder)


# All poolings, and encoders with frozen layers


@pytest.mark.parametrize("pooling", sorted(set(POOLINGS) - {"max"}))
def test_every_pooling(pooling):
    given, folder = arguments(f"bags, {pooling}"), export_of(f"bags, {pooling}")
    corpus = load_unlabelled_bags("nyt10", data_folder() / "nyt10" / "nyt10_test.txt")
    model = models.module("pcnn").build(given["model_options"], given["inputs"].sentences, 3)
    model = with_weights(model, given["weights"])
    order = [row for rows in corpus.bags.values() for row in rows]
    bag = np.repeat(np.arange(len(corpus.bags)), [len(rows) for rows in corpus.bags.values()])
    arrays = given["encoding"].encode([corpus.sentences[row] for row in order]).arrays
    logits = model({name: arrays[name] for name in given["inputs"].sentences.specs})["logits"]
    assert np.ptp(logits.numpy(), axis=0).max() > 1e-3, "sentences are told apart"
    expected = POOLINGS[pooling](logits, tf.constant(bag, tf.int32), len(corpus.bags)).numpy()
    np.testing.assert_allclose(load_export(folder).scores(corpus), expected, atol=1e-5)


def test_frozen_layers_stand_before_the_bags_model():
    corpus = load_unlabelled_bags("nyt10", data_folder() / "nyt10" / "nyt10_test.txt")
    scores = load_export(export_of("bags of frozen layers")).scores(corpus)
    assert scores.shape == (12, 3) and np.ptp(scores, axis=0).max() > 1e-3


def test_another_encoding_than_the_models_is_refused(tmp_path):
    given = arguments("bags")
    for change in ({"encoding": None}, {"encoding": dataclasses.replace(given["encoding"], max_length=20)}):
        with pytest.raises(ExportError, match=r"its encoding|not the model's"):
            export_model(tmp_path / "e", **{**given, **change})
    assert not (tmp_path / "e").exists()
