"""Values that would switch a protection or the training off without a word: a refusal each, or a warning."""

from __future__ import annotations

import pytest

from tests.upper_floors import SYNTHETIC, builder, command, refusal, tiny, write_recipe
from tff_re.errors import UserError

EXAMPLES = ("privacy={unit='example', noise_multiplier=1.0}", "evaluation.train_split=false")

REFUSED = {
    # A protection that protects nothing.
    "privacy={noise_multiplier=0}": "'privacy.noise_multiplier' must be at least 0.001, got 0",
    "privacy={noise_multiplier=1e-30}": "'privacy.noise_multiplier' must be at least 0.001, got 1e-30",
    "privacy={epsilon=1e-3, noise_multiplier=0}": "'privacy.noise_multiplier' must be at least 0.001, got 0",
    "privacy={epsilon=1e-30}": "'privacy.epsilon' must be at least 0.0001, got 1e-30",
    # Bounds that leave nothing of an update.
    "privacy={noise_multiplier=1, clip=1e-46}": "'privacy.clip' must be at least 1e-12, got 1e-46",
    "aggregation.clip=1e-30": "'aggregation.clip' must be at least 1e-06, got 1e-30",
    "aggregation.zeroing=1e-30": "'aggregation.zeroing' must be at least 1e-06, got 1e-30",
    "aggregation={secure='simulated', secure_bound=1e-30}": "'aggregation.secure_bound' must be at least 1e-06",
    "algorithm.max_gradient_norm=1e-30": "'algorithm.max_gradient_norm' must be at least 1e-06, got 1e-30",
    # Shares of nothing, and of all.
    "choice.dev_share=0.99": "'choice.dev_share' must be above 0 and at most 0.5, got 0.99",
    "failures.dropout=1.0": "dropout must be below 1, or no client ever answers; got 1",
    "failures={dropout=0.5, late=0.5}": "dropout, late must be below 1 together, or no client ever answers; got 1",
    "attack={kind='scale', factor=1e38}": "'attack.factor' must be above 0 and at most 1e+09, got 1e+38",
    # Keys that nothing reads.
    "training.attempts=3": "'training.attempts' needs min_clients of at least 1",
    "personalise={epochs=0, local_head=true, layers='head'}": "'personalise.layers' needs epochs of at least 1",
    "personalise={epochs=0, local_head=true, optimizer='sgd'}": "'personalise.optimizer' needs epochs of at least 1",
}


@pytest.mark.parametrize("override", REFUSED)
def test_a_value_is_refused_in_one_line(override):
    with pytest.raises(UserError) as caught:
        tiny(override)
    assert str(caught.value).startswith("tiny.toml: ") and REFUSED[override] in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED_WITH_DATA = {
    "aggregation={compression='top_k', top_share=1e-12}": "top_share is 1e-12, which is less than one of the 15",
    "choice.dev_share=1e-9": "'choice.dev_share' is 1e-09, which is less than one of the largest client's",
}


@pytest.mark.parametrize("override", REFUSED_WITH_DATA)
def test_a_share_of_nothing_is_refused_once_the_sizes_are_known(override):
    with pytest.raises(UserError) as caught:
        builder().build(tiny(override))
    assert str(caught.value).startswith("tiny.toml: ") and REFUSED_WITH_DATA[override] in str(caught.value)


WARNED = {
    ("choice.patience=1000",): "choice.patience is 1000 and training.rounds is 3, so training never stops early",
    (
        "attack={kind='nan', clients=0.9}",
    ): "attack.clients makes 4 of 4 clients attackers; no aggregation rule withstands half",
    (*EXAMPLES, "algorithm.batch_size=1000000"): "algorithm.batch_size is 1000000 but no client has more than",
}


@pytest.mark.parametrize("overrides", WARNED, ids=" ".join)
def test_a_legal_value_without_effect_is_named(overrides):
    (line,) = builder().build(tiny(*overrides)).warnings
    assert line.startswith("tiny.toml: ") and WARNED[overrides] in line and "\n" not in line


@pytest.mark.parametrize("overrides", [("choice.patience=2",), ("attack={kind='nan', clients=1}",), EXAMPLES])
def test_a_value_with_an_effect_is_not(overrides):
    assert builder().build(tiny("algorithm.batch_size=2", *overrides)).warnings == ()


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        (
            {"privacy": {"epsilon": 1.0, "noise_multiplier": 0.1}, "evaluation": {"train_split": False}},
            "the first round would already spend",
        ),
        ({"failures": {"dropout": 1.0}, "training": {"rounds": 2, "min_clients": 1}}, "no client ever answers"),
        ({"attack": {"kind": "scale", "factor": 1e38}}, "'attack.factor' must be"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_recipe_that_cannot_run_leaves_nothing(sections, part, capsys, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", **sections)
    refusal(command(capsys, "train", recipe, "--out", tmp_path / "run"), str(recipe), part)
    assert sorted(tmp_path.iterdir()) == [recipe]


def test_a_run_in_which_nobody_answers_does_not_end_well(capsys, tmp_path):
    training = {**SYNTHETIC["training"], "rounds": 1, "clients_per_round": 1}
    recipe = write_recipe(tmp_path / "r.toml", training=training, failures={"dropout": 0.999999})
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run", "--runtime", "in-process")
    refusal(typed, "no client's answer counted in any of 1 rounds, so nothing was trained")
    assert not (tmp_path / "run" / "summary.json").exists()
