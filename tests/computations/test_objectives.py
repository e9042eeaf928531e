"""The objectives against a second writing of their losses in NumPy, what they keep and send, and FedCMC's election."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, rel_entr, softmax

from computations import federated as tff
from computations.aggregators import MajorClassifierVectorsFactory
from computations.client_work.objectives import (
    Batch,
    CalibratedLogits,
    Client,
    ControlVariates,
    CrossEntropy,
    Decorrelation,
    Distillation,
    MajorClassifierContrast,
    ModelContrast,
    RestrictedSoftmax,
)
from computations.client_work.objectives.major_classifier_contrast import average_similarity
from computations.client_work.objectives.moon import direction, representations
from computations.errors import CompositionError
from computations.inference import BATCH
from computations.local_model import LocalModel
from tests.computations import toolbox
from tests.computations.toolbox import bits, encoder_model, linear_model

MODEL, ENCODER = linear_model(2, 4), encoder_model()


def a_client(**fields):
    blank = {"model": None, "local_model": MODEL, "examples": {}, "global_weights": [], "rate": tf.constant(0.1)}
    return Client(**{**blank, "seed": tf.constant([3, 4]), **fields})


# A batch of three examples, four classes and features of two numbers.
LABELS, ROWS = np.array([1, 3, 0]), np.array([2, 0, 1])
LOGITS, TEACHER, FEATURES, GLOBAL, PREVIOUS, VECTORS = (
    np.random.default_rng(7).normal(size=shape) for shape in ([3, 4], [4, 4], [3, 2], [4, 2], [5, 2], [4, 2])
)
TEACHER[0, 1:] = -1e30  # rules out three classes


def cross_entropy(logits):
    return -log_softmax(logits, axis=1)[np.arange(3), LABELS]


def cosine(a, b):
    return (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9)


def plain(z, h):
    return cross_entropy(z).mean()


def contrasted(weight, tau, previous):
    """MOON, Eqs. 3 and 4."""

    def loss(z, h):
        near, far = (np.exp(cosine(h, other[ROWS]) / tau) for other in (GLOBAL, previous))
        return plain(z, h) - weight * np.log(near / (near + far)).mean()

    return loss


def over_others(z):
    """FedLC as printed: the sum leaves out the true class."""
    others = [np.log(np.delete(np.exp(row), label).sum()) for row, label in zip(z, LABELS, strict=True)]
    return (others - z[np.arange(3), LABELS]).mean()


def distilled(temperature, weight, tempered):
    """FedED, Eqs. 4 and 6."""

    def loss(z, h):
        q = softmax(TEACHER[ROWS] / temperature, axis=1)
        p = softmax(z / temperature if tempered else z, axis=1)
        return plain(z, h) + weight * rel_entr(q, p).sum(axis=1).mean()

    return loss


def trained(previous, yet=True):
    return {"client_state": {"representations": tf.constant(previous, tf.float32), "trained": tf.constant(yet)}}


# Objective, the labels of the client, what else it has, the loss of logits and features.
LOSSES = {
    "cross-entropy": (CrossEntropy(), [], {}, plain),
    "FedRS, class 2 absent": (
        *(RestrictedSoftmax(0.3), [0, 1, 3, 3], {}),
        lambda z, h: cross_entropy(z * [1, 1, 0.3, 1]).mean(),
    ),
    "FedRS, all classes": (RestrictedSoftmax(0.5), [2, 1, 0, 3], {}, plain),
    # Counts 16, 1, 0, 81: margins 1/2, 1, those of one example times 3, 1/3; tau 2 doubles them.
    "FedLC": (
        *(CalibratedLogits(2.0, 3.0), [0] * 16 + [1] + [3] * 81, {}),
        lambda z, h: cross_entropy(z - [1.0, 2.0, 6.0, 2 / 3]).mean(),
    ),
    "FedLC, equal counts": (CalibratedLogits(), [0, 1, 2, 3] * 2, {}, plain),
    "FedLC, no examples": (CalibratedLogits(absent_factor=0.5), [], {}, plain),
    # 4 of class 1, 2 of class 3, 1 of class 0: in shares of the most frequent one.
    "FedRS, graded": (
        *(RestrictedSoftmax(0.2, graded=True), [1, 1, 1, 1, 3, 3, 0], {}),
        lambda z, h: cross_entropy(z * [0.2 + 0.8 / 4, 1, 0.2, 0.2 + 0.8 / 2]).mean(),
    ),
    "FedLC over the other classes": (
        *(CalibratedLogits(2.0, 3.0, over_others=True), [0] * 16 + [1] + [3] * 81, {}),
        lambda z, h: over_others(z - [1.0, 2.0, 6.0, 2 / 3]),
    ),
    "FedLC, absent classes left out": (
        *(CalibratedLogits(2.0, absent="left_out"), [0] * 16 + [1] + [3] * 81, {}),
        lambda z, h: cross_entropy(z - [1.0, 2.0, np.inf, 2 / 3]).mean(),
    ),
    "FedDecorr": (
        *(Decorrelation(0.7), [], {}),
        lambda z, h: plain(z, h) + 0.7 * (np.corrcoef(h.T) ** 2).sum() / 4,
    ),
    # (Z^T Z)_12 is (N - 1) times the correlation in the released code, whose deviations divide by N - 1; over N = 3.
    "FedDecorr, released code": (
        *(Decorrelation(0.7, "code"), [], {}),
        lambda z, h: plain(z, h) + 0.7 * (2 * np.corrcoef(h.T)[0, 1]) ** 2 / 3,
    ),
    "MOON": (ModelContrast(3.0, 0.25), [], trained(PREVIOUS), contrasted(3.0, 0.25, PREVIOUS)),
    "MOON, cosine of zeros": (ModelContrast(), [], trained(0 * PREVIOUS), contrasted(1.0, 0.5, 0 * PREVIOUS)),
    "MOON, new client": (ModelContrast(), [], trained(PREVIOUS, False), plain),
    "FedCMC": (
        *(MajorClassifierContrast(ENCODER, mu=2.0), [], {"shared": tf.constant(VECTORS, tf.float32)}),
        lambda z, h: plain(z, h) + 2.0 * cross_entropy(h @ VECTORS.T).mean(),
    ),
    **{
        f"FedED at {temperature}, tempered: {tempered}": (
            *(Distillation(temperature, 0.7, tempered), [], {"shared": tf.constant(TEACHER, tf.float32)}),
            distilled(temperature, 0.7, tempered),
        )
        for temperature, tempered in ((1.0, False), (0.5, True), (4.0, False), (4.0, True))
    },
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients(name):
    objective, labels, rest, expected = LOSSES[name]
    client = a_client(examples={"y": tf.constant(labels, tf.int32)}, **rest)
    if isinstance(objective, ModelContrast):
        previous = client.client_state["representations"]
        prepared = {"globally": direction(tf.constant(GLOBAL, tf.float32)), "previously": direction(previous)}
    else:
        prepared = objective.prepare(client)
    outputs = {"logits": tf.constant(LOGITS, tf.float32), "features": tf.constant(FEATURES, tf.float32)}
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        loss = objective.loss(client, prepared, Batch({}, tf.constant(LABELS), outputs, tf.constant(ROWS, tf.int32)))
    np.testing.assert_allclose(loss, expected(LOGITS, FEATURES), rtol=1e-5)
    gradient = tape.gradient(loss, outputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    wanted = toolbox.numeric_gradient(lambda ends: expected(*ends), [LOGITS, FEATURES])
    toolbox.assert_close([gradient["logits"], gradient["features"]], wanted, 1e-5)


# MOON.


@pytest.mark.parametrize("form", ["paper", "code"])
def test_features_without_correlations_have_no_penalty(form):
    """One row; features that do not vary, whose gradient is a number too."""
    for rows in (1, 3):
        outputs = {"logits": tf.zeros([rows, 4]), "features": tf.ones([rows, 2])}
        with tf.GradientTape() as tape:
            tape.watch(outputs["features"])
            batch = Batch({}, tf.zeros([rows], tf.int32), outputs, tf.range(rows))
            loss = Decorrelation(100.0, form).loss(a_client(), (), batch)
        assert float(loss) == pytest.approx(np.log(4), rel=1e-6)
        assert not tape.gradient(loss, outputs["features"]).numpy().any()


def test_the_gradient_of_a_representation_of_zeros_is_finite():
    z = tf.zeros([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(z)
        batch = Batch({}, tf.constant([0]), {"logits": tf.zeros([1, 4]), "features": z}, tf.constant([0]))
        unit = tf.constant([[1.0, 0.0]])
        loss = ModelContrast().loss(a_client(**trained(unit)), {"globally": unit, "previously": -unit}, batch)
    assert np.isfinite(tape.gradient(loss, z)).all()


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 5])
def test_representations_are_those_of_one_pass_without_dropout(count):
    local_model = encoder_model(dropout=0.5)
    assert local_model.feature_width == 2  # before the model: Keras does not take a layer that is older than a graph's
    model = local_model.keras_model(local_model.initial_weights(3))
    x = np.random.default_rng(0).normal(size=[count, 3]).astype(np.float32)
    client = a_client(local_model=local_model, model=model, examples={"x": tf.constant(x), "y": tf.zeros([count])})
    read = tf.function(lambda: representations(client, "features"))()
    assert read.shape == (count, 2)
    kernel, bias = (w.numpy() for w in model.trainable_variables[:2])
    np.testing.assert_allclose(read, np.tanh(x @ kernel + bias), atol=1e-6)


# SCAFFOLD.


@pytest.mark.parametrize("rate, expected", [(0.1, 0.7), (0.0, -0.3)])
def test_control_variates_by_hand(rate, expected):
    """K = 4 steps at rate 0.1 from x = 1 to y = 0.6, c = 0.5, c_i = 0.2: c_i+ = 0.2 - 0.5 + 0.4/0.4 = 0.7."""
    objective = ControlVariates(num_clients=10)
    client = a_client(
        model=type("Trained", (), {"trainable_variables": [tf.constant([0.6])]}),
        global_weights=[tf.constant([1.0])],
        rate=tf.constant(rate),
        shared=[tf.constant([0.5])],
        client_state=[tf.constant([0.2])],
    )
    np.testing.assert_allclose(objective.next_client_state(client, (), tf.constant(4)), [[expected]], atol=1e-6)
    np.testing.assert_allclose(objective.upload(client, (), tf.constant(4)), [[expected - 0.2]], atol=1e-6)
    # g - c_i + c
    np.testing.assert_allclose(objective.adjust_gradients(client, (), [tf.constant([2.0])]), [[2.3]], atol=1e-6)
    # c + sum / N, whatever the number of clients that took part
    shared = objective.side_channel.update([tf.constant([0.5])], [tf.constant([1.5])], tf.constant(3.0))
    np.testing.assert_allclose(shared, [[0.65]], atol=1e-6)


def test_words_that_do_not_occur_are_corrected_too():
    """The gradient of an embedding names the rows that were looked up; c - c_i is added to all rows."""
    sparse = tf.IndexedSlices(tf.constant([[5.0], [1.0]]), tf.constant([1, 1]), tf.constant([3, 1]))
    client = a_client(shared=[tf.ones([3, 1])], client_state=[tf.zeros([3, 1])])
    (corrected,) = ControlVariates(2).adjust_gradients(client, (), [sparse])
    np.testing.assert_array_equal(corrected, [[1.0], [7.0], [1.0]])


# FedCMC.


def test_average_similarity_by_hand():
    """(1, 0), (0, 2), (-3, 0), (4, 4): cosines 0, -1, 0.7071; 0, 0, 0.7071; ...; the lengths do not matter."""
    similarity = average_similarity(tf.constant([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [4.0, 4.0]]))
    r = np.sqrt(0.5)
    np.testing.assert_allclose(similarity, [(r - 1) / 3, r / 3, (-1 - r) / 3, r / 3], atol=1e-6)
    zeros = average_similarity(tf.constant([[0.0, 0.0], [0.0, 2.0], [0.0, 3.0]]))
    np.testing.assert_allclose(zeros, [0.0, 0.5, 0.5], atol=1e-6)


def test_what_a_client_of_fedcmc_sends_and_keeps():
    kinds = {kind: MajorClassifierContrast(ENCODER, vectors=kind) for kind in ("major", "minor", "random")}
    model = ENCODER.keras_model(ENCODER.initial_weights(3))
    client = a_client(local_model=ENCODER, model=model)
    kernel = model.trainable_variables[2].numpy()
    similarity = average_similarity(kernel.T).numpy()
    scores = {}
    for kind, objective in kinds.items():
        upload = objective.upload(client, (), tf.constant(1))
        assert bits(upload["vectors"]) == bits(kernel.T) and upload["counts"] == 1
        scores[kind] = upload["scores"].numpy()
        assert bits(objective.next_client_state(client, (), tf.constant(1))["similarity"]) == bits(similarity)
    assert bits(scores["major"]) == bits(similarity) and bits(scores["minor"]) == bits(-similarity)
    assert len(set(scores["random"])) == 4 and scores["random"].min() >= 0 and scores["random"].max() < 1


def model_with(classifier, name="classifier", num_classes=4):
    def build():
        x = tf.keras.Input([3], name="x")
        return tf.keras.Model({"x": x}, {"logits": classifier()(x), "features": x})

    return LocalModel(build, ENCODER.input_spec, num_classes, name)


@pytest.mark.parametrize(
    "model, reason",
    [
        (model_with(lambda: tf.keras.layers.Dense(4), name=None), "names its classifier"),
        (model_with(lambda: tf.keras.layers.Dense(1, name="classifier"), num_classes=1), "2 classes"),
        (model_with(lambda: tf.keras.layers.Dense(5, name="classifier")), r"\[d, 4\], got \[3, 5\]"),
        (model_with(lambda: tf.keras.layers.ReLU(name="classifier")), r"\[d, 4\], got None"),
        (model_with(lambda: tf.keras.layers.Dense(4, name="classifier", trainable=False)), "trainable"),
    ],
)
def test_models_that_fedcmc_cannot_train_are_refused(model, reason):
    with pytest.raises(ValueError, match=reason):
        MajorClassifierContrast(model)


def test_features_that_the_classifier_does_not_take_are_refused():
    batch = Batch({}, tf.constant([1]), {"logits": tf.zeros([1, 4]), "features": tf.zeros([1, 3])}, tf.constant([0]))
    with pytest.raises(ValueError, match=r"features are 3 wide .* takes 2"):
        MajorClassifierContrast(ENCODER).loss(a_client(shared=tf.constant(VECTORS)), (), batch)


# The election of the vectors.


def upload_type(classes, width, scores=None):
    shapes = collections.OrderedDict(vectors=[classes, width], scores=[scores or classes], counts=[])
    return tff.types.to_type(collections.OrderedDict((n, tff.TensorType(np.float32, s)) for n, s in shapes.items()))


def client_update(vectors, scores, counts=1.0):
    return collections.OrderedDict(
        vectors=np.array(vectors, np.float32), scores=np.array(scores, np.float32), counts=np.float32(counts)
    )


@pytest.fixture(scope="module")
def election():
    return MajorClassifierVectorsFactory().create(upload_type(4, 2))


def elect(process, offers):
    result = process.next(process.initialize(), offers).result
    return np.asarray(result["vectors"]), np.asarray(result["holders"])


THREE_CLIENTS = [
    client_update([[1, 2], [3, 4], [5, 6], [7, 8]], [-0.5, 0.25, 0.0, 0.5]),
    client_update([[10, 20], [30, 40], [50, 60], [70, 80]], [0.5, -0.25, 0.0, -0.5]),
    client_update([[-1, -2], [-3, -4], [-5, -6], [-7, -8]], [0.0, 0.0, 0.75, -0.5]),
]


def test_three_clients_and_four_classes_by_hand(election):
    """Class 0 goes to the first, class 1 to the second; class 2 to the first two, class 3 to the last two."""
    vectors, holders = elect(election, THREE_CLIENTS)
    np.testing.assert_array_equal(vectors, [[1, 2], [30, 40], [(5 + 50) / 2, (6 + 60) / 2], [(70 - 7) / 2, 36]])
    np.testing.assert_array_equal(holders, [1, 1, 2, 2])


@pytest.mark.parametrize("vector, score", [(0.0, -9.0), (7.0, 1.5), (np.nan, np.nan)])
def test_a_client_that_does_not_count_wins_nothing(election, vector, score):
    """Not even where its score is below all others, as the zero of a wiped upload may be, or is the least of them."""
    others = [client_update(o["vectors"], o["scores"] + 2.0) for o in THREE_CLIENTS]
    absent = client_update(np.full([4, 2], vector), np.full([4], score), counts=0.0)
    alone, together = elect(election, others), elect(election, [others[0], absent, *others[1:]])
    assert bits(together) == bits(alone)


def test_the_elections_inner_sum_is_used():
    clipped = tff.aggregators.clipping_factory(1.0, tff.aggregators.SumFactory())
    process = MajorClassifierVectorsFactory(clipped).create(upload_type(2, 2))
    offers = [client_update([[3, 4], [1, 1]], [0.0, 1.0]), client_update([[9, 9], [0, 0.5]], [1.0, 0.0])]
    # The first contributes (3, 4), longer than 1, the second (0, 0.5), which is not.
    np.testing.assert_allclose(elect(process, offers)[0], [[0.6, 0.8], [0.0, 0.5]], atol=1e-6)


@pytest.mark.parametrize("wrong", [upload_type(4, 2)["vectors"], upload_type(4, 2, scores=2)], ids=str)
def test_other_types_are_refused(wrong):
    with pytest.raises(CompositionError, match="major classifier vectors"):
        MajorClassifierVectorsFactory().create(wrong)
