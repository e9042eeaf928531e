"""The exported model is the trained model, in the hands of people who have nothing but TensorFlow."""

import errno
import functools
import json
import os
import zipfile
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import tensorflow as tf

from datasets.text import CharacterEncoding, Segmenter, Vocabulary, WordEncoding, encoding_from_json
from tests.exports_for_tests import assert_without, drawn_weights, printed_by_the_card, with_weights, written_once
from tff_re import models
from tff_re.exporting import export_model as exporting
from tff_re.exporting import places
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.models.inputs import DenseInput, TokenInput

LABELS = ("咳嗽", "发热", "腹痛")
WORDS = Vocabulary(("宝宝", "咳嗽", "发热", "，", "？", "肚子", "疼", "ok", "𠮷", "、", "。"))
CHARACTERS = Vocabulary((*"宝咳嗽发热，？肚疼", "\n", "\u3000", " ", "𠮷", "\u200d", "\r", "\x85", "\ufeff", '"', "\\"))
HARD_TEXTS = (
    "",
    " ",
    "\u3000",
    "宝宝咳嗽，发热？",
    "宝宝\u3000咳嗽 发热\n肚子疼\t！",
    "宝宝\r\n咳嗽\x85发热\xa0肚子\x1c疼",
    "𠮷𠮷 👨\u200d👩\u200d👧 e\u0301 ＡＢＣ",
    "咳嗽" * 3000,
    "[UNK] 咳嗽 [PAD] <oov>",
    "咳\x00嗽",
    "\ufeff咳嗽",
)


def arguments(name="logistic_regression", kind="words", **changes):
    """Arguments of export_model for a small model."""
    options = models.MODELS[name].Options()
    if kind == "vectors":
        encoding, inputs = None, DenseInput(4)
    else:
        encoding = WordEncoding(WORDS, 6, Segmenter(("肚子",))) if kind == "words" else CharacterEncoding(CHARACTERS, 6)
        vectors = np.random.default_rng(0).standard_normal([len(encoding.vocabulary), 5]).astype(np.float32)
        inputs = TokenInput(len(encoding.vocabulary), 6, vectors if kind == "words" else None)
    return {
        "model_name": name,
        "model_options": options,
        "inputs": inputs,
        "label_names": LABELS,
        "weights": drawn_weights(models.MODELS[name].build(options, inputs, len(LABELS))),
        "encoding": encoding,
        "details": {
            "run": "a",
            "recipe": "small_|recipe",
            "rounds": np.int64(3),
            "metrics": {"test": {"accuracy": np.float32(0.5), "loss": float("nan")}},
        },
        "probes": () if encoding is None else HARD_TEXTS,
        **changes,
    }


def expected_probabilities(arguments, texts):
    model = models.MODELS[arguments["model_name"]].build(arguments["model_options"], arguments["inputs"], len(LABELS))
    model = with_weights(model, arguments["weights"])
    examples = {"x": texts} if arguments["encoding"] is None else {"tokens": arguments["encoding"].encode(texts)}
    return tf.nn.softmax(model(examples)["logits"]).numpy()


KINDS = {"words": "logistic_regression", "characters": "lstm", "vectors": "logistic_regression"}


@functools.cache
def export_of(kind):
    """(arguments, folder) of an export of that kind of input."""
    export_arguments = arguments(KINDS[kind], kind)
    return export_arguments, written_once(f"texts {kind}", functools.partial(export_model, **export_arguments))


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_ids_in_the_graph_are_the_encodings_ids(kind):
    export_arguments, folder = export_of(kind)
    layer = tf.keras.models.load_model(folder / "model.keras").get_layer("ids")
    encoding = export_arguments["encoding"]
    prepared = tf.constant([encoding.prepare(text) for text in HARD_TEXTS])
    np.testing.assert_array_equal(layer(prepared).numpy(), encoding.encode(HARD_TEXTS))


def test_what_is_written():
    export_arguments, folder = export_of("words")
    assert [p.name for p in folder.parent.iterdir()] == ["export"]
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["README.md", "SHA256SUMS", "encoding.json", "export.json", "labels.json", "model.keras", "saved_model"]
    )
    assert json.loads((folder / "labels.json").read_text("utf-8")) == list(LABELS)
    assert encoding_from_json((folder / "encoding.json").read_text("utf-8")) == export_arguments["encoding"]
    description = json.loads((folder / "export.json").read_text("utf-8"))
    assert description["model_options"] == attrs.asdict(export_arguments["model_options"])
    assert description["input"] == {"name": "text", "kind": "words", "max_length": 6, "vocabulary": 13}
    assert description["details"]["metrics"] == {"test": {"accuracy": 0.5, "loss": None}}
    assert description["details"]["rounds"] == 3
    assert description["versions"]["tensorflow"] == tf.__version__
    card = (folder / "README.md").read_text("utf-8")
    assert "# small\\_\\|recipe" in card
    assert "| test | accuracy | 0.5000 |" in card
    assert "0. 咳嗽" in card


def test_neither_machine_paths_nor_probes_nor_addresses_are_in_the_files():
    for _, folder in map(export_of, KINDS):
        assert_without(folder, str(folder.parent), os.path.dirname(models.__path__[0]), "宝宝咳嗽，发热")
    config = zipfile.ZipFile(export_of("characters")[1] / "model.keras").read("config.json").decode()
    assert "shared_object_id" in config and '": 14' not in config


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_card_works_as_it_stands(kind):
    printed = printed_by_the_card(export_of(kind)[1])
    assert len(printed) == 2 and printed[0][0] == printed[1][0] in LABELS


def test_an_older_export_of_the_same_run_is_replaced_when_asked(tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()  # an empty one is filled
    export_model(folder, **arguments())
    (folder / "left.txt").write_text("x")
    with pytest.raises(ExportError, match="already holds an export"):
        export_model(folder, **arguments())
    with pytest.raises(ExportError, match="another run"):
        export_model(folder, overwrite=True, **arguments(details={"run": "b"}))
    assert (folder / "left.txt").exists()
    export_model(folder, overwrite=True, **arguments(kind="vectors"))
    assert not (folder / "left.txt").exists()
    assert json.loads((folder / "encoding.json").read_text("utf-8")) is None
    assert [p.name for p in tmp_path.iterdir()] == ["export"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "something else"}'])
def test_what_is_not_ours_is_never_replaced(tmp_path, content):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "export.json").write_text(content)
    for taken in (folder, folder / "export.json"):
        with pytest.raises(ExportError, match="not an export of this project"):
            export_model(taken, overwrite=True, **arguments(kind="vectors"))
    assert (folder / "export.json").read_text() == content
    with pytest.raises(ExportError, match="no such folder"):
        export_model(tmp_path / "no" / "where", **arguments(kind="vectors"))


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def full_for_drafts(draft, target, replace=os.replace):
    return full_disk() if os.fspath(draft).endswith(".part") else replace(draft, target)


FAILING = ((places, "write"), (exporting, "write_saved_model"), (places, "flush"), (os, "replace"))


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing[1])
def test_a_full_disk_leaves_the_older_export(tmp_path, monkeypatch, failing):
    folder = export_model(tmp_path / "export", **arguments(kind="vectors"))
    before = (folder / "model.keras").read_bytes()
    monkeypatch.setattr(*failing, full_for_drafts if failing[1] == "replace" else full_disk)
    with pytest.raises(ExportError, match="No space left"):
        export_model(folder, overwrite=True, **arguments(kind="vectors"))
    assert (folder / "model.keras").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["export"]


def test_a_plain_form_that_is_another_function_is_found(tmp_path, monkeypatch):
    module = models.MODELS["logistic_regression"]
    build_plain = module.build_plain

    def sharper(*args):
        model = build_plain(*args)
        return tf.keras.Model(model.input, {"logits": 2 * model.output["logits"]})

    monkeypatch.setattr(module, "build_plain", sharper)
    with pytest.raises(ExportError, match="predicts differently"):
        export_model(tmp_path / "export", **arguments(kind="vectors"))
    monkeypatch.setattr(module, "build_plain", module.build)
    with pytest.raises(ExportError, match="Keras' own layers"):
        export_model(tmp_path / "export", **arguments())
    assert list(tmp_path.iterdir()) == []


def test_an_encoding_that_the_graph_does_not_share_is_found(tmp_path):
    export_arguments = arguments(kind="characters", probes=["咳嗽"])

    class Other(CharacterEncoding):
        def encode(self, texts):
            return super().encode([text[::-1] for text in texts])

    with pytest.raises(ExportError, match="a different id") as caught:
        export_model(tmp_path / "export", **{**export_arguments, "encoding": Other(CHARACTERS, 6)})
    assert "咳" not in str(caught.value)


@pytest.mark.parametrize("words", [("[UNK]",), ("",), ("咳嗽", "咳嗽"), ("\x00",)])
def test_a_vocabulary_with_reserved_or_repeated_words_is_refused(tmp_path, words):
    vocabulary = SimpleNamespace(words=words)
    encoding = SimpleNamespace(vocabulary=vocabulary, max_length=6)
    with pytest.raises(ExportError, match="the vocabulary has a "):
        export_model(tmp_path / "e", **arguments(encoding=encoding, inputs=TokenInput(len(words) + 2, 6)))


def test_arguments_that_do_not_fit_are_refused(tmp_path):
    def refused(match, **changes):
        with pytest.raises(ExportError, match=match) as caught:
            export_model(tmp_path / "export", **arguments(**changes))
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    with pytest.raises(ExportError, match="no model 'nothing'"):
        export_model(tmp_path / "export", **{**arguments(), "model_name": "nothing"})
    good = arguments()["weights"]
    refused("label names", label_names=("a", "a", "b"))
    refused("needs its encoding", encoding=None, probes=())
    refused("no text encoding", kind="vectors", encoding=CharacterEncoding(CHARACTERS, 6))
    refused("does not fit the model", inputs=TokenInput(4, 6))
    refused("trainable weights, but", weights=SimpleNamespace(trainable=good.trainable[1:], non_trainable=[]))
    refused(
        "has shape", weights=SimpleNamespace(trainable=[w.T for w in good.trainable], non_trainable=good.non_trainable)
    )
    refused(
        "diverged",
        weights=SimpleNamespace(trainable=[w * np.nan for w in good.trainable], non_trainable=good.non_trainable),
    )
    refused(r"details\.folder is a PosixPath", details={"folder": tmp_path})
