"""Seconds per local step of models that tag tokens: a text classifier's, a softmax's and a CRF's, in turn.

One client, Adam; texts without padding, 9 tags (two types with BIOES). Word pieces: an encoder of MiniLM-L6's size and
random weights, so that nothing is downloaded, that classifies texts (`text_encoder`) or tags their pieces
(`token_encoder`). Words: `lstm` and `tagger`. The cost of a step is a slope: the extra time of a round with many
batches over one with few, per batch.
"""

from __future__ import annotations

import collections
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.common import in_turn, machine, met, ratio, spread
from benchmarks.encoder import CONFIG
from computations import algorithms
from computations.local_model import LocalModel
from tff_re.models import MODELS
from tff_re.models.inputs import PieceInput, TaggedPieceInput, TaggedTokenInput, TokenInput
from tff_re.runtime import open_runtime

TYPES, SCHEME, TEXT_CLASSES = ("drug", "disease"), "BIOES", 2
LENGTH, BATCH, WORDS, RATE = 128, 8, 5000, 5e-5
PIECE_STEPS, WORD_STEPS = (2, 12), (4, 44)
"""Batches in the two rounds whose difference is the cost of the steps."""

MAX_RATIO_TO_CLASSIFIER, MAX_RATIO_OF_CRF = 1.0, 1.3
NOISE = 0.03
"""By how much two equal contenders' medians differ from run to run on one machine."""


def run(rounds: int, out: Path) -> str:
    """Measures; returns the Markdown tables."""
    with tempfile.TemporaryDirectory() as folder, open_runtime("in-process", log_path=out / "worker.log"):
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        pieces = _seconds(_of_pieces(folder), PIECE_STEPS, rounds)
        words = _seconds(_of_words(), WORD_STEPS, rounds)
    return "\n".join(
        [
            *_table("Word pieces", pieces, "text_encoder", "token_encoder"),
            *_table("Words", words, "lstm", "tagger"),
            _verdict(pieces, words),
            f"{CONFIG['num_hidden_layers']} layers of width {CONFIG['hidden_size']} with the encoder's own dropout; "
            f"LSTMs of 128 units over vectors of 100 numbers; one client, batches of {BATCH} texts of {LENGTH} tokens, "
            f"{TaggedTokenInput(WORDS, LENGTH, TYPES, SCHEME).num_tags} tags; a step is the difference of rounds with "
            f"{PIECE_STEPS[0]} and {PIECE_STEPS[1]} batches (of words {WORD_STEPS[0]} and {WORD_STEPS[1]}), per batch; "
            f"{rounds} pairs of rounds of each, in turn. {machine()}.\n",
        ]
    )


def _of_pieces(folder: str) -> dict[str, tuple[LocalModel, Callable]]:
    """Contender -> (model, number of texts -> its examples)."""
    vocabulary = CONFIG["vocab_size"]
    classes = PieceInput(vocabulary, LENGTH)
    tags = TaggedPieceInput(vocabulary, LENGTH, TYPES, SCHEME)
    options = {"encoder": folder, "pretrained": False}
    return {
        "text_encoder": _contender("text_encoder", classes, **options),
        "token_encoder": _contender("token_encoder", tags, **options),
        "token_encoder, CRF": _contender("token_encoder", tags, crf=True, **options),
    }


def _of_words() -> dict[str, tuple[LocalModel, Callable]]:
    """As `_of_pieces`."""
    tags = TaggedTokenInput(WORDS, LENGTH, TYPES, SCHEME)
    return {
        "lstm": _contender("lstm", TokenInput(WORDS, LENGTH)),
        "tagger": _contender("tagger", tags),
        "tagger, CRF": _contender("tagger", tags, crf=True),
    }


def _contender(name: str, inputs, **options) -> tuple[LocalModel, Callable]:
    model, options = MODELS[name], MODELS[name].Options(**options)
    classes = getattr(inputs, "num_tags", TEXT_CLASSES)
    local = LocalModel(
        build=lambda: model.build(options, inputs, classes),
        input_spec={**inputs.specs, "y": tf.TensorSpec([None], tf.int32)},
        num_classes=classes,
        **model.local_parts(options, inputs),
    )
    return local, lambda count: _examples(inputs, count)


def _examples(inputs, count: int) -> dict[str, np.ndarray]:
    """Random texts of full length; of pieces the first and the last have no tag."""
    random = np.random.default_rng(0)
    shape = [count, inputs.max_length]
    ids = random.integers(2, inputs.vocabulary_size, shape)
    arrays = {"tokens": ids, "input_ids": ids, "attention_mask": np.ones(shape), "y": random.integers(0, 2, count)}
    if hasattr(inputs, "num_tags"):
        arrays["tags"] = random.integers(0, inputs.num_tags, shape)
        if isinstance(inputs, TaggedPieceInput):
            arrays["tags"][:, [0, -1]] = -1
        arrays |= {"unrepresented": np.zeros([count, len(TYPES)]), "annotated": np.ones([count, len(TYPES)])}
    return {name: arrays[name].astype(np.int32) for name in (*inputs.specs, "y")}


def _seconds(contenders: dict, steps: tuple[int, int], rounds: int) -> dict[str, list[float]]:
    """Contender -> seconds of a step in each turn."""
    plays = {}
    for name, (model, examples) in contenders.items():
        declared = algorithms.find("fedavgs")
        options = declared.options(learning_rate=RATE, local_epochs=1, batch_size=BATCH)
        algorithm = declared.build(model, options)
        state = algorithm.initialize(model.initial_weights(0))
        clients = {
            count: [
                collections.OrderedDict(examples=model.arrange(examples(BATCH * count)), seed=np.zeros(2, np.int32))
            ]
            for count in steps
        }
        plays[name] = lambda count, algorithm=algorithm, state=state, clients=clients: algorithm.next(
            state, clients[count]
        )
    turns = in_turn(plays, steps, rounds)
    return {name: [(b - a) / (steps[1] - steps[0]) for a, b in pairs] for name, pairs in turns.items()}


def _table(title: str, seconds: dict[str, list[float]], classifier: str, softmax: str) -> list[str]:
    lines = [
        f"| {title} | milliseconds a step, median (min to max) | ratio to {classifier} | ratio to {softmax} |",
        "| :-- | --: | --: | --: |",
    ]
    for name, values in seconds.items():
        ratios = (f"{ratio(values, seconds[other]):.2f}" for other in (classifier, softmax))
        lines.append(f"| {name} | {spread([1000 * value for value in values], 0)} | {' | '.join(ratios)} |")
    return [*lines, ""]


def _verdict(pieces: dict[str, list[float]], words: dict[str, list[float]]) -> str:
    to_classifier = ratio(pieces["token_encoder"], pieces["text_encoder"])
    of_crf = {
        name: ratio(seconds[f"{name}, CRF"], seconds[name])
        for name, seconds in (("token_encoder", pieces), ("tagger", words))
    }
    crf = "; ".join(f"{name} {value:.2f}, {met(value <= MAX_RATIO_OF_CRF)}" for name, value in of_crf.items())
    return (
        f"Expected: tagging takes no longer a step than classifying the same pieces, within {NOISE:.0%}; here "
        f"{to_classifier:.2f}, {met(to_classifier <= MAX_RATIO_TO_CLASSIFIER + NOISE)}. Expected: a CRF takes at most "
        f"{MAX_RATIO_OF_CRF} times the softmax; here {crf}. Ratios are medians over the turns.\n"
    )
