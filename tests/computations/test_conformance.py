"""What every registered algorithm has to do; a new one is tested here as soon as it is registered (see cases.py)."""

import asyncio
import itertools

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations import algorithms
from computations.native_form import native_form
from computations.traffic import round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.cases import CASES, NUM_AT_SERVER, STEPS, case
from tests.computations.toolbox import bits, client, examples, model_weights, start_weights
from tff_re.runtime.remote.staged_form import ClientResult, kept, staged_form

NAMES = algorithms.names()
every_algorithm = pytest.mark.parametrize("name", NAMES)

# A maximum or minimum over clients comes before their sums; in Lazy MIL the best scores, then their platforms, and in
# its control the sentences of these.
DEPENDENT_AGGREGATIONS = dict.fromkeys(("fedatt", "fedatts", "fedpa", "fedpap", "fedcmc"), 2)
DEPENDENT_AGGREGATIONS |= {"lazy_mil": 3, "lazy_mil_alias": 4}

# A few epochs over small batches.
ORDINARY = {"local_epochs": 2, "batch_size": 4}
# All that is kept from round to round, in use.
STATEFUL = {**ORDINARY, "server_momentum": 0.5, "noise_scale": 0.01, "learning_rate_decay": 0.5}


def options_of(name, **wanted):
    """The algorithm's options with those of `wanted` that it has, and those that it cannot do without."""
    kind = algorithms.find(name).options
    known = {f.name for f in attrs.fields(kind)}
    return kind(**{key: value for key, value in {**case(name).required, **wanted}.items() if key in known})


@pytest.fixture(scope="module")
def model_of(model):
    """Function (name) -> the model that the algorithm trains in this suite."""
    of_bags = toolbox.linear_model(3, 3, bags=True)
    return lambda name: of_bags if case(name).bags else model


@pytest.fixture(scope="module")
def build(model_of):
    """Function (name, **options) -> the algorithm, built once."""
    built = {}

    def get(name, **wanted):
        options = options_of(name, **wanted)
        if (name, options) not in built:
            built[name, options] = algorithms.find(name).build(model_of(name), options)
        return built[name, options]

    return get


def begin(algorithm, start=None):
    return algorithm.initialize(model_weights(*(start or start_weights())))


def initial_client_states(algorithm, clients):
    work = algorithm.client_work
    if work.client_state_type is None:
        return None
    return [work.initial_client_state(c["examples"]) for c in clients]


def play(algorithm, state, rounds, clients_of_round, client_states=None, at_server=None):
    """(state, memories, the metrics of each round) after these rounds; the memories go from round to round.

    An algorithm whose server holds examples of its own gets `at_server` (x, y), or those of the suite.
    """
    metrics = []
    for number in rounds:
        clients = clients_of_round(number)
        if "triple" in algorithm.model.input_spec:
            clients = [toolbox.in_bags(one, platform) for platform, one in enumerate(clients)]
        rest = []
        if algorithm.client_work.client_state_type is not None:
            rest.append(client_states or initial_client_states(algorithm, clients))
        if algorithm.server_type is not None:
            rest.append(client(*(at_server or AT_SERVER), seed=(number, 77)))
        output = algorithm.next(state, clients, *rest)
        client_states = output.get("client_state")
        state = output["state"]
        metrics.append(output["metrics"])
    return state, client_states, metrics


DATA = [examples(n, seed=n) for n in (6, 15)]
AT_SERVER = examples(NUM_AT_SERVER, seed=40)


def clients_of_round(number):
    return [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(DATA)]


@every_algorithm
def test_types(build, name):
    algorithm = build(name, **ORDINARY)
    model = algorithm.model
    start, after = algorithm.initialize.type_signature, algorithm.next.type_signature
    assert start.parameter == tff.FederatedType(model.weights_type, tff.SERVER)
    state_type = start.result
    assert state_type.placement is tff.SERVER
    state_type.member.weights.check_equivalent_to(model.weights_type)
    after.parameter[0].check_equivalent_to(state_type)
    after.result.state.check_equivalent_to(state_type)
    clients_type = tff.types.to_type({"examples": model.examples_type, "seed": tff.TensorType(np.int32, [2])})
    after.parameter[1].check_equivalent_to(tff.FederatedType(clients_type, tff.CLIENTS))
    assert after.result.metrics.placement is tff.SERVER
    client_state_type, rest = algorithm.client_work.client_state_type, list(after.parameter)[2:]
    if client_state_type is not None:
        rest.pop(0).check_equivalent_to(tff.FederatedType(client_state_type, tff.CLIENTS))
        after.result.client_state.check_equivalent_to(tff.FederatedType(client_state_type, tff.CLIENTS))
    if algorithm.server_type is not None:
        rest.pop(0).check_equivalent_to(tff.FederatedType(algorithm.server_type, tff.SERVER))
        assert clients_type.is_assignable_from(algorithm.server_type)
    assert not rest


@every_algorithm
def test_every_algorithm_says_where_it_comes_from(name):
    entry = algorithms.find(name)
    assert entry.name == name and entry.title and entry.source and entry.build.__doc__
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        options_of(name).learning_rate = 1.0


@every_algorithm
def test_identity_at_learning_rate_zero(build, name):
    algorithm = build(name, **{**ORDINARY, **case(name).identity})
    state, _, metrics = play(algorithm, begin(algorithm), range(2), clients_of_round)
    assert bits(state["weights"].trainable) == bits(start_weights())
    assert all(m["work"]["clients/counted"] == 2 for m in metrics)


@every_algorithm
def test_a_round_changes_the_weights(build, name):
    algorithm = build(name, **ORDINARY)
    state, _, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    moved = [np.abs(a - b).max() for a, b in zip(state["weights"].trainable, start_weights(), strict=True)]
    assert min(moved) > 1e-4


@every_algorithm
def test_the_same_rounds_give_the_same_bits(build, name):
    algorithm = build(name, **ORDINARY)
    first, again = (play(algorithm, begin(algorithm), range(2), clients_of_round) for _ in range(2))
    assert bits(first) == bits(again)


@every_algorithm
def test_other_seeds_give_other_numbers(build, name):
    algorithm = build(name, **ORDINARY)
    here, there = (
        play(algorithm, begin(algorithm), rounds, clients_of_round)[0]["weights"].trainable
        for rounds in (range(1), range(1, 2))
    )
    assert bits(here) != bits(there)


def through_numpy(value):
    return tf.nest.map_structure(lambda t: np.array(np.asarray(t)), value)


@every_algorithm
def test_a_resumed_run_is_the_run(build, tmp_path, name):
    """Four rounds are two rounds, a file, and two rounds from a state that was read from it, bit for bit."""
    algorithm = build(name, **STATEFUL)
    whole, whole_client_states, whole_metrics = play(algorithm, begin(algorithm), range(4), clients_of_round)
    half, client_states, first_metrics = play(algorithm, begin(algorithm), range(2), clients_of_round)
    manager = tff.program.FileProgramStateManager(tmp_path)
    asyncio.run(manager.save(through_numpy(half), 2))
    fresh = begin(algorithm, [np.zeros_like(w) for w in start_weights()])
    restored = asyncio.run(tff.program.FileProgramStateManager(tmp_path).load(2, structure=fresh))
    assert bits(restored) == bits(half)
    client_states = None if client_states is None else through_numpy(client_states)
    state, client_states, last_metrics = play(algorithm, restored, range(2, 4), clients_of_round, client_states)
    assert bits(state) == bits(whole)
    assert bits(first_metrics + last_metrics) == bits(whole_metrics)
    if client_states is not None:
        assert bits(client_states) == bits(whole_client_states)


def worked_out(name):
    """(start weights, options, expected new weights) of one round with two clients."""
    entry = case(name)
    wanted = {"local_steps": STEPS, "batch_size": 50, **entry.options}
    options = options_of(name, **wanted)
    return wanted, entry.expected(start_weights(), DATA, options)


@pytest.mark.parametrize("name", [n for n in NAMES if case(n).expected])
def test_two_clients_worked_out_in_numpy(build, name):
    wanted, expected = worked_out(name)
    algorithm = build(name, **wanted)
    state, _, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    toolbox.assert_close(state["weights"].trainable, expected, 5e-6)


def test_the_worked_out_numbers_tell_the_algorithms_apart():
    numbers = {name: worked_out(name)[1] for name in CASES if case(name).expected}
    for one, other in itertools.combinations(numbers, 2):
        gap = max(np.abs(a - b).max() for a, b in zip(numbers[one], numbers[other], strict=True))
        if other in CASES[one].like:
            assert gap < 1e-9
        else:
            assert gap > 1e-3, (one, other)


def test_the_table_names_registered_algorithms_alone():
    assert set(CASES) <= set(NAMES)


def separable(num_examples, seed, skew):
    """Three clouds far from each other, some classes rare at a client."""
    generator = np.random.default_rng(seed)
    y = generator.choice(3, num_examples, p=skew).astype(np.int32)
    x = (3.0 * np.eye(3)[y] + 0.3 * generator.normal(size=[num_examples, 3])).astype(np.float32)
    return x, y


@every_algorithm
def test_the_loss_falls_where_classes_are_separable(build, name):
    data = [separable(n, n, skew) for n, skew in ((20, [0.6, 0.3, 0.1]), (31, [0.1, 0.3, 0.6]), (12, [0.3, 0.4, 0.3]))]
    options = options_of(name)
    at_server = separable(NUM_AT_SERVER, 40, [0.3, 0.3, 0.4])
    rate = {"learning_rate": max(20 * options.learning_rate, 0.02)} if hasattr(options, "learning_rate") else {}
    algorithm = build(name, **ORDINARY, **rate)

    def clients(number):
        return [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(data)]

    def loss(state):
        keras_model = algorithm.model.keras_model(state["weights"])
        parts = [algorithm.model.losses(y, keras_model({"x": x}, training=False)).numpy() for x, y in data]
        return np.concatenate(parts).mean()

    state = begin(algorithm)
    before = loss(state)
    state, _, metrics = play(algorithm, state, range(6), clients, at_server=at_server)
    assert loss(state) < 0.5 * before
    last = metrics[-1]["work"]["local/loss"] - case(name).constant_term
    assert last < 0.5 * metrics[0]["work"]["local/loss"]


@every_algorithm
def test_a_client_that_is_not_finite_is_left_out(build, name):
    algorithm = build(name, **ORDINARY)
    x, y = examples(9, seed=9)
    bad = client(np.where(np.arange(3) == 1, np.nan, x), y, seed=(0, 9))
    alone, _, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    state, _, metrics = play(algorithm, begin(algorithm), range(1), lambda r: [*clients_of_round(r), bad])
    assert metrics[0]["work"]["clients/non_finite"] == 1 and metrics[0]["work"]["clients/counted"] == 2
    toolbox.assert_close(state["weights"].trainable, alone["weights"].trainable, 1e-6)


@every_algorithm
def test_without_any_client_that_counts_the_weights_stay(build, name):
    algorithm = build(name, **ORDINARY)
    empty = client(np.zeros([0, 3]), np.zeros([0]))
    state, _, metrics = play(algorithm, begin(algorithm), range(1), lambda r: [empty, empty])
    assert bits(state["weights"].trainable) == bits(start_weights())
    assert metrics[0]["work"]["clients/counted"] == 0


@every_algorithm
def test_traffic_is_one_model_and_little_more(build, model, name):
    traffic = round_traffic(build(name, **ORDINARY).next)
    size = type_bytes(model.weights_type)
    assert size == 4 * (3 * 3 + 3)
    limit = size + 200 + case(name).extra_traffic
    least = size if case(name).uploads is None else case(name).uploads
    assert least <= traffic.up < least + limit - size
    assert size <= traffic.down < limit


def test_uniform_weighting_is_the_plain_mean_of_the_clients(build):
    """The control: the mean with all clients alike."""
    wanted = {**CASES["fedavg"].options, "local_steps": STEPS, "batch_size": 50, "weighting": "uniform"}
    algorithm = build("fedavg", **wanted)
    state, _, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    start = start_weights()
    updates = [
        toolbox.difference(start, toolbox.train(start, x, y, [np.arange(len(y))] * STEPS, toolbox.Sgd(0.4)))
        for x, y in DATA
    ]
    expected = [w - 1.5 * (a + b) / 2 for w, a, b in zip(start, *updates, strict=True)]
    toolbox.assert_close(state["weights"].trainable, expected, 5e-6)


def test_model_granularity_reaches_the_aggregator(build):
    layer, whole = (
        play(algorithm, begin(algorithm), range(1), clients_of_round)[0]["weights"].trainable
        for algorithm in (build("fedatt", **ORDINARY, learning_rate=0.5, granularity=g) for g in ("layer", "model"))
    )
    assert np.abs(layer[0] - whole[0]).max() > 1e-4


IMPOSSIBLE = {
    "learning_rate": [-1.0, float("nan")],
    "learning_rate_decay": [-0.1],
    "local_epochs": [0],
    "local_steps": [0],
    "batch_size": [0],
    "max_gradient_norm": [0.0],
    "server_step": [-1.0, float("inf")],
    "server_momentum": [1.0],
    "noise_scale": [-1.0],
    "mu": [-1.0, float("nan")],
    "weighting": ["sizes"],
    "granularity": ["tensor"],
    "optimizer": ["rmsprop"],
    "vectors": ["best"],
    "tau": [-1.0, float("nan")],
    "weight": [-1.0, float("inf")],
    "absent_factor": [-1.0, float("nan")],
    "alpha": [-0.1, 1.1, float("nan")],
    "num_clients": [0],
    "uploads": ["float8"],
    "agreement_temperature": [0.0, float("nan")],
    "temperature": [0.0, float("inf")],
    "distillation_weight": [-1.0],
    "server_epochs": [0],
    "server_batch_size": [0],
    "server_learning_rate": [-1.0],
    "num_server_examples": [0],
    "aggregation": ["median"],
    "num_triples": [0],
    "na_label": [-1],
}


@every_algorithm
def test_impossible_options_are_refused_by_name(model_of, name):
    """Numbers when the options are made, choices at the latest when the algorithm is built."""
    entry = algorithms.find(name)
    tried = 0
    for option in {f.name for f in attrs.fields(entry.options)} & set(IMPOSSIBLE):
        for value in IMPOSSIBLE[option]:
            tried += 1
            with pytest.raises(ValueError, match=option):
                options = entry.options(**{**case(name).required, option: value})
                assert isinstance(value, str), f"{option}={value} was taken"
                entry.build(model_of(name), options)
    assert tried


def test_an_unknown_algorithm_is_a_key_error():
    with pytest.raises(KeyError):
        algorithms.find("fedsgd2000")


def test_two_files_cannot_take_one_name():
    with pytest.raises(ValueError, match="'fedavg' is registered by"):
        algorithms.algorithm("fedavg", title="", source="", options=object)(lambda model, options: None)


@every_algorithm
def test_groups_of_clients_can_be_computed_apart(build, name):
    algorithm = build(name, **ORDINARY)
    form = staged_form(native_form(algorithm.next))
    at_clients = [part for part in form.result if isinstance(part, ClientResult)]
    assert len(form.stages) == DEPENDENT_AGGREGATIONS.get(name, 1)
    # Clients train once: what stays with them is kept from the stage in which they did.
    assert form.at_clients is None and {part.bundle for part in at_clients} <= {kept(0)}
    assert bool(at_clients) == (algorithm.client_work.client_state_type is not None)
