"""A hospital joins later: a new run with the old run's weights, vocabulary and classes."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.sites.sites_for_tests import NAMES, Federation, recipe_of, simulation_inputs, write_sites
from tests.sites.test_faults import train
from tests.upper_floors import Stop, assert_same_weights
from tff_re.errors import UserError
from tff_re.runs.folder import RunFolder
from tff_re.runs.run import start_of, train_run
from tff_re.sites.agreement import read_agreement
from tff_re.sites.experiments import finished_builder
from tff_re.sites.messages import unpack
from tff_re.tasks.data_paths import DataPaths

TWO = NAMES[:2]
RECIPE = ("fedpap", "training.rounds=1", "evaluation.train_split=false")


def federation_of(files, names):
    return Federation({name: files[name] for name in names})


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder, the files of three sites, and a run of the first two."""
    folder = tmp_path_factory.mktemp("two")
    files = write_sites(folder / "sites")
    train(federation_of(files, TWO), folder / "two", recipe_of(*RECIPE, "training.clients_per_round=2"))
    return folder, files


def test_a_third_site_joins_and_sends_no_words(two, tmp_path):
    folder, files = two
    lines, recipe = [], recipe_of(*RECIPE, "training.rounds=2")

    def stopped(report):
        if report.round == 1:
            raise Stop

    federation = federation_of(files, NAMES)
    with pytest.raises(Stop):
        train(federation, tmp_path / "three", recipe, from_run=folder / "two", on_line=lines.append, on_round=stopped)
    assert lines[0].startswith("starts from the weights of two after round 1")
    kinds = [unpack(message)[0]["kind"] for _, message, _ in federation.sent]
    assert "agree" in kinds and not {"words", "reveal"} & set(kinds)
    before, after = (read_agreement(RunFolder(path).sites) for path in (folder / "two", tmp_path / "three"))
    assert after.words == before.words and after.label_names == before.label_names
    assert after.sites == NAMES and "丙" not in after.words  # a word of the third site only
    again = train(federation_of(files, NAMES), tmp_path / "three", recipe, resume=True)
    whole = train(federation_of(files, NAMES), tmp_path / "whole", recipe, from_run=folder / "two")
    assert_same_weights(again.weights, whole.weights)
    fresh = train(federation_of(files, NAMES), tmp_path / "fresh", recipe)
    assert not np.array_equal(fresh.weights.trainable[-1], whole.weights.trainable[-1])
    assert json.loads((tmp_path / "three" / "summary.json").read_text("utf-8"))["start"]["run"] == "two"


def test_weights_are_those_of_a_simulation_that_starts_from_the_same(two, tmp_path):
    folder, files = two
    recipe = recipe_of(*RECIPE)
    there = train(federation_of(files, NAMES), tmp_path / "three", recipe, from_run=folder / "two")
    simulated, partition = simulation_inputs(tmp_path / "one place", recipe, files)
    out = tmp_path / "simulated"
    start = start_of(RunFolder(out), folder / "two", DataPaths(), builder_of=finished_builder)
    ways = {"data_paths": DataPaths(partition=partition), "runtime": "in-process", "details": False}
    _, here = train_run(simulated, out, start=start, **ways)
    assert_same_weights(there.weights, here.weights)


def test_sites_with_classes_that_the_old_run_does_not_have(two, monkeypatch, tmp_path):
    folder, files = two
    copy = tmp_path / "two"
    shutil.copytree(folder / "two", copy)
    with monkeypatch.context() as patch:
        first = start_of(RunFolder(tmp_path / "three"), copy, DataPaths(), builder_of=finished_builder)
        fewer = dataclasses.replace(first, form={**first.form, "classes": first.form["classes"][:1]})
        patch.setattr("tff_re.runs.run.start_of", lambda *arguments, **options: fewer)
        with pytest.raises(UserError, match=r"cannot start from two: the sites hold classes that it does not have"):
            train(federation_of(files, NAMES), tmp_path / "three", recipe_of(*RECIPE), from_run=copy)
    assert not (tmp_path / "three").exists()
