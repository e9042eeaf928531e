"""Exported models of bags and of documents: the training process's predictions, from files, by TensorFlow alone."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.metrics import f1_score

from computations.bag_evaluation import POOLINGS
from datasets.bags.loading import load_bags, load_unlabelled_bags
from datasets.documents.encoding import Widths
from tests.bags_for_tests import HIDDEN, data_folder, nyt10_lines, write_lines
from tests.documents_for_tests import write_documents
from tests.exports_for_tests import arguments, assert_without, export_of, printed_by_the_card, with_weights
from tests.models.encoders_for_tests import encoder
from tests.recipe_data_for_tests import data_folder as recipe_data_folder
from tests.upper_floors import command, refusal, share_computations
from tff_re import models
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.exporting.forms import HALF_TOLERANCE
from tff_re.exporting.kinds.bags import BagPredictor
from tff_re.exporting.kinds.documents import DocumentPredictor
from tff_re.exporting.prediction import load_export
from tff_re.sites.validation import signed_file

pytestmark = [pytest.mark.xdist_group("bags"), pytest.mark.bfloat16]


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


BAGS = data_folder() / "nyt10" / "nyt10_test.txt"
DOCUMENTS = recipe_data_folder() / "cdr" / "test.pubtator"


# A run of documents is trained and exported by the slow tests alone; the quick ones take a model as training would have
# left it.
BOTH = pytest.mark.parametrize("kind", ["bags", pytest.param("documents", marks=pytest.mark.slow)])


@pytest.fixture
def made(request):
    return lambda kind: request.getfixturevalue(f"run_of_{kind}")


def test_bags_of_a_file_get_the_training_processs_scores(made):
    predictor = load_export(made("bags").export)
    assert isinstance(predictor, BagPredictor) and predictor.kind == "bags"
    corpus = made("bags").experiment.prepared.held_out.corpora["test"]
    expected = made("bags").evaluation.scores["test"]
    assert np.ptp(expected, axis=0).max() > 1e-3, "bags are told apart"
    np.testing.assert_allclose(predictor.scores(corpus), expected, rtol=0, atol=1e-5)

    predictions = {(p.head_id, p.tail_id): p for p in predictor.predict_file(BAGS)}
    for (pair, rows), scores in zip(corpus.bags.items(), expected, strict=True):
        prediction = predictions[pair]
        np.testing.assert_allclose(list(prediction.probabilities.values()), scores, rtol=0, atol=1e-5)
        assert prediction.sentences == len(rows)
        assert prediction.label == predictor.labels[1 + int(np.argmax(scores[1:]))] != "NA"
    assert HIDDEN not in repr(predictor) + repr(predictions)


def test_predictions_of_bags_are_sorted_cut_at_devs_threshold_and_named_on_request(made, capsys):
    run = made("bags")
    predictor = load_export(run.export)
    predictions = predictor.predict_file(BAGS)
    probabilities = [prediction.probability for prediction in predictions]
    assert probabilities == sorted(probabilities, reverse=True) and len(set(probabilities)) > 1
    # The threshold of the best F1 on dev, by hand.
    held_out = run.experiment.prepared.held_out
    scores, true = run.evaluation.scores["dev"][:, 1:], held_out._true("dev")
    by_threshold = {float(cut): f1_score(true.ravel(), (scores >= cut).ravel()) for cut in np.unique(scores)}
    reached = f1_score(true.ravel(), (scores >= predictor.threshold).ravel())
    assert reached == pytest.approx(max(by_threshold.values())) and predictor.threshold not in by_threshold
    assert [p.predicted for p in predictions] == [p.probability >= predictor.threshold for p in predictions]

    printed = command(capsys, "predict", run.export, "--file", BAGS)
    assert "the threshold with the best F1 on the run's dev bags" in " ".join(printed.out.split())
    first = predictions[0]
    sentence = next(s for s in load_bags("nyt10", path=BAGS).sentences if s.pair == (first.head_id, first.tail_id))
    head, tail = (sentence.text[slice(*span)] for span in (sentence.head, sentence.tail))
    assert (first.head_name, first.tail_name) == (head, tail) and head not in repr(first)
    assert f"{head} (" not in printed.out
    assert f"{head} (" in command(capsys, "predict", run.export, "--file", BAGS, "--show-text").out
    typed = ("predict", run.export, "--file", BAGS, "--json")
    lines = [command(capsys, *typed, *more).out for more in ((), ("--show-text",))]
    without, with_names = (json.loads(text.splitlines()[0]) for text in lines)
    assert "head_name" not in without and with_names["head_name"] == head and without["predicted"] == first.predicted


def assert_trivial_rows(rows, corpus, named):
    """Of one relation: a row names every pair, the other one the pairs in `named`."""
    pairs = [pair for sample in corpus.samples for pair in sample.pairs]
    assert list(rows) == ["every pair positive", "by the types of a pair, from dev"]
    assert 0 < len(named) < len(pairs)
    for row, of_row in zip(rows.values(), (pairs, named), strict=True):
        assert row["precision"] == pytest.approx(sum(len(pair.labels) for pair in of_row) / len(of_row))


def test_documents_of_a_file_get_the_models_probabilities(capsys):
    export_arguments, export = arguments("documents"), export_of("documents")
    predictor = load_export(export)
    assert isinstance(predictor, DocumentPredictor) and predictor.labels == ("CID",)
    inputs, corpus = export_arguments["inputs"], predictor.read(DOCUMENTS)
    model = models.MODELS["document_encoder"].build(export_arguments["model_options"], inputs, 1)
    widths = Widths(inputs.max_length, inputs.max_mentions, inputs.max_pairs)
    arrays = predictor.encoding.encode(corpus, widths=widths).arrays
    logits = with_weights(model, export_arguments["weights"])({name: arrays[name] for name in inputs.specs})["logits"]
    predictions, expected = predictor.predict_file(DOCUMENTS), tf.sigmoid(logits).numpy()
    assert len(predictions) == len(expected) > 20 and np.ptp(expected) > 1e-3
    np.testing.assert_allclose([[*p.probabilities.values()] for p in predictions], expected, atol=1e-5)
    for prediction, (value,) in zip(predictions, expected, strict=True):
        assert prediction.labels == (("CID",) if value >= predictor.threshold == 0.5 else ()) or abs(value - 0.5) < 1e-5
    typed = command(capsys, "predict", export, "--file", DOCUMENTS, "--json")
    rows = [json.loads(line) for line in typed.out.splitlines()]
    assert typed.code == 0 and HIDDEN not in typed.out
    assert [row["document_id"] for row in rows] == [prediction.document_id for prediction in predictions]
    typed = command(capsys, "evaluate", export, "--file", DOCUMENTS)
    assert (
        typed.code == 0
        and "12 documents, " in in_one_line(typed.out)
        and "threshold │ 0.5000" in in_one_line(typed.out)
    )
    score = predictor.score(DOCUMENTS)
    assert_trivial_rows(score.trivial, corpus, [pair for s in corpus.samples for pair in s.pairs if pair.intra])
    assert "by the types of a pair, from dev" in in_one_line(typed.out)
    facts = score.facts()
    assert facts["counts"]["documents"] == 12 and facts["confusion"] is facts["by_class"] is facts["labels"] is None
    key = Ed25519PrivateKey.generate()
    about = {"name": None, "export": "0" * 64, "file": "0" * 64, "time": "2026-11-26T07:00:00Z", "tff_re": "0.1.0"}
    assert json.loads(signed_file({**about, **facts}, key))["metrics"]["threshold"] == 0.5


@pytest.mark.slow
def test_documents_of_a_file_get_the_training_processs_probabilities(made):
    predictor = load_export(made("documents").export)
    assert isinstance(predictor, DocumentPredictor) and predictor.labels == ("CID",)
    held_out = made("documents").experiment.prepared.held_out
    encoded = held_out._documents["test"].encoded
    expected = {
        (pair.document_id, pair.head_id, pair.tail_id): row
        for pairs, rows in zip(encoded.pairs, made("documents").evaluation.scores["test"], strict=True)
        for pair, row in zip(pairs, rows, strict=False)
    }
    assert len(expected) > 5 and np.ptp(list(expected.values())) > 1e-4
    path = DOCUMENTS
    predictions = {(p.document_id, p.head_id, p.tail_id): p for p in predictor.predict_file(path)}
    for key, row in expected.items():
        np.testing.assert_allclose(list(predictions[key].probabilities.values()), row, rtol=0, atol=HALF_TOLERANCE)
        if abs(row[0] - predictor.threshold) > HALF_TOLERANCE:
            assert predictions[key].labels == (("CID",) if row[0] >= predictor.threshold else ())
    assert predictor.threshold == pytest.approx(made("documents").evaluation.metrics["dev/threshold"], abs=1e-9)


@pytest.mark.slow
def test_a_document_alone_has_the_probabilities_that_it_has_among_others(made):
    predictor = load_export(made("documents").export)
    corpus = predictor.read(DOCUMENTS)
    together = predictor.scores(corpus)
    for sample, scores in zip(corpus.samples[:3], together, strict=False):
        (alone,) = predictor.scores(dataclasses.replace(corpus, samples=(sample,)))
        np.testing.assert_allclose(alone, scores, atol=1e-6)


def test_bags_may_stand_in_any_order_but_none_is_left_out(made):
    arrays = made("bags").experiment.prepared.held_out._bags["test"].arrays
    signature = tf.saved_model.load(str(made("bags").export / "saved_model")).signatures["serving_default"]

    def scores(rows, bag):
        tensors = {name: tf.constant(array[rows]) for name, array in arrays.items() if name != "bag"}
        return signature(**tensors, bag=tf.constant(bag, tf.int32))["probabilities"].numpy()

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


@BOTH
def test_the_card_works_as_it_stands(made, kind, tmp_path):
    sentences = write_lines(tmp_path / "sentences.jsonl", nyt10_lines(range(3)))
    documents = write_documents(tmp_path / "documents.pubtator", range(2))
    printed = printed_by_the_card(made(kind).export, sentences, documents)
    card = (made(kind).export / "README.md").read_text("utf-8")
    assert card.count("```python\n") == 3
    pairs = {"bags": 3, "documents": 5}[kind]
    shape = {"bags": (2, 3), "documents": (1, 2, 1)}[kind]
    assert len(printed) == pairs + 2 and printed[-2:] == [(shape,)] * 2
    for part in ("## Data", "at the server", "## Privacy", "## Limits", "| test | ", "| dev | "):
        assert part in card, part


@BOTH
def test_what_is_written(made, kind):
    export = made(kind).export
    description = json.loads((export / "export.json").read_text("utf-8"))
    assert description["input"]["kind"] == kind
    forms = description["forms"]
    assert set(forms) == {"model.keras", "saved_model", "saved_model_float16"}
    tolerance = HALF_TOLERANCE if kind == "documents" else 1e-5  # which stand behind frozen layers
    assert max(forms["model.keras"]["difference"], forms["saved_model"]["difference"]) <= tolerance
    assert 0 < forms["saved_model_float16"]["difference"] < 1e-2
    files = {"README.md", "labels.json", "encoding.json", "recipe.toml", "environment.json", "export.json"}
    files |= {"training_digests.json"}
    assert {file.name for file in export.iterdir()} == {*files, *forms, "SHA256SUMS"}
    half = load_export(export, "saved_model_float16")
    if kind == "bags":
        corpus = made(kind).experiment.prepared.held_out.corpora["test"]
        np.testing.assert_allclose(half.scores(corpus), load_export(export).scores(corpus), atol=1e-2)
    assert_without(export, str(encoder()), str(data_folder()), os.path.dirname(models.__path__[0]), "then Bonn")


@BOTH
def test_smaller_forms_are_measured_on_what_the_server_holds(made, kind):
    forms = json.loads((made(kind).export / "export.json").read_text("utf-8"))["forms"]
    corpus = made(kind).experiment.prepared.held_out.corpora["test"]
    if kind == "bags":
        key, name, count = "accuracy", "accuracy", f"{len(corpus.bags)} test bags"
        relations = [corpus.sentences[rows[0]].relations for rows in corpus.bags.values()]
        best = made("bags").evaluation.scores["test"].argmax(axis=1)
        expected = np.mean([corpus.relation_names[i] in names for i, names in zip(best, relations, strict=True)])
    else:
        key, name, count = "f1", "F1", f"{len(corpus.samples)} test documents"
        expected = made("documents").evaluation.metrics["test/f1"]
    assert forms["saved_model"][key] == forms["model.keras"][key] == pytest.approx(expected, abs=1e-9)
    assert forms["saved_model_float16"][key] == pytest.approx(expected, abs=0.2)
    card = (made(kind).export / "README.md").read_text("utf-8")
    assert f"| form | size | {name} |" in card and f"The {name} is that on {count} of the run; " in card


# Commands


def in_one_line(text):
    return " ".join(text.split())


def test_predict_and_evaluate_bags(made, capsys, tmp_path):
    export, file = made("bags").export, BAGS
    typed = command(capsys, "predict", export, "--file", file, "--json")
    assert typed.code == 0 and HIDDEN not in typed.out
    rows = [json.loads(line) for line in typed.out.splitlines()]
    assert len(rows) == 12 and set(rows[0]["probabilities"]) == {"NA", "/a/visits", "/b/likes"}
    # A relation that stands there is not read, and need not be there.
    lines = [{key: value for key, value in line.items() if key != "relation"} for line in nyt10_lines(range(9, 21))]
    bare = write_lines(tmp_path / "bare.jsonl", lines)
    assert command(capsys, "predict", export, "--file", bare, "--json").out == typed.out
    printed = command(capsys, "predict", export, "--file", file)
    assert printed.code == 0 and "sentences" in printed.out and "Ann" not in printed.out

    corpus = load_bags("nyt10", path=file)
    assert len(corpus.pairs) == 12
    typed = command(capsys, "evaluate", export, "--file", file)
    assert typed.code == 0 and "12 bags, 10 facts" in in_one_line(typed.out) and "p_at_100" in typed.out
    test_pairs = made("bags").experiment.prepared.held_out.corpora["test"].bags
    had = sum(pair not in test_pairs for pair in corpus.bags)
    assert (
        had > 0
        and f"nyt10_test.txt: {had} of 12 examples match the run's training or dev data ({had} by id" in typed.err
    )
    chance = next(iter(load_export(export).score(file).trivial.items()))
    assert chance[0] == "ranking by chance" and chance[1]["auc"] == pytest.approx(10 / 24)
    # The run's own test bags, those of new pairs that dev does not have, are scored as the run scored them.
    test_bags = made("bags").experiment.prepared.held_out.corpora["test"].bags
    wanted = [line for line in nyt10_lines(range(9, 21)) if (line["h"]["id"], line["t"]["id"]) in test_bags]
    of_run = write_lines(tmp_path / "own.jsonl", wanted)
    typed = command(capsys, "evaluate", export, "--file", of_run)
    assert typed.err == "", "no pair and no sentence of the test bags was trained or chosen on"
    assert f"{made('bags').evaluation.metrics['test/auc']:.4f}" in typed.out.split("auc")[1].split("\n")[0]


@pytest.mark.slow
def test_predict_and_evaluate_documents(made, capsys):
    export, predictor = made("documents").export, load_export(made("documents").export)
    typed = command(capsys, "predict", export, "--file", DOCUMENTS, "--json")
    rows = [json.loads(line) for line in typed.out.splitlines()]
    corpus = predictor.read(DOCUMENTS)
    assert typed.code == 0 and HIDDEN not in typed.out
    assert len(rows) == sum(len(sample.pairs) for sample in corpus.samples) > 20
    assert set(rows[0]) == {"document_id", "head_id", "tail_id", "labels", "probability", "probabilities"}
    printed = command(capsys, "predict", export, "--file", DOCUMENTS)
    assert printed.code == 0 and "document" in printed.out
    typed = command(capsys, "evaluate", export, "--file", DOCUMENTS)
    assert typed.code == 0 and "12 documents, " in in_one_line(typed.out)
    prepared = made("documents").experiment.prepared
    assert [*prepared.trained_on()] == [*prepared.training, *prepared.held_out.corpora["dev"].samples]
    known = {sample.document_id for sample in prepared.trained_on()}
    seen = predictor.score(DOCUMENTS).seen
    assert seen.by_id == sum(sample.document_id in known for sample in corpus.samples)
    assert seen.run_examples == len(prepared.trained_on()) > 0
    judged = made("documents").evaluation.metrics
    trivial = predictor.score(DOCUMENTS).trivial
    facts = sum(len(pair.labels) for sample in corpus.samples for pair in sample.pairs)
    assert trivial["every pair positive"]["precision"] == pytest.approx(facts / len(rows))
    references = made("documents").experiment.prepared.held_out.references()
    assert list(references) == [f"trivial: {name}" for name in trivial] and len(trivial) == 2
    for name, metrics in trivial.items():  # the test split is this file
        expected = {metric: references[f"trivial: {name}"][f"test/{metric}"] for metric in metrics}
        assert metrics == pytest.approx(expected)
    assert f"threshold │ {judged['dev/threshold']:.4f}" in in_one_line(typed.out)
    for name in ("f1", "precision", "recall"):
        assert f"{judged[f'test/{name}']:.4f}" in typed.out.split(f" {name} ")[1].split("\n")[0], name


def test_what_does_not_fit_is_refused(made, capsys, tmp_path):
    bags, documents = made("bags").export, export_of("documents")
    refusal(
        command(capsys, "predict", bags, "Ann visits Bonn"), "takes bags of sentences, not texts", "only with --file"
    )
    refusal(command(capsys, "predict", documents), "takes documents with their entities, not texts")
    refusal(command(capsys, "predict", bags, "--file", BAGS, "--head-type", "x"), "are for texts")
    refusal(command(capsys, "predict", bags, "--file", BAGS, "--dataset", "cdr"), "data set cdr: holds no bags")
    refusal(command(capsys, "predict", documents, "--file", BAGS), "nyt10_test.txt")
    refusal(command(capsys, "predict", bags, "--file", tmp_path / "none"), f"{tmp_path / 'none'}: no such file")
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"text": HIDDEN, "h": {}}) + "\n", "utf-8")
    assert HIDDEN not in refusal(command(capsys, "predict", bags, "--file", broken), "broken.jsonl: line 1")
    typed = command(capsys, "evaluate", bags, "--file", BAGS, "--dataset", "cdr")
    refusal(typed, "takes bags of sentences, which the data set 'cdr'")
    refusal(command(capsys, "evaluate", bags, "--file", BAGS, "--label", "x"), "has no label choices")
    (tmp_path / "nyt10_rel2id.json").write_text(json.dumps({"NA": 0, "/c/other": 1}), "utf-8")
    other = tmp_path / "other.jsonl"
    lines = [json.dumps({**line, "relation": "/c/other"}) + "\n" for line in nyt10_lines(range(2))]
    other.write_text("".join(lines), "utf-8")
    refusal(command(capsys, "evaluate", bags, "--file", other), "1 of its 2 relations are not among the model's 3")
    none = write_lines(tmp_path / "more" / "none.jsonl", nyt10_lines(range(0, 9, 3)))
    refusal(command(capsys, "evaluate", bags, "--file", none), "none of its 3 pairs has a relation")
    refusal(command(capsys, "export", made("bags").folder, "--out", tmp_path / "e", "--tflite"), "leave --tflite")


# All poolings, and encoders with frozen layers


@pytest.mark.parametrize(
    "pooling",
    [
        p if p == "relation_attention" else pytest.param(p, marks=pytest.mark.slow)
        for p in sorted({*POOLINGS} - {"max"})
    ],
)
def test_every_pooling(pooling):
    export_arguments, folder = arguments(f"bags, {pooling}"), export_of(f"bags, {pooling}")
    corpus = load_unlabelled_bags("nyt10", BAGS)
    model = models.MODELS["pcnn"].build(export_arguments["model_options"], export_arguments["inputs"].sentences, 3)
    model = with_weights(model, export_arguments["weights"])
    order = [row for rows in corpus.bags.values() for row in rows]
    bag = np.repeat(np.arange(len(corpus.bags)), [len(rows) for rows in corpus.bags.values()])
    arrays = export_arguments["encoding"].encode([corpus.sentences[row] for row in order]).arrays
    logits = model({name: arrays[name] for name in export_arguments["inputs"].sentences.specs})["logits"]
    assert np.ptp(logits.numpy(), axis=0).max() > 1e-3, "sentences are told apart"
    expected = POOLINGS[pooling](logits, tf.constant(bag, tf.int32), len(corpus.bags)).numpy()
    np.testing.assert_allclose(load_export(folder).scores(corpus), expected, atol=1e-5)


@pytest.mark.slow
def test_frozen_layers_stand_before_the_bags_model():
    corpus = load_unlabelled_bags("nyt10", BAGS)
    scores = load_export(export_of("bags of frozen layers")).scores(corpus)
    assert scores.shape == (12, 3) and np.ptp(scores, axis=0).max() > 1e-3


def test_another_encoding_than_the_models_is_refused(tmp_path):
    export_arguments = arguments("bags")
    for change in ({"encoding": None}, {"encoding": dataclasses.replace(export_arguments["encoding"], max_length=20)}):
        with pytest.raises(ExportError, match=r"its encoding|does not fit the model"):
            export_model(tmp_path / "e", **{**export_arguments, **change})
    assert not (tmp_path / "e").exists()
