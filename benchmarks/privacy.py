"""What differential privacy costs: seconds of a round with the clients' examples protected, beside plain training.

FedAvg of ten clients with 100 examples each in batches of 10, clip 1 and noise multiplier 1, all contenders in turn in
one process: logistic regression, LSTM(128), PCNN with a fixed and with a trained table of 5,000 word vectors, and an
encoder with LoRA if one is given. A group are five examples. `client` is what protects whole clients: clipping and
noise on the sum of the updates.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import attrs
import numpy as np
import tensorflow as tf

from benchmarks.common import in_turn, machine, met, ratio, spread
from computations import algorithms
from computations.aggregators import has_noise, with_noise_seed
from computations.algorithms.arranged import privatised
from computations.local_model import GROUP, LocalModel
from computations.privacy.example_gradients import ExamplePrivacy
from computations.privacy.options import PrivacyOptions
from tff_re import models
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import DenseInput, PieceInput, RelationInput, TokenInput
from tff_re.models.pretrained import load_config
from tff_re.runtime import open_runtime

CLIENTS, EXAMPLES, BATCH, CLASSES, IN_A_GROUP = 10, 100, 10, 6, 5
WORDS, LENGTH, WIDTH = 5000, 40, 100
MOST = {("LR", "example"): 4.0, ("LSTM(128)", "example"): 4.0, ("LR", "client"): 1.1, ("LSTM(128)", "client"): 1.1}
"""How many times a plain step may be taken by protecting examples or clients."""


@dataclass(frozen=True)
class Problem:
    """A model, and the examples of a client by its number."""

    name: str
    model: LocalModel
    examples: Callable[[int], dict[str, np.ndarray]]
    clients: int = CLIENTS


def problems(encoder: Path | None) -> list[Problem]:
    """Logistic regression on 60 numbers; texts of 10 to 40 words for the others."""
    vectors = np.random.default_rng(0).normal(size=(WORDS, WIDTH)).astype(np.float32)
    relations = RelationInput(WORDS, LENGTH, vectors=vectors)
    found = [
        _problem("LR", "logistic_regression", {}, DenseInput(60)),
        _problem("LSTM(128)", "lstm", {}, TokenInput(WORDS, LENGTH, vectors)),
        _problem("PCNN, fixed vectors", "pcnn", {"train_vectors": False}, relations),
        _problem("PCNN, trained vectors", "pcnn", {}, relations),
    ]
    if encoder is not None:
        pieces = PieceInput(load_config(str(encoder)).vocab_size, LENGTH, str(encoder))
        found.append(
            replace(_problem("encoder, LoRA", "text_encoder", {"adapter": AdapterOptions()}, pieces), clients=2)
        )
    return found


def _problem(name: str, model: str, options: dict, inputs) -> Problem:
    declared = models.MODELS[model]
    options = declared.Options(**options)
    if (computed := declared.precompute(options, inputs, 0)) is not None:
        inputs = computed[0]
    labels = tf.TensorSpec([None], tf.int32)
    local = LocalModel(
        build=lambda: declared.build(options, inputs, CLASSES),
        input_spec={**inputs.specs, "y": labels, GROUP: labels},
        num_classes=CLASSES,
        classifier="classifier",
        initialise=declared.initialise(options, inputs),
    )
    return Problem(name, local, lambda client: _examples(inputs, client))


def _examples(inputs, client: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(client)
    tokens = rng.integers(2, WORDS, (EXAMPLES, LENGTH))
    tokens[np.arange(LENGTH) >= rng.integers(LENGTH // 4, LENGTH + 1, EXAMPLES)[:, np.newaxis]] = 0
    mask, starts = tokens > 0, rng.integers(0, LENGTH // 4, (2, EXAMPLES))
    arrays = {
        "x": rng.normal(size=(EXAMPLES, 60)),
        **{"tokens": tokens, "input_ids": tokens, "attention_mask": mask, "head_mask": mask, "tail_mask": mask},
        **dict(zip(("head_start", "tail_start"), starts, strict=True)),
    }
    named = {name: arrays[name] for name in inputs.specs}
    return {**named, "y": rng.integers(0, CLASSES, EXAMPLES), GROUP: np.arange(EXAMPLES) // IN_A_GROUP}


def contenders(problem: Problem) -> dict[str, Callable]:
    """Name -> a round of that way to train."""
    chosen = algorithms.find("fedavg")
    options = chosen.options(learning_rate=0.05, local_epochs=1, batch_size=BATCH, weighting="uniform")
    # So many groups in a batch that a step sees as many examples.
    of_groups = attrs.evolve(options, batch_size=BATCH // IN_A_GROUP)
    built = {"plain": chosen.build(problem.model, options)}
    built["client"] = privatised(
        built["plain"], PrivacyOptions(training_metrics=True), expected_clients=CLIENTS, noise_multiplier=1.0
    )
    for unit, given in (("example", options), ("group", of_groups)):
        built[unit] = chosen.build(problem.model, given.protecting(ExamplePrivacy(1.0, 1.0, unit)))
    clients = [
        collections.OrderedDict(examples=problem.model.arrange(problem.examples(k)), seed=np.array([0, k], np.int32))
        for k in range(problem.clients)
    ]
    weights = problem.model.initial_weights(0)
    seed = np.array([1, 2], np.int32)
    states = {name: algorithm.initialize(weights) for name, algorithm in built.items()}

    def round_of(name):
        def run(_):
            state = with_noise_seed(states[name], seed) if has_noise(built[name]) else states[name]
            states[name] = built[name].next(state, clients)["state"]

        return run

    return {name: round_of(name) for name in built}


def run(rounds: int, out: Path, encoder: Path | None = None) -> str:
    """The Markdown table: milliseconds of a local step and how many times a plain one that is."""
    lines = []
    for problem in problems(encoder):
        with open_runtime("local", log_path=out / "privacy.log", max_concurrent_computation_calls=2):
            seconds = in_turn(contenders(problem), [None], rounds)
        steps = problem.clients * EXAMPLES / BATCH
        times = {name: [turn[0] for turn in turns] for name, turns in seconds.items()}
        for name, of_rounds in times.items():
            factor = ratio(of_rounds, times["plain"])
            verdict = ""
            if (most := MOST.get((problem.name, name))) is not None:
                verdict = f" ({met(factor <= most)}: at most {most:g})"
            each = spread([1000 * s / steps for s in of_rounds], 2)
            lines.append(f"| {problem.name} | {name} | {each} | {factor:.2f}{verdict} |")
    return "\n".join(
        [
            "| model | protects | ms for a step: median (least to greatest) | times plain |",
            "| :-- | :-- | --: | --: |",
            *lines,
            "",
            f"Rounds of all clients over their steps, two clients at once; {machine()}.",
            "",
        ]
    )
