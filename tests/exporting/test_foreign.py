"""Exports in a process that has nothing of this project: the trained models' predictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from computations.stack import KERAS, KERAS_MODULE
from datasets.bags.encoding import encode_bags
from datasets.bags.loading import load_unlabelled_bags
from datasets.entities.tags import spans_of
from tests import bags_for_tests, documents_for_tests
from tests.exporting import test_export as texts
from tests.exporting import test_export_entities as entities
from tests.exporting import test_export_relations as relations
from tests.exporting import test_export_text_pieces as pieces
from tests.exports_for_tests import ENTITY_TYPES, export_of
from tff_re.exporting.prediction import load_export

pytestmark = pytest.mark.xdist_group("exports")

ROOT = Path(__file__).parents[2]

PROBABILITIES = "probabilities"

FOREIGN = """
import importlib.abc, json, sys
refused = set("tff_re computations datasets transformers tokenizers tensorflow_federated tensorflow_text".split())
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in refused:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import functools, importlib
import tensorflow as tf
keras = importlib.import_module(sys.argv[2])
load = functools.cache(tf.saved_model.load)
for folder, signature, inputs, has_keras, with_text, output in json.load(open(sys.argv[1], encoding="utf-8")):
    if with_text:
        refused.discard("tensorflow_text")
        import tensorflow_text
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    answer = load(folder + "/saved_model").signatures[signature](**inputs)[output]
    answers = [answer.numpy().tolist()]
    if has_keras:
        model, (values,) = keras.models.load_model(folder + "/model.keras"), inputs.values()
        answers.append(model(values)["probabilities"].numpy().tolist())
        answers.append(model.predict(values, verbose=0)["probabilities"].tolist())
    print(json.dumps(answers))
"""


def close(answer, expected):
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-5)


def text_tasks(kinds=tuple(texts.KINDS)):
    for kind in kinds:
        export_arguments, folder = texts.export_of(kind)
        encoding = export_arguments["encoding"]
        values = np.eye(4, dtype=np.float32) if encoding is None else list(texts.HARD_TEXTS)
        sent = values.tolist() if encoding is None else [encoding.prepare(text) for text in values]
        expected = texts.expected_probabilities(export_arguments, values)
        inputs = {"x" if encoding is None else "text": sent}
        yield [str(folder), "serving_default", inputs, True, False, PROBABILITIES], expected, close


def relation_tasks(kinds):
    for kind in kinds:  # tensorflow-text is refused till the last
        expected = relations.trained_probabilities(kind)
        assert np.ptp(expected, axis=0).max() > 1e-3, "texts are told apart"
        for signature, inputs in relations.calls(kind):
            task = [str(export_of(kind)), signature, inputs, False, kind == relations.PIECES, PROBABILITIES]
            yield task, kind, relations.assert_close


def encoded_tasks():
    """Bags and documents, which are encoded outside of the graph."""
    predictor = load_export(export_of("bags"))
    corpus = load_unlabelled_bags("nyt10", bags_for_tests.data_folder() / "nyt10" / "nyt10_test.txt")
    arrays = dict(encode_bags(corpus, predictor.encoding, label_names=predictor.labels)[0].arrays)
    yield as_task("bags", arrays, predictor), predictor.scores(corpus), close
    predictor = load_export(export_of("documents"))
    corpus = predictor.read(documents_for_tests.data_folder() / "cdr" / "dev.pubtator")

    def of_documents(answer, expected):
        for rows, scores in zip(answer, expected, strict=True):
            close(rows[: len(scores)], scores)

    arrays = predictor.encoding.encode(corpus, corpus.samples).arrays
    yield as_task("documents", arrays, predictor), predictor.scores(corpus), of_documents


def as_task(kind, arrays, predictor):
    inputs = {name: arrays[name].tolist() for name in predictor.description["arrays"]}
    return [str(export_of(kind)), "serving_default", inputs, False, False, PROBABILITIES]


def piece_tasks():
    task = [str(pieces.export_of("plain")), "serving_default", {"text": list(pieces.TEXTS)}, False, True, PROBABILITIES]
    yield task, pieces.trained("plain")[1], close


def entity_tasks(kinds=(entities.CHARACTERS,)):
    """The tags and offsets of each text, from which this process decodes the trained model's entities."""
    for kind in kinds:
        for output in ("tags", "starts", "ends"):
            inputs = {"text": entities.TEXTS}
            task = [str(export_of(kind)), "serving_default", inputs, False, kind != entities.CHARACTERS, output]
            yield task, (kind, output), entities_are_right


_of_kind: dict[str, dict[str, list]] = {}


def entities_are_right(answer, expected):
    kind, output = expected
    parts = _of_kind.setdefault(kind, {})
    parts[output] = answer
    if len(parts) < 3:
        return
    del _of_kind[kind]
    rows = zip(parts["tags"], parts["starts"], parts["ends"], entities.trained_entities(kind), strict=True)
    for tags, starts, ends, of_text in rows:
        tokens = [(start, end) for start, end in zip(starts, ends, strict=True) if start >= 0]
        scheme = "BIO" if "windows" not in kind else "BIOES"
        spans = spans_of([tag for tag in tags if tag >= 0], tokens, ENTITY_TYPES, scheme)
        assert entities.as_tuples(spans) == [entity[:3] for entity in of_text]


def foreign_answers_are_right(python, folder, tasks):
    (folder / "tasks.json").write_text(json.dumps([task for task, _, _ in tasks]), "utf-8")
    done = subprocess.run(
        [python, "-I", "-c", FOREIGN, str(folder / "tasks.json"), KERAS_MODULE],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
        | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for line, (_, expected, check) in zip(done.stdout.splitlines(), tasks, strict=True):
        for answer in json.loads(line):
            check(answer, expected)


def test_a_process_without_this_project_gets_the_trained_models_predictions(tmp_path):
    """Of one whose text is encoded by Keras, and of one whose tokenizer and model stand in the graph; all others in the
    slow test below."""
    tasks = [*text_tasks(["characters"]), *relation_tasks([relations.BLIND]), *entity_tasks()]
    foreign_answers_are_right(sys.executable, tmp_path, tasks)


def all_tasks():
    of_relations = relation_tasks([relations.BLIND, relations.PIECES])  # from here on with tensorflow-text
    of_entities = entity_tasks([entities.PIECES, entities.WINDOWS])
    return [*text_tasks(), *encoded_tasks(), *entity_tasks(), *of_relations, *piece_tasks(), *of_entities]


@pytest.mark.slow
def test_exports_of_every_kind_need_nothing_of_this_project(tmp_path):
    foreign_answers_are_right(sys.executable, tmp_path, all_tasks())


@pytest.mark.slow
def test_an_environment_of_tensorflow_and_its_text_alone_gets_the_same(tmp_path):
    uv = subprocess.run([ROOT / "scripts" / "find-uv"], cwd=ROOT, capture_output=True, text=True, check=True)
    python = tmp_path / "fresh" / "bin" / "python"
    packages = [f"{name}=={metadata.version(name)}" for name in ("tensorflow", "tensorflow-text", KERAS)]
    packages.append("setuptools<81")  # see docs/serving.md
    version = ".".join(map(str, sys.version_info[:2]))
    for words in (
        ["venv", "--quiet", "--python", version, tmp_path / "fresh"],
        ["pip", "install", "--quiet", "--python", python, *packages],
    ):
        done = subprocess.run([uv.stdout.strip(), *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    foreign_answers_are_right(python, tmp_path, all_tasks())
