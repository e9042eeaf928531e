import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from computations import federated as tff
from computations.aggregators import mean
from computations.algorithms.options import LocalOptions
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.objectives import CrossEntropy, Objective, Proximal, SideChannel
from computations.client_work.optimizers import SGD, SelfAdam
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
    states = [] if client_states is None else [client_states]
    return work.next(state, [weights] * len(clients), clients, *states)


# Steps and batches.


@pytest.mark.parametrize("num_examples, epochs", [(23, 3), (20, 2), (1, 2)])
def test_epochs_of_softmax_regression(works, num_examples, epochs):
    """The order of the batches comes from the seed; with 23 examples the last batch of a pass is smaller."""
    x, y = examples(num_examples, seed=num_examples)
    output = run(works(local_epochs=epochs, batch_size=5), [client(x, y, seed=(3, 7))])
    rows = list(toolbox.batches((3, 7), num_examples, 5, epochs))
    assert len(rows) == epochs * -(-num_examples // 5) and sum(map(len, rows)) == epochs * num_examples
    local = toolbox.train(start_weights(), x, y, rows, toolbox.Sgd(RATE))
    assert_close(output["update"][0], toolbox.difference(start_weights(), local))
    assert output["weight"] == [num_examples]
    assert output["metrics"]["local/steps"] == len(rows)


@pytest.mark.parametrize("steps", [2, 8])
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


def bad_examples(kind):
    x, y = examples(9, seed=4)
    x[5, 1] = {"nan": np.nan, "inf": np.inf}[kind]
    return x, y


@pytest.mark.parametrize("kind, weighting", [("nan", "examples"), ("inf", "uniform")])
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
    value = collections.OrderedDict(examples=data, seed=np.array([0, 0], np.int32))
    output = run(work, [value], weights=[np.zeros([4, 2], np.float32)])
    # d/dz = (-0.5, 0.5), twice for the same word: (-1, 1), longer than 0.25, so it is cut to that length.
    expected = np.zeros([4, 2])
    expected[2] = 0.25 / np.sqrt(2) * np.array([-1.0, 1.0])
    assert_close(output["update"][0], [expected], 1e-6)


def test_the_schedule_multiplies_the_rate_by_round(model):
    def falling(number):
        return 1.0 / (1.0 + tf.cast(number, tf.float32))

    x, y = examples(8, seed=6)
    for optimizer, rule in ((SGD(RATE), toolbox.Sgd), (SelfAdam(0.1), toolbox.Adam)):
        work = build_local_training(
            model,
            objective=CrossEntropy(),
            optimizer=optimizer,
            training=LocalTraining(local_steps=2, batch_size=8, schedule=falling),
        )
        state = None
        for number in range(3):
            output = run(work, [client(x, y)], state=state)
            rule_now = rule(optimizer.learning_rate / (1 + number))
            local = toolbox.train(start_weights(), x, y, [np.arange(8)] * 2, rule_now)
            assert_close(output["update"][0], toolbox.difference(start_weights(), local), 5e-6)
            state = output["state"]
            assert state["round"] == number + 1


def test_weight_decay_by_hand(model):
    """rate * (g + 0.3 w) for kernel and bias, behind clipping; the reported loss leaves the term out."""
    x, y = examples(8, seed=6)
    training = LocalTraining(local_steps=1, batch_size=8, weight_decay=0.3, max_gradient_norm=0.01)
    work = build_local_training(model, objective=CrossEntropy(), optimizer=SGD(RATE), training=training)
    output, start = run(work, [client(x, y)]), start_weights()
    slopes = toolbox.gradient(start, x, y)
    clipped = 0.01 / np.sqrt(sum((g**2).sum() for g in slopes))
    assert_close(
        output["update"][0], [RATE * (clipped * g + 0.3 * w) for g, w in zip(slopes, start, strict=True)], 1e-6
    )
    assert output["metrics"]["local/loss"] == pytest.approx(toolbox.cross_entropy(start, x, y), rel=1e-5)


def test_two_forms_of_decay():
    for decay, wanted in (("inverse", [1, 1 / 1.2, 1 / 1.6]), ("geometric", [1, 0.8, 0.8**3])):
        options = LocalOptions(learning_rate_decay=0.2, learning_rate_decay_form=decay)
        factor = options.local_training().schedule
        np.testing.assert_allclose([factor(tf.constant(number)) for number in (0, 1, 3)], wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="learning_rate_decay must be below 1"):
        LocalOptions(learning_rate_decay=1.0, learning_rate_decay_form="geometric")


def test_proximal_gradient_and_loss_by_hand(works):
    """The reported loss leaves the term out."""
    x, y = examples(8, seed=6)
    output = run(works(Proximal(0.6), local_steps=3, batch_size=8), [client(x, y)])
    steps = [toolbox.train(start_weights(), x, y, [np.arange(8)] * n, toolbox.Sgd(RATE), mu=0.6) for n in range(4)]
    assert_close(output["update"][0], toolbox.difference(start_weights(), steps[3]))
    expected = np.mean([toolbox.cross_entropy(weights, x, y) for weights in steps[:3]])
    np.testing.assert_allclose(output["metrics"]["local/loss"], expected, rtol=1e-5)


# Client state.


class KeepLogits(Objective):
    """Adds mean_i <kept_i, logits_i> to the loss, and keeps each example's logits under the local weights and the
    number of rounds that the client was trained."""

    def client_state_type(self, local_model):
        logits = tff.TensorType(np.float32, [None, local_model.num_classes])
        return tff.types.to_type(collections.OrderedDict(logits=logits, rounds=np.int32))

    def initial_client_state(self, local_model, examples):
        logits = np.zeros([len(examples["y"]), local_model.num_classes], np.float32)
        return collections.OrderedDict(logits=logits, rounds=np.int32(0))

    def loss(self, client, prepared, batch):
        stored = tf.gather(client.client_state["logits"], batch.rows)
        extra = tf.reduce_sum(stored * batch.outputs["logits"], axis=-1)
        return super().loss(client, prepared, batch) + tf.reduce_mean(extra)

    def next_client_state(self, client, prepared, steps):
        logits = client.model({"x": client.examples["x"]}, training=False)["logits"]
        return collections.OrderedDict(logits=logits, rounds=client.client_state["rounds"] + 1)


def composed(model, objective):
    training = LocalTraining(local_epochs=2, batch_size=4)
    work = build_local_training(model, objective=objective, optimizer=SGD(RATE), training=training)
    return compose(model, client_work=work, aggregator=mean(), finalizer=gradient_step(model))


def trained_together(weights, data, seeds, extras):
    """(the clients' weights, their mean) after two epochs; `extras` is added to the gradient by the logits."""
    local = [
        toolbox.train(weights, x, y, toolbox.batches(s, len(y), 4, 2), toolbox.Sgd(RATE), extra=k)
        for (x, y), s, k in zip(data, seeds, extras, strict=True)
    ]
    return local, [np.average(ws, axis=0, weights=[len(y) for _, y in data]) for ws in zip(*local, strict=True)]


def test_client_state_over_two_rounds(model):
    """That of clients that do not count stays."""
    algorithm, data = composed(model, KeepLogits()), [examples(n, seed=n) for n in (6, 11)]
    marked = np.arange(27, dtype=np.float32).reshape(9, 3)
    blank = [algorithm.client_work.initial_client_state({"y": y}) for y in (data[0][1], data[1][1], [])]
    client_states = [*blank, collections.OrderedDict(logits=marked, rounds=np.int32(4))]
    others = [client(np.zeros([0, 3]), np.zeros([0])), client(*bad_examples("nan"))]
    state, before = algorithm.initialize(model_weights(*start_weights())), client_states[2:]
    weights, logits = [w.astype(float) for w in start_weights()], [np.zeros([len(y), 3]) for _, y in data]
    for number in range(2):
        seeds = [(number, 1), (number, 2)]
        clients = [client(x, y, s) for (x, y), s in zip(data, seeds, strict=True)]
        output = algorithm.next(state, [*clients, *others], client_states)
        state, client_states = output["state"], output["client_state"]
        local, weights = trained_together(weights, data, seeds, logits)
        logits = [x @ w + b for (x, _), (w, b) in zip(data, local, strict=True)]
        assert_close(state["weights"].trainable, weights, 5e-6)
        assert_close([s["logits"] for s in client_states[:2]], logits, 2e-5)
        assert bits(client_states[2:]) == bits(before)
        assert output["metrics"]["work"]["clients/non_finite"] == 1
    assert [s["rounds"] for s in client_states] == [2, 2, 0, 4]


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


def test_side_channel_over_three_rounds(model):
    algorithm, data = composed(model, SharedCounts()), [examples(n, seed=n) for n in (6, 11)]
    state = algorithm.initialize(model_weights(*start_weights()))
    weights, shared = [w.astype(float) for w in start_weights()], np.zeros(3)
    np.testing.assert_allclose(state["client_work"]["shared"]["norm"], np.linalg.norm(weights[0]), rtol=1e-6)
    for number in range(3):
        seeds = [(number, 1), (number, 2)]
        # The third client does not count: neither its weights nor its labels reach the server.
        bad = client(*bad_examples("nan"), seed=(number, 3))
        state = algorithm.next(state, [*(client(*d, s) for d, s in zip(data, seeds, strict=True)), bad])["state"]
        _, weights = trained_together(weights, data, seeds, [np.tile(shared, [len(y), 1]) for _, y in data])
        shared = sum(np.bincount(y, minlength=3) for _, y in data) / 100 / 2
        assert_close(state["weights"].trainable, weights, 5e-6)
        assert_close([state["client_work"]["shared"]["counts"]], [shared], 1e-6)
        assert state["client_work"]["shared"]["rounds"] == number + 1
        assert state["client_work"]["round"] == number + 1


# Composition.


OTHER = linear_model(5, 2)


@pytest.mark.parametrize(
    "part, others",
    [
        ("finalizer", lambda: {"finalizer": gradient_step(OTHER)}),
        ("client work", lambda: {"model": OTHER, "finalizer": gradient_step(OTHER)}),
        (
            "distributor",
            lambda: {"distributor": tff.learning.templates.build_broadcast_process(OTHER.weights_type)},
        ),
    ],
)
def test_a_part_that_does_not_fit_is_refused(model, works, part, others):
    parts = {"client_work": works(local_steps=1), "aggregator": mean(), "finalizer": gradient_step(model)}
    parts = {"model": model, **parts, **others()}
    with pytest.raises(CompositionError, match=rf"^{part}") as caught:
        compose(parts.pop("model"), **parts)
    assert all(type_text in str(caught.value) for type_text in ("float32[3,3]", "float32[5,2]"))


def graphs(message):
    """All TensorFlow graphs within a computation's message."""
    for field, value in message.ListFields():
        if field.name == "graph_def":
            graph = tf.compat.v1.GraphDef()
            value.Unpack(graph)
            yield graph
        elif field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from graphs(part)


def test_no_constant_is_as_large_as_the_weights():
    """The worker would keep it in every session; TensorFlow folds tf.zeros of a fixed shape into one."""
    width = 5000
    large = linear_model(width, 2)
    work = build_local_training(
        large, objective=CrossEntropy(), optimizer=SelfAdam(0.1), training=LocalTraining(batch_size=5)
    )
    algorithm = compose(large, client_work=work, aggregator=mean(), finalizer=gradient_step(large))
    all_graphs = list(graphs(tff.proto_of(native_form(algorithm.next))))
    nodes = [
        n for graph in all_graphs for part in (graph.node, *(f.node_def for f in graph.library.function)) for n in part
    ]
    assert any(node.op == "ResourceApplyAdam" for node in nodes)
    shapes = [[d.size for d in node.attr["value"].tensor.tensor_shape.dim] for node in nodes if node.op == "Const"]
    assert shapes and all(np.prod(shape) < width for shape in shapes)


# What losses read of the global model.


def drawn_to_global():
    """A model whose losses are the squared distances to the global model's logits plus one."""
    model = linear_model(3, 3)

    def build():
        inner = model.build()
        two = tf.keras.layers.Lambda(lambda x: tf.reduce_sum(x[:0]) + 2.0)(inner.input["x"])
        return tf.keras.Model(inner.input, {**inner.output, "two": two})

    def losses(labels, outputs):
        goal = outputs["global_logits"] + outputs["global_two"] / 2
        return tf.reduce_sum((outputs["logits"] - goal) ** 2, axis=-1)

    parts = {"global_rows": ("logits",), "global_parts": ("two",), "known_sizes": model.sizes}
    return dataclasses.replace(model, build=build, losses=losses, **parts)


def test_losses_read_the_global_model_and_not_the_model_in_training():
    """Its logits stay those of the first step, and a batch has those of its own examples."""
    work = build_local_training(
        drawn_to_global(),
        objective=CrossEntropy(),
        optimizer=SGD(0.05),
        training=LocalTraining(local_epochs=2, batch_size=4),
    )
    x, y = examples(10, seed=3)
    output = run(work, [client(x, y, seed=(3, 7))])
    kernel, bias = start_weights()
    goal = x @ kernel + bias + 1
    for rows in toolbox.batches((3, 7), 10, 4, 2):
        away = 2 * (x[rows] @ kernel + bias - goal[rows]) / len(rows)
        kernel, bias = kernel - 0.05 * x[rows].T @ away, bias - 0.05 * away.sum(axis=0)
    moved = toolbox.difference(start_weights(), [kernel, bias])
    assert_close(output["update"][0], moved)
    assert np.abs(moved[0]).max() > 0.01
