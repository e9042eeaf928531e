"""Differentially private SGD in local training: against NumPy and plain training, its noise, its sensitivity."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from computations import algorithms
from computations.client_work import LocalTraining, build_local_training
from computations.client_work.client_training import private_seeds, train_client
from computations.client_work.objectives import (
    AtLeastOne,
    CalibratedLogits,
    ControlVariates,
    CrossEntropy,
    MajorClassifierContrast,
    ModelContrast,
    Proximal,
    RestrictedSoftmax,
)
from computations.client_work.optimizers import SGD, PAdam, SelfAdam
from computations.errors import CompositionError
from computations.local_model import LocalModel
from computations.privacy.example_gradients import ExamplePrivacy, noised_mean, sum_one_by_one, sum_side_by_side
from computations.randomness import SeededDropout
from computations.registry import Choice
from tests.computations import toolbox
from tests.computations.test_fedlcc import examples as documents
from tests.computations.test_fedlcc import pairs_model
from tests.computations.toolbox import assert_close, examples, linear_model, start_weights
from tests.models.encoders_for_tests import CHINESE, chinese_encoder
from tests.stacks import computing_on, needs_tff
from tff_re import models
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import PieceInput, RelationInput, TokenInput
from tff_re.recipes.structuring import keys, to_table

RATE, HUGE = 0.5, 1e6
WORDS, LENGTH, CLASSES = 30, 9, 3


def trained(model, data, weights, *, privacy=None, objective=None, optimizer=None, seed=(3, 7), state=None, **training):
    """The output of `train_client` in this process, as NumPy arrays."""
    states = {} if state is None else {"client_state": state}
    arguments = collections.OrderedDict(
        weights=weights,
        server={"round": tf.constant(0)},
        client={"examples": tf.nest.map_structure(tf.constant, data), "seed": tf.constant(seed, tf.int32)},
        **states,
    )
    settings = LocalTraining(example_privacy=privacy, **training)
    result = train_client(model, objective or CrossEntropy(), optimizer or SGD(RATE), settings, arguments)
    return tf.nest.map_structure(lambda t: t.numpy(), result)


def linear(*arrays, names=("x", "y")):
    return collections.OrderedDict(zip(names, arrays, strict=True))


# The models that are trained privately.


def texts(count, seed=0):
    """Word ids [n, LENGTH] with padding, words that a text has twice, and one text that is empty but for a word."""
    tokens = np.random.default_rng(seed).integers(2, WORDS, [count, LENGTH]).astype(np.int32)
    tokens[:, 3] = tokens[:, 1]
    for row, length in enumerate(np.random.default_rng(seed).integers(5, LENGTH - 1, count)):
        tokens[row, length:] = 0
    tokens[0, 1:] = 0
    return tokens


def word_model(name, **options):
    """(LocalModel, examples, ModelWeights) of a small model of this project."""
    count, module = 6, models.MODELS[name]
    tokens, labels = texts(count), np.arange(count, dtype=np.int32) % CLASSES
    mask = (tokens > 0).astype(np.int32)
    arrays, inputs = {"tokens": tokens}, TokenInput(WORDS, LENGTH)
    if name == "pcnn":
        arrays = {"input_ids": tokens, "attention_mask": mask, "head_mask": mask, "tail_mask": mask}
        arrays |= {
            n: np.array(v, np.int32) for n, v in (("head_start", [0, 3, 1, 2, 0, 4]), ("tail_start", [0, 1] * 3))
        }
        inputs = RelationInput(WORDS, LENGTH)
    elif name == "text_encoder":
        arrays = {"input_ids": np.where(mask, tokens + 60, 0), "attention_mask": mask}
        inputs = PieceInput(len(CHINESE), LENGTH, str(chinese_encoder(layers=1)))
        options = {"encoder_dropout": 0.0, "dropout": 0.0, **options}
    options = module.Options(**options)
    if (precomputed := module.precompute(options, inputs, 0)) is not None:
        inputs = precomputed[0]
    spec = {**inputs.specs, "y": tf.TensorSpec([None], tf.int32)}
    initialise = module.initialise(options, inputs)
    model = LocalModel(
        lambda: module.build(options, inputs, CLASSES), spec, CLASSES, "classifier", initialise=initialise
    )
    weights = model.initial_weights(1)
    random = np.random.default_rng(0)  # LoRA's B is zero at first
    weights.trainable[:] = [w + random.normal(0, 0.1, w.shape).astype(np.float32) for w in weights.trainable]
    return model, model.arrange({**arrays, "y": labels}), weights


MODELS = {
    "lstm": {"embedding_width": 4, "units": 5},
    "pcnn": {"embedding_width": 4, "position_width": 2, "filters": 3, "dropout": 0.0},
    "text_encoder": {"adapter": AdapterOptions(rank=2)},
}


@functools.lru_cache
def built(name):
    return word_model(name, **MODELS[name])


# What does not depend on randomness.


@pytest.mark.parametrize("name", ["lstm", pytest.param("text_encoder", marks=pytest.mark.slow)])
def test_without_noise_and_with_a_huge_clip_it_is_training_on_full_batches(name):
    model, data, weights = built(name)
    settings = {"optimizer": PAdam(0.01, epsilon=1e-3, mu=0.1), "local_steps": 3, "batch_size": 6}
    plain = trained(model, data, weights, **settings)
    private = trained(model, data, weights, privacy=ExamplePrivacy(HUGE, 0.0), **settings)
    assert max(np.abs(update).max() for update in plain["update"]) > 1e-3
    assert_close(private["update"], plain["update"])
    assert private["weight"] == 6 and private["statistics"]["steps"] == 3 and private["statistics"]["seen"] == 18
    np.testing.assert_allclose(private["statistics"]["loss"], plain["statistics"]["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "optimizer, objective, rule, mu",
    [
        (SGD(0.1), CrossEntropy(), lambda: toolbox.Sgd(0.1), 0.0),
        (SGD(0.1), Proximal(mu=0.3), lambda: toolbox.Sgd(0.1), 0.3),
        (SelfAdam(0.1), CrossEntropy(), lambda: toolbox.Adam(0.1), 0.0),
        (PAdam(0.1, mu=0.3), CrossEntropy(), lambda: toolbox.Adam(0.1), 0.3),
    ],
)
def test_clipped_training_is_that_of_numpy(optimizer, objective, rule, mu):
    """The proximal term comes behind the clipping, as a part of the objective and of PAdam alike."""
    clip, (x, y) = 0.7, examples(8, seed=3)
    x[:4] *= 5  # so that some gradients are clipped and some are not
    x[4:] *= 0.2
    result = trained(
        linear_model(3, 3),
        linear(x, y),
        toolbox.model_weights(*start_weights()),
        privacy=ExamplePrivacy(clip, 0.0),
        objective=objective,
        optimizer=optimizer,
        local_steps=3,
        batch_size=20,
    )
    start = [w.astype(float) for w in start_weights()]
    weights, clipped, rule = start, set(), rule()
    for _ in range(3):
        sums = [np.zeros_like(w) for w in weights]
        for i in range(8):
            g = toolbox.gradient(weights, x[i : i + 1], y[i : i + 1])
            norm = np.sqrt(sum((part**2).sum() for part in g))
            clipped.add(norm > clip)
            sums = [s + part * min(1, clip / norm) for s, part in zip(sums, g, strict=True)]
        mean = [s / 8 + mu * (w - s0) for s, w, s0 in zip(sums, weights, start, strict=True)]
        weights = rule.step(weights, mean)
    assert clipped == {True, False}
    assert_close(result["update"], toolbox.difference(start_weights(), weights), tolerance=1e-5)


def embedding_setting():
    """(loss of a unit, variables) of a model with an embedding that is looked up twice, and words that recur."""
    random = np.random.default_rng(0)
    table, kernel = (tf.Variable(random.normal(size=s).astype(np.float32)) for s in ([7, 3], [3]))
    ids = tf.constant([[0, 1, 1], [2, 2, 2], [3, 4, 0], [6, 6, 1]])

    def loss(unit):
        rows = tf.gather(table, ids[unit]) + 0.5 * tf.gather(table, ids[unit][::-1])
        return tf.reduce_sum(tf.tanh(tf.linalg.matvec(rows, kernel)))

    return loss, [table, kernel]


@pytest.mark.parametrize("add_up", [sum_side_by_side, sum_one_by_one])
@pytest.mark.parametrize("units", [[0, 1, 2, 3], [2], []])
def test_looked_up_rows_are_clipped_as_dense_gradients(add_up, units):
    loss, variables = embedding_setting()
    sums, total, number = tf.function(lambda u: add_up(loss, variables, u, 0.5))(tf.constant(units, tf.int32))
    expected, value = [np.zeros(v.shape) for v in variables], 0.0
    for unit in units:
        with tf.GradientTape() as tape:
            unit_loss = loss(unit)
        dense = [tf.convert_to_tensor(g).numpy().astype(float) for g in tape.gradient(unit_loss, variables)]
        norm = np.sqrt(sum((g**2).sum() for g in dense))
        assert norm > 0.5
        expected = [e + g * 0.5 / norm for e, g in zip(expected, dense, strict=True)]
        value += float(unit_loss)
    assert_close([s.numpy() for s in sums], expected)
    np.testing.assert_allclose(total, value, rtol=1e-5, atol=1e-6)
    assert number == len(units)


@pytest.mark.parametrize("name", ["pcnn", pytest.param("lstm", marks=pytest.mark.slow)])
def test_both_ways_of_summing_are_the_same(name):
    """Of subsets of the examples, so that the longest text differs: padding must not reach a neighbour's gradient."""
    clip = 0.3
    model, data, weights = built(name)
    keras = model.keras_model(weights)
    features = {n: tf.constant(v) for n, v in data.items() if n != "y"}
    labels = tf.constant(data["y"])

    def loss(unit, keras=keras, features=features, labels=labels):
        outputs = keras({n: v[unit : unit + 1] for n, v in features.items()}, training=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels[unit : unit + 1], outputs["logits"])[0]

    spec = [tf.TensorSpec([None], tf.int32)]
    ways = [
        tf.function(lambda u, add=add, loss=loss, v=keras.trainable_variables: add(loss, v, u, clip)[0], spec)
        for add in (sum_side_by_side, sum_one_by_one)
    ]
    sums_of = {}
    for size in (0, 1, 3):
        for units in itertools.combinations(range(4), size):
            drawn = tf.constant(units, tf.int32)
            side_by_side, one_by_one = ([s.numpy() for s in way(drawn)] for way in ways)
            assert_close(side_by_side, one_by_one)
            sums_of[units] = side_by_side
    norms = {u: np.sqrt(sum((s.astype(float) ** 2).sum() for s in sums_of[u])) for u in sums_of}
    assert norms[()] == 0 and max(norms.values()) <= 3 * clip * (1 + 1e-5)
    assert max(norms[u] for u in sums_of if len(u) == 1) > clip * (1 - 1e-4)  # the clip is reached


def test_one_example_changes_the_sum_by_at_most_the_clip():
    """Exhaustively: every subset of six examples and every example taken out of it, one of which is not finite."""
    x, y = examples(6, seed=8)
    x *= np.array([0.01, 1, 30, 1e4, 1e30, 1], np.float32)[:, None]
    kernel, bias = (tf.Variable(w) for w in start_weights())
    clip = 0.4

    def loss(unit):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y[unit], tf.linalg.matvec(kernel, x[unit], True) + bias)

    x, y = tf.constant(x), tf.constant(y)
    summed = tf.function(
        lambda u: sum_side_by_side(loss, [kernel, bias], u, clip)[0], [tf.TensorSpec([None], tf.int32)]
    )
    flat = {
        units: np.concatenate([s.numpy().ravel() for s in summed(tf.constant(units, tf.int32))]).astype(float)
        for size in range(7)
        for units in itertools.combinations(range(6), size)
    }
    changes = [
        np.linalg.norm(flat[units] - flat[tuple(u for u in units if u != unit)]) for units in flat for unit in units
    ]
    assert max(changes) <= clip * (1 + 1e-5) and max(changes) > clip * (1 - 1e-5)
    assert not flat[(4,)].any() and flat[(4, 5)].any()  # 1e30 squared is no float32


# The sample and the noise.


def test_batches_are_poisson_samples():
    """Their size varies with mean B and variance B (1 - B / n); empty ones come, and the steps are those of n alone."""
    n, batch, steps = 40, 4, 3000
    samples, noise = (s.numpy() for s in private_seeds(tf.constant([5, 6]), steps))
    together = {tuple(s) for s in np.concatenate([samples, noise])}
    assert len(together) == 2 * steps
    drawn = np.array([tf.random.stateless_uniform([n], s).numpy() < np.float32(batch / n) for s in samples])
    sizes = drawn.sum(axis=1)
    assert abs(sizes.mean() - batch) < 4 * np.sqrt(3.6 / steps) and abs(sizes.var() - 3.6) < 0.4
    assert (sizes == 0).any()
    assert np.abs(drawn.mean(axis=0) - batch / n).max() < 5 * np.sqrt(0.09 / steps)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(n)).max() < 5 / np.sqrt(steps)


def test_a_step_is_the_sample_of_its_seed_and_divides_by_the_expected_size():
    """Twelve examples, four expected in a batch: each step by hand from the seeds, empty batches too."""
    x, y = examples(12, seed=2)
    privacy = ExamplePrivacy(HUGE, 0.0)
    seed, sizes = (4, 1), []
    settings = {"local_epochs": 5, "batch_size": 2, "seed": seed}
    result = trained(
        linear_model(3, 3), linear(x, y), toolbox.model_weights(*start_weights()), privacy=privacy, **settings
    )
    weights = [w.astype(float) for w in start_weights()]
    samples, _ = private_seeds(tf.constant(seed), 30)
    for sample_seed in samples:
        rows = np.flatnonzero(tf.random.stateless_uniform([12], sample_seed).numpy() < np.float32(2) / np.float32(12))
        sizes.append(len(rows))
        if len(rows):
            g = toolbox.gradient(weights, x[rows], y[rows])
            weights = toolbox.Sgd(RATE).step(weights, [part * len(rows) / 2 for part in g])
    assert 0 in sizes and max(sizes) > 2
    assert_close(result["update"], toolbox.difference(start_weights(), weights), tolerance=1e-5)
    assert result["statistics"]["steps"] == 30 and result["statistics"]["seen"] == sum(sizes)


def noise_of(seed, steps=1, n=3, clip=0.5, z=2.0, width=400):
    """What the noise adds to the weights: examples of zeros have no gradient but the bias's, whose logits are huge."""
    x, y = np.zeros([n, width], np.float32), np.zeros(n, np.int32)
    start = [np.zeros([width, 3]), np.array([1e3, 0, 0])]
    result = trained(
        linear_model(width, 3),
        linear(x, y),
        toolbox.model_weights(*start),
        privacy=ExamplePrivacy(clip, z),
        optimizer=SGD(1.0),
        seed=seed,
        local_steps=steps,
        batch_size=2,
    )
    return result["update"][0].ravel()


def test_noise_is_gaussian_and_independent_of_round_client_and_step():
    """Its deviation is z * clip over the expected batch size, whatever was drawn."""
    numbers = {seed: noise_of(seed) for seed in ((0, 0), (0, 1), (1, 0))}
    for values in numbers.values():
        assert abs(values.std() - 2.0 * 0.5 / 2) < 0.05 and abs(values.mean()) < 0.07
        assert abs((np.abs(values) < 0.5).mean() - 0.683) < 0.06
    for left, right in itertools.combinations(numbers.values(), 2):
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / np.sqrt(1200)
    np.testing.assert_array_equal(noise_of((0, 0)), numbers[(0, 0)])
    four = noise_of((0, 0), steps=4)
    rest = four - numbers[(0, 0)]  # steps 2 to 4, as the first one is that of a single step
    assert abs(np.corrcoef(rest, numbers[(0, 0)])[0, 1]) < 5 / np.sqrt(1200)
    assert abs(four.std() - 0.5 * 2) < 0.1


def test_tensors_of_one_shape_have_noises_of_their_own():
    sums = [tf.zeros([500]), tf.zeros([500])]
    left, right = noised_mean(sums, ExamplePrivacy(1.0, 1.0), tf.constant([1, 2]), tf.constant(1.0))
    assert abs(np.corrcoef(left, right)[0, 1]) < 0.25


def test_dropout_of_an_example_is_that_of_its_own_seed():
    """Not of its place in the batch: its gradient is the same whoever else is drawn."""
    model = linear_model(3, 3, dropout=lambda: SeededDropout(0.5))
    x, y = examples(30, seed=1)
    result = trained(
        model, linear(x, y), toolbox.model_weights(*start_weights()), privacy=ExamplePrivacy(HUGE, 0.0), local_steps=1,
        batch_size=10,
    )  # fmt: skip
    fold = tf.random.experimental.stateless_fold_in
    (sample,), _ = private_seeds(tf.constant([3, 7]), 1)
    rows = np.flatnonzero(tf.random.stateless_uniform([30], sample).numpy() < np.float32(10 / 30))
    step = fold(tf.constant([3, 7]), 1)
    masked = [
        tf.nn.experimental.stateless_dropout(x[i : i + 1], 0.5, seed=fold(fold(step, int(i)), 1)).numpy() for i in rows
    ]
    assert len({(m != 0).tobytes() for m in masked}) > 1
    weights = [w.astype(float) for w in start_weights()]
    g = toolbox.gradient(weights, np.concatenate(masked), y[rows])
    expected = toolbox.Sgd(RATE).step(weights, [part * len(rows) / 10 for part in g])
    assert_close(result["update"], toolbox.difference(start_weights(), expected))


# Groups, documents, bags.


def test_a_group_has_one_clipped_gradient():
    """Two groups of four and two examples: the mean of each is clipped, the number of groups is that of the units."""
    x, y = examples(6, seed=5)
    groups = np.array([7, 3, 7, 7, 3, 7], np.int32)
    spec = {**linear_model(3, 3).input_spec, "group": tf.TensorSpec([None], tf.int32)}
    model = LocalModel(linear_model(3, 3).build, spec, 3, "classifier")
    result = trained(
        model,
        linear(groups, x * 4, y, names=("group", "x", "y")),
        toolbox.model_weights(*start_weights()),
        privacy=ExamplePrivacy(0.6, 0.0, unit="group"),
        local_steps=2,
        batch_size=2,
    )
    weights = [w.astype(float) for w in start_weights()]
    for _ in range(2):
        sums = [np.zeros_like(w) for w in weights]
        for group in (3, 7):
            g = toolbox.gradient(weights, 4 * x[groups == group], y[groups == group])
            norm = np.sqrt(sum((part**2).sum() for part in g))
            assert norm > 0.6
            sums = [s + part * 0.6 / norm for s, part in zip(sums, g, strict=True)]
        weights = toolbox.Sgd(RATE).step(weights, [s / 2 for s in sums])
    assert_close(result["update"], toolbox.difference(start_weights(), weights), tolerance=1e-5)
    assert result["weight"] == 6 and result["statistics"]["seen"] == 4


def test_a_document_is_one_example():
    """Its loss is the mean over its pairs; one without pairs adds nothing. Plain training weighs pairs alike."""
    model, data = pairs_model(), documents(5, seed=3)
    weights = model.initial_weights(0)
    result = trained(model, data, weights, privacy=ExamplePrivacy(HUGE, 0.0), local_steps=1, batch_size=5)
    sums = [np.zeros(w.shape) for w in weights.trainable]
    for i in range(5):
        document = {name: array[i : i + 1] for name, array in data.items()}
        update = trained(model, document, weights, local_steps=1, batch_size=1)["update"]
        sums = [s + u for s, u in zip(sums, update, strict=True)]
    assert not data["head"][0].max() >= 0 and np.abs(sums[0]).max() > 1e-3
    assert_close(result["update"], [s / 5 for s in sums])


def test_a_bag_is_a_group():
    x, y = examples(10, seed=4)
    data = toolbox.bag_examples(x, y, toolbox.triples_of(y), 0)
    model = linear_model(3, 3, bags=True)
    settings = {"objective": AtLeastOne(), "local_steps": 2, "batch_size": 10}
    weights = toolbox.model_weights(*start_weights())
    data = collections.OrderedDict(sorted(data.items()))
    plain = trained(model, data, weights, **settings)
    private = trained(model, data, weights, privacy=ExamplePrivacy(HUGE, 0.0, unit="group"), **settings)
    assert_close(private["update"], plain["update"])


def test_moons_loss_reads_the_examples_own_representations():
    x, y = examples(7, seed=6)
    model, data, weights = linear_model(3, 3), linear(x, y), toolbox.model_weights(*start_weights())
    objective = ModelContrast(weight=2.0)
    state = objective.initial_client_state(model, data)
    state["representations"] = np.random.default_rng(1).normal(size=[7, 3]).astype(np.float32)
    state["trained"] = np.bool_(True)
    settings = {"objective": objective, "state": state, "local_steps": 2, "batch_size": 7}
    plain = trained(model, data, weights, **settings)
    private = trained(model, data, weights, privacy=ExamplePrivacy(HUGE, 0.0), **settings)
    assert_close(private["update"], plain["update"])
    assert_close([private["client_state"]["representations"]], [plain["client_state"]["representations"]])


def test_an_example_that_is_not_finite_adds_nothing_and_its_client_counts():
    x, y = examples(5, seed=9)
    x[2] = np.nan
    weights, settings = toolbox.model_weights(*start_weights()), {"local_steps": 1, "batch_size": 5}
    result = trained(linear_model(3, 3), linear(x, y), weights, privacy=ExamplePrivacy(HUGE, 0.0), **settings)
    rest = np.delete(np.arange(5), 2)
    g = toolbox.gradient(start_weights(), x[rest], y[rest])
    assert_close(result["update"], [RATE * part * 4 / 5 for part in g])
    assert result["statistics"]["counted"] == 1 and result["statistics"]["seen"] == 4


# What is refused, and how the setting travels.


EXAMPLE, GROUP = ExamplePrivacy(1.0, 1.0), ExamplePrivacy(1.0, 1.0, unit="group")


@pytest.mark.parametrize(
    "objective, privacy, reason",
    [
        (ControlVariates(3), EXAMPLE, "ControlVariates sends values in addition to the weights"),
        (MajorClassifierContrast(linear_model(3, 3)), EXAMPLE, "MajorClassifierContrast sends values in addition"),
        (RestrictedSoftmax(), EXAMPLE, "RestrictedSoftmax reads the client's number of examples of each class"),
        (CalibratedLogits(), GROUP, "CalibratedLogits reads the client's number of examples of each class"),
        (AtLeastOne(), EXAMPLE, "one loss for all sentences of a bag; protect whole bags with the unit 'group'"),
        (AtLeastOne(), GROUP, "no array 'triple'"),
        (CrossEntropy(), GROUP, "no array 'group'"),
    ],
)
def test_what_cannot_be_protected_is_refused(objective, privacy, reason):
    training = LocalTraining(example_privacy=privacy)
    with pytest.raises(CompositionError, match=f"presence of one {privacy.unit}.*{reason}"):
        build_local_training(linear_model(3, 3), objective=objective, optimizer=SGD(0.1), training=training)


def test_a_selection_is_refused():
    registered = algorithms.find("lazy_mil")
    with pytest.raises(CompositionError, match="clients' scores choose the examples to train on"):
        registered.build(linear_model(3, 3, bags=True), registered.options(num_triples=64).protecting(GROUP))


@pytest.mark.parametrize("values", [{"clip": 0.0}, {"noise_multiplier": -1.0}, {"unit": "client"}])
def test_settings_out_of_range(values):
    with pytest.raises(ValueError):
        ExamplePrivacy(**{"clip": 1.0, "noise_multiplier": 1.0, **values})


def test_the_setting_reaches_the_client_work_and_is_no_key():
    registered = algorithms.find("fedprox")
    options = registered.options().protecting(EXAMPLE)
    assert options != registered.options() and hash(options) != hash(registered.options())
    assert registered.build(linear_model(3, 3), options).client_work.example_privacy == EXAMPLE
    assert "example_privacy" not in [key.name for key in keys(registered.options)]
    assert "example_privacy" not in to_table(Choice("fedprox", options))["options"]


# Both runtimes.


@needs_tff
def test_both_runtimes_compute_the_same(runtimes):
    """Of a model whose gradients go through loops and lookups; twice the same, and noise in all words' vectors."""
    model, data, weights = built("lstm")
    work = build_local_training(
        model,
        objective=CrossEntropy(),
        optimizer=SGD(0.1),
        training=LocalTraining(local_steps=4, batch_size=2, example_privacy=ExamplePrivacy(0.5, 1.0)),
    )
    clients = [{"examples": data, "seed": np.array([k, 1], np.int32)} for k in range(2)]
    outcomes = {}
    for name, opened in runtimes.items():
        with computing_on(opened):
            state = work.initialize(weights)
            outcomes[name] = [work.next(state, [weights] * 2, clients) for _ in range(2)]
    for first, second in outcomes.values():
        assert toolbox.bits(first["update"]) == toolbox.bits(second["update"])
    here, there = outcomes["in-process"][0], outcomes["local"][0]
    for ours, workers in zip(here["update"], there["update"], strict=True):
        assert_close(ours, workers)
    assert here["weight"] == there["weight"] == [6.0, 6.0]
    vectors = here["update"][0][0]
    assert vectors.shape == (WORDS, 4) and (vectors != 0).all()
