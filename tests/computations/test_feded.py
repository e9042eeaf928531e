"""FedED: the teacher and its divergence, the ensemble, the server's passes, and what travels."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations import federated as tff
from computations.aggregators import PredictionsFactory
from computations.client_work import LocalTraining, Predictions, build_local_training
from computations.client_work.client_updates import label_type
from computations.client_work.objectives import ModelContrast
from computations.client_work.objectives.base import Client
from computations.client_work.optimizers import SGD
from computations.errors import CompositionError
from computations.local_model import LocalModel
from computations.traffic import intrinsic_calls, round_traffic, type_bytes
from tests.computations import toolbox
from tests.computations.toolbox import bits, client, examples, model_weights, start_weights

N, C = 12, 3
AT_SERVER = examples(N, seed=40)
DATA = [examples(n, seed=n) for n in (6, 15)]


def build(model, **wanted):
    entry = algorithms.find("feded")
    client_model = wanted.pop("client_model", None)
    options = entry.options(**{"num_server_examples": N, "local_epochs": 1, "batch_size": 50, **wanted})
    return entry.build(model, options, client_model)


def play(algorithm, rounds=1, data=DATA, client_states=None, start=None):
    state = algorithm.initialize(model_weights(*(start or start_weights())))
    outputs = []
    for number in range(rounds):
        clients = [client(x, y, seed=(number, k)) for k, (x, y) in enumerate(data)]
        states = [] if client_states is None else [client_states]
        outputs.append(algorithm.next(state, clients, *states, client(*AT_SERVER, seed=(number, 77))))
        state, client_states = outputs[-1]["state"], outputs[-1].get("client_state")
    return outputs


# Predictions


def test_votes_take_the_smallest_integers():
    smallest = {2: tf.uint8, 256: tf.uint8, 257: tf.uint16, 65536: tf.uint16, 65537: tf.int32}
    assert {classes: label_type(classes) for classes in smallest} == smallest


def test_examples_of_like_length_are_predicted_together():
    """The shortest first, sixteen at once, and the predictions come back in the order of the server's examples."""
    read = []

    class Recording(tf.keras.layers.Layer):
        def call(self, x):
            tf.py_function(lambda values: read.append(values.numpy()[:, 0].tolist()), [x], [])
            return tf.concat([x, -x], axis=-1)

    def build_model():
        arrays = {"x": tf.keras.Input([1], name="x"), "mask": tf.keras.Input([5], dtype=tf.int32, name="mask")}
        logits = Recording()(arrays["x"])
        return tf.keras.Model(arrays, {"logits": logits, "features": logits})

    spec = {"x": tf.TensorSpec([None, 1], tf.float32), "mask": tf.TensorSpec([None, 5], tf.int32)}
    model = LocalModel(build_model, spec | {"y": tf.TensorSpec([None], tf.int32)}, 2, mask="mask")
    lengths = np.random.default_rng(0).integers(1, 6, 20)
    x, mask = np.arange(20, dtype=np.float32)[:, np.newaxis], np.arange(5) < lengths[:, np.newaxis]
    sent = {"x": tf.constant(x), "mask": tf.constant(mask.astype(np.int32))}  # clients get no labels
    trained = Client(build_model(), model, {}, (), tf.constant(0.1), tf.constant([0, 0]))
    logits, _ = tf.function(lambda: Predictions(20).compute(trained, sent, tf.constant(1)))()
    np.testing.assert_array_equal(logits, np.hstack([x, -x]))
    order = np.argsort(lengths, kind="stable")
    assert read == [x[order[:16], 0].tolist(), x[order[16:], 0].tolist()]


# The ensemble


def aggregate(values, weights, **options):
    value_type = tff.TensorType(values[0].dtype, values[0].shape)
    process = PredictionsFactory(C, **options).create(value_type, tff.TensorType(np.float32))
    weights = [np.float32(w) for w in weights]
    return process.next(process.initialize(), list(values), weights).result


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_mean_of_logits_by_hand(dtype):
    values = [np.array([[1, 2, 3], [0, 0, 8]], dtype), np.array([[3, 0, 1], [4, 4, 0]], dtype)]
    result = aggregate(values, [1.0, 3.0])
    np.testing.assert_allclose(result["logits"], [[2.5, 0.5, 1.5], [3, 3, 2]], rtol=1e-6)
    assert result["logits"].dtype == np.float32 and result["weight"] == 4


def test_half_precision_is_widened_before_it_is_added():
    values = [np.full([1, 3], 60000, np.float16)] * 3  # their sum is beyond float16
    np.testing.assert_allclose(aggregate(values, [1, 1, 1])["logits"], np.full([1, 3], np.float32(np.float16(60000))))


def test_votes_are_shares():
    values = [np.array([0, 2], np.uint8), np.array([1, 2], np.uint8), np.array([0, 2], np.uint8)]
    shares = np.exp(aggregate(values, [1.0, 1.0, 2.0])["logits"])
    np.testing.assert_allclose(shares, [[0.75, 0.25, 0], [0, 0, 1]], atol=1e-5)


@pytest.mark.parametrize("value", [np.ones([2, C], np.float32), np.ones([2], np.uint8)], ids=["logits", "votes"])
def test_without_a_weight_there_is_no_ensemble(value):
    result = aggregate([value] * 2, [0.0, 0.0])
    assert result["weight"] == 0 and np.isfinite(result["logits"]).all()


def test_an_inner_sum_is_used():
    clipped = tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory())
    values = [np.array([[30.0, 40.0, 0.0]], np.float32)]
    result = aggregate(values, [1.0], inner_sum=clipped)
    np.testing.assert_allclose(result["logits"], [[0.6, 0.8, 0.0]], rtol=1e-5)


@pytest.mark.parametrize(
    "value_type",
    [
        tff.TensorType(np.float32, [4, C + 1]),
        tff.TensorType(np.float32, [None, C]),
        tff.TensorType(np.int32, [4, C]),
        tff.types.to_type([np.float32, np.float32]),
    ],
)
def test_other_types_are_refused(value_type):
    with pytest.raises(CompositionError, match=r"predictions: expected a float type \[N,3\] or an integer type \[N\]"):
        PredictionsFactory(C).create(value_type, tff.TensorType(np.float32))


def test_an_inner_sum_does_not_go_with_small_forms():
    factory = PredictionsFactory(C, tff.aggregators.SumFactory())
    with pytest.raises(CompositionError, match="an inner sum takes float32 logits"):
        factory.create(tff.TensorType(np.float16, [4, C]), tff.TensorType(np.float32))


# The algorithm


def logits_of(model_of_client, x):
    return x.astype(float) @ model_of_client[0] + model_of_client[1]


def trained(rate=0.1):
    """The two clients' models after one full batch."""
    return [toolbox.train(start_weights(), x, y, [np.arange(len(y))], toolbox.Adam(rate)) for x, y in DATA]


def distilled(teacher, rate=0.1, temperature=1.0):
    x, y = AT_SERVER
    start = [w.astype(float) for w in start_weights()]
    p = toolbox.softmax(logits_of(start, x))
    q = toolbox.softmax(teacher / temperature)
    return toolbox.Adam(rate).step(start, toolbox.gradient(start, x, y, p - q))


def ensembles():
    x, y = AT_SERVER
    logits = np.stack([logits_of(w, x) for w in trained()])
    losses = [-np.log(toolbox.softmax(z)[np.arange(N), y]).mean() for z in logits]
    votes = np.eye(C)[logits.argmax(axis=2)].mean(axis=0)
    return {
        "uniform": logits.mean(axis=0),
        "examples": np.average(logits, axis=0, weights=[6, 15]),
        "agreement": np.average(logits, axis=0, weights=np.exp(-np.array(losses) / 0.1)),
        "label": np.log(np.maximum(votes, 1e-6)),
        "probabilities": np.log(toolbox.softmax(logits).mean(axis=0)),
        "printed": toolbox.softmax(logits).mean(axis=0),
    }


@pytest.mark.parametrize(
    "how",
    [
        "agreement",
        "label",
        "printed",
        *(pytest.param(h, marks=pytest.mark.slow) for h in ("uniform", "examples", "probabilities")),
    ],
)
def test_a_round_worked_out_in_numpy(model, how):
    wanted = {"weighting": how, "agreement_temperature": 0.1}
    if how in ("label", "probabilities", "printed"):
        wanted = {"uploads": "label"} if how == "label" else {"ensemble": how}
    (output,) = play(build(model, learning_rate=0.1, **wanted))
    toolbox.assert_close(output["state"]["weights"].trainable, distilled(ensembles()[how]), 5e-6)
    measured = output["metrics"]["finalizer"]
    y = AT_SERVER[1]
    assert measured["trained"] == 1
    assert measured["teacher_accuracy"] == pytest.approx((ensembles()[how].argmax(axis=1) == y).mean())
    assert all(np.abs(ensembles()[how] - z).max() > 1e-2 for other, z in ensembles().items() if other != how)


def test_labels_have_no_probabilities(model):
    with pytest.raises(ValueError, match="'printed' needs uploads"):
        build(model, ensemble="printed", uploads="label")


def test_the_servers_own_rate_epochs_and_batches(model):
    """None at all, and five steps; a pass in the order that its seed gives."""
    still = play(build(model, server_learning_rate=0.0))[0]
    assert bits(still["state"]["weights"].trainable) == bits(start_weights())
    changed = build(model, learning_rate=0.1, server_learning_rate=0.05, server_epochs=2, server_batch_size=5)
    weights, rule, (x, y) = [w.astype(float) for w in start_weights()], toolbox.Adam(0.05), AT_SERVER
    teacher = toolbox.softmax(ensembles()["uniform"])
    for rows in toolbox.batches((0, 77), N, 5, 2):
        p = toolbox.softmax(logits_of(weights, x[rows]))
        weights = rule.step(weights, toolbox.gradient(weights, x[rows], y[rows], p - teacher[rows]))
    toolbox.assert_close(play(changed)[0]["state"]["weights"].trainable, weights, 5e-6)


def test_without_the_divergence_the_server_learns_from_its_labels_alone(model):
    """The control of the paper's Table 6: what the clients have does not matter."""
    algorithm = build(model, distillation_weight=0.0, local_steps=1)
    here = play(algorithm, 2)[-1]["state"]["weights"].trainable
    there = play(algorithm, 2, data=[examples(9, seed=1), examples(8, seed=2)])[-1]["state"]["weights"].trainable
    assert bits(here) == bits(there)


def test_without_examples_at_the_server_there_is_nothing_to_build(model):
    entry = algorithms.find("feded")
    with pytest.raises(CompositionError, match="num_server_examples is not set"):
        entry.build(model, entry.options())


# What travels


def travelling(computation):
    """(types sent to the clients, types sent by them)."""
    down, up = [], []
    for call in intrinsic_calls(computation):
        kind, argument = call.function.uri, call.argument.type_signature
        if kind == "federated_broadcast":
            down.append(argument.member)
        elif kind in ("federated_aggregate", "federated_sum"):
            up.append((argument[0] if kind == "federated_aggregate" else argument).member)
    return down, up


def tensors_in(type_spec):
    if isinstance(type_spec, tff.StructType):
        return [t for member in type_spec.children() for t in tensors_in(member)]
    return [(np.dtype(type_spec.dtype).name, tuple(type_spec.shape))]


UPLOADS = {"float32": ("float32", (N, C)), "float16": ("float16", (N, C)), "label": ("uint8", (N,))}


@pytest.mark.parametrize("uploads", UPLOADS)
def test_clients_give_away_predictions_and_numbers_alone(model, uploads):
    """Whatever the model's size: its weights are not among them."""
    # With agreement they get the labels, too.
    agrees = {"weighting": "agreement"} if uploads == "label" else {}
    upload, computation = UPLOADS[uploads], build(model, uploads=uploads, **agrees).next
    down, up = travelling(computation)
    size = np.dtype(upload[0]).itemsize * int(np.prod(upload[1]))
    assert size < round_traffic(computation).up <= size + 24
    sent = sorted(t for kind in up for t in tensors_in(kind))
    assert [t for t in sent if t[1]] == [upload]  # the rest are the metrics' and the weight's scalars
    assert {t for t in sent if not t[1]} == {("float32", ())}
    received = [t for kind in down for t in tensors_in(kind)]
    # Down go the weights, the round's number, and the server's features, not its labels.
    labels = [("int32", (N,))] if agrees else []
    assert sorted(received) == sorted(
        [("float32", (3, C)), ("float32", (C,)), ("int32", ()), ("float32", (N, 3)), *labels]
    )


# Clients with another model


def hidden_layer(model, width):
    def make():
        x = tf.keras.Input([3], name="x")
        features = tf.keras.layers.Dense(width, activation="tanh", name="hidden")(x)
        logits = tf.keras.layers.Dense(C, name="classifier")(features)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": features})

    return dataclasses.replace(model, build=make)


@pytest.fixture(scope="module")
def other(model):
    return build(model, client_model=hidden_layer(model, 7), learning_rate=0.05, batch_size=4)


def client_states_of(algorithm, seed=3):
    return [algorithm.client_work.initial_client_state({"y": y}, seed) for _, y in DATA]


def test_clients_with_a_model_of_their_own(model, other):
    client_states = client_states_of(other)
    assert [w.shape for w in client_states[0].trainable] == [(3, 7), (7,), (7, C), (C,)]
    outputs = play(other, 12, client_states=client_states)
    losses = [o["metrics"]["work"]["local/loss"] for o in outputs]
    assert losses[-1] < 0.7 * losses[0], "the clients' models go on from round to round"
    right = [o["metrics"]["finalizer"]["teacher_accuracy"] for o in outputs]
    assert right[-1] > right[0]
    x, y = AT_SERVER
    kernel, bias = outputs[-1]["state"]["weights"].trainable
    before = (logits_of(start_weights(), x).argmax(axis=1) == y).mean()
    assert ((x @ kernel + bias).argmax(axis=1) == y).mean() > before, "the server's model has learned"


def test_their_models_stay_with_them(other, model):
    down, up = travelling(other.next)
    received = sorted(t for kind in down for t in tensors_in(kind))
    assert received == sorted([("int32", ()), ("int32", ()), ("float32", (N, 3))]), "no weights go down"
    assert [t for kind in up for t in tensors_in(kind) if t[1]] == [("float32", (N, C))]
    assert type_bytes(other.client_work.client_state_type) == 4 * (3 * 7 + 7 + 7 * C + C)


def test_their_models_start_from_the_runs_seed(other):
    first, again, another = (client_states_of(other, seed)[0].trainable[0] for seed in (3, 3, 4))
    assert bits([first]) == bits([again]) != bits([another])


def test_own_models_do_not_go_with_objectives_that_keep_something(model):
    parts = {"optimizer": SGD(0.1), "training": LocalTraining(), "client_update": Predictions(N), "own_models": True}
    with pytest.raises(ValueError, match="ModelContrast keeps client state"):
        build_local_training(model, objective=ModelContrast(), **parts)


def test_order_of_examples_is_that_of_the_model(model):
    server_type = build(model).server_type
    assert isinstance(server_type, tff.StructType)
    expected = collections.OrderedDict(x=tff.TensorType(np.float32, [N, 3]), y=tff.TensorType(np.int32, [N]))
    server_type.examples.check_equivalent_to(tff.types.to_type(expected))
