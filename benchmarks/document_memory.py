"""Peak memory and seconds of training on whole documents, with an encoder of MiniLM-L6's size and random weights.

There are two kinds of batches of three documents: the largest expected (40 entities, all 1,560 ordered pairs of them,
1,500 pieces, so that they are read in windows), and documents of CDR's size. Each is measured twice, in a process of
its own: as training steps in that process, and as rounds of FedLCC with its contrast in the worker.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import machine, met
from benchmarks.memory import SECONDS_BETWEEN_SAMPLES, memory_kind, sample_memory

# TensorFlow and modules that need it are imported only in the measured process.

CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 6,
    "hidden_size": 384,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30524,
}
BATCH, MAX_GIGABYTES = 3, 4.0


@dataclasses.dataclass(frozen=True)
class Size:
    """Numbers of pieces, entities, mentions and pairs in each document of a batch."""

    name: str
    pieces: int
    entities: int
    mentions: int
    pairs: int


SIZES = (Size("largest", 1500, 40, 120, 1560), Size("as CDR", 400, 10, 30, 20))
STEPS = 4
"""Steps or rounds; the first compiles."""


def run(rounds: int, out: Path) -> str:
    """Measures STEPS steps and rounds of each size, whatever `rounds` is; returns the Markdown table."""
    del rounds
    kind = memory_kind()
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        for size in SIZES:
            measured["a step in the process", size.name] = measure(steps, size, folder, (), kind)
            measured["a round of FedLCC in the worker", size.name] = measure(
                federated_rounds, size, folder, (out / "worker.log",), kind
            )
    return table(measured) + (
        f"\n{CONFIG['num_hidden_layers']} layers of width {CONFIG['hidden_size']}, random weights; one batch of "
        f"{BATCH} documents without padding, Adam. "
        + "; ".join(
            f"{s.name}: {s.pieces} pieces, {s.entities} entities, {s.mentions} mentions, {s.pairs} pairs" for s in SIZES
        )
        + ". A round is one such step and the contexts under the global and the trained model. "
        f"{kind.upper()} of the process and its children, sampled every {SECONDS_BETWEEN_SAMPLES * 1000:.0f} ms; GB "
        f"are 10^9 bytes. {machine()}.\n"
    )


def table(measured: dict[tuple[str, str], list[tuple[int, float]]]) -> str:
    """Markdown from (training, size) -> (peak in bytes, seconds) of each step or round."""
    lines = [
        "| documents | training | peak GB with compilation | peak GB after it | fastest step or round, s |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for (training, size), step_peaks in measured.items():
        first, later = step_peaks[0][0], max(peak for peak, _ in step_peaks[1:])
        seconds = min(seconds for _, seconds in step_peaks[1:])
        lines.append(f"| {size} | {training} | {first / 1e9:.2f} | {later / 1e9:.2f} | {seconds:.2f} |")
    training, size = next(iter(measured))
    peak_gigabytes = max(peak for peak, _ in measured[training, size]) / 1e9
    lines += [
        "",
        f"Expected: {training}, {size}, stays under {MAX_GIGABYTES:g} GB; here {peak_gigabytes:.2f}, "
        f"{met(peak_gigabytes < MAX_GIGABYTES)}.",
        "",
    ]
    return "\n".join(lines)


def measure(target, size: Size, folder: str, extra_arguments: tuple, kind: str) -> list[tuple[int, float]]:
    """(peak in bytes, seconds) of each step or round, measured in a process that has ended on return.

    Raises:
      RuntimeError: the process failed; it has printed why.
    """
    arguments = (size, folder, CONFIG["vocab_size"], STEPS, *extra_arguments)
    stages = sample_memory(target, arguments, kind, f"{target.__name__} on documents {size.name}")
    return [(peak, seconds) for seconds, peak in stages]


def steps(report, size: Size, folder: str, vocabulary: int, num_steps: int) -> None:
    """In the measured process: training steps; reports the seconds of each."""
    import tensorflow as tf

    from computations.client_work.optimizers import SelfAdam
    from computations.local_model import split_label
    from computations.randomness import step_seed

    local_model = build_model(size, folder, vocabulary)
    model = local_model.keras_model(local_model.initial_weights(0))
    optimizer = SelfAdam(2.5e-5).bind(model.trainable_variables)
    features, labels = split_label(
        {n: tf.constant(a) for n, a in local_model.arrange(documents(size, vocabulary)).items()}
    )

    @tf.function
    def step(seed):
        with step_seed(seed), tf.GradientTape() as tape:
            loss = tf.reduce_mean(local_model.losses(labels, model(features, training=True)))
        optimizer(tape.gradient(loss, model.trainable_variables), [], tf.constant(2.5e-5))
        return loss

    for index in range(num_steps):
        began = time.perf_counter()
        float(step(tf.constant([0, index])))
        report(time.perf_counter() - began)


def federated_rounds(report, size: Size, folder: str, vocabulary: int, num_rounds: int, log: Path) -> None:
    """In the measured process: rounds of one client; reports the seconds of each."""
    from computations import algorithms
    from tff_re.runtime import open_runtime

    with open_runtime("local", log_path=log):
        model = build_model(size, folder, vocabulary)
        chosen = algorithms.find("fedlcc")
        algorithm = chosen.build(model, chosen.options(batch_size=BATCH))
        state = algorithm.initialize(model.initial_weights(0))
        arrays = model.arrange(documents(size, vocabulary))
        client_states = [algorithm.client_work.initial_client_state(arrays)]
        for index in range(num_rounds):
            client = collections.OrderedDict(examples=arrays, seed=np.array([index, 0], np.int32))
            began = time.perf_counter()
            output = algorithm.next(state, [client], client_states)
            state, client_states = output["state"], output["client_state"]
            report(time.perf_counter() - began)


def build_model(size: Size, folder: str, vocabulary: int, dropout: float | None = None):
    """The LocalModel of the encoder whose config.json is in `folder`; `dropout` None means the configuration's."""
    import tensorflow as tf

    from computations.local_model import LocalModel
    from tff_re.models import document_encoder
    from tff_re.models.inputs import DocumentInput

    inputs = DocumentInput(vocabulary, size.pieces, size.mentions, size.entities, size.pairs, 1, folder)
    options = document_encoder.Options(pretrained=False, encoder_dropout=dropout)
    return LocalModel(
        build=lambda: document_encoder.MODEL.build(options, inputs, 2),
        input_spec={**inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        num_classes=2,
        **document_encoder.MODEL.local_parts(options, inputs),
    )


def documents(size: Size, vocabulary: int, count: int = BATCH) -> dict[str, np.ndarray]:
    """Random documents without padding, with evenly spread mentions and `size.pairs` pairs; arrays of DocumentInput."""
    rng = np.random.default_rng(0)
    pairs = [(s, t) for s in range(size.entities) for t in range(size.entities) if s != t][: size.pairs]
    rows = {
        "mention_place": np.linspace(1, size.pieces - 2, size.mentions).astype(int),
        "mention_entity": np.arange(size.mentions) % size.entities,
        "pair_head": np.array([head for head, _ in pairs]),
        "pair_tail": np.array([tail for _, tail in pairs]),
        "y": 1,
    }
    return {
        **{name: np.repeat(np.asarray(row)[np.newaxis], count, axis=0) for name, row in rows.items()},
        "input_ids": rng.integers(0, vocabulary, [count, size.pieces]),
        "attention_mask": np.ones([count, size.pieces]),
        "pair_labels": rng.integers(0, 2, [count, len(pairs), 1]),
    }
