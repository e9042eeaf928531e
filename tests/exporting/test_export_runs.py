"""Exports of runs: the precision that they compute in, run folders that may not be written, files equal to the byte."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

from datasets.catalogue import DATA_SETS
from datasets.documents.scoring import NOTHING
from datasets.errors import DataError
from tests.bags_for_tests import train_table, trained
from tests.documents_for_tests import HIDDEN
from tests.exports_for_tests import assert_without
from tests.upper_floors import SECRET, command, consultations, refusal, share_computations, text_recipe, write_json
from tff_re.errors import UserError
from tff_re.exporting.forms import HALF_TOLERANCE
from tff_re.exporting.kinds.documents import threshold_in_words
from tff_re.exporting.layout import TRAINING_DIGESTS_FILE
from tff_re.exporting.prediction import load_export
from tff_re.models.keras_files import save_keras
from tff_re.pages.run_page import run_page
from tff_re.runs.evaluation import ServerEvaluator
from tff_re.runs.finished import _copied
from tff_re.runs.results import keras_model

NOBODY = 65534

pytestmark = pytest.mark.xdist_group("bags")  # whose runs are exported, too


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


# Precision


@pytest.fixture
def mixed(run_of_documents):
    return run_of_documents


@pytest.mark.bfloat16
def test_an_export_computes_in_float32_and_says_how_far_that_is_from_the_run(mixed):
    forms, precision = mixed.export_json["forms"], mixed.export_json["precision"]
    assert max(forms[name]["difference"] for name in ("model.keras", "saved_model")) <= HALF_TOLERANCE
    assert mixed.export_json["model_options"]["precision"] == "float32"
    scores = ServerEvaluator(mixed.experiment)(mixed.result.weights).scores["test"]
    corpus = mixed.experiment.prepared.held_out.corpora["test"]
    probability_of = {
        (p.document_id, p.head_id, p.tail_id): p.probability for p in load_export(mixed.export).predict(corpus)
    }
    pairs = mixed.experiment.prepared.held_out._documents["test"].encoded.pairs
    apart = max(
        abs(score - probability_of[pair.document_id, pair.head_id, pair.tail_id])
        for row, of_document in zip(scores[..., 0], pairs, strict=True)
        for score, pair in zip(row, of_document, strict=False)
    )
    assert apart > 1e-4, "bfloat16 shows"
    # Two graphs of one function round to bfloat16 differently: without oneDNN, 0.0013 and 0.0008.
    assert apart / 4 < precision["difference"] < 4 * apart and precision["unit"] == "documents"
    assert precision["examples"] == len(corpus.samples) == 12


@pytest.mark.bfloat16
def test_both_precisions_scores_are_on_the_card(mixed):
    """The run's are those of its metrics.csv; the export's are those that its server has in float32."""
    details = mixed.export_json["details"]
    judged = mixed.result.server_evaluation.metrics
    for split in ("dev", "test"):
        metrics = {name.split("/")[1]: value for name, value in judged.items() if name.startswith(split)}
        assert details["metrics"][split] == pytest.approx(metrics)
        assert details["exported_metrics"][split].keys() == metrics.keys()
    assert details["threshold"] == details["exported_metrics"]["dev"]["threshold"]
    assert details["exported_metrics"]["test"]["f1"] == mixed.evaluation.metrics["test/f1"]
    card = (mixed.export / "README.md").read_text("utf-8")
    assert "| examples | metric | the run, in mixed\\_bfloat16 | exported, in float32 |" in card
    both = [details[key]["test"]["f1"] for key in ("metrics", "exported_metrics")]
    assert f"| test | f1 | {both[0]:.4f} | {both[1]:.4f} |" in card
    assert "on 12 documents of the run a probability differs by up to" in card


def test_what_the_card_says_of_thresholds():
    assert "0.25 on, a threshold chosen on" in threshold_in_words(0.25)
    assert "so that none is" in threshold_in_words(NOTHING)
    assert threshold_in_words(None) == "a threshold of your choice on"


@pytest.mark.bfloat16
def test_a_score_at_the_threshold_is_predicted(mixed, monkeypatch):
    predictor = load_export(mixed.export)
    corpus = mixed.experiment.prepared.held_out.corpora["test"]
    probabilities = [prediction.probability for prediction in predictor.predict(corpus)]
    monkeypatch.setitem(predictor._details, "threshold", max(probabilities))
    predicted = [bool(prediction.labels) for prediction in predictor.predict(corpus)]
    assert predicted == [value == max(probabilities) for value in probabilities]


# Run folders that may not be written


@contextlib.contextmanager
def read_only(run: Path):
    """A copy of a run's folder that this process may read and not write, whoever runs the tests."""
    with open_to_all(0o755) as folder:
        copy = shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("export"))
        was = os.geteuid()
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            if was == 0:  # whom no mode keeps from writing
                os.seteuid(NOBODY)
            yield copy
        finally:
            os.seteuid(was)
            for path in (copy, *copy.rglob("*")):
                if path.is_dir():
                    path.chmod(stat.S_IRWXU)


@contextlib.contextmanager
def open_to_all(mode: int):
    """A folder that others may enter, which pytest's own are not for."""
    folder = Path(tempfile.mkdtemp(prefix="exports"))
    try:
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def mine():
    """A folder that nobody, too, may write into."""
    with open_to_all(0o777) as folder:
        yield folder


def contents(folder: Path) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def text_run(runtime):
    with open_to_all(0o755) as folder:
        table = text_recipe(write_json(folder / "corpus.json", consultations()))
        train_table(table, folder / "run", runtime)
        yield folder / "run"


@pytest.fixture
def run_of_texts(text_run, tmp_path):
    """A copy of a run on texts."""
    return shutil.copytree(text_run, tmp_path / "run")


def test_a_run_that_may_not_be_written_is_exported_elsewhere(run_of_texts, mine, capsys, tmp_path):
    with read_only(tmp_path / "run") as run:
        before = contents(run)
        with pytest.raises(PermissionError):
            (run / "new").write_text("")
        typed = command(capsys, "export", run, "--out", mine / "e")
        assert typed.code == 0 and typed.err == "", typed
        refusal(command(capsys, "export", run), f"{run}: cannot be written; give --out another folder")
        assert contents(run) == before
    assert command(capsys, "export", tmp_path / "run", "--out", tmp_path / "e").code == 0
    for name in ("model.keras", "labels.json", "encoding.json", "recipe.toml", "environment.json"):
        assert (mine / "e" / name).read_bytes() == (tmp_path / "e" / name).read_bytes(), name
    assert HIDDEN not in typed.out


def test_of_own_files_nobody_says_the_catalogues_words(run_of_texts, capsys, tmp_path):
    """Neither the card, nor the summary, nor the report: title, licence and paper are those of other texts."""
    assert command(capsys, "export", run_of_texts, "--out", tmp_path / "e").code == 0
    not_stated = {"data set": "not stated", "licence of the data": "not stated", "contact": "not stated"}
    not_stated["read in the form of"] = "shipped"
    about = json.loads((tmp_path / "e" / "export.json").read_text("utf-8"))
    assert about["details"]["data"].items() >= not_stated.items() and "source" not in about["details"]["data"]
    assert json.loads((run_of_texts / "summary.json").read_text("utf-8"))["data"] == not_stated
    card, page = (tmp_path / "e" / "README.md").read_text("utf-8"), run_page(run_of_texts)
    assert all(f"- {key}: {value}\n" in card and value in page for key, value in not_stated.items())
    assert DATA_SETS["shipped"].title not in card + page


def test_own_texts_have_digests_only_on_request(run_of_texts, capsys, tmp_path):
    """They are not public, and whoever has a text could tell whether the run had it."""
    assert command(capsys, "export", run_of_texts, "--out", tmp_path / "e").code == 0
    assert not (tmp_path / "e" / TRAINING_DIGESTS_FILE).exists()
    line = "- no digests of training texts in the files: the texts are not those of a public data set\n"
    assert line in (tmp_path / "e" / "README.md").read_text("utf-8")
    corpus = run_of_texts.parent / "corpus.json"
    write_json(corpus, consultations())
    typed = command(capsys, "evaluate", tmp_path / "e", "--file", corpus)
    assert typed.code == 0 and "seen in training: not known" in typed.out and typed.err == ""

    typed = command(capsys, "export", run_of_texts, "--out", tmp_path / "d", "--training-digests")
    assert typed.code == 0, typed
    assert "- training_digests.json holds digests of " in (tmp_path / "d" / "README.md").read_text("utf-8").replace(
        "\\", ""
    )
    assert_without(tmp_path / "d", SECRET)
    typed = command(capsys, "evaluate", tmp_path / "d", "--file", corpus)
    assert typed.err.startswith(
        "warning: corpus.json: 24 of 24 examples match the run's training or dev data (24 by id"
    )
    # Other dialogues, of which one sentence is that of a training dialogue.
    other = {f"x{name}": dialogue for name, dialogue in consultations(2).items()}
    for dialogue in other.values():
        for said in dialogue["dialogue"]:
            said["sentence"] += "。"
    other["xd0"]["dialogue"][1]["sentence"] = consultations()["d0"]["dialogue"][1]["sentence"]
    typed = command(capsys, "evaluate", tmp_path / "d", "--file", write_json(tmp_path / "other.json", other))
    assert typed.err.startswith(
        "warning: other.json: 1 of 12 examples match the run's training or dev data (0 by id, 1 b"
    )


def test_errors_about_the_copy_of_a_run_name_the_run(tmp_path):
    (run := tmp_path / "run").mkdir()
    (run / "checkpoints").mkdir()
    for raised in (
        lambda path: UserError(f"{path}: is damaged"),
        lambda path: DataError("is damaged", path=path, line=3, remedy=f"remove {path}"),
        lambda path: OSError(errno.EIO, "Input/output error", str(path)),
    ):
        with pytest.raises(type(raised(run))) as caught, _copied(run) as copy:
            raise raised(copy / "partition.json")
        assert str(caught.value) == str(raised(run / "partition.json"))


def test_a_damaged_partition_of_such_a_run_names_its_own_folder(run_of_texts, mine, capsys, tmp_path):
    (tmp_path / "run" / "partition.json").write_text("{")
    with read_only(tmp_path / "run") as run:
        refusal(command(capsys, "export", run, "--out", mine / "e"), f"tff-re: {run}/partition.json: ")


# Equal to the byte


@pytest.mark.bfloat16
def test_a_models_file_is_the_same_whatever_was_built_before(runtime, mixed, tmp_path):
    """Keras numbers the layers of all models of a process."""
    save_keras(keras_model(mixed.experiment, mixed.result.weights), tmp_path / "first.keras")
    of_bags = trained(runtime, "lazy_mil")
    for run, file in ((of_bags, of_bags.folder / "model.keras"), (mixed, tmp_path / "first.keras")):
        save_keras(keras_model(run.experiment, run.result.weights), tmp_path / "again.keras")
        assert (tmp_path / "again.keras").read_bytes() == file.read_bytes()
    with zipfile.ZipFile(tmp_path / "again.keras") as archive:
        assert archive.testzip() is None
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert "date_saved" not in json.loads(archive.read("metadata.json"))


@pytest.mark.bfloat16
def test_nothing_is_left_of_a_file_that_could_not_be_written(mixed, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    model = keras_model(mixed.experiment, mixed.result.weights)
    with pytest.raises(OSError, match="No space"):
        save_keras(model, tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())
