"""What every registered algorithm has to do; a new one is tested here as soon as it is registered (see cases.py).

Types, traffic and the numbers of a round are looked at for all; what the parts make of state, seeds and clients that do
not count, for one algorithm per objective, aggregator, client update and selection.
"""

import asyncio
import collections
import contextlib
import functools
import itertools
import pathlib
import re
import typing

import attrs
import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.algorithms.arranged import privatised
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import ControlVariates
from computations.client_work.optimizers import SGD
from computations.errors import CompositionError
from computations.federated_algorithm import recompose
from computations.native_form import native_block
from computations.privacy.options import PrivacyOptions
from computations.traffic import intrinsic_calls, round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.built import (
    DATA,
    NAMES,
    STATEFUL,
    begin,
    build,
    clients_of_round,
    initial_client_states,
    model_of,
    options_of,
    play,
    worked_out_options,
)
from tests.computations.cases import CASES, NUM_AT_SERVER, STEPS, case
from tests.computations.toolbox import bits, client, examples, start_weights
from tests.test_docs import documented
from tff_re.runtime.compiled_form import compiled_form

pytestmark = pytest.mark.xdist_group("algorithms")  # whose builds are shared

every_algorithm = pytest.mark.parametrize("name", NAMES)

# Share all their parts with others: mean, attention; proximal term, PAdam, the library's Adam; every objective;
# predictions; bags and both selections; FedETF's classifier is all that the suite's model has
# (tests/computations/test_label_skew_algorithms.py trains another). A new algorithm is not among them.
REPRESENTED = {"fedavg", "fedavgs", "fedatt", "fedatts", "fedpa", "fedproxp", "fedlcc", "feddecorr", "fedetf"}
REPRESENTED |= {"mil_none", "mil_one", "mil_ave", "mil_att"}
PARTS = [name for name in NAMES if name not in REPRESENTED]
every_part = pytest.mark.parametrize("name", PARTS)


def every_part_but_slow(slow):
    return pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in slow else n for n in PARTS])


# Their states are made of what others keep.
KEPT_BY_OTHERS = {"fedavgt", "fedprox", "fedrs", "fedlc", "fedavg_server_pass", "mil_att_ra", "lazy_mil_alias"}
# A round of these is worked out in NumPy; one of each kind of aggregation is among the quick tests all the same.
WORKED_OUT = {name for name in NAMES if case(name).expected} - {"fedpap", "feded", "lazy_mil"}


# A maximum or minimum over clients comes before their sums; in Lazy MIL the best scores, then their platforms, and in
# its control the sentences of these.
DEPENDENT_AGGREGATIONS = dict.fromkeys(("fedatt", "fedatts", "fedpa", "fedpap", "fedcmc"), 2)
DEPENDENT_AGGREGATIONS |= {"lazy_mil": 3, "lazy_mil_alias": 4}


POOLINGS = {"mil_ave": "mean", "mil_att": "attention", "mil_att_ra": "relation_attention"}

# All algorithms.


@every_algorithm
def test_types(name):
    algorithm = build(name)
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
    assert "not_finite" in algorithm.client_work.outputs
    assert algorithm.bag_pooling == POOLINGS.get(name, "max")


@every_algorithm
def test_every_algorithm_says_where_it_comes_from(name):
    entry = algorithms.find(name)
    assert entry.name == name and entry.title and entry.source and entry.build.__doc__
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        options_of(name).learning_rate = 1.0


@functools.cache
def worked_out(name):
    """New weights after one round with two clients."""
    return case(name).expected(start_weights(), DATA, worked_out_options(name))


@pytest.mark.parametrize("name", [n for n in NAMES if case(n).expected])
def test_two_clients_worked_out_in_numpy(name):
    state, _, _ = play(build(name), begin(build(name)), range(1), clients_of_round)
    toolbox.assert_close(state["weights"].trainable, worked_out(name), 5e-6)


def test_the_worked_out_numbers_tell_the_algorithms_apart():
    numbers = {name: worked_out(name) for name in CASES if case(name).expected}
    for first, second in itertools.combinations(numbers, 2):
        gap = max(np.abs(a - b).max() for a, b in zip(numbers[first], numbers[second], strict=True))
        if second in CASES[first].like:
            assert gap < 1e-9
        else:
            assert gap > 1e-3, (first, second)


def test_the_table_names_registered_algorithms_alone():
    assert set(CASES) <= set(NAMES)


@every_algorithm
def test_traffic_is_one_model_and_little_more(name):
    algorithm = build(name)
    traffic = round_traffic(algorithm.next)
    size = type_bytes(algorithm.model.weights_type)
    assert size == 4 * (3 * 3 + 3)
    limit = size + 200 + case(name).extra_traffic
    least = size if case(name).uploads is None else case(name).uploads
    assert least <= traffic.up < least + limit - size
    assert size <= traffic.down < limit


def privacy_table():
    """The rows of docs/privacy.md: (names, whether clients are protected, whether examples are)."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "privacy.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.+?) \| .+ \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    rows = [row for row in rows if "`" in row[0] and set(re.findall(r"`(\w+)`", row[0])) & set(NAMES)]
    return [(re.findall(r"`(\w+)`", names), *("refused" not in cell for cell in cells)) for names, *cells in rows]


def test_the_page_on_privacy_has_every_documented_algorithm_once():
    assert sorted(name for names, *_ in privacy_table() for name in names) == sorted(documented())


@pytest.mark.parametrize("row", privacy_table(), ids=lambda row: row[0][0])
def test_the_page_on_privacy_says_what_leaves_and_what_is_covered(row):
    """Algorithms of a row send alike; clients are protected where the page says so, else it is refused."""
    names, protects_clients, _ = row

    def sent(name):
        return sorted(str(call.argument.type_signature) for call in intrinsic_calls(build(name).next) if uploads(call))

    def uploads(call):
        return call.function.uri in ("federated_aggregate", "federated_sum", "federated_max", "federated_min")

    assert len({len(sent(name)) for name in names}) == 1
    options = PrivacyOptions(noise_multiplier=1.0)
    for name in names[:1] if protects_clients else names:
        with (
            contextlib.nullcontext()
            if protects_clients
            else pytest.raises(CompositionError, match=r"to protect|no noise")
        ):
            privatised(build(name), options, expected_clients=2, noise_multiplier=1.0)


def test_the_reason_why_noise_does_not_cover_a_part_is_the_parts_own():
    """Whatever the class is called."""

    class Renamed(ControlVariates):
        pass

    settings = {"optimizer": SGD(0.1), "training": LocalTraining()}
    work = build_local_training(model_of(False), objective=Renamed(2), **settings)
    algorithm = recompose(build("scaffold"), client_work=work)
    with pytest.raises(CompositionError, match="SCAFFOLD's clients send control variates"):
        privatised(algorithm, PrivacyOptions(noise_multiplier=1.0), expected_clients=2, noise_multiplier=1.0)


@every_algorithm
def test_groups_of_clients_can_be_computed_apart(name):
    algorithm = build(name)
    form = compiled_form(native_block(algorithm.next))
    at_clients = [step for name in form.result if (step := form.steps[name]).per_client]
    assert form.stages == DEPENDENT_AGGREGATIONS.get(name, 1)
    # Clients train once: what stays with them is known before the first aggregation.
    assert not form.at_clients(form.stages) and {step.stage for step in at_clients} <= {0}
    assert bool(at_clients) == (algorithm.client_work.client_state_type is not None)


def test_uniform_weighting_is_the_plain_mean_of_the_clients():
    """The control: the mean with all clients alike."""
    algorithm = build("fedavg", weighting="uniform")
    state, _, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    start = start_weights()
    updates = [
        toolbox.difference(start, toolbox.train(start, x, y, [np.arange(len(y))] * STEPS, toolbox.Sgd(0.4)))
        for x, y in DATA
    ]
    expected = [w - 1.5 * (a + b) / 2 for w, a, b in zip(start, *updates, strict=True)]
    toolbox.assert_close(state["weights"].trainable, expected, 5e-6)


def test_model_granularity_reaches_the_aggregator():
    layer, whole = (
        play(algorithm, begin(algorithm), range(1), clients_of_round)[0]["weights"].trainable
        for algorithm in (build("fedatt"), build("fedatt", granularity="model"))
    )
    assert np.abs(layer[0] - whole[0]).max() > 1e-4


IMPOSSIBLE = {
    "learning_rate": [-1.0, float("nan")],
    "learning_rate_decay": [-0.1],
    "local_epochs": [0],
    "local_steps": [0],
    "batch_size": [0],
    "max_gradient_norm": [0.0, float("nan"), float("inf")],
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
    "alpha": [-0.1, float("nan")],
    "beta": [-1.0, float("nan")],
    "form": ["both"],
    "scale": [0.0, float("inf")],
    "gamma": [-1.0],
    "local_momentum": [1.0],
    "weight_decay": [-1.0, float("nan")],
    "learning_rate_decay_form": ["linear"],
    "absent": ["none"],
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
    "most_share": [0.0, 1.1, float("nan")],
    "ensemble": ["mode"],
}


@every_algorithm
def test_impossible_options_are_refused_by_name(name):
    """Numbers when the options are made, choices at the latest when the algorithm is built."""
    entry = algorithms.find(name)
    tried = 0
    for option in {f.name for f in attrs.fields(entry.options)} & set(IMPOSSIBLE):
        for value in IMPOSSIBLE[option]:
            tried += 1
            with pytest.raises(ValueError, match=option):
                options = entry.options(**{**case(name).required, option: value})
                assert isinstance(value, str), f"{option}={value} was taken"
                entry.build(model_of(case(name).bags), options)
    assert tried


def test_the_scale_of_fedrs_is_a_share():
    """FedDyn's alpha is none."""
    with pytest.raises(ValueError, match="alpha"):
        algorithms.find("fedrs").options(alpha=1.1)


def test_an_unknown_algorithm_is_a_key_error():
    with pytest.raises(KeyError):
        algorithms.find("fedsgd2000")


def test_two_files_cannot_take_one_name():
    with pytest.raises(ValueError, match="'fedavg' is registered by"):
        algorithms.algorithm("fedavg", title="", source="", options=object)(lambda model, options: None)


# Options that change nothing.

# Other values of options whose next whole number, half or other choice is out of range, or shows nothing here.
OTHER = {
    "local_steps": 1,
    "max_gradient_norm": 0.05,
    "server_batch_size": 5,
    "server_learning_rate": 0.02,
    "noise_scale": 0.5,
    "weight_decay": 0.5,
    "most_share": 0.05,
}
SHIPPED = documented()


def other_value(name, field, value):
    """Another value of an option: of a choice the next, of a number one that differs."""
    if field.name in OTHER:
        return OTHER[field.name]
    kind = typing.get_type_hints(type(options_of(name)))[field.name]
    if typing.get_origin(kind) is typing.Literal:
        return next(choice for choice in typing.get_args(kind) if choice != value)
    if isinstance(value, bool):
        return not value
    if value is None:
        return 1 if "int" in str(kind) else 0.5
    return value + 1 if isinstance(value, int) else (value / 2 or 0.25)


def two_rounds(name, options):
    algorithm = algorithms.find(name).build(model_of(case(name).bags), options)
    state, client_states, metrics = play(algorithm, begin(algorithm), range(2), clients_of_round)
    return bits([state, client_states or [], metrics])


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SHIPPED else n for n in NAMES])
def test_no_option_is_ignored(name):
    """Another value gives other bits after two rounds, or cases.py says why it does not show in this suite."""
    usual = options_of(name, **{**STATEFUL, **case(name).options, **STATEFUL, "learning_rate": 0.1})
    results, ignored = {}, []
    for field in attrs.fields(type(usual)):
        if not field.init or field.name in case(name).without_effect:
            continue
        base = attrs.evolve(usual, **case(name).effective_with.get(field.name, {}))
        other = other_value(name, field, getattr(base, field.name))
        for options in (base, changed := attrs.evolve(base, **{field.name: other})):
            results[options] = results[options] if options in results else two_rounds(name, options)
        if results[base] == results[changed]:
            ignored.append(f"{field.name} = {getattr(base, field.name)!r} and {other!r}")
    assert not ignored, f"{name} computes the same with both values; read the option, or say in cases.py why"


# State, seeds and clients that do not count, a representative each.


@pytest.mark.parametrize("name", [name for name in NAMES if not case(name).expected])
def test_identity_at_learning_rate_zero(name):
    """Of those whose numbers are not worked out."""
    algorithm = build(name, learning_rate=0.0)
    state, _, metrics = play(algorithm, begin(algorithm), range(2), clients_of_round)
    assert bits(state["weights"].trainable) == bits(start_weights())
    assert all(m["work"]["clients/counted"] == 2 for m in metrics)


@every_part_but_slow(KEPT_BY_OTHERS)
def test_a_resumed_run_is_the_run(tmp_path, name):
    """Four rounds are two rounds, a file, and two rounds from what was read from it, bit for bit."""
    algorithm = build(name)
    whole, whole_client_states, whole_metrics = play(algorithm, begin(algorithm), range(4), clients_of_round)
    half, client_states, first_metrics = play(algorithm, begin(algorithm), range(2), clients_of_round)

    def saved(state, client_states):
        value = collections.OrderedDict(server=state, client_state=client_states or [])
        return tf.nest.map_structure(lambda t: np.array(np.asarray(t)), value)

    asyncio.run(tff.program.FileProgramStateManager(tmp_path).save(saved(half, client_states), 2))
    zeros = begin(algorithm, [np.zeros_like(w) for w in start_weights()])
    fresh = saved(zeros, initial_client_states(algorithm, clients_of_round(0)))
    restored = asyncio.run(tff.program.FileProgramStateManager(tmp_path).load(2, structure=fresh))
    assert bits(restored) == bits(saved(half, client_states)) != bits(fresh)
    state, client_states, last_metrics = play(
        algorithm, restored["server"], range(2, 4), clients_of_round, restored["client_state"]
    )
    assert bits(state) == bits(whole)
    assert bits(first_metrics + last_metrics) == bits(whole_metrics)
    assert bits(client_states or []) == bits(whole_client_states or [])


def separable(num_examples, seed, skew):
    """Three clouds far from each other, some classes rare at a client."""
    generator = np.random.default_rng(seed)
    y = generator.choice(3, num_examples, p=skew).astype(np.int32)
    x = (3.0 * np.eye(3)[y] + 0.3 * generator.normal(size=[num_examples, 3])).astype(np.float32)
    return x, y


@every_part_but_slow(WORKED_OUT)
def test_the_loss_falls_where_classes_are_separable(name):
    data = [separable(n, n, skew) for n, skew in ((20, [0.6, 0.3, 0.1]), (31, [0.1, 0.3, 0.6]), (12, [0.3, 0.4, 0.3]))]
    at_server = separable(NUM_AT_SERVER, 40, [0.3, 0.3, 0.4])
    algorithm = build(name)

    def clients(number):
        return [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(data)]

    def loss(state):
        keras_model = algorithm.model.keras_model(state["weights"])
        parts = [algorithm.model.losses(y, keras_model({"x": x}, training=False)).numpy() for x, y in data]
        return np.concatenate(parts).mean()

    state = begin(algorithm)
    before = loss(state)
    state, _, metrics = play(algorithm, state, range(8), clients, at_server=at_server)
    assert loss(state) < 0.5 * before
    last = metrics[-1]["work"]["local/loss"] - case(name).constant_term
    assert last < 0.5 * metrics[0]["work"]["local/loss"]


@every_part
def test_a_client_that_is_not_finite_is_left_out(name):
    """Nothing of the server's state shows it, and its own client state stays as it was, bit for bit."""
    algorithm = build(name)
    x, y = examples(9, seed=9)
    bad = client(np.where(np.arange(3) == 1, np.nan, x), y, seed=(0, 9))
    clients = [*clients_of_round(0), bad]
    before = initial_client_states(algorithm, clients)
    if before is not None:
        before[2] = tf.nest.map_structure(lambda t: t if t.dtype == bool else (t + 0.25).astype(t.dtype), before[2])
    alone, states_alone, _ = play(algorithm, begin(algorithm), range(1), clients_of_round)
    state, states, metrics = play(algorithm, begin(algorithm), range(1), lambda r: clients, before)
    assert metrics[0]["work"]["clients/non_finite"] == 1 and metrics[0]["work"]["clients/counted"] == 2
    toolbox.assert_close(tf.nest.flatten(state), tf.nest.flatten(alone), 1e-6)
    if before is not None:
        assert bits(states[2]) == bits(before[2]) and bits(states[:2]) == bits(states_alone)


@every_part
def test_without_any_client_that_counts_the_weights_stay(name):
    """Neither do vectors or control variates that the server sends beside them change."""
    algorithm = build(name)
    empty = client(np.zeros([0, 3]), np.zeros([0]))
    start = begin(algorithm)
    state, _, metrics = play(algorithm, start, range(1), lambda r: [empty, empty])
    assert bits(state["weights"].trainable) == bits(start_weights())
    assert bits(state["client_work"].get("shared", ())) == bits(start["client_work"].get("shared", ()))
    assert metrics[0]["work"]["clients/counted"] == 0
