"""What a process keeps from one run of a comparison to the next: no more with many runs than with few."""

from __future__ import annotations

import gc
import weakref

import pytest
import tensorflow as tf

from tests.comparison.test_parallel import files
from tests.models.test_frozen_layers import corpus, recipe  # noqa: F401
from tests.upper_floors import tiny
from tff_re.comparison.outcome import RunsHere
from tff_re.comparison.planning import PlannedRun
from tff_re.runs import experiment
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.runtime.in_process import runtime as in_process

ALGORITHMS = ("fedavg", "fedprox", "fedpa", "fedatt")


@pytest.fixture
def runs(tmp_path):
    """Does runs, and tells what graphs are held."""
    setting = {"runtime_name": "in-process", "clients": 2, "resume": False, "check": None}
    made = RunsHere(ExperimentBuilder(), **setting)
    with made.opened(tmp_path / "log"):
        yield made


def trained(runs, folder, algorithm, seed):
    made = tiny(f'algorithm={{name="{algorithm}", local_epochs=1}}', "training.rounds=1", seed=seed)
    runs.trained(PlannedRun(algorithm, made, folder / f"{algorithm}{seed}"))
    calls = runs._runtime.context._calls.values()
    in_stages = [copy for call in calls for leaf in call.plan.expressions.leaves.values() for copy in leaf._idle]
    callers = [caller for call in calls if call._graph for caller in call._graph._callers]
    return in_stages + [copy for caller in callers for copy in caller._copies.values()]


@pytest.mark.slow
def test_graphs_of_earlier_runs_are_freed_and_made_again(runs, tmp_path, monkeypatch):
    kept = trained(runs, tmp_path / "kept", "fedavg", 0), trained(runs, tmp_path / "kept", "fedprox", 0)
    assert set(map(id, kept[0])) < set(map(id, kept[1]))  # small graphs stay
    del kept
    monkeypatch.setattr(in_process, "MOST_NODES", 0)
    numbers, first = [], []
    for seed in (0, 1):
        for algorithm in ALGORITHMS:
            copies = trained(runs, tmp_path / "freed", algorithm, seed)
            numbers.append(len(copies))
            first = first or [weakref.ref(copy) for copy in copies]
            del copies
    gc.collect()
    assert max(numbers[1:]) <= 2 * numbers[0] and len(numbers) == 8
    assert first and not any(copy() for copy in first)
    of_both = [files(tmp_path / folder / f"{name}0") for folder in ("kept", "freed") for name in ("fedavg", "fedprox")]
    assert of_both[:2] == of_both[2:]


def test_what_was_used_last_is_freed_last(runs, tmp_path):
    trained(runs, tmp_path, "fedavg", 0)
    context = runs._runtime.context
    nodes = [call.held_nodes for call in context._calls.values()]
    context.free_copies(sum(nodes))
    assert [call.held_nodes for call in context._calls.values()] == nodes
    context.free_copies(nodes[-1])
    left = [call.held_nodes for call in context._calls.values()]
    assert left[-1] == nodes[-1] > 0 and sum(left) == nodes[-1]


def test_outputs_of_frozen_layers_of_other_models_are_forgotten(corpus, monkeypatch):  # noqa: F811
    builder, recipes = ExperimentBuilder(), [recipe(corpus, frozen_layers=frozen) for frozen in (1, 2)]
    data = builder.prepare(recipes[0])

    def changed(number):
        return builder._changed(recipes[number], data, ())

    first = weakref.ref(changed(0))
    changed(1)
    assert changed(0) is first() and builder._outputs.keys() <= builder._prepared.keys()
    assert all(size > 1000 for size in builder._outputs.values())
    monkeypatch.setattr(experiment, "MOST_OUTPUTS", 0)
    builder._prepared.clear()
    builder._outputs.clear()
    data = builder.prepare(recipes[0])
    second = weakref.ref(changed(0))
    assert changed(0) is second()  # the model in use stays
    third = weakref.ref(changed(1))
    gc.collect()
    assert second() is None and third() is changed(1) and len(builder._outputs) == 1


def test_no_encoder_of_an_earlier_model_stays(corpus):  # noqa: F811
    def matrices():
        gc.collect()
        variables = (held for held in gc.get_objects() if isinstance(held, tf.Variable))
        return {id(variable) for variable in variables if "word_embeddings" in variable.name}

    before, builder = matrices(), ExperimentBuilder()
    data = builder.prepare(recipe(corpus))
    for frozen in (1, 2):
        made = builder._changed(recipe(corpus, frozen_layers=frozen), data, ())
        assert made.local_model(recipe(corpus, frozen_layers=frozen).model).initial_weights(0).trainable
    assert matrices() <= before


def test_what_runs_left_is_freed_when_the_process_has_grown(runs, monkeypatch):
    def left_in_a_cycle():
        model = type("Model", (), {})()
        model.itself = model
        return weakref.ref(model)

    runs._runtime.between_runs()
    held = left_in_a_cycle()
    monkeypatch.setattr(in_process, "MOST_GROWTH", 2**60)
    runs._runtime.between_runs()
    assert held() is not None
    monkeypatch.setattr(in_process, "MOST_GROWTH", -(2**60))
    runs._runtime.between_runs()
    assert held() is None
