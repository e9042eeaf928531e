"""Cost of differential privacy: seconds of a local step with protected examples, compared with plain training.

FedAvg of ten clients with 100 examples each in batches of 10, clip 1 and noise multiplier 1, all contenders in turn in
one process: logistic regression, LSTM(128), PCNN with a fixed and with a trained table of 5,000 word vectors, and an
encoder with LoRA if `--encoder` names one. A group is five examples. `client` protects whole clients: clipping and
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

CLIENTS, EXAMPLES, BATCH, CLASSES, GROUP_SIZE = 10, 100, 10, 6, 5
WORDS, LENGTH, WIDTH = 5000, 40, 100
MAX_RATIO = {("LR", "example"): 4.0, ("LSTM(128)", "example"): 4.0, ("LR", "client"): 1.1, ("LSTM(128)", "client"): 1.1}
"""(model, unit) -> expected ratio to a plain step, at most."""


@dataclass(frozen=True)
class Problem:
    """A model, and a function from a client's number to its examples."""

    name: str
    model: LocalModel
    examples: Callable[[int], dict[str, np.ndarray]]
    clients: int = CLIENTS


def problems(encoder: Path | None) -> list[Problem]:
    """Logistic regression on 60 numbers; the others on texts of 10 to 40 words."""
    vectors = np.random.default_rng(0).normal(size=(WORDS, WIDTH)).astype(np.float32)
    relations = RelationInput(WORDS, LENGTH, vectors=vectors)
    result = [
        _problem("LR", "logistic_regression", {}, DenseInput(60)),
        _problem("LSTM(128)", "lstm", {}, TokenInput(WORDS, LENGTH, vectors)),
        _problem("PCNN, fixed vectors", "pcnn", {"train_vectors": False}, relations),
        _problem("PCNN, trained vectors", "pcnn", {}, relations),
    ]
    if encoder is not None:
        pieces = PieceInput(load_config(str(encoder)).vocab_size, LENGTH, str(encoder))
        result.append(
            replace(_problem("encoder, LoRA", "text_encoder", {"adapter": AdapterOptions()}, pieces), clients=2)
        )
    return result


def _problem(name: str, model: str, options: dict, inputs) -> Problem:
    declared = models.MODELS[model]
    options = declared.Options(**options)
    if (precomputed := declared.precompute(options, inputs, 0)) is not None:
        inputs = precomputed[0]
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
    return {**named, "y": rng.integers(0, CLASSES, EXAMPLES), GROUP: np.arange(EXAMPLES) // GROUP_SIZE}


def contenders(problem: Problem) -> dict[str, Callable]:
    """Name -> a function that plays a round of that training."""
    declared = algorithms.find("fedavg")
    options = declared.options(learning_rate=0.05, local_epochs=1, batch_size=BATCH, weighting="uniform")
    # With this number of groups in a batch a step has as many examples as plain training.
    group_options = attrs.evolve(options, batch_size=BATCH // GROUP_SIZE)
    built = {"plain": declared.build(problem.model, options)}
    built["client"] = privatised(
        built["plain"], PrivacyOptions(training_metrics=True), expected_clients=CLIENTS, noise_multiplier=1.0
    )
    for unit, unit_options in (("example", options), ("group", group_options)):
        built[unit] = declared.build(problem.model, unit_options.protecting(ExamplePrivacy(1.0, 1.0, unit)))
    clients = [
        collections.OrderedDict(examples=problem.model.arrange(problem.examples(k)), seed=np.array([0, k], np.int32))
        for k in range(problem.clients)
    ]
    weights = problem.model.initial_weights(0)
    seed = np.array([1, 2], np.int32)
    states = {name: algorithm.initialize(weights) for name, algorithm in built.items()}

    def player(name):
        def play(_):
            state = with_noise_seed(states[name], seed) if has_noise(built[name]) else states[name]
            states[name] = built[name].next(state, clients)["state"]

        return play

    return {name: player(name) for name in built}


def run(rounds: int, out: Path, encoder: Path | None = None) -> str:
    """Returns the Markdown table: milliseconds of a local step, and the ratio to a plain one."""
    lines = []
    for problem in problems(encoder):
        with open_runtime("local", log_path=out / "privacy.log", max_concurrent_computation_calls=2):
            seconds = in_turn(contenders(problem), [None], rounds)
        steps = problem.clients * EXAMPLES / BATCH
        times = {name: [turn[0] for turn in turns] for name, turns in seconds.items()}
        for name, round_seconds in times.items():
            ratio_to_plain = ratio(round_seconds, times["plain"])
            verdict = ""
            if (max_ratio := MAX_RATIO.get((problem.name, name))) is not None:
                verdict = f" ({met(ratio_to_plain <= max_ratio)}: at most {max_ratio:g})"
            milliseconds = spread([1000 * s / steps for s in round_seconds], 2)
            lines.append(f"| {problem.name} | {name} | {milliseconds} | {ratio_to_plain:.2f}{verdict} |")
    return "\n".join(
        [
            "| model | protects | ms a step, median (min to max) | ratio to plain |",
            "| :-- | :-- | --: | --: |",
            *lines,
            "",
            f"Seconds of rounds divided by all clients' steps, two clients at once; {machine()}.",
            "",
        ]
    )
