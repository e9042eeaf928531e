"""The configuration that is printed when a run or a comparison starts."""

from __future__ import annotations

import pytest
from rich.color import ColorSystem

from tests.upper_floors import builder, tiny
from tff_re.cli.configuration import LONGEST_VALUE, show_run, show_suite
from tff_re.cli.display import console
from tff_re.comparison.suite import load_suite

TREE = """\
├── seed: 3
├── task: synthetic, num_clients = 4, num_features = 5, num_classes = 3, total_train = 60, total_test = 24, 4 at default
├── partition: natural
├── model: logistic_regression, 3 at default
├── algorithm: fedpap, learning_rate = 0.05, learning_rate_decay = 0.1, local_epochs = 1, server_momentum = 0.5, \
noise_scale = 0.01, 9 at default
├── training: rounds = 7, clients_per_round = 2, checkpoint_every = 2, 6 at default
└── evaluation: train_split = false, 1 at default
"""


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_shows_what_is_not_at_its_default(terminal, capsys, monkeypatch):
    experiment = builder().build(tiny("training.rounds=7", "evaluation.train_split=false", seed=3))
    monkeypatch.setattr(console, "_force_terminal", terminal)
    monkeypatch.setattr(console, "_color_system", ColorSystem.STANDARD if terminal else None)
    monkeypatch.setattr(console, "_width", 60)
    show_run(experiment)
    first, _, tree = capsys.readouterr().out.partition("├")
    if not terminal:
        assert first == (
            "tiny: fedpap on synthetic, 4 clients, 60 training and 24 test examples; a client gets 84 bytes and sends "
            "116 a round\n"
        )
        assert "├" + tree == TREE
        return
    assert "\x1b[1mrounds\x1b[0m = 7" in tree and "\x1b[2m" in tree, "keys in bold, defaults and guides dim"
    assert "clients_per_round" in tree and "\n\x1b[2m│" in tree, "wrapped within the tree"


def test_values_are_shortened_and_hold_no_control_characters(capsys):
    show_run(builder().build(tiny('name="[b]"', f'description="{"x" * 500}"')))
    assert capsys.readouterr().out.startswith("[b]: fedpap")
    from tff_re.cli.configuration import _shortened

    assert len(_shortened("x" * 500)) == LONGEST_VALUE and _shortened("症\x1b[2J\n") == '"症\\u001b[2J\\n"'


def test_a_suite_shows_once_what_its_entries_share(capsys):
    show_suite(load_suite("flcmc-synthetic", ("training.rounds=9",), (4, 5)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": 11 entries, 22 runs") and lines[1] == "├── seeds: 4, 5"
    assert lines[2].startswith("├── task: synthetic, total_train = 8065") and len(lines) == 31
    assert "├── algorithm" in lines and "│   ├── FedAttS: fedatts, server_step = 4.0, 12 at default" in lines
    assert lines[17:19] == ["├── training: rounds = 9, 8 at default", "├── evaluation: 2 at default"]
    assert lines[-2:] == ["    ├── uniform mean, PAdam, λ=4: none", '    └── pooled: kind = "pooled"']
