"""The folder that transformers loads: PyTorch's names, the training tokenizer, the trained model's answers."""

from __future__ import annotations

import functools
import importlib.util
import json

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from tests.exports_for_tests import (
    KNOWN_WORDS,
    arguments,
    assert_without,
    drawn_weights,
    printed_by_the_card,
    with_weights,
    written_once,
)
from tests.models.encoders_for_tests import CHINESE, POSITIONS, chinese_encoder, encoder
from tff_re import models
from tff_re.exporting import huggingface
from tff_re.exporting.digests import check_digests
from tff_re.exporting.export_model import ExportError, export_model
from tff_re.models import adapter_files
from tff_re.models.adapters import AdapterOptions
from tff_re.models.torch_names import transposed

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

SLOW = (
    "word pieces",
    *("text pieces of DistilBERT, their mean", "text pieces behind frozen layers", "text pieces with LoRA"),
    *("word pieces, cls_entities_sum", "word pieces, entity_max", "word pieces, entity_start"),
    *("blinded word pieces", "word pieces of DistilBERT", "frozen layers", "word pieces with LoRA"),
)
KINDS = ("text pieces", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW))


@functools.cache
def export_of(kind):
    """The folder of an export of that kind with a folder for transformers."""
    write = functools.partial(export_model, **arguments(kind), formats="saved_model", huggingface=True)
    return written_once(f"huggingface {kind}", write)


def test_what_is_written():
    folder = export_of("text pieces")
    inside = folder / "huggingface"
    assert sorted(path.name for path in inside.iterdir()) == [
        *("README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]
    check_digests(folder, ("huggingface",))
    config = json.loads((inside / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForTokenClassification"] and config["model_type"] == "bert"
    labels = json.loads((folder / "labels.json").read_text("utf-8"))
    assert config["id2label"] == {str(number): label for number, label in enumerate(labels)}
    about = json.loads((folder / "export.json").read_text("utf-8"))["huggingface"]
    assert about["head"] == "model.safetensors" and about["difference"] <= 1e-5
    card = (inside / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: transformers\ntags:\n") and "base_model" not in card
    assert_without(folder, str(chinese_encoder()), str(folder.parent))


def test_names_and_layout_are_pytorchs():
    weights = load_file(export_of("text pieces") / "huggingface" / "model.safetensors")
    layer = "bert.encoder.layer.0."
    shapes = {name: value.shape for name, value in weights.items()}
    assert shapes["bert.embeddings.word_embeddings.weight"] == (len(CHINESE), 16)
    assert shapes["bert.embeddings.LayerNorm.bias"] == (16,)
    assert shapes[layer + "intermediate.dense.weight"] == (32, 16) and shapes["classifier.weight"] == (3, 16)
    trained = arguments("text pieces")["weights"].trainable
    np.testing.assert_array_equal(weights["classifier.weight"], trained[-2].T)
    sums = sorted(float(np.abs(value).sum()) for value in weights.values())
    np.testing.assert_allclose(sums, sorted(float(np.abs(value).sum()) for value in trained), rtol=1e-6)


@pytest.mark.parametrize("kind", ["text pieces", pytest.param("word pieces", marks=pytest.mark.slow)])
def test_the_tokenizer_gives_the_training_s_ids(kind):
    folder, encoding = export_of(kind) / "huggingface", arguments(kind)["encoding"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "the drug inhibits 咳嗽 Gene."
    ids = tokenizer(text)["input_ids"]
    assert ids == encoding.tokenizer(text)["input_ids"] and len(ids) < encoding.max_length
    assert len(tokenizer(text * 20, truncation=True)["input_ids"]) == encoding.max_length
    assert set(tokenizer(text)) == {"input_ids", "attention_mask"}


@pytest.mark.slow
def test_what_is_behind_the_encoder_lies_apart_where_no_class_has_it():
    folder = export_of("word pieces")
    head = load_file(folder / "huggingface" / "head.safetensors")
    assert {name: value.shape for name, value in head.items()} == {"classifier.weight": (3, 32)}
    assert not any(
        name.startswith(("bert", "classifier")) for name in load_file(folder / "huggingface" / "model.safetensors")
    )
    about = json.loads((folder / "export.json").read_text("utf-8"))["huggingface"]
    assert about["head"] == "head.safetensors" and about["architecture"] == "BertModel"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bags of frozen layers", "documents", "documents in windows"])
def test_encoders_of_bags_and_documents(kind, tmp_path):
    """Their cards only load the encoder; that of bags has the program of a sentence."""
    folder = export_model(tmp_path / "a", **arguments(kind), formats="saved_model", huggingface=True)
    assert (folder / "huggingface" / "head.safetensors").exists()
    assert "AutoModel.from_pretrained" in (folder / "huggingface" / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_a_model_of_entities_whose_tags_are_each_pieces_own():
    folder = export_of("entities of pieces")
    config = json.loads((folder / "huggingface" / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForTokenClassification"]
    assert list(config["id2label"].values()) == json.loads((folder / "labels.json").read_text("utf-8"))
    weights = load_file(folder / "huggingface" / "model.safetensors")
    assert weights["classifier.weight"].shape == (5, 16) and weights["classifier.bias"].shape == (5,)
    assert not (folder / "huggingface" / "head.safetensors").exists()
    card = (folder / "huggingface" / "README.md").read_text("utf-8")
    assert "return_offsets_mapping=True" in card and "1. B-symptom" in card


@pytest.mark.slow
def test_the_scores_of_a_crf_lie_apart():
    kind = "entities of pieces, in windows with a CRF"
    folder, weights = export_of(kind), arguments(kind)["weights"].trainable
    head = load_file(folder / "huggingface" / "head.safetensors")
    shapes = {"classifier.weight": (9, 16), "classifier.bias": (9,)}
    shapes |= {"chain.transitions": (9, 9), "chain.start": (9,), "chain.end": (9,)}
    assert {name: value.shape for name, value in head.items()} == shapes
    (transitions,) = [value for value in weights if value.shape == (9, 9)]
    np.testing.assert_array_equal(head["chain.transitions"], transitions)
    assert json.loads((folder / "huggingface" / "config.json").read_text("utf-8"))["architectures"] == ["BertModel"]


# What is refused


def test_other_outputs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "transposed", lambda value, leaf: transposed(value, leaf) * np.float32(1 + 1e-4))
    with pytest.raises(ExportError, match="huggingface/ gives different outputs") as caught:
        export_model(tmp_path / "a", **arguments("text pieces"), formats="keras", huggingface=True)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_a_name_that_nobody_reads_is_refused_in_one_line_without_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "encoder_name", lambda tail: tail.replace("/", "."))
    with pytest.raises(ExportError, match="huggingface: the checkpoint has no weight") as caught:
        export_model(tmp_path / "a", **arguments("text pieces"), formats="keras", huggingface=True)
    assert "\n" not in str(caught.value) and str(tmp_path) not in str(caught.value)


def test_models_without_an_encoder_are_refused(tmp_path):
    with pytest.raises(ExportError, match="this pcnn model has no encoder for transformers"):
        export_model(tmp_path / "a", **arguments("relations of words"), huggingface=True)


def test_an_encoder_whose_names_are_not_known_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "MODEL_TYPES", ("roberta",))
    with pytest.raises(ExportError, match=r"of type 'bert' is not among those .* tested \(roberta\)"):
        export_model(tmp_path / "a", **arguments("text pieces"), formats="keras", huggingface=True)


# With PyTorch


def saved_model_s_answer(folder):
    return printed_by_the_card(folder, words=KNOWN_WORDS)[0]


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_the_card_s_program_gives_the_saved_model_s_answer(kind):
    folder = export_of(kind)
    text = (folder / "huggingface" / "README.md").read_text("utf-8")
    (program,) = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    printed = []
    for word, other in KNOWN_WORDS.items():
        program = program.replace(word, other)
    for name in (".", "head.safetensors"):
        program = program.replace(f'"{name}"', repr(str(folder / "huggingface" / name)))
    exec(program, {"print": lambda *values: printed.append(values)})
    ((label, probability),) = printed
    expected_label, expected = saved_model_s_answer(folder)
    assert label == expected_label
    assert probability == pytest.approx(expected, abs=1e-3 if "frozen" in kind else 1e-5)


PADDING = dict.fromkeys(("camembert", "roberta", "xlm-roberta"), 1)
"""`pad_token_id` of types whose positions depend on it."""


def with_an_encoder_of(model_type, folder, pad_token_id):
    """(arguments of export_model, the trained model) with a tiny encoder of that type."""
    made = transformers.CONFIG_MAPPING[model_type](
        **{"vocab_size": len(CHINESE), "max_position_embeddings": POSITIONS, "pad_token_id": pad_token_id},
        **{"num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32, "embedding_size": 16},
        hidden_size=16,
    )
    made.save_pretrained(folder)
    options = models.MODELS["text_encoder"].Options(encoder=str(folder), pretrained=False)
    export_arguments = {**arguments("text pieces"), "model_options": options}
    model = models.MODELS["text_encoder"].build(options, export_arguments["inputs"], 3)
    export_arguments["weights"] = drawn_weights(model)
    return export_arguments, with_weights(model, export_arguments["weights"])


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("model_type", huggingface.MODEL_TYPES)
def test_every_type_has_pytorchs_names_and_outputs(model_type, tmp_path):
    import torch
    from transformers import AutoModelForTokenClassification

    export_arguments, model = with_an_encoder_of(model_type, tmp_path / "encoder", PADDING.get(model_type, 0))
    folder = export_model(tmp_path / "a", **export_arguments, formats="keras", huggingface=True) / "huggingface"
    loaded, report = AutoModelForTokenClassification.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert all(".pooler." in name for name in report["unexpected_keys"]), "which nothing reads"
    arrays = export_arguments["encoding"].encode(["咳嗽 the drug", "", "嗯" * 60]).arrays
    expected = model(arrays)["logits"].numpy()
    with torch.no_grad():
        logits = loaded(**{name: torch.tensor(array).long() for name, array in arrays.items()}).logits[:, 0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_an_encoder_that_pytorch_computes_otherwise_is_refused(tmp_path):
    export_arguments, _ = with_an_encoder_of("roberta", tmp_path / "encoder", pad_token_id=0)
    with pytest.raises(
        ExportError, match="of type 'roberta' whose pad_token_id is 0 gives different outputs in PyTorch"
    ):
        export_model(tmp_path / "a", **export_arguments, formats="keras", huggingface=True)


@needs_torch
@pytest.mark.slow
def test_the_card_s_program_tags_as_the_saved_model_does():
    folder = export_of("entities of pieces")
    text = (folder / "huggingface" / "README.md").read_text("utf-8")
    (program,) = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    printed = []
    exec(program.replace('"."', repr(str(folder / "huggingface"))), {"print": lambda *values: printed.append(values)})
    by_card = [row for row in printed_by_the_card(folder) if len(row) == 3]
    assert [row[:3] for row in printed] == by_card and len(printed) == 6


@needs_torch
def test_auto_model_loads_the_encoder_only():
    from transformers import AutoModel

    for kind in ("text pieces", "word pieces"):
        _, report = AutoModel.from_pretrained(export_of(kind) / "huggingface", output_loading_info=True)
        assert all(name.startswith("pooler.") for name in report["missing_keys"])
        assert all("classifier" in name for name in report["unexpected_keys"])


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
@pytest.mark.filterwarnings("ignore:Unexpected keyword arguments .'tff_re'.")
def test_peft_loads_an_adapter_that_was_trained_on_such_a_folder(tmp_path):
    """`--adapter-only` of LoRA; PEFT has no BitFit."""
    import torch
    from peft import PeftModel
    from transformers import AutoModel

    folder, model = str(export_of("text pieces") / "huggingface"), models.MODELS["text_encoder"]
    adapter = AdapterOptions(rank=2)
    options, inputs = model.Options(adapter=adapter, encoder=folder), arguments("text pieces")["inputs"]
    inputs, _ = model.precompute(options, inputs, 0)
    trained = model.build(options, inputs, 3)
    trained = with_weights(trained, drawn_weights(trained))
    adapted = model.adapted(options, inputs, trained)
    for name, content in adapter_files.contents(adapted, inputs, adapter, "base", ["a", "b", "c"]).items():
        (tmp_path / name).write_bytes(content)
    arrays = arguments("text pieces")["encoding"].encode(["咳嗽 the drug", "嗯" * 60]).arrays
    expected = adapted.get_layer("encoder")(arrays).numpy()
    tensors = {name: torch.tensor(array).long() for name, array in arrays.items()}
    base = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        plain = base(**tensors).last_hidden_state.numpy()
        outputs = PeftModel.from_pretrained(base, tmp_path)(**tensors).last_hidden_state.numpy()
    read = arrays["attention_mask"] > 0
    assert np.abs(plain - expected)[read].max() > 0.1, "the adapter does something"
    np.testing.assert_allclose(outputs[read], expected[read], rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_the_folder_s_tokenizer_fits_its_encoder():
    """So that a recipe can name it as task.tokenizer."""
    folder = export_of("word pieces") / "huggingface"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    assert len(tokenizer) == len(AutoTokenizer.from_pretrained(encoder(layers=1))) + 4, "the markers"
