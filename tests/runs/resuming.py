"""Runs that are broken off and resumed, and what has to come out the same."""

from __future__ import annotations

import pytest

from tests.upper_floors import Stop, break_off


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
