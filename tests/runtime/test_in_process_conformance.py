"""Two rounds in this process and in the worker give the same state, client states and metrics."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.algorithms.server_optimizer import with_server_optimizer
from computations.server_updates import ServerOptimizerOptions
from tests.computations import toolbox
from tests.computations.built import NAMES, STATEFUL, begin, clients_of_round, model_of, options_of, play
from tests.computations.cases import case
from tff_re.runtime import open_runtime

TOLERANCE = {"rtol": 1e-6, "atol": 5e-7}
"""The worker is compiled to round once in a·b + c (a fused multiply-add), this TensorFlow twice: its SGD differs by a
bit in every step. Without SGD all results were equal to the bit where this was written; that depends on the machine.
"""


@pytest.fixture(scope="module")
def contexts(processes, tmp_path_factory):
    """The contexts of both runtimes, by name; two clients side by side."""
    folder = tmp_path_factory.mktemp("both")
    with (
        open_runtime("local", log_path=folder / "worker.log", max_concurrent_computation_calls=2) as local,
        open_runtime("in-process", log_path=folder / "log", threads=2) as here,
    ):
        yield {"local": local.context, "in-process": here.context}


def three_clients(number):
    """The suite's two and one whose numbers are not finite, which is left out."""
    x, y = toolbox.examples(9, seed=9)
    return [*clients_of_round(number), toolbox.client(np.where(np.arange(3) == 1, np.nan, x), y, seed=(0, 9))]


REPRESENTATIVES = {"feded", "lazy_mil"}
"""For examples at the server and for bags. FedPAP is among the quick tests of rules (tests/computations/test_rules.py),
FedCMC among those of calls in one (tests/runtime/test_one_call.py)."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in REPRESENTATIVES else pytest.mark.slow) for n in NAMES]
)
def test_two_rounds_are_those_of_the_worker(contexts, name):
    options = options_of(name, **STATEFUL, num_clients=3)
    algorithm = algorithms.find(name).build(model_of(case(name).bags), options)
    outcomes = {}
    for which, context in contexts.items():
        tff.framework.set_default_context(context)
        outcomes[which] = play(algorithm, begin(algorithm), range(2), three_clients)
    here, there = outcomes["in-process"], outcomes["local"]
    tf.nest.assert_same_structure(here, there, check_types=True)
    kinds = [[type(value) for value in tf.nest.flatten(outcome)] for outcome in (here, there)]
    assert kinds[0] == kinds[1]
    for ours, workers in zip(tf.nest.flatten(here), tf.nest.flatten(there), strict=True):
        if ours is not None:
            # A control variate is a difference of weights over (steps times rate): a bit there is some ten here.
            factor = 10 if name == "scaffold" else 1
            np.testing.assert_allclose(ours, workers, rtol=TOLERANCE["rtol"], atol=factor * TOLERANCE["atol"])
    moved = [np.abs(a - b).max() for a, b in zip(here[0]["weights"].trainable, toolbox.start_weights(), strict=True)]
    assert min(moved) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad", "momentum"])
def test_server_optimizers_are_those_of_the_worker(contexts, rule):
    """Beside attention. A coordinate that hardly moves is divided by its own size, so that bits show a little more."""
    kind = algorithms.find("fedpap").options
    options = options_of("fedpap", **{**STATEFUL, "server_momentum": 0.0, "noise_scale": 0.0})
    algorithm = algorithms.find("fedpap").build(model_of(False), options)
    algorithm = with_server_optimizer(algorithm, ServerOptimizerOptions(name=rule), kind())
    outcomes = {}
    for which, context in contexts.items():
        tff.framework.set_default_context(context)
        outcomes[which] = play(algorithm, begin(algorithm), range(2), three_clients)
    here, there = outcomes["in-process"], outcomes["local"]
    tf.nest.assert_same_structure(here, there, check_types=True)
    for ours, workers in zip(tf.nest.flatten(here), tf.nest.flatten(there), strict=True):
        if ours is not None:
            np.testing.assert_allclose(ours, workers, rtol=1e-5, atol=1e-6)
