"""The benchmark of Lazy MIL's selection, in sizes that measure nothing: the table adds up, the texts are as long."""

import numpy as np
import pytest

from benchmarks import memory, selection
from benchmarks.selection import FEW, LAZY, NONE, SELECTION, Stage

pytestmark = pytest.mark.tools

TINY = selection.Sizes(
    **{"sentences": 300, "bags": 150, "triples": 160, "relations": 3, "vocabulary": 700, "length": 60},
    **{"platforms": 4, "platforms_per_round": 2, "filters": 4, "batch": 8, "epochs": 1},
)


def stages(selecting):
    """Two turns; seconds of the selection by the clock, of a round 10 and 30."""
    peaks = [(Stage("making the data"), int(5e9))]
    for alone, whole in zip(selecting, (10.0, 30.0), strict=True):
        peaks += [
            (Stage(FEW, 1.0, 0.5, 4, 3), int(1e9)),
            (Stage(SELECTION, alone, alone / 2, 50, 40), int(2e9)),
            (Stage(LAZY, whole, whole, 40, 40), int(3e9)),
            (Stage(NONE, 2 * whole, 2 * whole, 50), int(2.5e9)),
        ]
    return peaks


def test_the_share_is_the_median_over_the_turns():
    markdown = selection.table(stages((2.0, 12.0)))
    assert "| selection | 7.0 (2.0 to 12.0) | 3.5 | 50 | 40 | 2.00 |" in markdown
    assert "| NONE, a round | 40.0 (20.0 to 60.0) | 40.0 | 50 |  | 2.50 |" in markdown
    assert "takes 30% of the wall-clock seconds and 15% of the CPU seconds" in markdown
    assert "less than half of both; met." in markdown and "under 8 GB; here 5.00, met." in markdown
    slow = stages((6.0, 18.0))
    assert "less than half of both; not met." in selection.table(slow)
    assert "here 9.00, not met." in selection.table([*slow, (Stage("at the end"), int(9e9))])


def test_texts_get_words_before_their_last_one():
    ids = np.array([[9, 5, 6, 8, 0, 0, 0], [9, 5, 8, 0, 0, 0, 0], [9, 5, 6, 7, 4, 8, 0]], np.int32)
    arrays = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32)}
    selection.lengthen(arrays, np.array([6, 100, 2]), 20, np.random.default_rng(0))
    assert arrays["attention_mask"].sum(axis=1).tolist() == [6, 7, 6]
    np.testing.assert_array_equal(ids > 0, arrays["attention_mask"])
    assert ids[0, [0, 1, 2, 5]].tolist() == [9, 5, 6, 8] and ids[1, [0, 1, 6]].tolist() == [9, 5, 8]
    assert ids[2].tolist() == [9, 5, 6, 7, 4, 8, 0]
    drawn = np.concatenate([ids[0, 3:5], ids[1, 2:6]])
    assert (drawn >= 2).all() and (drawn < 20).all()


def test_platforms_have_texts_of_the_length_that_is_said():
    platforms = selection._platforms(TINY)
    assert len(platforms) == TINY.platforms
    lengths = np.concatenate([arrays["attention_mask"].sum(axis=1) for arrays in platforms])
    assert len(lengths) >= TINY.sentences and 40 < lengths.mean() < 48
    assert max(arrays["triple"].max() for arrays in platforms) == TINY.triples - 1
    assert max(arrays["input_ids"].max() for arrays in platforms) < TINY.vocabulary


def report_twice(report, fail):
    report("first")
    block = b"1" * 30_000_000
    report(len(block))
    if fail:
        raise KeyError("why")


def test_stages_are_told_in_their_order_with_their_peaks():
    (first, before), (second, after) = memory.sample_memory(report_twice, (False,), memory.memory_kind(), "a test")
    assert (first, second) == ("first", 30_000_000)
    assert before > 0 and after > before + 20e6


def test_a_stage_that_fails_is_an_error(capfd):
    with pytest.raises(RuntimeError, match="a test ended with exit code 1"):
        memory.sample_memory(report_twice, (True,), memory.memory_kind(), "a test")
    assert "why" in capfd.readouterr().err


@pytest.mark.benchmark
def test_the_turns_run_and_the_selection_alone_is_that_of_the_round(tmp_path):
    sampled = memory.sample_memory(
        selection.measured_turns, (TINY, 2, tmp_path / "worker.log"), memory.memory_kind(), "a tiny selection", 0.5
    )
    reported = [stage for stage, _ in sampled]
    assert [stage.name for stage in reported] == ["making the data", "compiling", *2 * selection.ROWS]
    assert all(stage.seconds > 0 for stage in reported[2:])
    assert min(peak for _, peak in sampled[1:]) > 100e6 and sampled[0][1] > 10e6  # data are made without TF
    for _, alone, lazy, none in (reported[2:6], reported[6:]):
        assert 0 < alone.chosen == lazy.chosen == lazy.sentences <= alone.sentences == none.sentences
    assert selection.table(sampled).count("| ") > 20
