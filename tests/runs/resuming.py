"""Runs that are broken off and resumed, and what has to come out the same."""

from __future__ import annotations

import pytest

from tests.upper_floors import Stop, assert_same_weights, break_off, builder, tiny
from tff_re.runs.run import train_run


def stop_at(round_num: int):
    """An `on_round` that breaks the run off after a round."""

    def stop(report):
        if report.round == round_num:
            raise Stop

    return stop


def resumed(train, method: str, round_num: int, before: bool, **options):
    """What `train(resume=True)` gives after `train()` was broken off at a round, before or after that method of Records
    did its work."""
    with pytest.MonkeyPatch.context() as patch:
        break_off(patch, method, round_num, before=before)
        with pytest.raises(Stop):
            train(**options)
    return train(resume=True, **options)


def resumed_after(train, round_num: int, **options):
    """The same, broken off between two rounds."""
    with pytest.raises(Stop):
        train(on_round=stop_at(round_num), **options)
    return train(resume=True, **options)


def assert_same_files(folder, wanted, *names) -> None:
    for name in names:
        assert (folder / name).read_bytes() == (wanted / name).read_bytes(), name


def assert_goes_on_alike(overrides, runtime, folder):
    """Trains the tiny recipe for four rounds into `folder / "whole"`, and once more broken off after round 3, going on
    from the checkpoint of round 2; asserts that weights and files are equal. The whole run's experiment."""

    def run(name, **options):
        recipe = tiny(*overrides, "training.rounds=4", "training.checkpoint_every=2")
        return train_run(recipe, folder / name, builder=builder(), runtime=runtime, details=False, **options)

    experiment, whole = run("whole")
    _, result = resumed_after(lambda **options: run("broken", **options), 3)
    assert_same_files(folder / "broken", folder / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, whole.weights)
    return experiment
