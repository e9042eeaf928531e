"""The objectives against label skew on numbers worked out by hand, and the election of classifier vectors."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators import MajorClassifierVectorsFactory
from computations.client_work.objectives import (
    Batch,
    CalibratedLogits,
    Client,
    ControlVariates,
    CrossEntropy,
    MajorClassifierContrast,
    ModelContrast,
    Proximal,
    RestrictedSoftmax,
)
from computations.client_work.objectives.major_classifier_contrast import average_similarity
from computations.client_work.objectives.moon import representations
from computations.errors import CompositionError
from computations.inference import BATCH
from computations.local_model import LocalModel
from computations.traffic import round_traffic, type_bytes
from tests.computations.test_attention import ALLOWED, fits_one_model, what_the_server_gathers
from tests.computations.toolbox import bits, encoder_model, linear_model


def some_client(local_model, labels, *, x=None, model=None, shared=(), client_state=()):
    """A client in local training, eagerly."""
    x = np.zeros([len(labels), local_model.input_spec["x"].shape[-1]]) if x is None else x
    return Client(
        model=model,
        local_model=local_model,
        examples={"x": tf.constant(x, tf.float32), "y": tf.constant(labels, tf.int32)},
        global_weights=[],
        rate=tf.constant(0.1),
        seed=tf.constant([3, 4]),
        shared=shared,
        client_state=client_state,
    )


def batch_of(labels, *, logits, features=None, rows=None):
    outputs = {"logits": tf.constant(logits, tf.float32)}
    if features is not None:
        outputs["features"] = tf.constant(features, tf.float32)
    rows = range(len(labels)) if rows is None else rows
    return Batch({}, tf.constant(labels), outputs, tf.constant(list(rows), tf.int32))


THREE_CLASSES = linear_model(2, 3)
FOUR_CLASSES = linear_model(2, 4)


# FedRS.


def test_fedrs_by_hand():
    """Class 1 is absent: its logit 2 counts as 1."""
    objective = RestrictedSoftmax(0.5)
    client = some_client(THREE_CLASSES, [0, 2, 2])
    scales = objective.prepare(client)
    np.testing.assert_array_equal(scales, [1.0, 0.5, 1.0])
    loss = objective.loss(client, scales, batch_of([0, 2], logits=[[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]]))
    # log(e^1 + e^1 + e^0) = 1.8619948; minus the logits 1 and 0 of the labels: the mean is 1.3619948.
    np.testing.assert_allclose(loss, 1.3619948, atol=1e-6)


# FedLC.


def test_fedlc_by_hand():
    """Counts 16, 1, 0, 81: margins 1/2, 1, those of one example times 3, 1/3; tau 2 doubles them."""
    objective = CalibratedLogits(tau=2.0, absent_factor=3.0)
    client = some_client(FOUR_CLASSES, [0] * 16 + [1] + [3] * 81)
    margins = objective.prepare(client)
    np.testing.assert_allclose(margins, [1.0, 2.0, 6.0, 2 / 3], rtol=1e-6)
    loss = objective.loss(client, margins, batch_of([1], logits=[[2.0, 2.0, 5.0, 2 / 3]]))
    # Calibrated: 1, 0, -1, 0: log(e + 1 + 1/e + 1) - 0 = log(5.0861613)
    np.testing.assert_allclose(loss, np.log(5.0861613), atol=1e-6)


@pytest.mark.parametrize(
    "objective, labels",
    [(RestrictedSoftmax(0.5), [2, 1, 0]), (RestrictedSoftmax(1.0), [0, 2, 2]), (CalibratedLogits(), [0, 1, 2] * 2)],
    ids=["FedRS with all classes", "FedRS with alpha 1", "FedLC with equal counts"],
)
def test_what_is_cross_entropy(objective, labels):
    client, batch = some_client(THREE_CLASSES, labels), batch_of([0, 2], logits=[[1.0, 2.0, 0.0], [3.0, 2.0, 0.0]])
    plain = CrossEntropy().loss(client, (), batch)
    np.testing.assert_allclose(objective.loss(client, objective.prepare(client), batch), plain, rtol=1e-6)


def test_fedlc_without_examples_has_finite_margins():
    prepared = CalibratedLogits(absent_factor=0.5).prepare(some_client(THREE_CLASSES, []))
    np.testing.assert_array_equal(prepared, [0.5, 0.5, 0.5])


# MOON.


def contrast_of(objective, *, features, glob, prev, trained=True, rows=None):
    """The contrast alone: cross-entropy of logits that leave no doubt is zero."""
    client_state = {"representations": tf.constant(prev, tf.float32), "trained": tf.constant(trained)}
    client = some_client(THREE_CLASSES, [0] * len(prev), client_state=client_state)
    prepared = {
        "globally": tf.math.l2_normalize(tf.constant(glob, tf.float32), axis=-1),
        "previously": tf.math.l2_normalize(tf.constant(prev, tf.float32), axis=-1),
    }
    labels = [0] * len(features)
    batch = batch_of(labels, logits=[[100.0, 0.0, 0.0]] * len(labels), features=features, rows=rows)
    return float(objective.loss(client, prepared, batch))


NEAR = {"features": [[3.0, 4.0]], "glob": [[2.0, 0.0]], "prev": [[0.0, 7.0]]}
ROWS = {
    "features": [[1.0, 0.0], [1.0, 0.0]],
    "glob": [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]],
    "prev": [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]],
    "rows": [2, 0],
}


@pytest.mark.parametrize(
    "weight, tau, values, expected",
    [
        # Cosines 0.6 and 0.8 with z = (3, 4): -log(e^1.2 / (e^1.2 + e^1.6)) = log(1 + e^0.4) at tau 0.5.
        (1.0, 0.5, NEAR, 0.9130152),
        # At tau 0.25 the difference of the exponents is 0.8: log(1 + e^0.8) = 1.1711007; weight 3.
        (3.0, 0.25, NEAR, 3 * 1.1711007),
        # Row 2: cosines 1 and 0, log(1 + e^-2) = 0.1269280; row 0: cosines 0 and 1, log(1 + e^2) = 2.1269280
        (1.0, 0.5, ROWS, (0.1269280 + 2.1269280) / 2),
        # Before the first training there is no contrast.
        (1.0, 0.5, {**NEAR, "trained": False}, 0.0),
    ],
)
def test_moon_by_hand(weight, tau, values, expected):
    assert contrast_of(ModelContrast(weight, tau), **values) == pytest.approx(expected, abs=1e-5)


def test_moon_where_a_representation_is_zero():
    """The cosine is taken as zero: log(1 + e^(0 - 1.2)); and nothing is NaN, the gradient neither."""
    objective = ModelContrast(1.0, 0.5)
    found = contrast_of(objective, features=[[3.0, 4.0]], glob=[[2.0, 0.0]], prev=[[0.0, 0.0]])
    assert found == pytest.approx(np.log1p(np.exp(-1.2)), abs=1e-6)
    client = some_client(THREE_CLASSES, [0], client_state={"trained": tf.constant(True)})
    unit = tf.constant([[1.0, 0.0]])
    z = tf.zeros([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(z)
        batch = Batch({}, tf.constant([0]), {"logits": tf.zeros([1, 3]), "features": z}, tf.constant([0]))
        loss = objective.loss(client, {"globally": unit, "previously": -unit}, batch)
    assert np.isfinite(tape.gradient(loss, z)).all()


@pytest.mark.parametrize("count", [0, 1, BATCH, 2 * BATCH + 5])
def test_representations_are_those_of_one_pass_without_dropout(count):
    local_model = encoder_model(dropout=0.5)
    assert local_model.feature_width == 2  # before the model: Keras does not take a layer that is older than a graph's
    model = local_model.keras_model(local_model.initial_weights(3))
    x = np.random.default_rng(0).normal(size=[count, 3]).astype(np.float32)
    client = some_client(local_model, [0] * count, x=x, model=model)
    found = tf.function(lambda: representations(client))()
    assert found.shape == (count, 2)
    kernel, bias = (w.numpy() for w in model.trainable_variables[:2])
    np.testing.assert_allclose(found, np.tanh(x @ kernel + bias), atol=1e-6)


# SCAFFOLD.


def test_control_variates_by_hand():
    """K = 4 steps at rate 0.1 from x = 1 to y = 0.6, c = 0.5, c_i = 0.2: c_i+ = 0.2 - 0.5 + 0.4/0.4 = 0.7."""
    objective = ControlVariates(num_clients=10)
    client = Client(
        model=type("Trained", (), {"trainable_variables": [tf.constant([0.6])]}),
        local_model=None,
        examples={},
        global_weights=[tf.constant([1.0])],
        rate=tf.constant(0.1),
        seed=tf.constant([0, 0]),
        shared=[tf.constant([0.5])],
        client_state=[tf.constant([0.2])],
    )
    np.testing.assert_allclose(objective.next_client_state(client, (), tf.constant(4)), [[0.7]], atol=1e-6)
    np.testing.assert_allclose(objective.upload(client, (), tf.constant(4)), [[0.5]], atol=1e-6)
    # g - c_i + c
    np.testing.assert_allclose(objective.adjust_gradients(client, (), [tf.constant([2.0])]), [[2.3]], atol=1e-6)
    # c + sum / N, whatever the number of clients that took part
    shared = objective.side_channel.update([tf.constant([0.5])], [tf.constant([1.5])], tf.constant(3.0))
    np.testing.assert_allclose(shared, [[0.65]], atol=1e-6)


def test_words_that_do_not_occur_are_corrected_too():
    """The gradient of an embedding names the rows that were looked up; c - c_i is added to all rows."""
    client = Client(
        model=None,
        local_model=None,
        examples={},
        global_weights=[],
        rate=tf.constant(0.1),
        seed=tf.constant([0, 0]),
        shared=[tf.ones([3, 1])],
        client_state=[tf.zeros([3, 1])],
    )
    sparse = tf.IndexedSlices(tf.constant([[5.0], [1.0]]), tf.constant([1, 1]), tf.constant([3, 1]))
    (found,) = ControlVariates(2).adjust_gradients(client, (), [sparse])
    np.testing.assert_array_equal(found, [[1.0], [7.0], [1.0]])


# FedCMC: the local loss.


def test_average_similarity_by_hand():
    """(1, 0), (0, 2), (-3, 0), (4, 4): cosines 0, -1, 0.7071; 0, 0, 0.7071; ...; the lengths do not matter."""
    found = average_similarity(tf.constant([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [4.0, 4.0]]))
    r = np.sqrt(0.5)
    np.testing.assert_allclose(found, [(r - 1) / 3, r / 3, (-1 - r) / 3, r / 3], atol=1e-6)


def test_the_similarity_of_a_vector_of_zeros_is_zero():
    found = average_similarity(tf.constant([[0.0, 0.0], [0.0, 2.0], [0.0, 3.0]]))
    np.testing.assert_allclose(found, [0.0, 0.5, 0.5], atol=1e-6)


def cmc_client(local_model, shared):
    model = local_model.keras_model(local_model.initial_weights(3))
    return some_client(local_model, [0], model=model, shared=tf.constant(shared, tf.float32))


VECTORS = [[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [4.0, 4.0]]


def test_the_contrast_by_hand():
    local_model = encoder_model()
    client = cmc_client(local_model, VECTORS)
    batch = batch_of([1], logits=[[0.0] * 4], features=[[0.5, 0.25]])
    # h V^T = 0.5, 0.5, -1.5, 3; -log softmax of the second; cross-entropy of equal logits: log 4
    contrast = np.log(np.exp([0.5, 0.5, -1.5, 3.0]).sum()) - 0.5
    found = MajorClassifierContrast(local_model, mu=2.0).loss(client, (), batch)
    np.testing.assert_allclose(found, np.log(4) + 2.0 * contrast, rtol=1e-6)


def test_the_contrast_trains_the_encoder_alone():
    """The classifier's gradient is that of cross-entropy, to the bit; the encoder's differs by that of L_con."""
    local_model = encoder_model()
    objectives = CrossEntropy(), MajorClassifierContrast(local_model, mu=0.7)
    client = cmc_client(local_model, VECTORS)  # behind them: Keras does not take a layer that is older than a graph's
    x = np.random.default_rng(1).normal(size=[6, 3]).astype(np.float32)
    y = tf.constant([0, 1, 2, 3, 1, 1])

    def gradients(objective):
        with tf.GradientTape() as tape:
            outputs = client.model({"x": x}, training=True)
            loss = objective.loss(client, (), Batch({"x": x}, y, outputs, tf.range(6)))
        return [g.numpy() for g in tape.gradient(loss, client.model.trainable_variables)]

    plain, both = map(gradients, objectives)
    assert bits(both[2:]) == bits(plain[2:])
    # d L_con / dh = (softmax(h V^T) - onehot) V, through tanh to the encoder.
    kernel, bias = (w.numpy().astype(float) for w in client.model.trainable_variables[:2])
    h, vectors = np.tanh(x @ kernel + bias), np.array(VECTORS)
    p = np.exp(h @ vectors.T)
    p /= p.sum(axis=1, keepdims=True)
    before_tanh = (p - np.eye(4)[y.numpy()]) @ vectors * (1 - h**2) / 6
    np.testing.assert_allclose(both[0] - plain[0], 0.7 * x.T @ before_tanh, atol=1e-6)
    np.testing.assert_allclose(both[1] - plain[1], 0.7 * before_tanh.sum(axis=0), atol=1e-6)


def test_uploads_by_kind():
    local_model = encoder_model()
    client = cmc_client(local_model, VECTORS)
    uploads = {
        kind: MajorClassifierContrast(local_model, vectors=kind).upload(client, (), tf.constant(1))
        for kind in ("major", "minor", "random")
    }
    kernel = client.model.trainable_variables[2].numpy()
    for upload in uploads.values():
        assert bits(upload["vectors"]) == bits(kernel.T) and upload["counts"] == 1
    major, minor, random = (uploads[kind]["scores"].numpy() for kind in ("major", "minor", "random"))
    assert bits(major) == bits(average_similarity(kernel.T).numpy()) and bits(minor) == bits(-major)
    assert len(set(random)) == 4 and random.min() >= 0 and random.max() < 1


@pytest.mark.parametrize("kind", ["major", "minor", "random"])
def test_what_a_client_keeps_of_fedcmc(kind):
    local_model = encoder_model()
    objective, client = MajorClassifierContrast(local_model, vectors=kind), cmc_client(local_model, VECTORS)
    assert str(objective.client_state_type(local_model)) == "<similarity=float32[4]>"
    kernel = client.model.trainable_variables[2].numpy()
    kept = objective.next_client_state(client, (), tf.constant(1))
    assert bits(kept["similarity"]) == bits(average_similarity(kernel.T))
    wrapped = Proximal(0.1, objective)
    assert wrapped.shown == objective.shown == ("similarity",) and Proximal(0.1).shown == ()


def model_with(classifier, name="classifier", num_classes=4):
    def build():
        x = tf.keras.Input([3], name="x")
        return tf.keras.Model({"x": x}, {"logits": classifier()(x), "features": x})

    spec = {"x": tf.TensorSpec([None, 3], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
    return LocalModel(build, spec, num_classes, name)


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
    local_model = encoder_model()
    batch = batch_of([1], logits=[[0.0] * 4], features=[[0.5, 0.25, 0.5]])
    with pytest.raises(ValueError, match=r"features are 3 wide .* takes 2"):
        MajorClassifierContrast(local_model).loss(cmc_client(local_model, VECTORS), (), batch)


@pytest.mark.parametrize(
    "make, option",
    [
        (lambda: RestrictedSoftmax(1.5), "alpha"),
        (lambda: RestrictedSoftmax(float("nan")), "alpha"),
        (lambda: CalibratedLogits(tau=-1.0), "tau"),
        (lambda: CalibratedLogits(absent_factor=float("inf")), "absent_factor"),
        (lambda: ModelContrast(weight=-1.0), "weight"),
        (lambda: ModelContrast(tau=0.0), "tau"),
        (lambda: ControlVariates(0), "num_clients"),
        (lambda: ControlVariates(None), "num_clients"),
        (lambda: MajorClassifierContrast(FOUR_CLASSES, mu=-1.0), "mu"),
        (lambda: MajorClassifierContrast(FOUR_CLASSES, vectors="none"), "vectors"),
    ],
)
def test_impossible_options_are_named(make, option):
    with pytest.raises(ValueError, match=option):
        make()


# The election of the vectors.


def upload_type(classes, width):
    shapes = collections.OrderedDict(vectors=[classes, width], scores=[classes], counts=[])
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


def test_the_election_from_the_classifiers_themselves(election):
    """Scores by Eq. 10: a client's vector that points away from its others wins its class."""
    away, r = [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], np.sqrt(0.5)
    mixed = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    alike = [[2.0, 2.0]] * 4
    # d: (-1, 1/3, 1/3, 1/3); ((1 + r)/3, r/3, r, (1 + r)/3) = (0.569, 0.236, 0.707, 0.569); (1, 1, 1, 1)
    scores = [average_similarity(tf.constant(c)).numpy() for c in (away, mixed, alike)]
    np.testing.assert_allclose(scores[1], [(1 + r) / 3, r / 3, r, (1 + r) / 3], atol=1e-6)
    offers = [client_update(c, s) for c, s in zip((away, mixed, alike), scores, strict=True)]
    vectors, holders = elect(election, offers)
    np.testing.assert_array_equal(vectors, [away[0], mixed[1], away[2], away[3]])
    np.testing.assert_array_equal(holders, [1, 1, 1, 1])


@pytest.mark.parametrize("vector", [0.0, np.nan])
@pytest.mark.parametrize("score", [0.0, -9.0, np.nan])
def test_a_client_that_does_not_count_wins_nothing(election, vector, score):
    """Not even where all real scores are above the zero that its upload is made."""
    others = [client_update(o["vectors"], o["scores"] + 2.0) for o in THREE_CLIENTS]
    absent = client_update(np.full([4, 2], vector), np.full([4], score), counts=0.0)
    alone, together = elect(election, others), elect(election, [others[0], absent, *others[1:]])
    assert bits(together) == bits(alone)


def test_no_classifier_is_collected(election):
    uris, gathered = what_the_server_gathers(election.next)
    assert uris <= ALLOWED and "federated_aggregate" in uris
    assert gathered and fits_one_model(gathered, type_bytes(upload_type(4, 2)["vectors"]))


def test_the_elections_traffic(election):
    """Up: the scores, the winners' vectors and their number; down: the least scores."""
    traffic = round_traffic(election.next)
    assert (traffic.up, traffic.down) == (4 * (4 + 4 * 2 + 4), 4 * 4)


def test_an_inner_sum_is_used():
    clipped = tff.aggregators.clipping_factory(
        1.0, tff.aggregators.SumFactory(), clipped_count_sum_factory=tff.aggregators.SumFactory()
    )
    process = MajorClassifierVectorsFactory(clipped).create(upload_type(2, 2))
    offers = [client_update([[3, 4], [1, 1]], [0.0, 1.0]), client_update([[9, 9], [0, 0.5]], [1.0, 0.0])]
    vectors, _ = elect(process, offers)
    # The first contributes (3, 4), longer than 1, the second (0, 0.5), which is not.
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 0.5]], atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        tff.TensorType(np.float32, [4, 2]),
        tff.types.to_type(collections.OrderedDict(vectors=tff.TensorType(np.float32, [4, 2]))),
        tff.types.to_type(
            collections.OrderedDict(
                vectors=tff.TensorType(np.float32, [4, 2]), scores=tff.TensorType(np.float32, [2]), counts=np.float32
            )
        ),
        tff.types.to_type(
            collections.OrderedDict(
                vectors=tff.TensorType(np.float64, [4, 2]), scores=tff.TensorType(np.float32, [4]), counts=np.float32
            )
        ),
    ],
    ids=str,
)
def test_other_types_are_refused(wrong):
    with pytest.raises(CompositionError, match="major classifier vectors"):
        MajorClassifierVectorsFactory().create(wrong)
