"""What `import tff_re` offers."""

from __future__ import annotations

import inspect

import pytest

import tff_re
from tests.upper_floors import SYNTHETIC, tiny, write_recipe


def test_everything_is_documented():
    assert {"train", "compare", "export", "load_export", "Predictor", "load_recipe", "build"} <= set(tff_re.__all__)
    for name in tff_re.__all__:
        assert inspect.getdoc(getattr(tff_re, name)), name
    with pytest.raises(AttributeError, match="module 'tff_re' has no attribute 'nothing'"):
        tff_re.nothing  # noqa: B018


def test_a_recipe_is_loaded_with_its_overrides(tmp_path):
    path = write_recipe(tmp_path / "r.toml", SYNTHETIC)
    recipe = tff_re.load_recipe(path, "training.rounds=7", seed=3)
    assert (recipe.training.rounds, recipe.seed) == (7, 3)
    with pytest.raises(tff_re.UserError, match="there is no recipe 'flcmc'"):
        tff_re.load_recipe("flcmc")


def test_a_run_by_functions(runtime, tmp_path):
    recipe = tiny("training.rounds=2")
    experiment = tff_re.build(recipe)
    assert experiment.recipe == recipe and experiment.algorithm.next is not None
    reports = []
    result = tff_re.train(recipe, tmp_path / "run", runtime=runtime, on_round=reports.append)
    assert repr(result) == str(result) and len(repr(result)) < 200
    assert f"test/accuracy {result.test.metrics['accuracy']:.4f}" in repr(result)
    assert repr(experiment).startswith(f"Experiment({recipe.name}, seed ") and len(repr(experiment)) < 200
    assert len(reports) == 2 and 0 <= result.test.metrics["accuracy"] <= 1
    folder = tff_re.export(tmp_path / "run", tmp_path / "e", formats="saved_model")
    predictor = tff_re.load_export(folder)
    examples = experiment.prepared.examples.pooled("test")
    predicted = [p.label for p in predictor.predict_vectors(examples["x"])]
    right = [predictor.labels[y] for y in examples["y"]]
    accuracy = sum(a == b for a, b in zip(predicted, right, strict=True)) / len(right)
    assert accuracy == pytest.approx(result.test.metrics["accuracy"])
    with pytest.raises(tff_re.UserError, match="the model takes feature vectors"):
        tff_re.score(folder, tmp_path / "x.json", dataset="shipped")
