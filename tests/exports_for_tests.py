"""Small exports of every kind of input, with weights like those of training; each is written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from computations.bag_evaluation import POOLINGS
from datasets.documents.encoding import DocumentEncoding
from datasets.entities.encoding import TaggedPieceEncoding, TaggedTokenEncoding
from datasets.entities.records import EntitySample, EntitySpan, label_of
from datasets.relations.records import RelationMention
from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.relation_encoding import RelationEncoding, with_markers
from datasets.text.relation_layout import MARKERS
from datasets.text.word_tokenizer import word_tokenizer, word_vocabulary
from tests.built_once import built_once
from tests.documents_for_tests import marking_encoder
from tests.models.encoders_for_tests import WIDTH, chinese_encoder, encoder
from tests.relations_for_tests import hard_mentions
from tff_re import models
from tff_re.exporting.export_model import export_model
from tff_re.models.adapters import AdapterOptions
from tff_re.models.inputs import (
    BagInput,
    DenseInput,
    DocumentInput,
    HiddenInput,
    PieceInput,
    RelationInput,
    TaggedPieceInput,
    TaggedTokenInput,
    TokenInput,
)

LABELS = ("no_relation", "inhibits", "binds")
PGR_LABELS = ("no_relation", "true", "other")  # so that a file of PGR can be scored
TEXT_LABELS = ("咳嗽", "发热", "无")
LENGTH = 16

# Plain sentences and hard ones; those that spell a marker out cannot be written with markers in them.
MENTIONS = [
    RelationMention("s1", "d", "the drug inhibits the gene .", (4, 8), (22, 26), "drug", "gene", "inhibits", 1),
    RelationMention("s2", "d", "gene binds drug", (11, 15), (0, 4), "drug", "gene", "binds", 2),
    *(m for m in hard_mentions(60, seed=5) if not any(marker in m.text for marker in MARKERS)),
]


def _with_known_weights(kind="words") -> dict[str, Any]:
    """Weights that give each of two words (or vector elements) its own class, and texts without them the third."""
    kernel, bias = np.array([[9, 0, 0], [0, 9, 0]], np.float32), np.array([0, 0, 1], np.float32)
    vectors = np.array([[0, 0], [0, 0], [1, 0], [0, 1]], np.float32)
    weights = [kernel, bias] if kind == "vectors" else [vectors, kernel, bias]
    weights_and_labels = {"label_names": TEXT_LABELS, "weights": SimpleNamespace(trainable=weights, non_trainable=[])}
    return {**_texts(kind=kind), **weights_and_labels}


def _texts(name="logistic_regression", kind="words", **options) -> dict[str, Any]:
    if kind == "vectors":
        return _arguments(name, options, DenseInput(2), None)
    if kind == "words":
        encoding = WordEncoding(Vocabulary(("咳嗽", "发热")), 5, Segmenter(("咳嗽", "发热")))
    else:
        encoding = CharacterEncoding(Vocabulary(("咳", "热")), 5)
    return _arguments(name, {"embedding_width": 2, **options}, TokenInput(4, 5), encoding)


def _relations(name="pcnn", kind="bert", pooling=None, blind=False, **options) -> dict[str, Any]:
    """Arguments for sentences, or with `pooling` for bags; with `frozen_layers` for inputs after these layers."""
    if name == "sentence_encoder":
        folder = str(encoder(kind, layers=1))
        tokenizer, size = with_markers(AutoTokenizer.from_pretrained(folder))
        inputs = RelationInput(size, LENGTH, folder, new_pieces=len(MARKERS))
        encoding = RelationEncoding(tokenizer, LENGTH, blind=blind)
        if options.get("frozen_layers"):
            inputs = HiddenInput(inputs, (inputs.max_length, WIDTH), 3)
    else:
        vocabulary = word_vocabulary({"a": ["the drug inhibits binds gene é . 日 a b"]}, min_clients=1)
        encoding = RelationEncoding(word_tokenizer(vocabulary), LENGTH, blind=blind, unit="words")
        inputs = RelationInput(len(vocabulary), LENGTH)
        options = {"embedding_width": 5, **options}
    if pooling is None:
        details = {"run": "a", "recipe": "small", "metrics": {"test": {"micro_f1": 0.5}}}
        return {**_arguments(name, options, inputs, encoding), "details": details, "probes": MENTIONS}
    arguments = _arguments(name, options, BagInput(inputs, pooling), encoding)
    return {**arguments, "label_names": ("NA", "/a/visits", "/b/likes"), "details": {"run": "a", "dataset": "nyt10"}}


def _text_pieces(kind="bert", **options) -> dict[str, Any]:
    folder = str(chinese_encoder(kind))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = PieceInput(len(tokenizer), LENGTH, folder)
    if options.get("frozen_layers"):
        inputs = HiddenInput(inputs, (LENGTH, 16), 3)
    return _arguments("text_encoder", options, inputs, PieceEncoding(tokenizer, LENGTH))


def _documents(**options) -> dict[str, Any]:
    folder = str(marking_encoder())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = DocumentInput(len(tokenizer), 96, 20, 8, 20, 1, folder)
    arguments = _arguments("document_encoder", {"block_size": 8, **options}, inputs, DocumentEncoding(tokenizer))
    details = {"run": "a", "dataset": "cdr", "threshold": 0.5, "named_by_types": [["Chemical", "Disease", True, [0]]]}
    return {**arguments, "label_names": ("CID",), "details": details}


ENTITY_TYPES = ("symptom", "drug")


def entity_samples() -> list[EntitySample]:
    """Texts with entities: in Chinese and English, with an emoji, Windows' line end and accents before some of them."""
    texts = {
        "宝宝咳嗽，发烧了": [("咳嗽", 0), ("发烧", 0)],
        "👨‍👩 the drug\r\n发烧": [("drug", 1), ("发烧", 0)],
        "éé Drug . gene": [("Drug", 1), ("gene", 1)],
        "好的": [],
        "": [],
    }
    samples = []
    for number, (text, entities) in enumerate(texts.items(), 1):
        places = [(text.index(words), words, ENTITY_TYPES[kind]) for words, kind in entities]
        spans = tuple(EntitySpan(start, start + len(words), kind) for start, words, kind in places)
        samples.append(EntitySample(f"s{number}", f"d{number}", text, spans, label_of(spans, ENTITY_TYPES)))
    return samples


def _entities(name="tagger", kind="characters", scheme="BIO", max_length=LENGTH, **options) -> dict[str, Any]:
    """Arguments for models of entities; `max_length` None is of word pieces of whole texts."""
    tags = ENTITY_TYPES, scheme
    if name == "token_encoder":
        folder = str(chinese_encoder())
        tokenizer = AutoTokenizer.from_pretrained(folder)
        inputs = TaggedPieceInput(len(tokenizer), max_length or 3 * LENGTH, *tags, folder)
        encoding = TaggedPieceEncoding(tokenizer, *tags, max_length)
    else:
        text_encoding = (
            WordEncoding(Vocabulary(("宝宝", "咳嗽", "发烧", "，", "drug", "the")), max_length)
            if kind == "words"
            else CharacterEncoding(Vocabulary((*"宝咳嗽发烧，drug \r\n", "👨")), max_length)
        )
        inputs = TaggedTokenInput(len(text_encoding.vocabulary), max_length, *tags)
        encoding = TaggedTokenEncoding(text_encoding, *tags)
        options = {"units": 3, "embedding_width": 4, **options}
    if options.get("frozen_layers"):
        inputs, _ = models.MODELS[name].precompute(models.MODELS[name].Options(**options), inputs, 3)
    details = {"run": "a", "recipe": "small", "metrics": {"test": {"f1": 0.5}}}
    arguments = _arguments(name, options, inputs, encoding)
    weights = arguments["weights"].trainable
    weights[:] = [value * 4 for value in weights] if name == "tagger" else weights  # tokens are told apart
    return {**arguments, "label_names": encoding.tag_names, "details": details, "probes": entity_samples()}


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
    options = models.MODELS[name].Options(**options)
    sentences = inputs.sentences if isinstance(inputs, BagInput) else inputs
    if getattr(options, "adapter", None) is not None:
        sentences, _ = models.MODELS[name].precompute(options, sentences, 0)
        inputs = BagInput(sentences, inputs.pooling) if isinstance(inputs, BagInput) else sentences
    model = models.MODELS[name].build(options, sentences, len(LABELS))
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
_BUILDERS = {
    **{kind: functools.partial(_with_known_weights, kind) for kind in ("words", "characters", "vectors")},
    "word presence": lambda: _texts(features="word_presence"),
    "lstm of words": lambda: _texts("lstm", units=3),
    "relations of words": lambda: _relations(filters=4),
    "blinded relations of words": lambda: {**_relations(filters=4, blind=True), "label_names": PGR_LABELS},
    "lstm of relations": lambda: _relations("lstm", units=3),
    "lstm of bags": lambda: _relations("lstm", units=3, pooling="max"),
    "word pieces": lambda: _relations(**_WITH_ENCODER),
    "blinded word pieces": lambda: _relations(**_WITH_ENCODER, blind=True),
    "word pieces of DistilBERT": lambda: _relations(**_WITH_ENCODER, kind="distilbert"),
    "frozen layers": lambda: _relations(**_WITH_ENCODER, frozen_layers=1, projection=3),
    "frozen layers of DistilBERT": lambda: _relations(**_WITH_ENCODER, kind="distilbert", frozen_layers=1),
    **{
        f"word pieces, {representation}": functools.partial(
            _relations, **_WITH_ENCODER, representation=representation, bias=True
        )
        for representation in ("cls_entities_sum", "entity_max", "entity_start")
    },
    "text pieces": lambda: _text_pieces(),
    "text pieces of DistilBERT, their mean": lambda: _text_pieces("distilbert", pooling="mean"),
    "text pieces behind frozen layers": lambda: _text_pieces(frozen_layers=1),
    "bags": lambda: _relations(filters=4, pooling="max"),
    **{
        f"bags, {pooling}": functools.partial(_relations, filters=4, pooling=pooling)
        for pooling in sorted(set(POOLINGS) - {"max"})
    },
    "bags of frozen layers": lambda: _relations(**_WITH_ENCODER, pooling="max", frozen_layers=1),
    "entities of characters": lambda: _entities(crf=True),
    "entities of words": lambda: _entities(kind="words", scheme="BIOES"),
    "entities of pieces": lambda: _entities("token_encoder"),
    "entities of pieces, in windows with a CRF": lambda: _entities(
        "token_encoder", scheme="BIOES", max_length=None, window=12, crf=True
    ),
    "entities of pieces behind frozen layers": lambda: _entities("token_encoder", frozen_layers=1),
    "documents": lambda: _documents(),
    "documents in windows": lambda: _documents(window=16, frozen_layers=1, loss="adaptive_threshold"),
}
KINDS = tuple(_BUILDERS)

_LORA = {"adapter": AdapterOptions(rank=4)}
WITH_LORA = {
    "word pieces with LoRA": lambda: _relations(**_WITH_ENCODER, **_LORA),
    "text pieces with LoRA": lambda: _text_pieces(**_LORA),
    "bags with LoRA": lambda: _relations(**_WITH_ENCODER, pooling="max", **_LORA),
    "documents with LoRA": lambda: _documents(**_LORA),
    "entities with LoRA": lambda: _entities("token_encoder", **_LORA),
}
_BUILDERS |= WITH_LORA


def arguments(kind: str) -> dict[str, Any]:
    """The arguments of `export_model` for that kind."""
    return _BUILDERS[kind]()


_factories: list[pytest.TempPathFactory] = []


def set_folder_factory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sets where exports are written; called before a test needs one."""
    _factories[:] = [tmp_path_factory]


def written_once(name: str, write: Callable[[Path], object]) -> Path:
    """The folder of an export that `write(folder)` writes, once in a test run. A test that changes it copies."""
    folder = built_once(_factories[0], "export of " + name, lambda folder: write(folder / "export"))
    return folder / "export"


FORMS = {
    "word pieces": {"formats": "both"},
    "frozen layers": {"formats": "both", "quantise": "float16"},
    "blinded relations of words": {"formats": "both", "quantise": "float16", "tflite": True},
    "lstm of relations": {"formats": "saved_model"},
    "entities of characters": {"formats": "both", "quantise": "float16"},
    "entities of pieces": {"formats": "both"},
    "entities with LoRA": {"formats": "both"},
    # Runs on bags and on documents are exported in float16, too.
    **{
        kind: {"formats": "saved_model"}
        for kind in KINDS
        if kind.startswith(("bags,", "bags of", "lstm of bags", "documents"))
    },
}
"""Kind -> its formats, if they are not a SavedModel and that in float16."""


@functools.cache
def export_of(kind: str) -> Path:
    """The folder of an export of that kind."""
    forms = FORMS.get(kind, {"formats": "saved_model", "quantise": "float16"})
    return written_once(kind, lambda folder: export_model(folder, **arguments(kind), **forms))


# What tests of several files look at


def with_weights(model, weights):
    """The Keras model with weights as `export_model` takes them."""
    for group in ("trainable", "non_trainable"):
        for variable, value in zip(getattr(model, f"{group}_variables"), getattr(weights, group), strict=True):
            variable.assign(value)
    return model


KNOWN_WORDS = {"Aspirin": "drug", "COX-2": "gene"}
"""What the examples on cards mention -> pieces of the tests' encoders, with which the examples are short enough."""


def printed_by_the_card(folder: Path, *files: Path, words: Mapping[str, str] | None = None) -> list[tuple]:
    """Runs the examples of a model card and returns what they print; `files` have the names used in the card.

    `words`: words of the examples -> others in their place.
    """
    printed: list[tuple] = []
    names = ("model.keras", "saved_model", "model.onnx", "labels.json", "encoding.json", "tokenizer.json")
    paths = {name: folder / name for name in names}
    paths.update({file.name: file for file in files} | {".": folder})
    for block in (folder / "README.md").read_text("utf-8").split("```python\n")[1:]:
        code = block.split("```")[0]
        for word, other in (words or {}).items():
            code = code.replace(word, other)
        for name, path in paths.items():
            code = code.replace(f'"{name}"', repr(str(path)))
        exec(code, {"print": lambda *values: printed.append(values)})
    return printed


def assert_without(folder: Path, *private: str) -> None:
    """Asserts that no file of the folder contains one of these strings."""
    for file in (file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for text in private:
            assert text.encode() not in content, (file, text)
