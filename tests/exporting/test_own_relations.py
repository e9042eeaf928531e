"""Own relations from training to prediction: one form of file for all of it, in a run of an LSTM."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from computations.local_model import GROUP
from datasets.partition import ByField
from datasets.relations import neutral
from tests.relations_for_tests import write_records
from tests.upper_floors import SECRET, command, refusal, share_computations, write_recipe
from tff_re.exporting.prediction import load_export
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.tasks import sentence_relations
from tff_re.tasks.data_paths import DataPaths

pytestmark = pytest.mark.xdist_group("exports")

WARDS, CLASSES = ("north", "south", "west"), ("none", "binds", "inhibits")


def made_records(count=24, first=0, labelled=True):
    """Sentences of three wards and three classes, which a word tells; two records are of one patient."""
    records = []
    for number in range(first, first + count):
        label = CLASSES[number % 3]
        text = f"{SECRET} drug {label} gene {number}"
        head, tail = text.index("drug"), text.index("gene")
        record = {"id": str(number), "document": f"letter-{number // 2}", "text": text, "ward": WARDS[number // 2 % 3]}
        record |= {"head": [head, head + 4], "tail": [tail, tail + 4], "group": f"patient-{number // 6}"}
        records.append(record | ({"label": label} if labelled else {}))
    return records


def recipe_of(path, **task):
    keys = {"dataset": "relations", "path": str(path), "negative_label": "none", "encoding": "words", "min_clients": 1}
    return {
        "name": "own",
        "task": {"name": "sentence_relations", "max_length": 16, **keys, **task},
        "partition": {"name": "by_field", "field": "ward"},
        "model": {"name": "lstm", "units": 3, "embedding_width": 5},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.01, "local_epochs": 1},
        "training": {"rounds": 1, "clients_per_round": 3},
    }


@pytest.fixture(scope="module")
def run(runtime, tmp_path_factory):
    """The folder of a run that was trained and exported by commands; what was read is compressed JSON lines."""
    from tests.cli.test_command_line import Capture

    folder = tmp_path_factory.mktemp("own")
    train = write_records(folder, made_records(), ".jsonl.gz", "train")
    test = write_records(folder, made_records(6, 100), ".tsv", "test")
    table = recipe_of(train, test="official", test_path=str(test), test_split="test")
    recipe = write_recipe(folder / "r.toml", table | {"data": {"title": "Letters of our clinic"}})
    with Capture() as capture, pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        trained = command(capture, "train", recipe, "--out", folder / "run")
        exported = command(capture, "export", folder / "run", "--format", "saved_model")
    assert trained.code == exported.code == 0, (trained, exported)
    assert SECRET not in trained.out + exported.out
    return folder / "run"


def test_clients_are_wards_and_the_classes_are_the_files(run):
    clients = (run / "clients.csv").read_text("utf-8").splitlines()
    assert {line.split(",")[0] for line in clients[1:]} == set(WARDS)
    labels = json.loads((run / "export" / "labels.json").read_text("utf-8"))
    assert labels == list(CLASSES)
    about = json.loads((run / "export" / "export.json").read_text("utf-8"))
    assert about["details"]["negative_label"] == "none" and about["details"]["dataset"] == "relations"
    card = (run / "export" / "README.md").read_text("utf-8")
    assert "- data set: Letters of our clinic\n- licence of the data: not stated\n" in card
    assert "- read in the form of: relations\n" in card and "PGR" not in card


def test_the_export_is_scored_on_a_file_of_either_form(run, capsys, tmp_path):
    score = ("evaluate", run / "export", "--file")
    typed = command(capsys, *score, run.parent / "test.tsv")
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    assert "micro-F1 and macro-F1 leave out none" in typed.out
    same = command(capsys, *score, write_records(tmp_path, made_records(6, 100), ".jsonl", "test"))
    assert same.out.replace(".jsonl", ".tsv").split() == typed.out.split()
    # A file may lack classes of the model, and has no others.
    assert command(capsys, *score, write_records(tmp_path, made_records(1, 1), ".tsv", "few")).code == 0
    unknown = write_records(tmp_path, [*made_records(1), made_records(2)[1] | {"label": "sings"}], ".tsv", "unknown")
    refusal(command(capsys, *score, unknown), "unknown.tsv: line 3: unknown label; use one of none, binds, inhibits")
    bare = write_records(tmp_path, made_records(labelled=False), ".jsonl", "bare")
    refusal(command(capsys, *score, bare), 'bare.jsonl: line 1: has no "label"')


@pytest.mark.parametrize("ending", [".tsv", pytest.param(".jsonl.gz", marks=pytest.mark.slow)])
def test_records_without_labels_are_classified(run, capsys, tmp_path, ending):
    path = write_records(tmp_path, made_records(5, 50, labelled=False), ending)
    typed = command(capsys, "predict", run / "export", "--file", path, "--json")
    assert typed.code == 0 and typed.err == "" and SECRET not in typed.out
    rows = [json.loads(line) for line in typed.out.splitlines()]
    assert [row["id"] for row in rows] == ["50", "51", "52", "53", "54"]
    wanted = load_export(run / "export").probabilities(neutral.read(path, labelled=False).mentions)
    np.testing.assert_array_equal(np.float32([list(row["probabilities"].values()) for row in rows]), wanted)
    typed = command(capsys, "predict", run / "export", "--file", path)
    assert "│ 54 " in typed.out and SECRET not in typed.out
    assert SECRET in command(capsys, "predict", run / "export", "--file", path, "--show-text").out


def test_what_predict_refuses_of_records(run, capsys, tmp_path):
    records, asked = made_records(2, labelled=False), ("predict", run / "export", "--file")
    beyond = write_records(tmp_path, [records[0], records[1] | {"tail": [0, 1000]}], ".tsv", "beyond")
    refusal(command(capsys, *asked, beyond), "beyond.tsv: line 3: its tail is empty or lies beyond the text")
    good = write_records(tmp_path, records, ".tsv")
    refusal(command(capsys, *asked, good, "--head-type", "drug"), "are for texts")
    refusal(command(capsys, *asked, good, "--dataset", "pgr"), "--dataset is for models of")
    lines = tmp_path / "lines.txt"
    lines.write_text("<e1>drug</e1> binds <e2>gene</e2>\n", "utf-8")
    assert command(capsys, *asked, lines).code == 0, "a text a line"
    typed = command(capsys, *asked, lines, "--dataset", "relations")
    refusal(typed, "lines.txt: is not .jsonl or .tsv")


def test_privacy_of_groups_hides_a_persons_records_together(tmp_path):
    path = write_records(tmp_path, made_records())
    options = resolve(recipe_of(path, test_share=0.1), "r").task.options
    prepared = sentence_relations.TASK.prepare(options, ByField("ward"), 0, DataPaths()).with_groups()
    patient_of = {f"train-{record['id']}": record["group"] for record in made_records()}
    numbers = {}
    for client in prepared.examples.clients:
        ids = prepared.partition.clients[client.client_id].train
        for sample, number in zip(ids, client.train[GROUP].tolist(), strict=True):
            numbers.setdefault(patient_of[sample], set()).add(number)
    assert len(numbers) == 4 and all(len(groups) == 1 for groups in numbers.values())
    assert len(set.union(*numbers.values())) == 4


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"dataset": "pgr"}, "'task.negative_label' needs dataset = 'relations'"),
        ({"class_names": ["none", "none"]}, "'task.class_names' is empty or names a class twice"),
        ({"class_names": ["binds"]}, "'task.negative_label' is not one of class_names"),
    ],
)
def test_what_a_recipe_may_not_say_of_classes(task, message):
    from tff_re.errors import UserError

    with pytest.raises(UserError, match=message):
        resolve(recipe_of("unused", **task), "r")


def test_a_recipe_of_another_data_set_is_written_as_before():
    table = recipe_of("unused", dataset="pgr", negative_label=None)
    table["task"].pop("negative_label")
    assert "class_names" not in resolve(table, "r").to_toml()


def test_the_recipe_of_the_page_suits_its_two_wards(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (example,) = (text for text in examples if "sentence_relations" in text)
    recipe = resolve(tomllib.loads(example), "ours.toml")
    assert (recipe.task.options.dataset, recipe.task.options.negative_label) == ("relations", "none")
    assert recipe.data.contact == "data@clinic.example"
    wards = [record | {"ward": ("north", "south")[number % 2]} for number, record in enumerate(made_records(40))]
    write_records(tmp_path, wards, ".jsonl", "ours")
    monkeypatch.chdir(tmp_path)
    experiment = ExperimentBuilder().build(recipe)
    assert [client.client_id for client in experiment.prepared.examples.clients] == ["north", "south"]
