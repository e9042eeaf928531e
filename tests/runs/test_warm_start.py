"""A run that starts from the weights of a finished run."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict

import numpy as np
import pytest

from tests.runs.resuming import assert_same_files, stop_at
from tests.upper_floors import (
    Stop,
    assert_same_weights,
    builder,
    command,
    consultations,
    share_computations,
    text_recipe,
    tiny,
    write_json,
    write_recipe,
)
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
from tff_re.runs import training
from tff_re.runs.folder import RunFolder
from tff_re.runs.run import start_of, train_run
from tff_re.runs.warm_start import stored, with_start
from tff_re.runtime import open_runtime
from tff_re.tasks.data_paths import DataPaths

KEYS = ("training.rounds=2", "choice={}", "evaluation.every=1")


@pytest.fixture(scope="module", autouse=True)
def _built_once():
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch)
        yield


@pytest.fixture
def in_process(tmp_path):
    with open_runtime("in-process", log_path=tmp_path / "log", threads=1) as opened:
        yield opened


def train(recipe, out, runtime, *, from_run=None, last=False, resume=False, shared=True, **options):
    data_paths = options.pop("data_paths", DataPaths())
    start = start_of(RunFolder(out), from_run, data_paths, resume=resume, last=last)
    ways = {"builder": builder()} if shared else {"data_paths": data_paths}
    options = {"runtime": runtime, "details": False, **ways, **options}
    return train_run(recipe, out, start=start, resume=resume, **options)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The folder of a run whose round was chosen on dev, and its result."""
    folder = tmp_path_factory.mktemp("old") / "first"
    with open_runtime("in-process", log_path=folder.parent / "log", threads=1) as opened:
        return folder, train(tiny(*KEYS), folder, opened)[1]


def begun(monkeypatch):
    """The weights that a run is initialised with."""
    seen, initial_state = [], training._initial_state

    def spy(experiment, server, examples):
        seen.append(server["weights"])
        return initial_state(experiment, server, examples)

    monkeypatch.setattr(training, "_initial_state", spy)
    return seen


def test_it_starts_from_the_chosen_weights_or_the_last(old, in_process, monkeypatch, tmp_path):
    """Nothing else is taken over, and the record says what it was."""
    folder, result = old
    for last in (False, True):
        lines, out = [], tmp_path / str(last)
        recipe = tiny("training.rounds=1", "algorithm={name='fedavg', local_epochs=1}", seed=5)
        start = start_of(RunFolder(out), folder, DataPaths(), last=last)
        with monkeypatch.context() as patch:
            seen = begun(patch)
            ways = {"runtime": in_process, "details": False, "builder": builder(), "on_line": lines.append}
            train_run(recipe, out, start=start, **ways)
        assert_same_weights(seen[-1], start.weights)
        record = json.loads((out / "summary.json").read_text("utf-8"))["start"]
        assert record == {
            "run": "first",
            "round": 2 if last else result.chosen[0],
            "digest": start.digest,
            "privacy": None,
        }
        assert lines == [
            f"starts from the weights of first after round {record['round']} (SHA-256 {start.digest[:12]}…)"
        ]
        assert lines[0] in (out / "run.log").read_text("utf-8")
    if not last:
        assert_same_weights(start.weights, result.weights)


def test_it_is_resumed_without_the_old_run(old, in_process, tmp_path):
    folder = tmp_path / "first"
    shutil.copytree(old[0], folder)
    recipe = tiny("training.rounds=3", seed=1)
    _, whole = train(recipe, tmp_path / "whole", in_process, from_run=folder)
    with pytest.raises(Stop):  # before the first checkpoint
        train(recipe, tmp_path / "broken", in_process, from_run=folder, on_round=stop_at(1))
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"the run was started from first, not from .*second; leave --from out"):
        train(recipe, tmp_path / "broken", in_process, from_run=tmp_path / "second", resume=True)
    _, result = train(recipe, tmp_path / "broken", in_process, from_run=folder, resume=True)
    assert_same_weights(result.weights, whole.weights)
    assert_same_files(tmp_path / "broken", tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    _, fresh = train(recipe, tmp_path / "fresh", in_process)
    assert not np.array_equal(fresh.weights.trainable[0], whole.weights.trainable[0])
    with pytest.raises(UserError, match="the run was started from the initial weights drawn with its seed, not from"):
        train(recipe, tmp_path / "fresh", in_process, from_run=tmp_path / "whole", resume=True)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("task.num_classes=4",), r"the classes differ: \[.*\] only here; a warm start needs the same"),
        (
            ("task.num_features=6",),
            r"the weights have shapes \[\[6, 3\], \[3\]\] here and \[\[5, 3\], \[3\]\] in that run",
        ),
        (("model.embedding_width=7",), r"model\.embedding_width is 7 here and 100 in that run"),
        (("baseline={kind='local'}",), "this run has one model per client"),
    ],
)
def test_what_differs_is_named(keys, line, old, in_process, tmp_path):
    with pytest.raises(UserError, match=rf"^tiny.toml: .*{line}") as refused:
        train(tiny("training.rounds=1", *keys), tmp_path / "run", in_process, from_run=old[0])
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_what_is_no_finished_run_is_refused(old, in_process, tmp_path):
    recipe, folder = tiny("training.rounds=2"), tmp_path / "first"
    for path, line in (
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "run", "is the folder of the new run"),
    ):
        with pytest.raises(UserError, match=line):
            train(recipe, tmp_path / "run", in_process, from_run=path)
    with pytest.raises(UserError, match="--last needs --from"):
        train(recipe, tmp_path / "run", in_process, last=True)
    shutil.copytree(old[0], folder)
    (folder / "summary.json").unlink()
    with pytest.raises(UserError, match="first: the run is not finished; continue it with train --resume"):
        train(recipe, tmp_path / "run", in_process, from_run=folder)
    alone = tiny(*KEYS, "baseline={kind='local'}")
    train(alone, tmp_path / "alone", in_process)
    with pytest.raises(UserError, match="this run has one model per client"):
        train(recipe, tmp_path / "run", in_process, from_run=tmp_path / "alone")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["start.json", "start_weights.safetensors"])
def test_a_damaged_start_is_named(name, old, in_process, tmp_path):
    recipe, out = tiny("training.rounds=2"), tmp_path / "run"
    with pytest.raises(Stop):
        train(recipe, out, in_process, from_run=old[0], on_round=stop_at(1))
    content = bytearray((out / name).read_bytes())
    content[-9] ^= 1
    (out / name).write_bytes(content)
    with pytest.raises(UserError, match=r"start.json: is damaged, or start_weights.safetensors next to it"):
        train(recipe, out, in_process, resume=True)


def test_a_kill_while_the_folder_is_begun(old, in_process, tmp_path, monkeypatch):
    """recipe.toml comes last: without it a run is begun anew, and never without its start."""
    recipe, out = tiny("training.rounds=1"), tmp_path / "run"

    def killed(path, text):
        raise Stop

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr("tff_re.runs.folder.write_text", killed)
        train(recipe, out, in_process, from_run=old[0])
    assert sorted(path.name for path in out.iterdir()) == ["start.json", "start_weights.safetensors"]
    with pytest.raises(UserError, match="was interrupted before it started; give --from again"):
        train(recipe, out, in_process, resume=True)
    train(recipe, out, in_process, from_run=old[0], resume=True)
    assert stored(RunFolder(out)).run == "first"
    shutil.rmtree(out)
    out.mkdir()
    shutil.copy(old[0] / "metrics.csv", out / "start.json")
    train(recipe, out, in_process)
    assert stored(RunFolder(out)) is None


def test_a_classifier_that_a_method_keeps_fixed_is_taken_over(old, in_process, tmp_path):
    keys = ("algorithm={name='fedetf', local_epochs=1}", "training.rounds=1")
    _, first = train(tiny(*keys), tmp_path / "first", in_process)
    _, second = train(tiny(*keys, seed=1), tmp_path / "second", in_process, from_run=tmp_path / "first")
    assert_same_weights(first.weights, second.weights)  # of this model there is nothing else
    with pytest.raises(UserError, match="cannot start from first: fedetf keeps its own classifier fixed"):
        train(tiny(*keys), tmp_path / "other", in_process, from_run=old[0])


# Texts


def texts(tmp_path, name, corpus, **task):
    table = text_recipe(write_json(tmp_path / f"{name}.json", corpus), **task)
    table["partition"] = {"name": "iid", "num_clients": 3}
    return table


def test_other_texts_are_read_with_the_old_vocabulary(in_process, tmp_path, capsys):
    first = resolve(texts(tmp_path, "first", consultations()), "text.toml")
    before, _ = train(first, tmp_path / "first run", in_process, shared=False)
    corpus = consultations(7)
    for dialogue in corpus.values():
        for sentence in dialogue["dialogue"]:
            sentence["sentence"] += "新词"
    table = texts(tmp_path, "second", corpus)
    recipe = write_recipe(tmp_path / "second.toml", table)
    ways = ("--runtime", "in-process", "--from", tmp_path / "first run", "--out", tmp_path / "second run")
    typed = command(capsys, "train", recipe, *ways)
    assert typed.code == 0 and typed.out.splitlines()[0].startswith(
        "starts from the weights of first run after round 2 ("
    )
    known = before.prepared.encoding.vocabulary.words
    assert stored(RunFolder(tmp_path / "second run")).words == known and "新" not in known
    fresh, _ = train(resolve(table, "second.toml"), tmp_path / "fresh", in_process, shared=False)
    assert "新" in fresh.prepared.encoding.vocabulary.words
    typed = command(capsys, "evaluate", tmp_path / "second run", "--runtime", "in-process")
    last = json.loads((tmp_path / "second run" / "summary.json").read_text("utf-8"))["final"]
    assert typed.code == 0 and f"{last['test/accuracy']:.4f}" in typed.out
    for change, line in (
        ({"max_length": 21}, "task.max_length is 21 here and 20 in that run"),
        ({"encoding": "words"}, 'task.encoding is "words" here and "characters" in that run'),
    ):
        path = write_recipe(tmp_path / "changed.toml", texts(tmp_path, "third", corpus, **change))
        typed = command(capsys, "train", path, *ways[:-1], tmp_path / "no run")
        assert typed.code == 2 and line in typed.err and not (tmp_path / "no run").exists()


# Privacy


def test_a_private_run_says_what_its_starting_weights_cost(old, in_process, tmp_path):
    private = ("algorithm={name='fedavg', local_epochs=1}", "privacy={clip=0.5, noise_multiplier=1.0, delta=0.01}")
    recipe = tiny("training.rounds=1", "evaluation.train_split=false", *private)
    _, first = train(recipe, tmp_path / "private", in_process, from_run=old[0])
    assert first.privacy["not_covered"][0].startswith(
        "the starting weights, of the run first, which was trained without"
    )
    _, second = train(recipe, tmp_path / "again", in_process, from_run=tmp_path / "private")
    unchanged = with_start(OrderedDict(statement="", not_covered=[]), None)["statement"]
    assert unchanged == "" and second.privacy["epsilon"] == first.privacy["epsilon"]
    wanted = (
        f"; the starting weights, of the run private, were trained with {first.privacy['statement']}; budgets add up"
    )
    assert second.privacy["statement"].endswith(wanted)
    summary = json.loads((tmp_path / "again" / "summary.json").read_text("utf-8"))
    assert summary["privacy"]["statement"] == second.privacy["statement"]
