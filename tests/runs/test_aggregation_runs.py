"""Runs with a table [aggregation]: resumed, counted, and what their outputs say."""

from __future__ import annotations

import json

import pytest

from tests.runs.resuming import assert_same_when_resumed
from tests.upper_floors import builder, command, refusal, share_computations, tiny, write_recipe
from tff_re.comparison.rows import ComparisonRow, Table
from tff_re.comparison.tables import comparison_markdown
from tff_re.errors import UserError
from tff_re.exporting.export_run import _privacy
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history

SAID = "a simulation of secure sums that protects nothing"
SECURE = 'aggregation.secure="simulated"'
TOP = ('aggregation.compression="top_k"', "aggregation.top_share=0.4")


@pytest.fixture(scope="module", autouse=True)
def _built_once(runtime):
    with pytest.MonkeyPatch.context() as patch:
        share_computations(patch, runtime)
        yield


@pytest.mark.parametrize(
    "aggregation",
    [
        pytest.param(TOP, id="top"),
        pytest.param(
            (SECURE, "aggregation.secure_quantile=0.8", "aggregation.secure_bound=0.01"),
            id="sum",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_clients_have_not_sent_and_the_estimated_bound_are_in_the_checkpoints(aggregation, runtime, tmp_path):
    experiment = assert_same_when_resumed(aggregation, runtime, tmp_path)
    history = read_history(RunFolder(tmp_path / "whole"))
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text("utf-8"))
    if aggregation is not TOP:
        bounds = [row["sum/secure/bound"] for row in history]
        assert bounds[0] == pytest.approx(0.01) and len(set(bounds)) == 4 and bounds[1] > 0.01
        return
    # Of 5 x 3 + 3 numbers 6 + 2 and their places; two norms, a and a^2 of two layers, five statistics.
    assert summary["bytes_up_per_client_and_round"] == 8 * (6 + 2) + 2 * 4 + 4 * 4 + 5 * 4
    assert summary["notes"][-1].startswith(
        "updates are compressed: 40 % of each tensor's numbers, the largest, are sent"
    )
    state = experiment.algorithm.client_work.initial_client_state(None)
    assert [t.shape for t in state["residual"]] == [(5, 3), (3,)]


def test_every_output_of_simulated_secure_sums_says_so(runtime, tmp_path, capsys):
    recipe, out = write_recipe(tmp_path / "r.toml", aggregation={"secure": "simulated"}), tmp_path / "run"
    typed = command(capsys, "train", recipe, "--set", "training.rounds=1", "--out", out, "--runtime", "in-process")
    assert typed.code == 0, typed.err
    begin, _, end = " ".join(typed.out.split()).partition("test examples of all clients")
    assert SAID in begin and SAID in end
    # 18 numbers of 20 + 1 bits; norms; a and a^2 of two layers; what measures clipping; statistics.
    assert f"sends {48 + 8 + 11 + 8 + 20} a round" in begin
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert any(note.startswith(SAID) for note in summary["notes"])
    assert any("bytes up count a number of an update as 20 bits" in note for note in summary["notes"])
    assert 0 <= summary["final"]["sum/secure/clipped"] <= 1
    assert SAID in RunFolder(out).log.read_text("utf-8")
    secured = tiny(SECURE)
    assert any(f"no secure aggregation: {SAID}" in line for line in _privacy(builder().build(secured), None))
    rows = [ComparisonRow("plain", {}), ComparisonRow("rounded", {}, notes=secured.notes)]
    table = comparison_markdown(Table(rows))
    assert f"rounded: {SAID}" in table and "uncompressed, unless a note says otherwise." in table
    assert SAID not in comparison_markdown(Table(rows[:1])) and "uncompressed." in comparison_markdown(Table(rows[:1]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["aggregation.secure_bits=12"], "'aggregation.secure_bits' needs secure = 'simulated'"),
        (["aggregation.top_share=0.5"], "'aggregation.top_share' needs compression = 'top_k'"),
        ([*TOP[:1], "aggregation.top_share=0"], "'aggregation.top_share' must be above 0 and at most 1, got 0"),
        ([SECURE, "aggregation.secure_bits=33"], "'aggregation.secure_bits' must be from 2 to 32, got 33"),
        ([SECURE, TOP[0]], "'aggregation.compression' needs secure = 'none'"),
        (["aggregation.secure=true"], "'aggregation.secure' must be one of 'none', 'simulated'"),
        (["aggregation.compresion=1"], "unknown key 'aggregation.compresion'; did you mean 'compression'?"),
    ],
)
def test_bad_values_are_refused_by_their_key(overrides, message):
    with pytest.raises(UserError) as caught:
        tiny(*overrides)
    assert str(caught.value).startswith("tiny.toml: ") and message in str(caught.value)


def test_a_modulus_that_is_too_small_is_refused(tmp_path, capsys):
    recipe = write_recipe(tmp_path / "r.toml", aggregation={"secure": "simulated", "secure_modulus_bits": 20})
    typed = command(capsys, "train", recipe, "--out", tmp_path / "run")
    refusal(
        typed, "r.toml: aggregation.secure_modulus_bits is 20, but the sum of 2 clients' numbers of 20 bits needs 21"
    )
    assert not (tmp_path / "run").exists()
