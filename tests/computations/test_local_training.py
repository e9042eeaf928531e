import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators import mean
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy, Objective, Proximal, SideChannel
from computations.client_work.optimizers import SGD, PAdam, SelfAdam
from computations.errors import CompositionError
from computations.federated_algorithm import compose
from computations.local_model import LocalModel
from computations.native_form import native_form
from computations.randomness import SeededDropout
from computations.server_updates import gradient_step
from tests.computations import toolbox
from tests.computations.toolbox import assert_close, bits, client, examples, linear_model, model_weights, start_weights

RATE = 0.5


@pytest.fixture(scope="module")
def works(model):
    """Local training by (objective, optimizer, settings), built once each."""
    built = {}

    def get(objective=None, optimizer=None, **settings):
        key = (objective, optimizer, tuple(sorted(settings.items())))
        if key not in built:
            built[key] = build_local_training(
                model,
                objective=objective or CrossEntropy(),
                optimizer=optimizer or SGD(RATE),
                training=LocalTraining(**settings),
            )
        return built[key]

    return get


def run(work, clients, weights=None, state=None, client_states=None):
    """The output of one round of local training, all clients from the same weights."""
    weights = model_weights(*(weights or start_weights()))
    state = work.initialize(weights) if state is None else state
    kept = [] if client_states is None else [client_states]
    return work.next(state, [weights] * len(clients), clients, *kept)


# Steps and batches.


@pytest.mark.parametrize("num_examples, epochs", [(23, 3), (20, 2), (4, 3), (1, 2)])
def test_epochs_of_softmax_regression(works, num_examples, epochs):
    """The order of the batches comes from the seed; with 23 and 4 examples the last batch of a pass is smaller."""
    x, y = examples(num_examples, seed=num_examples)
    output = run(works(local_epochs=epochs, batch_size=5), [client(x, y, seed=(3, 7))])
    rows = list(toolbox.batches((3, 7), num_examples, 5, epochs))
    assert len(rows) == epochs * -(-num_examples // 5) and sum(map(len, rows)) == epochs * num_examples
    local = toolbox.train(start_weights(), x, y, rows, toolbox.Sgd(RATE))
    assert_close(output["update"][0], toolbox.difference(start_weights(), local))
    assert output["weight"] == [num_examples]
    assert output["metrics"]["local/steps"] == len(rows)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8])
def test_local_steps_count_batches_over_passes(works, steps):
    """Twelve examples in batches of five make three batches a pass; a new pass has a new order."""
    x, y = examples(12, seed=2)
    output = run(works(local_steps=steps, batch_size=5), [client(x, y, seed=(4, 4))])
    passes = -(-steps // 3)
    rows = list(toolbox.batches((4, 4), 12, 5, passes))[:steps]
    local = toolbox.train(start_weights(), x, y, rows, toolbox.Sgd(RATE))
    assert_close(output["update"][0], toolbox.difference(start_weights(), local))
    assert output["metrics"]["local/steps"] == steps


def test_each_client_starts_from_the_global_weights_with_its_own_seed(works):
    sizes, seeds = (7, 13, 5), ((0, 1), (0, 2), (9, 9))
    data = [examples(n, seed=n) for n in sizes]
    clients = [client(x, y, s) for (x, y), s in zip(data, seeds, strict=True)]
    output = run(works(local_epochs=2, batch_size=5), clients)
    for (x, y), seed, update in zip(data, seeds, output["update"], strict=True):
        rows = toolbox.batches(seed, len(y), 5, 2)
        local = toolbox.train(start_weights(), x, y, rows, toolbox.Sgd(RATE))
        assert_close(update, toolbox.difference(start_weights(), local))
    assert output["metrics"]["clients/counted"] == 3 and output["metrics"]["clients/non_finite"] == 0


def test_the_reported_loss_is_the_mean_over_examples_seen(works):
    x, y = examples(7, seed=3)
    output = run(works(local_epochs=2, batch_size=4), [client(x, y, seed=(5, 6))])
    weights, total = start_weights(), 0.0
    for rows in toolbox.batches((5, 6), 7, 4, 2):
        total += toolbox.cross_entropy(weights, x[rows], y[rows]) * len(rows)
        weights = toolbox.Sgd(RATE).step(weights, toolbox.gradient(weights, x[rows], y[rows]))
    np.testing.assert_allclose(output["metrics"]["local/loss"], total / 14, rtol=1e-5)


# Seeds.


@pytest.mark.parametrize("other", [(8, 9), (9, 8)])
def test_another_seed_gives_other_batches(works, other):
    work = works(local_steps=1, batch_size=5)
    updates = [run(work, [client(*examples(23, seed=1), seed=s)])["update"][0] for s in ((8, 8), other)]
    assert np.abs(updates[0][0] - updates[1][0]).max() > 1e-3


def test_random_layers_draw_from_the_clients_seed():
    """With one batch of all examples the order does not matter: what differs are the masks, step by step."""
    dropped = linear_model(3, 3, dropout=lambda: SeededDropout(0.5))
    work = build_local_training(
        dropped, objective=CrossEntropy(), optimizer=SGD(RATE), training=LocalTraining(local_steps=2, batch_size=50)
    )
    x, y = examples(23, seed=1)
    here, again, other = (run(work, [client(x, y, s)])["update"][0] for s in ((1, 1), (1, 1), (1, 2)))
    assert bits(here) == bits(again)
    assert np.abs(here[0] - other[0]).max() > 1e-3
    # A pass has all rows in another order; masks belong to places in the batch, so the batch is reordered by hand.
    weights = [w.astype(float) for w in start_weights()]
    for step, rows in enumerate(toolbox.batches((1, 1), 23, 50, 2)):
        seed = tf.random.experimental.stateless_fold_in(np.array([1, 1], np.int32), step + 1)
        mask_seed = tf.random.experimental.stateless_fold_in(seed, 1)
        masked = tf.nn.experimental.stateless_dropout(x[rows], 0.5, seed=mask_seed).numpy()
        weights = toolbox.Sgd(RATE).step(weights, toolbox.gradient(weights, masked, y[rows]))
    assert_close(here, toolbox.difference(start_weights(), weights))


# Weighting; clients that do not count.


@pytest.mark.parametrize("weighting, expected", [("examples", [7, 13]), ("uniform", [1, 1])])
def test_weighting(works, weighting, expected):
    clients = [client(*examples(n, seed=n)) for n in (7, 13)]
    output = run(works(local_steps=1, weighting=weighting), clients)
    assert output["weight"] == expected


def bad_examples(kind):
    x, y = examples(9, seed=4)
    x[5, 1] = {"nan": np.nan, "inf": np.inf}[kind]
    return x, y


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_client_with_values_that_are_not_finite_does_not_count(works, kind, weighting):
    work = works(local_epochs=2, batch_size=4, weighting=weighting)
    good = [client(*examples(n, seed=n), seed=(n, 0)) for n in (7, 12)]
    bad = client(*bad_examples(kind), seed=(1, 0))
    alone, together = run(work, good), run(work, [good[0], bad, good[1]])
    assert together["weight"] == [alone["weight"][0], 0, alone["weight"][1]]
    assert bits(together["update"][1]) == bits([np.zeros_like(w) for w in start_weights()])
    assert bits([together["update"][0], together["update"][2]]) == bits(alone["update"])
    assert together["metrics"]["clients/non_finite"] == 1 and together["metrics"]["clients/counted"] == 2
    np.testing.assert_allclose(together["metrics"]["local/loss"], alone["metrics"]["local/loss"], rtol=1e-6)


def test_a_client_without_examples_does_not_count(works):
    for settings in ({"local_epochs": 2, "batch_size": 4}, {"local_steps": 3, "batch_size": 4}):
        work = works(weighting="uniform", **settings)
        good = client(*examples(7, seed=7), seed=(7, 0))
        empty = client(np.zeros([0, 3]), np.zeros([0]), seed=(1, 0))
        alone, together = run(work, [good]), run(work, [empty, good])
        assert together["weight"] == [0, 1]
        assert bits(together["update"]) == bits([np.zeros_like(w) for w in start_weights()]) + bits(alone["update"])
        metrics = together["metrics"]
        assert metrics["clients/counted"] == 1 and metrics["clients/non_finite"] == 0
        assert bits(metrics["local/loss"]) == bits(alone["metrics"]["local/loss"])
        assert metrics["local/steps"] == alone["metrics"]["local/steps"]


def test_no_client_counts(works):
    empty = client(np.zeros([0, 3]), np.zeros([0]))
    output = run(works(local_epochs=2, batch_size=4), [empty, client(*bad_examples("nan"))])
    assert output["weight"] == [0, 0]
    assert output["metrics"]["local/loss"] == 0 and output["metrics"]["clients/counted"] == 0


# The gradient: clipping, schedule, proximal term.


def test_max_gradient_norm_by_hand(works):
    x, y = examples(8, seed=6)
    gradient = toolbox.gradient(start_weights(), x, y)
    norm = np.sqrt(sum((g**2).sum() for g in gradient))
    output = run(works(local_steps=1, batch_size=8, max_gradient_norm=norm / 4), [client(x, y)])
    assert_close(output["update"][0], [RATE * g / 4 for g in gradient])
    loose = run(works(local_steps=1, batch_size=8, max_gradient_norm=norm * 4), [client(x, y)])
    assert_close(loose["update"][0], [RATE * g for g in gradient])


def word_model():
    """Each example is two words of a vocabulary of four; logits are the sum of their vectors."""

    def build():
        x = tf.keras.Input([2], dtype=tf.int32, name="x")
        logits = tf.reduce_sum(tf.keras.layers.Embedding(4, 2, name="words")(x), axis=1)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": logits})

    spec = {"x": tf.TensorSpec([None, 2], tf.int32), "y": tf.TensorSpec([None], tf.int32)}
    return LocalModel(build, spec, 2)


def test_max_gradient_norm_of_words_that_occur_twice():
    """A repeated word's rows are added up before the norm is taken."""
    work = build_local_training(
        word_model(),
        objective=CrossEntropy(),
        optimizer=SGD(1.0),
        training=LocalTraining(local_steps=1, batch_size=1, max_gradient_norm=0.25),
    )
    data = collections.OrderedDict(x=np.array([[2, 2]], np.int32), y=np.array([0], np.int32))
    one = collections.OrderedDict(examples=data, seed=np.array([0, 0], np.int32))
    output = run(work, [one], weights=[np.zeros([4, 2], np.float32)])
    # d/dz = (-0.5, 0.5), twice for the same word: (-1, 1), longer than 0.25, so it is cut to that length.
    expected = np.zeros([4, 2])
    expected[2] = 0.25 / np.sqrt(2) * np.array([-1.0, 1.0])
    assert_close(output["update"][0], [expected], 1e-6)


def test_the_schedule_multiplies_the_rate_by_round(model):
    schedules = {"linear": lambda r: 1.0 / (1.0 + tf.cast(r, tf.float32))}
    x, y = examples(8, seed=6)
    for optimizer, rule in ((SGD(RATE), toolbox.Sgd), (SelfAdam(0.1), toolbox.Adam)):
        work = build_local_training(
            model,
            objective=CrossEntropy(),
            optimizer=optimizer,
            training=LocalTraining(local_steps=2, batch_size=8, schedule=schedules["linear"]),
        )
        state = None
        for number in range(3):
            output = run(work, [client(x, y)], state=state)
            rule_now = rule(optimizer.learning_rate / (1 + number))
            local = toolbox.train(start_weights(), x, y, [np.arange(8)] * 2, rule_now)
            assert_close(output["update"][0], toolbox.difference(start_weights(), local), 5e-6)
            state = output["state"]
            assert state["round"] == number + 1


def test_proximal_gradient_by_hand(works):
    x, y = examples(8, seed=6)
    everything = [np.arange(8)] * 3
    output = run(works(Proximal(0.6), local_steps=3, batch_size=8), [client(x, y)])
    local = toolbox.train(start_weights(), x, y, everything, toolbox.Sgd(RATE), mu=0.6)
    assert_close(output["update"][0], toolbox.difference(start_weights(), local))
    plain = toolbox.train(start_weights(), x, y, everything, toolbox.Sgd(RATE))
    assert np.abs(plain[0] - local[0]).max() > 1e-2


def test_padam_is_adam_on_the_proximal_objective(works):
    x, y = examples(17, seed=6)
    settings = {"local_epochs": 2, "batch_size": 5}
    inside = run(works(None, PAdam(0.05, mu=0.6), **settings), [client(x, y)])
    outside = run(works(Proximal(0.6), SelfAdam(0.05), **settings), [client(x, y)])
    assert_close(inside["update"][0], outside["update"][0], 1e-6)
    without = run(works(None, SelfAdam(0.05), **settings), [client(x, y)])
    assert np.abs(without["update"][0][0] - inside["update"][0][0]).max() > 1e-3


def test_the_reported_loss_leaves_the_proximal_term_out(works):
    x, y = examples(8, seed=6)
    metrics = run(works(Proximal(0.6), local_steps=2, batch_size=8), [client(x, y)])["metrics"]
    weights = toolbox.train(start_weights(), x, y, [np.arange(8)], toolbox.Sgd(RATE))
    expected = (toolbox.cross_entropy(start_weights(), x, y) + toolbox.cross_entropy(weights, x, y)) / 2
    np.testing.assert_allclose(metrics["local/loss"], expected, rtol=1e-5)


# Client state.


class KeepLogits(Objective):
    """Adds mean_i <kept_i, logits_i> to the loss and keeps each example's logits under the local weights.

    `as_struct`: keeps them in a structure, beside the number of rounds that the client was trained.
    """

    def __init__(self, as_struct=False):
        self.as_struct = as_struct

    def client_state_type(self, local_model):
        logits = tff.TensorType(np.float32, [None, local_model.num_classes])
        if self.as_struct:
            return tff.types.to_type(collections.OrderedDict(logits=logits, rounds=np.int32))
        return logits

    def initial_client_state(self, local_model, examples):
        logits = np.zeros([len(examples["y"]), local_model.num_classes], np.float32)
        return collections.OrderedDict(logits=logits, rounds=np.int32(0)) if self.as_struct else logits

    def _logits(self, client_state):
        return client_state["logits"] if self.as_struct else client_state

    def loss(self, client, prepared, batch):
        kept = tf.gather(self._logits(client.client_state), batch.rows)
        return super().loss(client, prepared, batch) + tf.reduce_mean(
            tf.reduce_sum(kept * batch.outputs["logits"], axis=-1)
        )

    def next_client_state(self, client, prepared, steps):
        logits = client.model({"x": client.examples["x"]}, training=False)["logits"]
        if self.as_struct:
            return collections.OrderedDict(logits=logits, rounds=client.client_state["rounds"] + 1)
        return logits


class ScaledClientState(KeepLogits):
    """One number per example, so that the client state is [None, 1]: a shape that broadcasts against anything."""

    def client_state_type(self, local_model):
        return tff.TensorType(np.float32, [None, 1])

    def initial_client_state(self, local_model, examples):
        return np.zeros([len(examples["y"]), 1], np.float32)

    def next_client_state(self, client, prepared, steps):
        return super().next_client_state(client, prepared, steps)[:, :1]


def as_arrays(objective, client_states):
    return [m["logits"] if objective.as_struct else m for m in client_states]


CLIENT_STATE_OBJECTIVES = {
    "tensor": KeepLogits(),
    "struct": KeepLogits(as_struct=True),
    "one_wide": ScaledClientState(),
    "inside_proximal": KeepLogits(as_struct=True),
}


def composed(model, objective, optimizer=None, **settings):
    work = build_local_training(
        model, objective=objective, optimizer=optimizer or SGD(RATE), training=LocalTraining(**settings)
    )
    return compose(model, client_work=work, aggregator=mean(), finalizer=gradient_step(model))


@pytest.mark.parametrize("kind", ["tensor", "one_wide", "inside_proximal"])
def test_client_state_over_two_rounds(model, kind):
    objective = CLIENT_STATE_OBJECTIVES[kind]
    mu = 0.6 if kind == "inside_proximal" else 0.0
    algorithm = composed(model, Proximal(mu, objective) if mu else objective, local_epochs=2, batch_size=4)
    data = [examples(n, seed=n) for n in (6, 11)]
    work = algorithm.client_work
    client_states = [work.initial_client_state({"y": y}) for _, y in data]
    state = algorithm.initialize(model_weights(*start_weights()))
    weights = [w.astype(float) for w in start_weights()]
    kept = [np.zeros(m.shape) for m in as_arrays(objective, client_states)]
    for number in range(2):
        seeds = [(number, 1), (number, 2)]
        clients = [client(x, y, s) for (x, y), s in zip(data, seeds, strict=True)]
        output = algorithm.next(state, clients, client_states)
        state, client_states = output["state"], output["client_state"]
        locals_ = [
            toolbox.train(
                weights, x, y, toolbox.batches(s, len(y), 4, 2), toolbox.Sgd(RATE), mu, np.tile(k, 3 // k.shape[1])
            )
            for (x, y), s, k in zip(data, seeds, kept, strict=True)
        ]
        kept = [(x @ w + b)[:, : k.shape[1]] for (x, _), (w, b), k in zip(data, locals_, kept, strict=True)]
        weights = [np.average(ws, axis=0, weights=[6, 11]) for ws in zip(*locals_, strict=True)]
        assert_close(state["weights"].trainable, weights, 5e-6)
        assert_close(as_arrays(objective, client_states), kept, 2e-5)
    if objective.as_struct:
        assert [m["rounds"] for m in client_states] == [2, 2]


@pytest.mark.parametrize("kind", ["tensor", "struct"])
def test_the_state_of_a_client_that_does_not_count_stays(model, kind):
    objective = CLIENT_STATE_OBJECTIVES[kind]
    algorithm = composed(model, objective, local_epochs=1, batch_size=4)
    state = algorithm.initialize(model_weights(*start_weights()))
    x, y = bad_examples("nan")
    marked = np.arange(27, dtype=np.float32).reshape(9, 3)
    before = collections.OrderedDict(logits=marked, rounds=np.int32(4)) if objective.as_struct else marked
    blank = algorithm.client_work.initial_client_state
    clients = [client(*examples(6, seed=6)), client(x, y), client(np.zeros([0, 3]), np.zeros([0]))]
    output = algorithm.next(state, clients, [blank(clients[0]["examples"]), before, blank(clients[2]["examples"])])
    assert bits(output["client_state"][1]) == bits(before)
    assert bits(output["client_state"][2]) == bits(blank({"y": np.zeros([0], np.int32)}))
    assert np.abs(as_arrays(objective, output["client_state"])[0]).max() > 0.1
    assert output["metrics"]["work"]["clients/non_finite"] == 1


def test_an_objective_without_client_state_has_no_initial_one(works, model):
    work = works(local_steps=1)
    assert work.client_state_type is None and work.initial_client_state is None
    with pytest.raises(TypeError, match="CrossEntropy"):
        CrossEntropy().initial_client_state(model, {"y": [0]})


# The side channel.


class SharedCounts(Objective):
    """Clients send their class counts; the next round's loss adds <shared, logits> with the counts per client."""

    side_channel = SideChannel(
        initial=lambda weights: collections.OrderedDict(
            counts=tf.zeros([3]), rounds=tf.constant(0.0), norm=tf.norm(weights.trainable[0])
        ),
        aggregator=tff.aggregators.SumFactory(),
        update=lambda shared, aggregated, counted: collections.OrderedDict(
            counts=tf.math.divide_no_nan(aggregated["counts"], 100.0 * counted),
            rounds=shared["rounds"] + 1.0,
            norm=shared["norm"],
        ),
    )

    def loss(self, client, prepared, batch):
        extra = tf.reduce_sum(client.shared["counts"] * batch.outputs["logits"], axis=-1)
        return super().loss(client, prepared, batch) + tf.reduce_mean(extra)

    def upload(self, client, prepared, steps):
        return collections.OrderedDict(counts=tf.reduce_sum(tf.one_hot(client.examples["y"], 3), axis=0))


@pytest.mark.parametrize("mu", [None, 0.6], ids=["alone", "inside_proximal"])
def test_side_channel_over_two_rounds(model, mu):
    objective = SharedCounts() if mu is None else Proximal(mu, SharedCounts())
    algorithm = composed(model, objective, local_epochs=2, batch_size=4)
    data = [examples(n, seed=n) for n in (6, 11)]
    state = algorithm.initialize(model_weights(*start_weights()))
    weights, shared = [w.astype(float) for w in start_weights()], np.zeros(3)
    np.testing.assert_allclose(state["client_work"]["shared"]["norm"], np.linalg.norm(weights[0]), rtol=1e-6)
    for number in range(3):
        seeds = [(number, 1), (number, 2)]
        # The third client does not count: neither its weights nor its labels reach the server.
        bad = client(*bad_examples("nan"), seed=(number, 3))
        clients = [client(x, y, s) for (x, y), s in zip(data, seeds, strict=True)]
        output = algorithm.next(state, [*clients, bad])
        state = output["state"]
        locals_ = [
            toolbox.train(
                weights,
                x,
                y,
                toolbox.batches(s, len(y), 4, 2),
                toolbox.Sgd(RATE),
                mu or 0.0,
                np.tile(shared, [len(y), 1]),
            )
            for (x, y), s in zip(data, seeds, strict=True)
        ]
        weights = [np.average(ws, axis=0, weights=[6, 11]) for ws in zip(*locals_, strict=True)]
        shared = sum(np.bincount(y, minlength=3) for _, y in data) / 100 / 2
        assert_close(state["weights"].trainable, weights, 5e-6)
        assert_close([state["client_work"]["shared"]["counts"]], [shared], 1e-6)
        assert state["client_work"]["shared"]["rounds"] == number + 1
        assert state["client_work"]["round"] == number + 1


# Composition.


@pytest.mark.parametrize(
    "part, types, others",
    [
        ("finalizer", ("float32[3,3]", "float32[5,2]"), lambda: {"finalizer": gradient_step(OTHER)}),
        ("client work", ("float32[3,3]", "float32[5,2]"), lambda: {"model": OTHER, "finalizer": gradient_step(OTHER)}),
        (
            "distributor",
            ("float32[3,3]", "float32[5,2]"),
            lambda: {"distributor": tff.learning.templates.build_broadcast_process(OTHER.weights_type)},
        ),
        (
            "finalizer (aggregated update)",
            ("float32[3,3]", "float64[3,3]"),
            lambda: {"aggregator": DoublePrecision()},
        ),
    ],
)
def test_a_part_that_does_not_fit_is_refused(model, works, part, types, others):
    parts = {"client_work": works(local_steps=1), "aggregator": mean(), "finalizer": gradient_step(model)}
    parts = {"model": model, **parts, **others()}
    with pytest.raises(CompositionError) as caught:
        compose(parts.pop("model"), **parts)
    assert str(caught.value).startswith(part) and all(one in str(caught.value) for one in types)


OTHER = linear_model(5, 2)


class DoublePrecision(tff.aggregators.WeightedAggregationFactory):
    """Gives its sum back as float64: an aggregator that does not fit what follows."""

    def create(self, value_type, weight_type):
        inner = mean().create(value_type, weight_type)

        @tff.tensorflow.computation(inner.next.type_signature.result.result.member)
        def cast(value):
            return tf.nest.map_structure(lambda t: tf.cast(t, tf.float64), value)

        @tff.federated_computation(*inner.next.type_signature.parameter)
        def next_fn(state, value, weight):
            output = inner.next(state, value, weight)
            return tff.templates.MeasuredProcessOutput(
                output.state, tff.federated_map(cast, output.result), output.measurements
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)


def graphs(message):
    """All TensorFlow graphs within a computation's message."""
    for field, value in message.ListFields():
        if field.name == "graph_def":
            graph = tf.compat.v1.GraphDef()
            value.Unpack(graph)
            yield graph
        elif field.message_type is not None:
            for part in value if field.label == field.LABEL_REPEATED else [value]:
                yield from graphs(part)


def test_no_constant_is_as_large_as_the_weights():
    """The worker would keep it in every session; TensorFlow folds tf.zeros of a fixed shape into one."""
    width = 5000
    large = linear_model(width, 2)
    work = build_local_training(
        large, objective=CrossEntropy(), optimizer=SelfAdam(0.1), training=LocalTraining(batch_size=5)
    )
    algorithm = compose(large, client_work=work, aggregator=mean(), finalizer=gradient_step(large))
    found = list(graphs(tff.framework.ConcreteComputation.get_proto(native_form(algorithm.next))))
    nodes = [n for graph in found for part in (graph.node, *(f.node_def for f in graph.library.function)) for n in part]
    assert any(node.op == "ResourceApplyAdam" for node in nodes)
    shapes = [[d.size for d in node.attr["value"].tensor.tensor_shape.dim] for node in nodes if node.op == "Const"]
    assert shapes and all(np.prod(shape) < width for shape in shapes)
