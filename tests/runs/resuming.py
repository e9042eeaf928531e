"""Runs that are interrupted and resumed, and assertions that their results are the same."""

from __future__ import annotations

import pytest

from tests.upper_floors import Stop, assert_same_weights, break_off, builder, tiny
from tff_re.runs.run import train_run


def stop_at(round_num: int):
    """An `on_round` that interrupts the run after a round."""

    def stop(report):
        if report.round == round_num:
            raise Stop

    return stop


def resumed(train, method: str, round_num: int, before: bool, **options):
    """Returns `train(resume=True)` after `train()` was interrupted before or after a method of Records at a round."""
    with pytest.MonkeyPatch.context() as patch:
        break_off(patch, method, round_num, before=before)
        with pytest.raises(Stop):
            train(**options)
    return train(resume=True, **options)


def resumed_after(train, round_num: int, **options):
    """The same, interrupted between two rounds."""
    with pytest.raises(Stop):
        train(on_round=stop_at(round_num), **options)
    return train(resume=True, **options)


def assert_same_files(folder, expected, *names) -> None:
    for name in names:
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def assert_same_when_resumed(overrides, runtime, folder):
    """Asserts that a run interrupted after round 3 and resumed from round 2 equals an uninterrupted one of four rounds.

    Returns the uninterrupted run's experiment.
    """

    def run(name, **options):
        recipe = tiny(*overrides, "training.rounds=4", "training.checkpoint_every=2")
        return train_run(recipe, folder / name, builder=builder(), runtime=runtime, details=False, **options)

    experiment, uninterrupted = run("whole")
    _, result = resumed_after(lambda **options: run("broken", **options), 3)
    assert_same_files(folder / "broken", folder / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, uninterrupted.weights)
    return experiment
