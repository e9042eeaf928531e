"""FedAvg as usually written in JAX: a client's steps are one compiled scan, in a Python loop over the clients."""

import os
from functools import partial

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import work


def logistic_regression(weights, x):
    return x @ weights["classifier/kernel"] + weights["classifier/bias"]


def lstm(weights, tokens):
    inputs = weights["word_vectors/embeddings"][tokens.T] @ weights["lstm/kernel"] + weights["lstm/bias"]
    units = weights["lstm/recurrent_kernel"].shape[0]

    def step(carry, x):
        state, cell = carry
        i, f, c, o = jnp.split(x + state @ weights["lstm/recurrent_kernel"], 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(c)
        return (jax.nn.sigmoid(o) * jnp.tanh(cell), cell), None

    zero = jnp.zeros([tokens.shape[0], units])
    (state, _), _ = jax.lax.scan(step, (zero, zero), inputs)
    return state @ weights["classifier/kernel"] + weights["classifier/bias"]


def pcnn(weights, input_ids, head_start, tail_start, limit):
    positions = jnp.arange(input_ids.shape[1])
    starts = head_start[:, None], tail_start[:, None]
    vectors = [weights["word_vectors/embeddings"][input_ids]]
    for name, start in zip(("head", "tail"), starts, strict=True):
        distances = jnp.clip(positions - start, -limit, limit) + limit
        vectors.append(weights[f"{name}_position_vectors/embeddings"][distances])
    features = jax.lax.conv_general_dilated(
        jnp.concatenate(vectors, -1),
        weights["convolution/kernel"],
        [1],
        "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    features += weights["convolution/bias"]
    segment = (positions > starts[0]).astype(int) + (positions > starts[1])
    pieces = [jnp.max(jnp.where((segment == s)[..., None], features, -jnp.inf), 1) for s in range(3)]
    pieces = [jnp.where(jnp.isneginf(piece), 0.0, piece) for piece in pieces]  # a segment without tokens
    return jnp.tanh(jnp.concatenate(pieces, -1)) @ weights["classifier/kernel"] + weights["classifier/bias"]


job = work.from_command_line()
problem = job.problem
INPUT_NAMES = {"lr": ("x",), "lstm": ("tokens",), "pcnn": ("input_ids", "head_start", "tail_start")}[problem["kind"]]
logits = {
    "lr": logistic_regression,
    "lstm": lstm,
    "pcnn": partial(pcnn, limit=problem["sizes"].get("limit")),
}[problem["kind"]]


def loss(weights, batch):
    log_probabilities = jax.nn.log_softmax(logits(weights, *(batch[name] for name in INPUT_NAMES)))
    return -jnp.mean(jnp.take_along_axis(log_probabilities, batch["y"][:, None], 1))


@jax.jit
def local_training(weights, batches):
    def step(weights, batch):
        gradients = jax.grad(loss)(weights, batch)
        return jax.tree.map(lambda w, g: w - problem["rate"] * g, weights, gradients), None

    return jax.lax.scan(step, weights, batches)[0]


@jax.jit
def mean(models):
    return jax.tree.map(lambda *values: sum(values) / len(values), *models)


def in_batches(arrays, steps, batch):
    used = {name: arrays[name][: steps * batch] for name in (*INPUT_NAMES, "y")}
    return {name: values.reshape(steps, batch, *values.shape[1:]) for name, values in used.items()}


weights = {name: jnp.asarray(value) for name, value in job.start.items()}
batches_by_size = {
    tuple(size): [jax.device_put(in_batches(arrays, *size)) for arrays in job.clients] for size in job.rounds
}
job.stamp()
for size in job.rounds:
    weights = jax.block_until_ready(
        mean([local_training(weights, batches) for batches in batches_by_size[tuple(size)]])
    )
    job.stamp()
job.finish({name: np.asarray(value) for name, value in weights.items()})
