"""Sentences per second of an exported sentence model, raw text to probabilities, one by one and in batches of 32.

The encoder is that of `--encoder` (a folder with its tokenizer and weights), or one of MiniLM-L6's size with random
weights and a vocabulary of letters. The classifier is untrained, since its weights do not change the time. The
tokenizer's time is a separate column: that of the signature `encode`.
"""

from __future__ import annotations

import json
import statistics
import string
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from transformers import AutoTokenizer, BertTokenizerFast

from benchmarks.encoder import CLASSES, CONFIG, LENGTH
from datasets.relations.records import RelationMention
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import with_inline_markers
from tff_re.exporting.export_model import export_model
from tff_re.models import sentence_encoder
from tff_re.models.inputs import RelationInput
from tff_re.runs.folder import environment

BATCHES = (1, 32)
SENTENCES = 64
"""Number of different sentences, of 12 to 40 words, as in abstracts."""

_WORDS = ("the", "effect", "of", "selective", "inhibition", "by", "aspirin", "on", "expression", "in", "human", "cells")
_WORDS += ("was", "measured", "with", "increasing", "concentrations", "and", "showed", "that", "treatment", "reduced")


def run(rounds: int, out: Path, encoder: Path | None = None) -> str:
    """Measures; returns the Markdown table."""
    with tempfile.TemporaryDirectory() as folder:
        source = encoder or _random_encoder(Path(folder) / "encoder")
        exported = export(source, Path(folder) / "export", pretrained=encoder is not None)
        rows, forms = [], json.loads((exported / "export.json").read_text("utf-8"))["forms"]
        for form in ("saved_model", "saved_model_float16"):
            signatures = tf.saved_model.load(str(exported / form)).signatures
            for batch in BATCHES:
                rows.append((form, forms[form]["bytes"], batch, *_seconds(signatures, batch, rounds)))
    details = environment()
    return table(rows) + (
        f"\n{SENTENCES} sentences of 12 to 40 words in turn, cut at {LENGTH} pieces; medians of {rounds} passes. "
        f"{'The encoder of --encoder' if encoder else 'Random weights'}, {CLASSES} classes. {details['cores']} cores, "
        f"TensorFlow {details['tensorflow']}.\n"
    )


def export(source: Path, folder: Path, *, pretrained: bool) -> Path:
    """Exports a sentence encoder with an untrained classifier, also in float16."""
    tokenizer, size = with_markers(AutoTokenizer.from_pretrained(str(source)))
    inputs = RelationInput(size, LENGTH, str(source))
    options = sentence_encoder.Options(pretrained=pretrained)
    model = sentence_encoder.MODEL.build(options, inputs, CLASSES)
    if initialise := sentence_encoder.MODEL.initialise(options, inputs):
        initialise(model)
    return export_model(
        folder,
        model_name="sentence_encoder",
        model_options=options,
        inputs=inputs,
        label_names=[f"class {i}" for i in range(CLASSES)],
        weights=_Weights(model),
        encoding=RelationEncoding(tokenizer, LENGTH),
        details={"run": "benchmark"},
        probes=sentences(),
        formats="saved_model",
        quantise="float16",
    )


class _Weights:
    def __init__(self, model: tf.keras.Model):
        self.trainable = [variable.numpy() for variable in model.trainable_variables]
        self.non_trainable = [variable.numpy() for variable in model.non_trainable_variables]


def sentences() -> list[RelationMention]:
    """Synthetic sentences with two mentions."""
    result = []
    for number in range(SENTENCES):
        words = [_WORDS[(number * 7 + i * 3) % len(_WORDS)] for i in range(12 + number * 28 // (SENTENCES - 1))]
        text = " ".join(words)
        tail = text.rindex(words[-1])
        spans = (0, len(words[0])), (tail, len(text))
        result.append(RelationMention(f"s{number}", "d", text, *spans, "chemical", "protein", "-", 0))
    return result


def _seconds(signatures, batch: int, rounds: int) -> tuple[float, float]:
    """(seconds a sentence from text to probabilities, seconds a sentence of the tokenizer)."""
    from tff_re.exporting.kinds.relations import span_inputs

    mentions = sentences()
    groups = [mentions[start : start + batch] for start in range(0, len(mentions), batch)]
    texts = [tf.constant([with_inline_markers(mention) for mention in group]) for group in groups]
    spans = [{n: tf.constant(v) for n, v in span_inputs(group, False).items()} for group in groups]
    total_seconds = _median(lambda: [signatures["serving_default"](text=text) for text in texts], rounds)
    tokenizer_seconds = _median(lambda: [signatures["encode"](**inputs) for inputs in spans], rounds)
    return total_seconds / len(mentions), tokenizer_seconds / len(mentions)


def _median(work: Callable[[], object], rounds: int) -> float:
    work()  # traces and allocates
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def table(rows: list[tuple[str, int, int, float, float]]) -> str:
    """Markdown of (form, bytes, batch, seconds a sentence, seconds a sentence of the tokenizer)."""
    lines = [
        "| form | size | batch | sentences a second | ms a sentence | tokenizer, ms a sentence |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for form, size, batch, total_seconds, tokenizer_seconds in rows:
        per_second = f"{1 / total_seconds:.1f}"
        lines.append(
            f"| `{form}` | {size / 1e6:.1f} MB | {batch} | {per_second} | {total_seconds * 1e3:.1f} "
            f"| {tokenizer_seconds * 1e3:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _random_encoder(folder: Path) -> Path:
    """A folder with a configuration and a tokenizer of letters."""
    folder.mkdir()
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*special, *sorted(set(_WORDS[::2])), *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return folder
