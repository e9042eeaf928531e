"""Small exports of every kind of input, with weights as training would have left them; each is written once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from computations.bag_evaluation import POOLINGS
from datasets.documents.encoding import DocumentEncoding
from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.word_tokenizer import word_tokenizer, word_vocabulary
from tests.built_once import built_once
from tests.documents_for_tests import marking_encoder
from tests.models.encoders_for_tests import encoder
from tff_re import models
from tff_re.exporting.export_model import export_model
from tff_re.models.inputs import BagInput, DenseInput, DocumentInput, HiddenRelationInput, RelationInput, TokenInput

LABELS = ("NA", "inhibits", "binds")
LENGTH = 16


def _texts(name="logistic_regression", kind="words", **options) -> dict[str, Any]:
    if kind == "vectors":
        return _arguments(name, options, DenseInput(2), None)
    if kind == "words":
        encoding = WordEncoding(Vocabulary(("咳嗽", "发热")), 5, Segmenter(("咳嗽",)))
    else:
        encoding = CharacterEncoding(Vocabulary(("咳", "热")), 5)
    return _arguments(name, {"embedding_width": 2, **options}, TokenInput(4, 5), encoding)


def _relations(name="pcnn", kind="bert", pooling=None, blind=False, **options) -> dict[str, Any]:
    """Of sentences, or with a pooling of bags; with `frozen_layers` behind these."""
    if name == "sentence_encoder":
        tokenizer, size = with_markers(AutoTokenizer.from_pretrained(str(encoder(kind))))
        inputs = RelationInput(size, LENGTH, str(encoder(kind)))
        encoding = RelationEncoding(tokenizer, LENGTH, blind=blind)
        if options.get("frozen_layers"):
            inputs = HiddenRelationInput(inputs, 16, 3)
    else:
        vocabulary = word_vocabulary({"a": ["the drug inhibits binds gene . a b"]}, min_clients=1)
        encoding = RelationEncoding(word_tokenizer(vocabulary), LENGTH, blind=blind, unit="words")
        inputs = RelationInput(len(vocabulary), LENGTH)
        options = {"embedding_width": 5, **options}
    if pooling is None:
        return _arguments(name, options, inputs, encoding)
    given = _arguments(name, options, BagInput(inputs, pooling), encoding)
    return {**given, "label_names": ("NA", "/a/visits", "/b/likes"), "details": {"run": "a", "dataset": "nyt10"}}


def _documents(**options) -> dict[str, Any]:
    folder = str(marking_encoder())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = DocumentInput(len(tokenizer), 96, 20, 8, 20, 1, folder)
    given = _arguments("document_encoder", {"block_size": 8, **options}, inputs, DocumentEncoding(tokenizer))
    return {**given, "label_names": ("CID",), "details": {"run": "a", "dataset": "cdr", "threshold": 0.5}}


def drawn_weights(model) -> SimpleNamespace:
    """Random weights of a Keras model, the same in every call, as `export_model` takes them."""
    draw = np.random.default_rng(1)
    groups = {
        group: [
            draw.normal(float("gamma" in v.name), 0.3, v.shape).astype(np.float32)
            for v in getattr(model, f"{group}_variables")
        ]
        for group in ("trainable", "non_trainable")
    }
    return SimpleNamespace(**groups)


def _arguments(name, options, inputs, encoding) -> dict[str, Any]:
    options = models.module(name).Options(**options)
    sentences = inputs.sentences if isinstance(inputs, BagInput) else inputs
    model = models.module(name).build(options, sentences, len(LABELS))
    return {
        "model_name": name,
        "model_options": options,
        "inputs": inputs,
        "label_names": LABELS,
        "weights": drawn_weights(model),
        "encoding": encoding,
        "details": {"run": "a"},
    }


_WITH_ENCODER = {"name": "sentence_encoder"}
_MADE = {
    "words": lambda: _texts(),
    "characters": lambda: _texts(kind="characters"),
    "vectors": lambda: _texts(kind="vectors"),
    "word presence": lambda: _texts(features="word_presence"),
    "lstm of words": lambda: _texts("lstm", units=3),
    "relations of words": lambda: _relations(filters=4),
    "blinded relations of words": lambda: _relations(filters=4, blind=True),
    "lstm of relations": lambda: _relations("lstm", units=3),
    "word pieces": lambda: _relations(**_WITH_ENCODER),
    "blinded word pieces": lambda: _relations(**_WITH_ENCODER, blind=True),
    "word pieces of DistilBERT": lambda: _relations(**_WITH_ENCODER, kind="distilbert"),
    "frozen layers": lambda: _relations(**_WITH_ENCODER, frozen_layers=1),
    "frozen layers of DistilBERT": lambda: _relations(**_WITH_ENCODER, kind="distilbert", frozen_layers=1),
    **{
        f"word pieces, {representation}": functools.partial(
            _relations, **_WITH_ENCODER, representation=representation, bias=True
        )
        for representation in ("cls_entities_sum", "entity_max", "entity_start")
    },
    "bags": lambda: _relations(filters=4, pooling="max"),
    **{
        f"bags, {pooling}": functools.partial(_relations, filters=4, pooling=pooling)
        for pooling in sorted(set(POOLINGS) - {"max"})
    },
    "bags of frozen layers": lambda: _relations(**_WITH_ENCODER, pooling="max", frozen_layers=1),
    "documents": lambda: _documents(),
    "documents in windows": lambda: _documents(window=16, frozen_layers=1, loss="adaptive_threshold"),
}
KINDS = tuple(_MADE)


def arguments(kind: str) -> dict[str, Any]:
    """Those of `export_model` for that kind."""
    return _MADE[kind]()


_factories: list[pytest.TempPathFactory] = []


def share(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Says where exports are written; called before a test asks for one."""
    _factories[:] = [tmp_path_factory]


def written_once(name: str, write: Callable[[Path], object]) -> Path:
    """The folder of an export that `write(folder)` writes, once in a test run. A test that changes it copies."""
    place = built_once(_factories[0], "export of " + name, lambda folder: write(folder / "export"))
    return place / "export"


@functools.cache
def export_of(kind: str) -> Path:
    """The folder of an export of that kind with a SavedModel and its form in float16."""
    return written_once(
        kind, lambda folder: export_model(folder, **arguments(kind), formats="saved_model", quantise="float16")
    )


# What tests of several files look at


def with_weights(model, weights):
    """The Keras model with weights as `export_model` takes them."""
    for group in ("trainable", "non_trainable"):
        for variable, value in zip(getattr(model, f"{group}_variables"), getattr(weights, group), strict=True):
            variable.assign(value)
    return model


def printed_by_the_card(folder: Path, *files: Path) -> list[tuple]:
    """What the examples of a card print, one after the other; `files` have the names that the card has."""
    printed: list[tuple] = []
    places = {name: folder / name for name in ("model.keras", "saved_model", "labels.json")}
    places.update({file.name: file for file in files} | {".": folder})
    for block in (folder / "README.md").read_text("utf-8").split("```python\n")[1:]:
        code = block.split("```")[0]
        for name, place in places.items():
            code = code.replace(f'"{name}"', repr(str(place)))
        exec(code, {"print": lambda *values: printed.append(values)})
    return printed


def assert_without(folder: Path, *private: str) -> None:
    """None of these strings is in a file of the folder."""
    for file in (file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for text in private:
            assert text.encode() not in content, (file, text)
