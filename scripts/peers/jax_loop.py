"""FedAvg as one writes it in JAX: a client's steps are one compiled scan, a Python loop over the clients."""

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
    place = jnp.arange(input_ids.shape[1])
    starts = head_start[:, None], tail_start[:, None]
    parts = [weights["word_vectors/embeddings"][input_ids]]
    for name, start in zip(("head", "tail"), starts, strict=True):
        away = jnp.clip(place - start, -limit, limit) + limit
        parts.append(weights[f"{name}_position_vectors/embeddings"][away])
    found = jax.lax.conv_general_dilated(
        jnp.concatenate(parts, -1), weights["convolution/kernel"], [1], "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    found += weights["convolution/bias"]
    segment = (place > starts[0]).astype(int) + (place > starts[1])
    pieces = [jnp.max(jnp.where((segment == s)[..., None], found, -jnp.inf), 1) for s in range(3)]
    pieces = [jnp.where(jnp.isneginf(piece), 0.0, piece) for piece in pieces]  # a segment without tokens
    return jnp.tanh(jnp.concatenate(pieces, -1)) @ weights["classifier/kernel"] + weights["classifier/bias"]


given = work.from_command_line()
problem = given.problem
READS = {"lr": ("x",), "lstm": ("tokens",), "pcnn": ("input_ids", "head_start", "tail_start")}[problem["kind"]]
logits_of = {
    "lr": logistic_regression,
    "lstm": lstm,
    "pcnn": partial(pcnn, limit=problem["sizes"].get("limit")),
}[problem["kind"]]


def loss(weights, batch):
    log_probabilities = jax.nn.log_softmax(logits_of(weights, *(batch[name] for name in READS)))
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
    taken = {name: arrays[name][: steps * batch] for name in (*READS, "y")}
    return {name: values.reshape(steps, batch, *values.shape[1:]) for name, values in taken.items()}


weights = {name: jnp.asarray(value) for name, value in given.start.items()}
of_sizes = {
    tuple(size): [jax.device_put(in_batches(arrays, *size)) for arrays in given.clients] for size in given.rounds
}
given.stamp()
for size in given.rounds:
    weights = jax.block_until_ready(mean([local_training(weights, batches) for batches in of_sizes[tuple(size)]]))
    given.stamp()
given.finish({name: np.asarray(value) for name, value in weights.items()})
