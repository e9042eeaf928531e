"""Algorithms of the conformance suites, each built once in a process, and rounds of them.

The suite of the runtimes (tests/runtime/test_in_process_conformance.py) plays the same rounds.
"""

from __future__ import annotations

import functools
import pathlib
import re

import attrs

from computations import algorithms
from tests.computations import toolbox
from tests.computations.cases import NUM_AT_SERVER, STEPS, case
from tests.computations.toolbox import client, examples, model_weights, start_weights


def _register_algorithm_of_the_page():
    """Registers the algorithm of CONTRIBUTING.md, which no table and no test names: it must pass the suites."""
    page = (pathlib.Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    if "fedavgm" not in algorithms.names():  # docs/notebooks/03_write_an_algorithm.md has a file of this name
        exec(compile(example, "CONTRIBUTING.md", "exec"), {"__name__": "algorithm_of_the_page"})


_register_algorithm_of_the_page()
NAMES = algorithms.names()

# A few epochs over small batches, and all that is kept from round to round in use.
STATEFUL = {"local_epochs": 2, "batch_size": 4, "server_momentum": 0.5, "noise_scale": 0.01, "learning_rate_decay": 0.5}
# The round that is worked out in NumPy. Momentum and decay show in the rounds after it.
WORKED_OUT = {
    "learning_rate": 0.1,
    "local_steps": STEPS,
    "batch_size": 50,
    "server_momentum": 0.5,
    "learning_rate_decay": 0.5,
}

DATA = [examples(n, seed=n) for n in (6, 15)]
AT_SERVER = examples(NUM_AT_SERVER, seed=40)


def options_of(name, **values):
    """The algorithm's options: those of `values` that it has, and those without a default."""
    kind = algorithms.find(name).options
    option_names = {f.name for f in attrs.fields(kind)}
    return kind(**{key: value for key, value in {**case(name).required, **values}.items() if key in option_names})


def worked_out_options(name):
    return options_of(name, **{**WORKED_OUT, **case(name).options})


@functools.lru_cache
def model_of(bags):
    """The softmax regression that the suites train."""
    return toolbox.linear_model(3, 3, bags=bags)


@functools.cache
def build(name, **changed):
    """The algorithm with the options of the worked-out round, but for these."""
    options = attrs.evolve(worked_out_options(name), **changed)
    return algorithms.find(name).build(model_of(case(name).bags), options)


def begin(algorithm, start=None):
    return algorithm.initialize(model_weights(*(start or start_weights())))


def initial_client_states(algorithm, clients):
    work = algorithm.client_work
    if work.client_state_type is None:
        return None
    return [work.initial_client_state(c["examples"]) for c in clients]


def clients_of_round(number):
    return [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(DATA)]


def play(algorithm, state, rounds, clients_of_round, client_states=None, at_server=None):
    """(state, client states, the metrics of each round) after these rounds; client states go from round to round.

    An algorithm with examples at the server gets `at_server` (x, y), or those of the suite.
    """
    metrics = []
    for number in rounds:
        clients = clients_of_round(number)
        if "triple" in algorithm.model.input_spec:
            clients = [toolbox.in_bags(c, platform) for platform, c in enumerate(clients)]
        optional_arguments = []
        if algorithm.client_work.client_state_type is not None:
            optional_arguments.append(client_states or initial_client_states(algorithm, clients))
        if algorithm.server_type is not None:
            optional_arguments.append(client(*(at_server or AT_SERVER), seed=(number, 77)))
        output = algorithm.next(state, clients, *optional_arguments)
        client_states = output.get("client_state")
        state = output["state"]
        metrics.append(output["metrics"])
    return state, client_states, metrics
