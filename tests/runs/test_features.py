"""The form of a feature: a toy in one file, the order of all, and that hooks are those that are declared."""

from __future__ import annotations

import csv
import inspect
import json
from collections import OrderedDict

import numpy as np
import pytest

from computations.federated_algorithm import recompose
from computations.server_updates import gradient_step
from tests.runs.resuming import assert_same_files, resumed_after
from tests.upper_floors import assert_same_weights, builder, tiny
from tff_re.errors import UserError
from tff_re.runs.features import order
from tff_re.runs.features.base import Feature
from tff_re.runs.folder import RunFolder
from tff_re.runs.reading import read_history
from tff_re.runs.run import train_run

PLAN = ("description=toy", "training.rounds=5")


class Toy(Feature):
    """Halves the server's step, counts the clients that train, and stops when six of them did."""

    table = "description"
    algorithm_key = "half a step"

    @classmethod
    def is_in(cls, recipe):
        return recipe.description == "toy"

    def refuse(self, *, at_sites):
        if self.recipe.training.rounds > 9:
            raise UserError(f"{self.recipe.source}: training.rounds is above 9, too much for a toy; lower it")

    def prepare(self, setting):
        self.clients = setting.clients

    def change_algorithm(self, algorithm):
        return recompose(algorithm, finalizer=gradient_step(algorithm.model, step_size=0.5))

    def warnings(self, experiment):
        return ("the toy is on",)

    def metric_names(self, of_test):
        return {"toy/bias"}

    def checkpointed(self, experiment, state):
        return {"toy": OrderedDict(times=np.zeros(self.clients, np.int64))}

    def evaluate(self, training, weights):
        return {"toy/bias": float(np.sum(weights.trainable[-1]))}

    def after_round(self, training, metrics):
        times = training.state["toy"]["times"].copy()
        times[training.answers.places] += 1
        training.state["toy"] = OrderedDict(times=times)
        metrics["toy/trained"] = float(times.sum())

    def stop(self, training):
        trained = training.state["toy"]["times"].sum()
        return f"stopped after round {training.round}: the toy has seen {trained} clients" if trained >= 6 else None

    def finish(self, training, result):
        self.times = dict(zip(training.ids, training.state["toy"]["times"].tolist(), strict=True))
        return result

    def columns(self, clients):
        return {"toy": {client: self.times[client] for client in clients}}

    def summary(self, result):
        return {"toy": sum(self.times.values())}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "FEATURES", (*order.FEATURES, Toy))
        yield


def run(folder, runtime, *overrides, **options):
    return train_run(tiny(*overrides), folder, runtime=runtime, builder=builder(), details=False, **options)


def test_a_toy_is_refused_with_its_line(tmp_path, here):
    with pytest.raises(UserError) as caught:
        run(tmp_path / "run", here, *PLAN, "training.rounds=10")
    assert str(caught.value) == "tiny.toml: training.rounds is above 9, too much for a toy; lower it"
    assert not (tmp_path / "run").exists()


def test_a_toy_changes_the_algorithm_writes_its_columns_and_stops_early(tmp_path, here, capsys):
    plain = builder().build(tiny())
    experiment, result = run(tmp_path / "run", here, *PLAN)
    assert experiment.feature(Toy) is not None and plain.feature(Toy) is None
    assert experiment.algorithm is not plain.algorithm, "they have different keys"
    assert builder().build(tiny(*PLAN)).algorithm is experiment.algorithm, "it is built once"
    assert result.stopped == "stopped after round 3: the toy has seen 6 clients"
    assert "tff-re: tiny.toml: the toy is on" in capsys.readouterr().err
    history = read_history(RunFolder(tmp_path / "run"))
    assert [row["toy/trained"] for row in history] == [2, 4, 6]
    assert history[-1]["toy/bias"] == pytest.approx(float(np.sum(result.weights.trainable[-1])))
    with open(tmp_path / "run" / "clients.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-1] == "toy" and sum(int(row["toy"]) for row in rows) == 6
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert summary["toy"] == 6 and summary["stopped"] == result.stopped


def test_a_toy_is_resumed_from_what_it_put_into_the_checkpoint(tmp_path, here):
    _, whole = run(tmp_path / "whole", here, *PLAN)
    rounds = []

    def broken(**options):
        if options.get("resume"):
            options["on_round"] = lambda report: rounds.append(report.round)
        return run(tmp_path / "broken", here, *PLAN, **options)

    _, result = resumed_after(broken, 2)
    assert rounds == [3] and result.stopped == whole.stopped
    assert_same_files(tmp_path / "broken", tmp_path / "whole", "metrics.csv", "clients.csv", "summary.json")
    assert_same_weights(result.weights, whole.weights)
    rounds.clear()
    _, again = broken(resume=True)
    assert rounds == [] and again.stopped == whole.stopped, "a run that stopped goes on no further"


BEFORE = {
    ("LocalHead", "Attack"): "an attacker changes the update that a client sends",
    ("Attack", "Privacy"): "an attacker's update is clipped, too",
    ("Privacy", "Aggregation"): "a sum that is coded or secure is the private one",
    ("Aggregation", "ServerOptimizer"): "the server's step takes what the aggregation gives",
    ("Privacy", "RoundChoice"): "groups are numbered over all training examples, before some are kept out for dev",
    ("RoundChoice", "Baseline"): "every client keeps out its own dev examples before all are pooled",
    **{(name, "Track"): "all metrics of a round are there" for name in ("Privacy", "RoundChoice", "Selection")},
    ("Personalise", "Failures"): "columns of clients.csv: what was measured, who answered, who attacked",
    ("Failures", "Attack"): "columns of clients.csv: what was measured, who answered, who attacked",
}


@pytest.mark.parametrize("pair", BEFORE, ids=" ".join)
def test_the_order_of_features(pair):
    names = [feature.__name__ for feature in order.FEATURES]
    assert len(set(names)) == len(names)
    first, second = map(names.index, pair)
    assert first < second, BEFORE[pair]


def overridden(feature):
    return {name for base in feature.__mro__[:-2] for name in vars(base) if not name.startswith("_")}


@pytest.mark.parametrize("feature", order.FEATURES, ids=lambda feature: feature.__name__)
def test_a_feature_overrides_hooks_as_they_are_declared(feature):
    for name in overridden(feature) & set(vars(Feature)):
        if inspect.isfunction(getattr(Feature, name)):
            declared, overridden_with = (
                list(inspect.signature(getattr(c, name)).parameters) for c in (Feature, feature)
            )
            assert overridden_with == declared, name


@pytest.mark.parametrize("feature", order.FEATURES, ids=lambda feature: feature.__name__)
def test_what_changes_data_or_an_algorithm_has_a_key_for_it(feature):
    """Else two runs that differ in it would share what was built for the first one."""
    for hook, key in (("change_data", "data_key"), ("change_algorithm", "algorithm_key")):
        assert (hook in overridden(feature)) == (key in overridden(feature)), hook
