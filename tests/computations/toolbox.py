"""Small models and clients, and local training written again in NumPy, without any code of the project."""

import collections

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.local_model import LocalModel


def linear_model(width, num_classes, dropout=None, bags=False):
    """LocalModel of a softmax regression; `dropout`: a layer between the input and the classifier; `bags`: whether its
    examples have a triple and a platform.

    Its `context` are its features, for objectives that contrast contexts.
    """

    def build():
        x = tf.keras.Input([width], name="x")
        features = x if dropout is None else dropout()(x)
        logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": features, "context": features})

    names = ["y", "triple", "platform"] if bags else ["y"]
    spec = {"x": tf.TensorSpec([None, width], tf.float32), **{n: tf.TensorSpec([None], tf.int32) for n in names}}
    return LocalModel(build, spec, num_classes, "classifier")


def encoder_model(width=3, hidden=2, num_classes=4, dropout=None):
    """LocalModel: x -> tanh encoder [hidden] -> classes; `dropout`: a rate, after the encoder."""

    def build():
        x = tf.keras.Input([width], name="x")
        features = tf.keras.layers.Dense(hidden, activation="tanh", name="encoder")(x)
        if dropout is not None:
            features = tf.keras.layers.Dropout(dropout)(features)
        logits = tf.keras.layers.Dense(num_classes, name="classifier")(features)
        return tf.keras.Model({"x": x}, {"logits": logits, "features": features})

    spec = {"x": tf.TensorSpec([None, width], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
    return LocalModel(build, spec, num_classes, "classifier")


def examples(num_examples, seed, width=3, num_classes=3):
    """(x, y) with labels that depend on x."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=[num_examples, width]).astype(np.float32)
    teacher = np.random.default_rng(99).normal(size=[width, num_classes])
    return x, np.argmax(x @ teacher, axis=1).astype(np.int32)


def client(x, y, seed=(0, 0)):
    """The value that the computations take for one client."""
    return collections.OrderedDict(
        examples=collections.OrderedDict(x=np.asarray(x, np.float32), y=np.asarray(y, np.int32)),
        seed=np.array(seed, np.int32),
    )


TRIPLES_OF_A_LABEL = 16


def triples_of(y):
    """A triple per sentence: two sentences of a label make a bag, and all platforms share the triples."""
    triples = np.zeros(len(y), np.int32)
    for label in np.unique(y):
        rows = np.flatnonzero(np.asarray(y) == label)
        triples[rows] = int(label) * TRIPLES_OF_A_LABEL + np.arange(len(rows)) // 2
    return triples


def bag_examples(x, y, triple, platform):
    """A platform's examples in bags."""
    return collections.OrderedDict(
        platform=np.full(len(y), platform, np.int32),
        triple=np.asarray(triple, np.int32),
        x=np.asarray(x, np.float32),
        y=np.asarray(y, np.int32),
    )


def in_bags(client_value, platform):
    """A value of `client` with its sentences in bags, see `triples_of`."""
    x, y = client_value["examples"]["x"], client_value["examples"]["y"]
    examples_in_bags = bag_examples(x, y, triples_of(y), platform)
    return collections.OrderedDict(client_value, examples=collections.OrderedDict(sorted(examples_in_bags.items())))


def model_weights(*trainable):
    """ModelWeights of float32 arrays without non-trainable ones."""
    return tff.learning.models.ModelWeights([np.asarray(t, np.float32) for t in trainable], [])


def start_weights(width=3, num_classes=3, seed=5):
    """A kernel and a bias, neither of them zero."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape).astype(np.float32) for shape in ([width, num_classes], [num_classes])]


def bits(structure):
    """A structure of arrays as something that compares equal only bit for bit."""
    return [(np.asarray(t).dtype, np.asarray(t).shape, np.asarray(t).tobytes()) for t in tf.nest.flatten(structure)]


def assert_close(actual, expected, tolerance=2e-6):
    """All arrays of two lists within an absolute and relative tolerance; shapes equal."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert np.shape(a) == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=10 * tolerance, atol=tolerance)


# Local training in NumPy, in float64.


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def cross_entropy(weights, x, y):
    """Mean cross-entropy of a softmax regression."""
    p = softmax(x.astype(float) @ weights[0] + weights[1])
    return float(-np.log(p[np.arange(len(y)), y]).mean())


def gradient(weights, x, y, extra=None):
    """Gradient of the mean cross-entropy, d/dz = (p - onehot) / n; `extra` [n, C] is added to d/dz before / n."""
    errors = softmax(x.astype(float) @ weights[0] + weights[1])
    errors[np.arange(len(y)), y] -= 1
    if extra is not None:
        errors = errors + extra
    errors /= len(y)
    return [x.T.astype(float) @ errors, errors.sum(axis=0)]


def batches(seed, num_examples, batch_size, epochs):
    """Rows of every batch: a pass is ordered by random keys that come only from the client's seed."""
    keys = tf.random.stateless_uniform([epochs, num_examples], seed, None, None, tf.int32).numpy()
    for order in np.argsort(keys, axis=1, kind="stable"):
        yield from (order[i : i + batch_size] for i in range(0, num_examples, batch_size))


class Sgd:
    """w - rate * g."""

    def __init__(self, rate):
        self.rate = rate

    def step(self, weights, gradients):
        return [w - self.rate * g for w, g in zip(weights, gradients, strict=True)]


class Adam:
    """FLCMC, Eqs. 23-27 with the root: m_hat / (sqrt(v_hat) + epsilon), written as printed."""

    def __init__(self, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
        self.rate, self.beta_1, self.beta_2, self.epsilon = rate, beta_1, beta_2, epsilon
        self.t = 0

    def step(self, weights, gradients):
        if self.t == 0:
            self.m = [np.zeros_like(g) for g in gradients]
            self.v = [np.zeros_like(g) for g in gradients]
        self.t += 1
        self.m = [self.beta_1 * m + (1 - self.beta_1) * g for m, g in zip(self.m, gradients, strict=True)]
        self.v = [self.beta_2 * v + (1 - self.beta_2) * g**2 for v, g in zip(self.v, gradients, strict=True)]
        m_hat = [m / (1 - self.beta_1**self.t) for m in self.m]
        v_hat = [v / (1 - self.beta_2**self.t) for v in self.v]
        return [w - self.rate * m / (np.sqrt(v) + self.epsilon) for w, m, v in zip(weights, m_hat, v_hat, strict=True)]


def train(start, x, y, rows_of_batches, rule, mu=0.0, extra=None):
    """Local weights after a step per batch on F + mu/2 ||w - start||^2; `extra` [n, C] as in `gradient`."""
    start = [w.astype(float) for w in start]
    weights = start
    for rows in rows_of_batches:
        g = gradient(weights, x[rows], y[rows], None if extra is None else extra[rows])
        g = [gi + mu * (w - s) for gi, w, s in zip(g, weights, start, strict=True)]
        weights = rule.step(weights, g)
    return weights


def difference(start, end):
    """start - end: a client's update (a pseudo-gradient)."""
    return [s.astype(float) - e for s, e in zip(start, end, strict=True)]


# Bags, with vectors as the papers write them.


def bag_logits(kind, weights, x, label):
    """Logits [C] of one bag of sentences x [n, d] with that label."""
    kernel, bias = weights
    x = x.astype(float)
    if kind == "one":
        best = np.argmax(softmax(x @ kernel + bias)[:, label])
        return x[best] @ kernel + bias
    if kind == "ave":
        return x.mean(axis=0) @ kernel + bias
    if kind == "att":
        return (softmax(x @ kernel[:, label]) @ x) @ kernel + bias
    vectors = [softmax(x @ query) @ x for query in kernel.T]  # att_ra: b^k
    return np.array([query @ vector for query, vector in zip(kernel.T, vectors, strict=True)]) + bias


def bags_by_triple(triple):
    """Rows of every bag, the triples in ascending order."""
    return [np.flatnonzero(np.asarray(triple) == t) for t in np.unique(triple)]


def bags_loss(kind, weights, x, y, bags):
    """The mean over bags, each an array of rows, of the cross-entropy of their logits."""
    losses = []
    for rows in bags:
        label = y[rows[0]]
        assert (y[rows] == label).all()
        losses.append(-np.log(softmax(bag_logits(kind, weights, x[rows], label))[label]))
    return float(np.mean(losses))


def numeric_gradient(loss, weights, step=1e-5):
    """Central differences of loss(weights) by every weight."""
    gradients = []
    for layer, tensor in enumerate(weights):
        slopes = np.zeros(tensor.shape)
        for index in np.ndindex(*tensor.shape):
            ends = []
            for sign in (1, -1):
                moved = [np.array(w, float) for w in weights]
                moved[layer][index] += sign * step
                ends.append(loss(moved))
            slopes[index] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(slopes)
    return gradients


def train_on_bags(kind, start, x, y, steps, rate):
    """Local weights after SGD; `steps`: of every batch its bags, each an array of rows."""
    weights = [w.astype(float) for w in start]
    for bags in steps:
        slopes = numeric_gradient(lambda moved, bags=bags: bags_loss(kind, moved, x, y, bags), weights)
        weights = Sgd(rate).step(weights, slopes)
    return weights
