"""Bags of sentences: their batches, the losses of the baselines and the scores of bags, against NumPy."""

import collections
import dataclasses

import attrs
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from computations import algorithms
from computations.bag_evaluation import POOLINGS, arrange_bags, build_bag_scores
from computations.bags import attended, first_best, label_probabilities, segment_softmax
from computations.client_work import LocalTraining, Predictions, build_local_training
from computations.client_work.objectives import (
    AtLeastOne,
    BagAverage,
    RelationAwareAttention,
    SelectiveAttention,
)
from computations.client_work.optimizers import SGD
from computations.client_work.selection import build_local_shares
from computations.client_work.units import units_of
from computations.errors import CompositionError
from computations.evaluation import build_evaluation
from computations.local_model import LocalModel, split_label
from tests.computations import toolbox
from tests.computations.toolbox import assert_close, bag_examples, bits, linear_model, model_weights, start_weights

RATE = 0.5
OBJECTIVES = {
    "one": AtLeastOne(),
    "ave": BagAverage(),
    "att": SelectiveAttention(),
    "att_ra": RelationAwareAttention(),
}
POOLING = {"mil_none": "max", "mil_one": "max", "lazy_mil": "max", "mil_ave": "mean", "mil_att": "attention"}
POOLING |= {"mil_att_ra": "relation_attention", "lazy_mil_alias": "max"}


@pytest.fixture(scope="module")
def bag_model():
    return linear_model(3, 3, bags=True)


def scattered():
    """(x, y, triple) of five bags of one to five sentences, whose rows lie scattered."""
    generator = np.random.default_rng(3)
    triple = np.array([7, 2, 7, 4, 2, 7, 9, 0, 7, 4, 7, 2, 0], np.int32)
    y = np.array([1, 2, 0, 2, 0], np.int32)[np.searchsorted([0, 2, 4, 7, 9], triple)]
    return generator.normal(size=[len(triple), 3]).astype(np.float32), y, triple


def run(model, objective, x, y, triple, seed=(3, 7), **settings):
    """The output of one client's local training."""
    work = build_local_training(model, objective=objective, optimizer=SGD(RATE), training=LocalTraining(**settings))
    examples = collections.OrderedDict(sorted(bag_examples(x, y, triple, 0).items()))
    value = collections.OrderedDict(examples=examples, seed=np.array(seed, np.int32))
    weights = model_weights(*start_weights())
    return work.next(work.initialize(weights), [weights], [value])


# Losses and gradients.


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_loss_and_gradient_of_all_bags(bag_model, kind):
    x, y, triple = scattered()
    bags = toolbox.bags_by_triple(triple)
    output = run(bag_model, OBJECTIVES[kind], x, y, triple, local_steps=1, batch_size=50)
    start = [w.astype(float) for w in start_weights()]
    np.testing.assert_allclose(output["metrics"]["local/loss"], toolbox.bags_loss(kind, start, x, y, bags), rtol=1e-6)
    slopes = toolbox.numeric_gradient(lambda moved: toolbox.bags_loss(kind, moved, x, y, bags), start)
    assert_close(output["update"][0], [RATE * g for g in slopes])
    assert output["weight"] == [len(y)]  # sentences, not bags (Algorithm 3)


def test_the_losses_tell_the_methods_apart():
    x, y, triple = scattered()
    losses = [toolbox.bags_loss(k, start_weights(), x, y, toolbox.bags_by_triple(triple)) for k in OBJECTIVES]
    assert np.abs(np.subtract.outer(losses, losses))[~np.eye(4, dtype=bool)].min() > 1e-3


def test_a_pass_takes_every_bag_once(bag_model):
    """Five bags in batches of two: three batches a pass, each of whole bags; their order comes from the seed."""
    x, y, triple = scattered()
    bags = toolbox.bags_by_triple(triple)
    output = run(bag_model, RelationAwareAttention(), x, y, triple, local_epochs=2, batch_size=2)
    steps = [[bags[i] for i in drawn] for drawn in toolbox.batches((3, 7), len(bags), 2, 2)]
    assert len(steps) == 6 and output["metrics"]["local/steps"] == 6
    local = toolbox.train_on_bags("att_ra", start_weights(), x, y, steps, RATE)
    assert_close(output["update"][0], toolbox.difference(start_weights(), local), 5e-6)


# Units of a batch.


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_units_cover_what_trains(rows, bags, selects, size, random):
    triple = np.array([t for t, _ in rows], np.int32)
    selected = np.array([s for _, s in rows], bool) if selects else None
    trains = np.flatnonzero(selected) if selects else np.arange(len(rows))
    units = units_of({"y": triple, "triple": triple}, by="triple" if bags else None, selected=selected)
    number = int(units.number)
    assert number == (len(set(triple[trains].tolist())) if bags else len(trains))
    order = list(range(number))
    random.shuffle(order)
    seen = []
    for start in range(0, number, size):
        drawn = tf.constant(order[start : start + size], tf.int32)
        got, indices = units.batch(drawn)
        seen += got.numpy().tolist()
        if not bags:
            assert indices is None and len(got) == len(drawn)
            continue
        assert sorted(set(indices.numpy().tolist())) == list(range(len(drawn)))
        assert (np.diff(indices) >= 0).all()
        for index in range(len(drawn)):
            in_bag = got.numpy()[indices.numpy() == index]
            assert (np.diff(in_bag) > 0).all() and len(set(triple[in_bag].tolist())) == 1
    assert sorted(seen) == trains.tolist()


# The parts.


def test_the_softmax_over_bags_is_stable():
    scores = tf.constant([9e4, 9e4 + 1, -9e4, 0.0, -3e38, 5.0])
    shares = segment_softmax(scores, tf.constant([0, 0, 0, 2, 2, 1]), 3).numpy()
    np.testing.assert_allclose(shares, [1 / (1 + np.e), np.e / (1 + np.e), 0, 1, 0, 1], rtol=1e-2)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = tf.reduce_sum(tf.square(attended(scores[:, tf.newaxis] / 9e4, scores, tf.zeros([6], tf.int32), 1)))
    assert np.isfinite(tape.gradient(loss, scores)).all()


def test_the_best_of_every_bag_and_the_first_of_equals():
    best, rows = first_best(tf.constant([0.2, 0.7, 0.7, -1.0, 0.0]), tf.constant([0, 3, 3, 1, 0]), 4)
    assert rows.numpy().tolist() == [0, 3, 5, 1]  # no row of bag 2
    np.testing.assert_allclose(best.numpy()[[0, 1, 3]], [0.2, -1.0, 0.7])


def test_a_probability_that_is_not_finite_is_absent():
    logits = np.array([[0, 0], [np.nan, 0], [np.inf, 0], [-np.inf, 0]], np.float32)
    assert label_probabilities(logits, np.zeros(4, np.int32)).numpy().tolist() == [0.5, -1.0, -1.0, 0.0]


def test_what_is_no_feature_does_not_reach_the_model(model, bag_model):
    x, y, triple = scattered()
    examples = collections.OrderedDict(sorted(bag_examples(x, y, triple, 4).items()))
    features, labels = split_label(examples)
    assert set(features) == {"x"} and labels is examples["y"]
    assert bag_model.feature_width == 3
    assert set(Predictions(5).for_clients(examples)) == {"x"}
    assert set(Predictions(5, weighting="agreement").for_clients(examples)) == {"x", "y"}
    weights = model_weights(*start_weights())
    with_bags = build_evaluation(bag_model)(weights, [examples])
    without = build_evaluation(model)(weights, [collections.OrderedDict(x=x, y=y)])
    assert bits(with_bags) == bits(without)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_what_a_sentence_counts_in_its_local_bag(bag_model, kind):
    x, y, triple = scattered()
    examples = collections.OrderedDict(sorted(bag_examples(x, y, triple, 0).items()))
    empty = collections.OrderedDict((name, array[:0]) for name, array in examples.items())
    shares = build_local_shares(bag_model, OBJECTIVES[kind])(model_weights(*start_weights()), [examples, empty])
    logits = x @ start_weights()[0] + start_weights()[1]
    expected = np.zeros(len(y))
    for rows in toolbox.bags_by_triple(triple):
        bag_logits = logits[rows, y[rows[0]]]
        if kind == "one":
            expected[rows[np.argmax(toolbox.softmax(logits[rows])[:, y[rows[0]]])]] = 1
        else:
            expected[rows] = 1 / len(rows) if kind == "ave" else toolbox.softmax(bag_logits)
    assert_close([shares[0]], [expected])
    assert np.shape(shares[1]) == (0,)


# Scores of bags.


def numpy_scores(pooling, x, bag):
    kernel, bias = (w.astype(float) for w in start_weights())
    scores = []
    for number in range(bag.max() + 1):
        sentences = x[bag == number].astype(float)
        if pooling == "max":
            scores.append(toolbox.softmax(sentences @ kernel + bias).max(axis=0))
        elif pooling == "attention":
            scores.append(
                [toolbox.softmax(toolbox.bag_logits("att", (kernel, bias), sentences, k))[k] for k in range(3)]
            )
        else:
            kind = {"mean": "ave", "relation_attention": "att_ra"}[pooling]
            scores.append(toolbox.softmax(toolbox.bag_logits(kind, (kernel, bias), sentences, None)))
    return np.array(scores)


BAG = np.repeat(np.arange(6, dtype=np.int32), [1, 4, 2, 7, 1, 3])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_scores_of_bags(bag_model, pooling):
    """In batches of four sentences, which cut bags in two."""
    x, y = toolbox.examples(len(BAG), seed=8)
    score = build_bag_scores(bag_model, pooling, batch_size=4)
    weights = model_weights(*start_weights())
    bags = arrange_bags(bag_model, {"x": 3 * x, "y": y}, BAG)
    assert_close([score(weights, bags)], [numpy_scores(pooling, 3 * x, BAG)], 1e-6)
    nothing = arrange_bags(bag_model, {"x": x[:0]}, BAG[:0])
    assert np.shape(score(weights, nothing)) == (0, 3)


def test_the_poolings_differ():
    x, _ = toolbox.examples(len(BAG), seed=8)
    scores = [numpy_scores(pooling, 3 * x, BAG) for pooling in POOLINGS]
    assert min(np.abs(a - b).max() for i, a in enumerate(scores) for b in scores[:i]) > 0.01


# Composition.


def options_of(name):
    options = algorithms.find(name).options()
    return attrs.evolve(options, num_triples=10) if hasattr(options, "num_triples") else options


@pytest.mark.parametrize("name", POOLING)
def test_examples_without_bags_are_refused(model, name):
    with pytest.raises(CompositionError, match=r"needs bags: .*no 'triple' and no 'platform'"):
        algorithms.find(name).build(model, options_of(name))


def not_linear(bag_model):
    def build():
        x = tf.keras.Input([3], name="x")
        logits = tf.keras.layers.Dense(3, activation="tanh", name="classifier")(x)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": x})

    return LocalModel(build, bag_model.input_spec, 3, "classifier")


@pytest.mark.parametrize("name", ["mil_ave", "mil_att", "mil_att_ra"])
def test_a_classifier_that_is_not_linear_is_refused(bag_model, name):
    for other in (not_linear(bag_model), dataclasses.replace(bag_model, classifier=None)):
        with pytest.raises(CompositionError, match=f"^{name} needs .* a dense layer without an activation"):
            algorithms.find(name).build(other, options_of(name))
        with pytest.raises(CompositionError, match=f"^the pooling '{POOLING[name]}' needs .* a dense layer without"):
            build_bag_scores(other, POOLING[name])


def test_attention_takes_the_place_of_the_mean(bag_model):
    data = [toolbox.examples(n, seed=n) for n in (6, 15)]
    entry = algorithms.find("mil_one")
    options = entry.options(aggregation="attention", granularity="model", local_steps=2, batch_size=50)
    algorithm = entry.build(bag_model, options)
    clients = [toolbox.in_bags(toolbox.client(x, y, (0, k)), k) for k, (x, y) in enumerate(data)]
    state = algorithm.next(algorithm.initialize(model_weights(*start_weights())), clients)["state"]
    updates = [
        toolbox.difference(
            start_weights(),
            toolbox.train_on_bags(
                "one", start_weights(), x, y, [toolbox.bags_by_triple(toolbox.triples_of(y))] * 2, 0.1
            ),
        )
        for x, y in data
    ]
    norms = [np.linalg.norm([np.linalg.norm(layer) for layer in update]) for update in updates]
    attention = toolbox.softmax(np.array(norms))
    layers = [np.tensordot(attention, layer, 1) for layer in zip(*updates, strict=True)]
    expected = [w - layer for w, layer in zip(start_weights(), layers, strict=True)]
    assert_close(state["weights"].trainable, expected, 5e-6)
