"""Lazy MIL's selection over platforms (FedDS, Algorithm 1), by hand and against NumPy."""

import collections
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from computations import algorithms
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy
from computations.client_work.optimizers import SGD
from computations.client_work.selection import build_cross_platform_selection, build_selection
from computations.errors import CompositionError
from computations.randomness import SeededDropout
from tests.computations import toolbox
from tests.computations.test_feded import tensors_in, travelling
from tests.computations.toolbox import assert_close, bag_examples, bits, linear_model, model_weights, start_weights

T = 8
NA = 0


@pytest.fixture(scope="module")
def bag_model():
    return linear_model(3, 3, bags=True)


@pytest.fixture(scope="module")
def select(bag_model, runtime):
    return build_selection(bag_model, T)


@pytest.fixture(scope="module")
def build(bag_model):
    @functools.cache
    def get(**options):
        entry = algorithms.find("lazy_mil")
        return entry.build(bag_model, entry.options(**{"num_triples": T, "learning_rate": 0.5, **options}))

    return get


# Logits are the features, so that a sentence says itself how likely its label is.
READS_ITSELF = (np.eye(3), np.zeros(3))


def platform(index, *sentences):
    """Examples of a platform; a sentence is (triple, label, logit of the label; the others are zero)."""
    x = np.zeros([len(sentences), 3])
    for row, (_, label, logit) in enumerate(sentences):
        x[row, label] = logit
    triple, y = ([s[part] for s in sentences] for part in (0, 1))
    return collections.OrderedDict(sorted(bag_examples(x, np.array(y), triple, index).items()))


def selected_by(computation, platforms, weights=READS_ITSELF):
    return [s.astype(int).tolist() for s in computation(model_weights(*weights), platforms)]


def play(algorithm, platforms, weights=READS_ITSELF):
    clients = [collections.OrderedDict(examples=p, seed=np.array([0, k], np.int32)) for k, p in enumerate(platforms)]
    return algorithm.next(algorithm.initialize(model_weights(*weights)), clients)


def client_output(model, selection, platforms, **training):
    """What the clients give in a round of Lazy MIL: updates, weights and metrics."""
    work = build_local_training(
        model,
        objective=CrossEntropy(),
        optimizer=SGD(0.5),
        training=LocalTraining(**training),
        selection=selection,
    )
    weights = model_weights(*READS_ITSELF)
    clients = [collections.OrderedDict(examples=p, seed=np.array([0, k], np.int32)) for k, p in enumerate(platforms)]
    return work.next(work.initialize(weights), [weights] * len(clients), clients)


# The paper's Figure 1.

FOUNDER = 2
S1 = (5, FOUNDER, 3.0)  # Steve Jobs and Wozniak co-founded Apple in 1967.
S2 = (5, FOUNDER, 0.5)  # Steve Jobs resigned as chief executive from Apple in 2011.


def test_figure_1(bag_model, select, build):
    """S1 on platform 1 is chosen; S2, a false positive on platform 2, is not trained on."""
    platforms = [platform(1, S1), platform(2, S2)]
    assert selected_by(select, platforms) == [[1], [0]]
    output = client_output(bag_model, build_cross_platform_selection(bag_model, T), platforms)
    assert output["weight"] == [1, 0]
    assert bits(output["update"][1]) == bits([np.zeros([3, 3], np.float32), np.zeros(3, np.float32)])
    assert output["metrics"]["clients/counted"] == 1 and output["metrics"]["clients/non_finite"] == 0
    # The global model is what platform 1 made of S1 alone.
    together = play(build(), platforms)["state"]["weights"].trainable
    alone = toolbox.train(READS_ITSELF, platforms[0]["x"], platforms[0]["y"], [np.array([0])] * 3, toolbox.Sgd(0.5))
    assert_close(together, alone)


# By hand.


def test_ties_go_to_the_smallest_platform_and_there_to_the_first_row(select):
    tied = [platform(6, (1, 1, 2.0), (1, 1, 2.0)), platform(3, (1, 1, 0.1), (1, 1, 2.0), (1, 1, 2.0))]
    assert selected_by(select, tied) == [[0, 0], [0, 1, 0]]
    assert selected_by(select, tied[::-1]) == [[0, 1, 0], [0, 0]]
    assert selected_by(select, tied[:1]) == [[1, 0]]


def test_every_triple_has_its_own_winner(select):
    platforms = [
        platform(0, (0, 1, 1.0), (3, 2, 0.0), (0, 1, 2.0), (7, NA, 1.0)),
        platform(1, (7, NA, 2.0), (3, 2, -1.0)),
        platform(2),
        platform(3, (0, 1, 1.5), (4, 1, -9.0)),
    ]
    # Triples 1, 2, 5 and 6 have no sentence; triple 4 has one, a bad one, and it is the best that there is.
    assert selected_by(select, platforms) == [[0, 1, 1, 0], [1, 0], [], [0, 1]]


def test_a_score_that_is_not_finite_is_absent(bag_model, select):
    platforms = [platform(0, (1, 1, np.nan), (2, 1, 1.0)), platform(1, (1, 1, -5.0)), platform(2, (6, 1, np.nan))]
    assert selected_by(select, platforms) == [[0, 1], [1], [0]]
    output = client_output(bag_model, build_cross_platform_selection(bag_model, T), platforms)
    assert output["weight"] == [1, 1, 0]
    metrics = output["metrics"]
    assert metrics["selection/triples"] == 2 and metrics["clients/non_finite"] == 2


def test_na_is_selected_or_trains_as_it_is(bag_model, build):
    platforms = [platform(0, (1, NA, 1.0), (1, NA, 2.0), (2, 1, 1.0)), platform(1, (1, NA, 3.0), (2, 1, 0.0))]
    assert selected_by(build_selection(bag_model, T), platforms) == [[0, 0, 1], [1, 0]]
    assert selected_by(build_selection(bag_model, T, select_na=False), platforms) == [[1, 1, 1], [1, 0]]
    assert selected_by(build_selection(bag_model, T, select_na=False, na_label=1), platforms) == [[0, 0, 1], [1, 1]]
    metrics = [play(build(select_na=na), platforms)["metrics"]["work"] for na in (True, False)]
    assert [m["selection/sentences"] for m in metrics] == [2, 4]
    assert [m["selection/triples"] for m in metrics] == [2, 1]


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(st.integers(0, T - 1), st.sampled_from([-1.0, 0.0, 1.0])), max_size=6), max_size=3))
def test_against_numpy(select, sentences):
    sentences = [
        [(triple, triple % 3, logit) for triple, logit in of_platform] for of_platform in [*sentences, [(0, 0.0)]]
    ]
    expected = [[0] * len(of_platform) for of_platform in sentences]
    for triple in range(T):
        offers = [
            (-logit, number, row)
            for number, of_platform in enumerate(sentences)
            for row, (stated, _, logit) in enumerate(of_platform)
            if stated == triple
        ]
        if offers:
            _, number, row = min(offers)
            expected[number][row] = 1
    assert selected_by(select, [platform(k, *of_platform) for k, of_platform in enumerate(sentences)]) == expected


# What follows from it.


def test_the_weight_is_the_number_of_selected_sentences(bag_model, build):
    platforms = [
        platform(0, (0, 1, 2.0), (1, 2, 2.0), (2, 1, 2.0), (3, 1, 0.0), (3, 1, 0.0)),
        platform(1, (3, 1, 1.0), (0, 1, 0.0), (1, 2, 0.0)),
    ]
    selection = build_cross_platform_selection(bag_model, T)
    output = client_output(bag_model, selection, platforms, local_epochs=2, batch_size=2)
    assert output["weight"] == [3, 1]
    metrics = output["metrics"]
    assert metrics["selection/triples"] == 4 and metrics["selection/sentences"] == 4
    np.testing.assert_allclose(metrics["selection/share"], 4 / 8)
    # Platform 0: two batches a pass of its three rows, drawn by its seed; platform 1: its one row, twice.
    rows = [*toolbox.batches((0, 0), 3, 2, 2)]
    assert metrics["local/steps"] == len(rows) + 2
    for number, batches in enumerate((rows, [np.array([0])] * 2)):
        arrays = platforms[number]
        local = toolbox.train(READS_ITSELF, arrays["x"], arrays["y"], batches, toolbox.Sgd(0.5))
        assert_close(output["update"][number], toolbox.difference(READS_ITSELF, local))


def test_with_attention_clients_without_a_sentence_take_no_part(build):
    platforms = [platform(0, (0, 1, 2.0)), platform(1, (0, 1, 0.0))]
    with_it, without = (play(build(aggregation="attention"), p) for p in (platforms, platforms[:1]))
    assert bits(with_it["state"]["weights"]) == bits(without["state"]["weights"])
    assert with_it["metrics"]["aggregator"]["attention/effective_clients"] == 1


def test_every_round_selects_with_the_weights_it_starts_from(build):
    """Training on the first sentence makes the second, which has more of the same feature, the better one."""
    x = np.array([[0.0, 1.0, 0.0], [3.0, 3.0, 0.0]], np.float32)
    y, triple = np.array([1, 1]), [3, 3]
    arrays = collections.OrderedDict(sorted(bag_examples(x, y, triple, 0).items()))
    clients = [collections.OrderedDict(examples=arrays, seed=np.array([0, 0], np.int32))]
    algorithm = build(local_steps=1)
    state, weights, winners = algorithm.initialize(model_weights(*READS_ITSELF)), list(READS_ITSELF), []
    for _ in range(2):
        winners.append(int(np.argmax(toolbox.softmax(x @ weights[0] + weights[1])[:, 1])))
        weights = toolbox.train(weights, x, y, [np.array(winners[-1:])], toolbox.Sgd(0.5))
        state = algorithm.next(state, clients)["state"]
        assert_close(state["weights"].trainable, weights, 5e-6)
    assert winners == [0, 1]


def test_it_scores_without_dropout(select):
    dropped = linear_model(3, 3, dropout=lambda: SeededDropout(0.9), bags=True)
    x, y = toolbox.examples(40, seed=3)
    triple = 2 * (np.arange(40) // 20) + y  # labels of one triple are the same
    platforms = [
        collections.OrderedDict(sorted(bag_examples(x[k::4], y[k::4], triple[k::4], k).items())) for k in range(4)
    ]
    assert selected_by(build_selection(dropped, T), platforms, start_weights()) == selected_by(
        select, platforms, start_weights()
    )


def test_more_sentences_than_are_scored_at_once(select):
    generator = np.random.default_rng(0)
    x, triple = generator.normal(size=[600, 3]), generator.integers(0, T, 600)
    y = triple % 3
    arrays = collections.OrderedDict(sorted(bag_examples(x, y, triple, 0).items()))
    p = toolbox.softmax(arrays["x"] @ start_weights()[0] + start_weights()[1])[np.arange(600), y]
    expected = [int(np.flatnonzero(triple == t)[np.argmax(p[triple == t])]) for t in range(T)]
    chosen = np.flatnonzero(selected_by(select, [arrays], start_weights())[0])
    assert chosen.tolist() == sorted(expected)


# What travels.


def test_values_and_indices_alone_travel(bag_model, build):
    """Beside the model, its weight and the metrics' scalars: T probabilities and T indices, up and down."""
    down, up = travelling(build().next)
    weights = [("float32", (3, 3)), ("float32", (3,))]
    values, indices = ("float32", (T,)), ("int32", (T,))
    assert sorted(t for kind in up for t in tensors_in(kind) if t[1]) == sorted([*weights, values, indices])
    assert {t for kind in up for t in tensors_in(kind) if not t[1]} == {("float32", ())}
    assert sorted(t for kind in down for t in tensors_in(kind)) == sorted([*weights, values, indices, ("int32", ())])
    down, up = travelling(build_selection(bag_model, T))
    assert [t for kind in up for t in tensors_in(kind) if t[1]] == [values, indices]
    assert sorted(t for kind in down for t in tensors_in(kind)) == sorted([*weights, values, indices])


# The control: winners' sentences at all clients.


@pytest.fixture(scope="module")
def build_alias(bag_model):
    entry = algorithms.find("lazy_mil_alias")
    return functools.cache(lambda: entry.build(bag_model, entry.options(num_triples=T, learning_rate=0.5)))


def test_every_client_trains_on_the_winners_of_all(build_alias, build):
    platforms = [platform(1, S1, (3, 1, 0.1)), platform(2, S2, (3, 1, 0.7), (6, NA, 0.2)), platform(3, (3, 1, 0.4))]
    output = play(build_alias(), platforms)
    won = [platform(0, S1, (3, 1, 0.7), (6, NA, 0.2))]
    # One client that holds the winners alone makes the same model, whoever of the three would have trained.
    alone = play(build(), won)
    assert_close(output["state"]["weights"].trainable, alone["state"]["weights"].trainable)
    metrics = output["metrics"]["work"]
    assert metrics["clients/counted"] == 3 and metrics["local/steps"] == 3 * 3
    assert metrics["selection/sentences"] == 3 and metrics["selection/triples"] == 3
    steps = play(build(), platforms)["metrics"]["work"]["local/steps"]
    assert steps == 2 * 3, "in Lazy MIL the third platform has no winner"


def test_sentences_leave_the_clients_in_the_control_alone(build_alias, build):
    _, up = travelling(build_alias().next)
    assert ("float32", (T, 3)) in [t for kind in up for t in tensors_in(kind)]
    _, up = travelling(build().next)
    assert ("float32", (T, 3)) not in [t for kind in up for t in tensors_in(kind)]


# Clear errors.


def test_a_triple_beyond_their_number_is_an_error(select):
    with pytest.raises(Exception, match=r"out of range|outside|not in \[0"):
        selected_by(select, [platform(0, (T, 1, 0.0))])


@pytest.mark.parametrize("name", ["lazy_mil", "lazy_mil_alias"])
def test_without_a_number_of_triples_there_is_nothing_to_build(bag_model, name):
    entry = algorithms.find(name)
    with pytest.raises(CompositionError, match=f"^{name}: .*num_triples is not set"):
        entry.build(bag_model, entry.options())
