"""The stage protocol: algorithms across sites give what they give in one place; a digest names a computation."""

from __future__ import annotations

import concurrent.futures
import os
from collections import OrderedDict
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.errors import CompositionError
from tests.computations import toolbox
from tests.computations.built import AT_SERVER, NAMES, STATEFUL, begin, clients_of_round, model_of, options_of, play
from tests.computations.cases import case
from tests.sites.sites_for_tests import agreement_of, corpora, recipe_of, write_site
from tff_re.runs.randomness import client_seed
from tff_re.runtime import ComputationFailed, open_runtime
from tff_re.runtime.in_process import kept
from tff_re.sites.agreement import Client
from tff_re.sites.ledger import TrainingData
from tff_re.sites.policy import read_site
from tff_re.sites.prepared import Reference
from tff_re.sites.program import Program
from tff_re.sites.requests import TRAIN
from tff_re.sites.runtime import SitesRuntime
from tff_re.sites.site import SiteService, _Run
from tff_re.sites.store import RunStore
from tff_re.sites.sums import Limits
from tff_re.sites.transport import InMemory

RUN = "0" * 32
SITES = ("aachen", "bonn")
RECIPE = recipe_of()


def build(name, **more):
    return algorithms.find(name).build(model_of(case(name).bags), options_of(name, **STATEFUL, num_clients=2, **more))


def examples_of(name):
    clients = clients_of_round(0)
    if case(name).bags:
        clients = [toolbox.in_bags(client, platform) for platform, client in enumerate(clients)]
    return [client["examples"] for client in clients]


def across_sites(folder, algorithm, program, examples):
    """(runtime, the sites' stores): each site holds one client, and has the program built already."""
    services, stores = {}, []
    for site, held in zip(SITES, examples, strict=True):
        service = SiteService(read_site(write_site(folder / site, site, corpora()["bonn"])))
        service._decisions.ledger.begin(TrainingData("texts.json", "0" * 64, "0" * 64), RUN, RECIPE)
        stores.append(RunStore(folder / site / "state", RUN))
        experiment = SimpleNamespace(
            model=SimpleNamespace(arrange=lambda examples: examples),
            algorithm=algorithm,
            evaluation=None,
            feature=lambda kind: None,
        )
        run = _Run(RECIPE, stores[-1], None, examples={site: (held, held, None)}, experiment=experiment)
        run.agreement, run.__dict__["programs"] = True, {TRAIN: program}
        service._runs[RUN], services[site] = run, service.answer
    runtime = SitesRuntime(os.devnull, engine=InMemory(services))
    clients = tuple(Client(s, s, len(held["y"]), 0, None) for s, held in zip(SITES, examples, strict=True))
    runtime.limits = Limits(algorithm.client_work.training)
    runtime._agreement = agreement_of(RUN, clients)
    runtime._programs, runtime._purposes = {TRAIN: program}, {algorithm.next: TRAIN}
    return runtime, stores


def clients_with_seeds(number):
    """As `clients_of_round`, with the seeds that sites give their clients."""
    clients = zip(SITES, clients_of_round(number), strict=True)
    return [OrderedDict(client, seed=client_seed(RECIPE.seed, number + 1, site)) for site, client in clients]


def flat(container):
    """Its arrays in the order of their type."""
    return tff.structure.flatten(tff.structure.from_container(container, recursive=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_across_sites_are_those_in_one_place(tmp_path, name):
    algorithm, examples = build(name), examples_of(name)
    program = Program(algorithm.next)
    runtime, stores = across_sites(tmp_path, algorithm, program, examples)
    if name == "lazy_mil_alias":  # not for sites: clients train on others' sentences, too
        more = attrs.evolve(algorithm.client_work.training, local_epochs=100)
        runtime.limits = Limits(more, factor=100.0)
    with runtime:
        state, versions = begin(algorithm), [np.int64(-1)] * 2
        for number in range(2):
            argument = [OrderedDict(examples=Reference(site, "train"), seed=np.zeros(2, np.int32)) for site in SITES]
            rest = [versions] if algorithm.client_work.client_state_type is not None else []
            if algorithm.server_type is not None:
                rest.append(toolbox.client(*AT_SERVER, seed=(number, 77)))
            runtime.begin_round(number + 1)
            output = algorithm.next(state, argument, *rest)
            state, versions = output["state"], output.get("client_state")
    with open_runtime("in-process", log_path=os.devnull, threads=1):
        expected, states, metrics = play(algorithm, begin(algorithm), range(2), clients_with_seeds)
    assert toolbox.bits(state) == toolbox.bits(expected)
    assert toolbox.bits(output["metrics"]) == toolbox.bits(metrics[-1])
    for store, site, expected_state in zip(stores, SITES, states or (), strict=bool(states)):
        state = store.client_state(site, 2)
        assert [a.tobytes() for a in state] == [np.asarray(a).tobytes() for a in flat(expected_state)]
    if states:
        assert versions == [2, 2]


FLOATS = tff.FederatedType(tff.TensorType(np.float32, [2]), tff.CLIENTS)


def digest_of(function):
    """Of the sum over clients of a function of two numbers."""
    at_client = tff.tensorflow.computation(function, FLOATS.member)
    return Program(
        tff.federated_computation(lambda v: tff.federated_sum(tff.federated_map(at_client, v)), FLOATS)
    ).digest


def test_a_digest_names_what_is_computed_and_not_when_it_was_built():
    def powers(rate):
        @tf.function
        def inner(x):
            return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, rate * x + tf.cast(i, x.dtype)), (0, x))[1]

        return lambda x: inner(x) + inner(2 * x)

    first = digest_of(powers(0.5))
    tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([3]))  # numbers of functions move on
    assert digest_of(powers(0.5)) == first and digest_of(powers(0.25)) != first


def test_a_digest_of_one_stack_is_none_of_the_other(monkeypatch):
    first = digest_of(lambda x: x + 1)
    monkeypatch.setattr("tff_re.sites.digest.STACK", "another")
    assert digest_of(lambda x: x + 1) != first


def test_fixed_weights_count_by_their_numbers_and_not_by_their_folder():
    def fixed(path, scale=1.0):
        def add(x):
            return x + scale * tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[2], memory_region_name=path)

        return digest_of(add)

    assert fixed("/tmp/tff-re-fixed-a/abc/0") == fixed("/tmp/tff-re-fixed-b/abc/0")
    assert fixed("/tmp/a/abc/0") != fixed("/tmp/a/abd/0") != fixed("/tmp/a/abd/1")
    assert fixed("/a/b/0") != fixed("/a/b/0", 2.0)


def test_what_needs_all_clients_in_one_place():
    kind = tff.FederatedType(np.int32, tff.CLIENTS)
    with pytest.raises(CompositionError, match="federated_secure_sum_bitwidth needs all clients"):
        Program(tff.federated_computation(lambda v: tff.federated_secure_sum_bitwidth(v, 8), kind))


def test_a_client_that_fails_at_a_site_is_named_and_what_is_kept_of_the_others_may_lie_in_a_file(monkeypatch):
    """Sites fold their clients with the executor of the runtime `in-process`."""
    monkeypatch.setattr(kept, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(kept, "SMALLEST", 1)
    make = tff.tensorflow.computation(lambda x: tf.fill([3], tf.debugging.check_numerics(x, "bad")), np.float32)
    vector = make.type_signature.result
    less = tff.tensorflow.computation(lambda x, y: x - y, vector, vector)

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def from_greatest(values):
        vectors = tff.federated_map(make, values)
        greatest = tff.federated_broadcast(tff.federated_max(vectors))
        return tff.federated_sum(tff.federated_map(less, tff.federated_zip((vectors, greatest))))

    program, numbers = Program(from_greatest), [1.0, 2.0, 4.0]
    first, second = program.stages
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ways = {"clients": 3, "threads": 2, "pool": pool}
        argument = lambda client, step: tf.constant(numbers[client])  # noqa: E731
        totals, carried = program.run_at_site(first, {}, argument, None, **ways)
        carried = program.carried_of(first, iter(program.carried_arrays(first, carried, 3)), 3)
        sent = {step.name: totals[0] for step in second.sent}
        totals, _ = program.run_at_site(second, sent, argument, carried, **ways)
        np.testing.assert_array_equal(totals[0], [-5, -5, -5])
        numbers[1] = np.nan
        with pytest.raises(ComputationFailed, match=r"client 2 of 3: .*bad"):
            program.run_at_site(first, {}, argument, None, **ways)
