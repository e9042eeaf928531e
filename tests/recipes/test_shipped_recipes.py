"""Every recipe that comes with the project: trained, evaluated, exported and used for predictions, as a user types it.

The recipes keep what makes them: task, encoding, model, precision, frozen layers, method. Sizes are cut.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from datasets.catalogue import DATA_SETS, find_data_set, split_file
from tests.bags_for_tests import nyt10_lines, write_lines
from tests.documents_for_tests import marking_encoder
from tests.models.encoders_for_tests import chinese_encoder, encoder
from tests.recipe_data_for_tests import data_folder
from tests.upper_floors import command
from tff_re.exporting.forms import HALF_TOLERANCE, TOLERANCE
from tff_re.exporting.prediction import load_export
from tff_re.recipes.reading import load, shipped
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history

SMALL = {"units": 8, "embedding_width": 8, "filters": 8, "position_width": 2}
"""Sizes of a model that are cut."""

CUT = {"subset": 12, "test_subset": 10, "total_train": 80, "total_test": 40}
"""Sizes of a task that are cut where the recipe has them."""

ENCODERS = {
    "sentence_encoder": encoder,
    "document_encoder": marking_encoder,
    "text_encoder": chinese_encoder,
    "token_encoder": None,
}
"""The tiny encoder of a model; None: that of the texts' language."""

TEXTS = {"Chinese": "宝宝头晕，发烧三天了", "English": "The drug inhibits the gene. The rash."}


def cut(name: str) -> list[str]:
    """The options of `train` that make a shipped recipe tiny."""
    recipe = load(name)
    task, model, made = recipe.task.options, recipe.model.options, {"training.rounds": 1}
    made.update({f"task.{key}": value for key, value in CUT.items() if getattr(task, key, None) is not None})
    if getattr(task, "dataset", None) == "planted":
        made["task.planted_bags"] = 24
    # The cuts of the released code are for ten clients.
    if hasattr(recipe.partition.options, "num_clients") and not getattr(recipe.partition.options, "cuts", None):
        made["partition.num_clients"] = 3
    if hasattr(task, "num_clients"):
        made["task.num_clients"] = 4
    if recipe.training.client_fraction is None:
        made["training.clients_per_round"] = 2
    if hasattr(recipe.algorithm.options, "local_epochs"):
        made["algorithm.local_epochs"] = 1
    if recipe.privacy_unit == "example":  # of a few examples, which a step must not take all of
        made["algorithm.batch_size"] = 8
    for section, choice in (("model", recipe.model), ("client_model", recipe.client_model)):
        sizes = {} if choice is None else SMALL
        made.update({f"{section}.{key}": size for key, size in sizes.items() if hasattr(choice.options, key)})
    if recipe.task.name == "entity_recognition":  # of which the first round may find none
        made |= {"training.rounds": 6, "algorithm.local_epochs": 4, "algorithm.learning_rate": 0.02}
    if recipe.model.name in ENCODERS:
        of_language = chinese_encoder if find_data_set(task.dataset).language == "Chinese" else encoder
        made["task.tokenizer"] = (ENCODERS[recipe.model.name] or of_language)()
        made["model.frozen_layers"] = min(1, model.frozen_layers)
        made.update({} if hasattr(task, "max_length") else {"model.block_size": 8})
    if hasattr(task, "max_length"):
        made["task.max_length"] = 32
    return [word for key, value in made.items() for word in ("--set", f"{key}={value}")]


def asked(export: Path, folder: Path) -> list:
    """What `predict` is asked after the export's folder."""
    source = json.loads((export / "export.json").read_text("utf-8"))["input"]
    if source["kind"] == "documents":
        file = {"cdr": "test", "biored": "dev"}[load_export(export).dataset]
        return ["--file", data_folder() / load_export(export).dataset / f"{file}.pubtator"]
    if source["kind"] == "bags":
        trained_on = load_export(export).dataset
        lines = [{key: value for key, value in line.items() if key != "relation"} for line in nyt10_lines(range(2))]
        return ["--file", write_lines(folder / "some.jsonl", lines)] + (["--dataset", "nyt10"] if trained_on else [])
    if source["kind"].startswith("relation"):
        types = ["--head-type", "chemical", "--tail-type", "gene"] if source["blind"] else []
        return ["<e1>drug</e1> binds <e2>gene</e2> .", *types]
    if source["kind"].startswith("entity"):
        return [TEXTS[find_data_set(load_export(export).dataset).language], "--format", "jsonl", "--show-text"]
    return [TEXTS["Chinese"]]


def assert_entities(printed: str, export: Path) -> None:
    """A line for the text, in which the entities stand where they say."""
    (line,) = printed.splitlines()
    answer, types = json.loads(line), load_export(export).entity_types
    for entity in answer["entities"]:
        assert answer["text"][entity["start"] : entity["end"]] == entity["text"] != ""
        assert entity["type"] in types and 0 < entity["probability"] <= 1


def scored_file(name: str) -> Path | None:
    """The file with the recipe's test examples, if they come from one."""
    task = load(name).task.options
    dataset = getattr(task, "dataset", None)
    if dataset not in DATA_SETS:
        return None
    split = getattr(task, "test_split", "dev") if getattr(task, "test", "official") == "official" else task.split
    return Path(split_file(dataset, split, data_folder()))


SEEN = re.compile(
    r"\Awarning: \S+: \d+ of \d+ examples match the run's training or dev data \([^)]*\); "
    r"the metrics are not those of new texts\n\Z"
)


def goes_all_the_way(name: str, runtime_name: str, folder: Path, capsys) -> None:
    """Takes a recipe through all commands."""
    data_paths = ("--data", data_folder(), "--runtime", runtime_name)

    def typed(*arguments):
        done = command(capsys, *arguments)
        # The file may be one that the run was trained on.
        err = SEEN.sub("", done.err) if arguments[0] == "evaluate" and "--file" in arguments else done.err
        assert done.code == 0 and err == "", (arguments, done)
        return done.out

    run, export = folder / "run", folder / "run" / "export"
    typed("train", name, "--out", run, *cut(name), *data_paths)
    typed("evaluate", run, *data_paths)
    typed("export", run, *data_paths)
    about = json.loads((export / "export.json").read_text("utf-8"))
    recipe = load(str(run / "recipe.toml"))
    precision = getattr(recipe.model.options, "precision", "float32")
    frozen = bool(getattr(recipe.model.options, "frozen_layers", 0))
    assert precision == getattr(load(name).model.options, "precision", "float32"), "the recipe's own"
    for file in ("model.keras", "saved_model"):
        assert about["forms"][file]["difference"] <= (HALF_TOLERANCE if frozen else TOLERANCE)
    assert about["model_options"].get("precision", "float32") == "float32"
    assert ("precision" in about) == (precision != "float32") == ("exported_metrics" in about["details"])
    if "precision" in about:
        card = (export / "README.md").read_text("utf-8")
        assert "| the run, in mixed\\_bfloat16 | exported, in float32 |" in card and "## Precision" in card
        assert about["precision"]["trained"] == "mixed_bfloat16" and about["precision"]["exported"] == "float32"
        assert 0 < about["precision"]["difference"] < 0.2 and about["precision"]["examples"] > 5
        assert about["details"]["exported_metrics"].keys() == about["details"]["metrics"].keys()
    # Where nothing but the precision lies between them, the metrics written for a run are those of its evaluation.
    chosen = json.loads((run / "summary.json").read_text("utf-8")).get("chosen")
    *_, result = (row for row in read_history(RunFolder(run)) if not chosen or row["round"] == chosen["round"])
    for split, metrics in about["details"]["metrics"].items():
        for metric, value in metrics.items():
            assert result[f"{split}/{metric}"] == pytest.approx(value, nan_ok=True)
    if about["input"]["kind"] == "vectors":
        (prediction,) = load_export(export).predict_vectors([[0.5] * about["input"]["width"]])
        assert prediction.label in load_export(export).labels
        return
    printed = typed("predict", export, *asked(export, folder))
    assert printed.strip()
    if about["input"]["kind"].startswith("entity"):
        assert_entities(printed, export)
        assert result["test/f1"] > 0, "or the scores below say nothing"
    if (file := scored_file(name)) is not None:
        scored = typed("evaluate", export, "--file", file)
        task = recipe.task.options
        if getattr(task, "test", None) == "official" and getattr(task, "test_subset", None) is None:
            names = ("f1", "macro_f1", "lenient_f1") if about["input"]["kind"].startswith("entity") else ("accuracy",)
            for name in names:
                assert f"{result[f'test/{name}']:.4f}" in re.search(rf"^│ {name} .*$", scored, re.MULTILINE)[0]


@pytest.mark.parametrize("name", shipped())
def test_dev_has_rounds_to_choose_from(name):
    recipe = load(name)
    if hasattr(recipe.task.options, "dev_share"):
        assert recipe.training.rounds // recipe.evaluation.every >= 4


@pytest.mark.slow
@pytest.mark.parametrize("runtime_name", ["local", "in-process"])
@pytest.mark.parametrize("name", shipped())
def test_every_recipe_by_the_command_line(name, runtime_name, capsys, tmp_path):
    goes_all_the_way(name, runtime_name, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flcmc-shipped-bert", "mie-windows-bert", "fedlcc-cdr-short", "lazy-mil-planted"])
def test_a_warm_start_has_the_old_weights(name, capsys, tmp_path):
    """An adapter, frozen layers, documents, bags: with next to no learning rate a second run evaluates as the first."""
    first, second = tmp_path / "first", tmp_path / "second"
    always = (*cut(name), "--data", data_folder(), "--runtime", "in-process")
    assert command(capsys, "train", name, "--out", first, *always).code == 0
    standing = ("--set", "algorithm.learning_rate=1e-30")
    done = command(capsys, "train", name, "--out", second, "--from", first, *always, *standing)
    assert done.code == 0 and "starts from the weights of first after round 1" in done.out, done
    before, after = (read_history(RunFolder(run))[-1] for run in (first, second))
    scores = [key for key in before if key.startswith(("test/", "server/"))]
    assert scores and {key: after[key] for key in scores} == pytest.approx({key: before[key] for key in scores})
