"""A folder that `transformers` loads with PyTorch: configuration, weights, tokenizer and model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import save

from datasets.encoding_files import special_pieces
from datasets.text.relation_encoding import RelationEncoding
from tff_re.errors import UserError
from tff_re.exporting.card import card
from tff_re.exporting.forms import TOLERANCE
from tff_re.exporting.layout import CARD_FILE, HUGGINGFACE_FOLDER, TOKENIZER_FILE
from tff_re.exporting.places import ExportError, write
from tff_re.models import sentence_encoder, text_encoder, token_encoder
from tff_re.models.encoders import EncoderOptions
from tff_re.models.fixed_weights import leaf_name
from tff_re.models.hub import is_path
from tff_re.models.pretrained import PieceEncoder, assign_pretrained, load_config, quiet
from tff_re.models.torch_names import encoder_name, head_names, transposed
from tff_re.models.transformers_version import TF_MODEL_MAPPING

CONFIG_FILE, WEIGHTS_FILE, HEAD_FILE = "config.json", "model.safetensors", "head.safetensors"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

MODEL_TYPES = ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")
"""Encoders whose names of weights are tested against PyTorch's."""

_POSITIONS_AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")
_PADDING = 1
"""The first position of these types is one above the id of the padding. In PyTorch, `transformers` takes that id from
the configuration; in TensorFlow it assumes this one."""

NOTE = f"""## Use with transformers and PyTorch

`{HUGGINGFACE_FOLDER}/` holds the encoder and what is behind it; its `{CARD_FILE}` has a program.
"""

_MAX_COMPARED = 32
"""Texts whose encoder outputs are compared."""


def write_folder(
    draft: Path,
    model: tf.keras.Model,
    options: EncoderOptions,
    source: str,
    encoding: Any,
    labels: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    description: dict[str, Any],
) -> None:
    """Writes the folder and adds what it holds to the description, as `huggingface`.

    What was written is read again as training reads an encoder, and its outputs are compared.

    Args:
      draft: the export's folder.
      model: whole, in float32 and without an adapter, its layer `encoder` a PieceEncoder or one of documents.
      options: of the model.
      source: the folder or hub id of the encoder that training started from.
      encoding: of the texts.
      labels: the C classes.
      arrays: `input_ids`, `attention_mask` int32 [n, L], to compare on.
      description: what export.json holds.

    Raises:
      ExportError: the encoder is of a type whose names in PyTorch are not known, or what was written gives other
        outputs.
    """
    encoder, folder = model.get_layer("encoder"), draft / HUGGINGFACE_FOLDER
    config = encoder.main.config
    if config.model_type not in MODEL_TYPES:
        raise ExportError(
            f"an encoder of type '{config.model_type}' is not among those whose PyTorch weight names were tested "
            f"({', '.join(MODEL_TYPES)}); leave --huggingface out"
        )
    if config.model_type in _POSITIONS_AFTER_PADDING and config.pad_token_id != _PADDING:
        raise ExportError(
            f"an encoder of type '{config.model_type}' whose pad_token_id is {config.pad_token_id} gives different "
            f"outputs in PyTorch and TensorFlow, because TensorFlow numbers positions as for {_PADDING}; leave "
            "--huggingface out"
        )
    classifies_tokens = isinstance(options, text_encoder.Options) or _tags_tokens(options)
    architecture, prefix = _architecture(config, classifies_tokens)
    weights, head = _encoder_arrays(encoder, prefix), _head_arrays(model)
    if classifies_tokens:
        weights |= head
    folder.mkdir()
    files = {WEIGHTS_FILE: weights} if classifies_tokens else {WEIGHTS_FILE: weights, HEAD_FILE: head}
    for name, values in files.items():
        (folder / name).write_bytes(save(values, {"format": "pt"}))
    write(folder / CONFIG_FILE, _json(_config(config, architecture, labels)))
    longest = description["input"].get("max_length") or config.max_position_embeddings
    for name, content in _tokenizer_files(encoding.tokenizer, longest).items():
        write(folder / name, content)
    about = {
        "architecture": architecture,
        "head": WEIGHTS_FILE if classifies_tokens else HEAD_FILE,
        "difference": _difference(encoder, folder, arrays),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }
    write(
        folder / CARD_FILE,
        _front_matter(source) + _card(description, labels, options, encoding, head, about["difference"]),
    )
    description["huggingface"] = about


def _tags_tokens(options: EncoderOptions) -> bool:
    """Whether it is a model of entities whose tags are each piece's own, which PyTorch has a class for."""
    return isinstance(options, token_encoder.Options) and not options.crf


def _architecture(config: Any, classifies_tokens: bool) -> tuple[str, str]:
    """(the class in PyTorch, the prefix that it gives to the names of the encoder's weights)."""
    cls = TF_MODEL_MAPPING[type(config)]
    name = cls.__name__.removeprefix("TF")
    if not classifies_tokens:
        return name, ""
    return f"{name.removesuffix('Model')}ForTokenClassification", f"{cls.base_model_prefix}."


def _encoder_arrays(encoder: PieceEncoder, prefix: str) -> dict[str, np.ndarray]:
    return {
        prefix + encoder_name(encoder.tail(variable)): transposed(variable.numpy(), leaf_name(variable))
        for variable in encoder.main.weights
    }


def _head_arrays(model: tf.keras.Model) -> dict[str, np.ndarray]:
    return {name: transposed(variable.numpy(), leaf) for name, (variable, leaf) in head_names(model).items()}


def _config(config: Any, architecture: str, labels: Sequence[str]) -> dict[str, Any]:
    """The encoder's configuration with the classes, without a path of this machine."""
    values = {name: value for name, value in config.to_diff_dict().items() if name != "_name_or_path"}
    return {
        **values,
        "architectures": [architecture],
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "torch_dtype": "float32",
    }


def _tokenizer_files(tokenizer: Any, longest: int) -> dict[str, str]:
    config = {
        **special_pieces(tokenizer),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    return {
        TOKENIZER_FILE: tokenizer.backend_tokenizer.to_str(pretty=True),
        TOKENIZER_CONFIG_FILE: _json(config),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _difference(encoder: PieceEncoder, folder: Path, arrays: Mapping[str, np.ndarray]) -> float:
    """The largest difference of an output between the encoder and the folder, relative to the largest output."""
    config, problem = load_config(str(folder)), None
    length = min(arrays["input_ids"].shape[1], config.max_position_embeddings - 2)
    inputs = {name: tf.constant(arrays[name][:_MAX_COMPARED, :length]) for name in ("input_ids", "attention_mask")}
    again = PieceEncoder(config.to_dict(), config.vocab_size, None, 0, name="encoder")
    again(inputs)
    try:
        assign_pretrained(again, str(folder))
    except UserError as error:
        problem = str(error).replace(str(folder), HUGGINGFACE_FOLDER)
    if problem is not None:
        raise ExportError(problem)
    with quiet():
        expected, answer = (
            part.main(**inputs, training=False).last_hidden_state.numpy()[inputs["attention_mask"].numpy() > 0]
            for part in (encoder, again)
        )
    difference = float(np.abs(answer - expected).max() / max(np.abs(expected).max(), TOLERANCE))
    if not difference <= TOLERANCE:  # a NaN has to fail
        raise ExportError(
            f"{HUGGINGFACE_FOLDER}/ gives different outputs from the trained encoder (by {difference:.2g} of the "
            "largest); leave --huggingface out"
        )
    return difference


_FRONT_MATTER = """---
library_name: transformers
{base_model}tags:
- tff-re
- federated-learning
---
"""


def _front_matter(source: str) -> str:
    """The card's metadata.

    A folder of this machine is not named as base model, since others could not find it.
    """
    return _FRONT_MATTER.format(base_model="" if is_path(source) else f"base_model: {json.dumps(source)}\n")


_TEXTS = """## Use with transformers and PyTorch

```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForTokenClassification.from_pretrained(".")
inputs = tokenizer(["肚子疼"], truncation=True, padding=True, return_tensors="pt")
with torch.no_grad():
    of_pieces = model(**inputs).logits
{pooled}probabilities = logits.softmax(-1)
print(model.config.id2label[int(probabilities[0].argmax())], float(probabilities[0].max()))
```

The classifier is linear and reads the encoder's last outputs {where}, without a pooler in between. That is the
classifier of `AutoModelForTokenClassification`; `AutoModelForSequenceClassification` puts a layer of its own before it
and does not fit. `AutoModel` loads the encoder only.
"""
_POOLED = {
    "cls": ("logits = of_pieces[:, 0]\n", "at [CLS]"),
    "mean": (
        'mask = inputs["attention_mask"].unsqueeze(-1)\nlogits = (of_pieces * mask).sum(1) / mask.sum(1)\n',
        "at all pieces, whose mean it takes",
    ),
}
_ENTITIES = """## Use with transformers and PyTorch

```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForTokenClassification.from_pretrained(".")
inputs = tokenizer(
    ["肚子疼了三天"], truncation=True, padding=True, return_offsets_mapping=True, return_tensors="pt"
)
offsets = inputs.pop("offset_mapping")[0].tolist()
with torch.no_grad():
    probabilities = model(**inputs).logits[0].softmax(-1)
for (start, end), of_tags in zip(offsets, probabilities):
    if start < end:  # [CLS] and [SEP] have no characters
        print(start, end, model.config.id2label[int(of_tags.argmax())], float(of_tags.max()))
```

Offsets are characters (code points), the end exclusive. tff-re also leaves out a piece that shares a character with the
one before it, and reads texts that are too long for the encoder in windows; this program cuts them.
"""
_MENTIONS = """## Use with transformers and PyTorch

```python
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
tokenizer, model, head = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained("."), load_file("{head_file}")
inputs = tokenizer("{text}", return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs).last_hidden_state[0]
ids, markers = inputs["input_ids"][0].tolist(), tokenizer.convert_tokens_to_ids({markers})
parts = [{first}]
for opening, closing in (markers[:2], markers[2:]):
    start, end = ids.index(opening), ids.index(closing)
    mention = outputs[[i for i in range(start + 1, end) if ids[i] not in markers]]
    parts.append({part})
features = torch.cat(parts)
{projection}probabilities = (head["classifier.weight"] @ features{bias}).softmax(-1)
print(model.config.id2label[int(probabilities.argmax())], float(probabilities.max()))
```

The classifier reads the encoder's outputs at the two mentions. No class of transformers does that: its weights are in
`{head_file}`. A longer text than the model reads is cut around the mentions by tff-re, which this program does not do.
"""
_PARTS = {
    "entities_sum": ("", "mention.sum(0)"),
    "cls_entities_sum": ("outputs[0]", "mention.sum(0)"),
    "entity_max": ("", "mention.amax(0)"),
    "entity_start": ("", "outputs[start]"),
}
_PROJECTION = 'features = torch.tanh(head["projection.weight"] @ features + head["projection.bias"])\n'
_OTHER = f"""## Use with transformers and PyTorch

```python
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".")
```

This is the encoder only. No class of transformers has what is behind it; its weights are in `{HEAD_FILE}`, by the
names of the layers in tff-re, and `saved_model/` of the export computes with them.
"""
_PLAIN_TEXT = (
    "\nA special piece that a text spells out, such as `[SEP]`, is plain text to tff-re; the tokenizer here reads it "
    "as the piece. A warning that weights of a pooler are new can be ignored: nothing here reads it.\n"
)
_FROZEN = (
    "\nTraining rounded the outputs of the frozen layers to 16 bits. These files compute in float32 throughout: a "
    "probability can differ by up to 1e-3 from that of the run.\n"
)


def _card(
    description: Mapping[str, Any],
    labels: Sequence[str],
    options: EncoderOptions,
    encoding: Any,
    head: Mapping[str, np.ndarray],
    difference: float,
) -> str:
    """The export's card with a section on use of its own."""
    if isinstance(options, text_encoder.Options):
        pooled, where = _POOLED[options.pooling]
        use = _TEXTS.format(pooled=pooled, where=where)
    elif _tags_tokens(options):
        use = _ENTITIES
    elif isinstance(options, sentence_encoder.Options):
        use = _mentions(encoding, options, head)
    else:
        use = _OTHER
    read_again = f"\nRead again, the encoder's outputs differed by up to {difference:.1g} of the largest one.\n"
    use += _PLAIN_TEXT + (_FROZEN if options.frozen_layers else "") + read_again
    return card({**description, "forms": None}, labels, [use])


def _mentions(encoding: RelationEncoding, options: sentence_encoder.Options, head: Mapping[str, np.ndarray]) -> str:
    head_text, tail_text = ("drug", "gene") if encoding.blind else ("Aspirin", "COX-2")
    markers = list(encoding.markers)
    first, part = _PARTS[options.representation]
    return _MENTIONS.format(
        head_file=HEAD_FILE,
        text=f"{markers[0]}{head_text}{markers[1]} inhibits {markers[2]}{tail_text}{markers[3]}.",
        markers=json.dumps(markers),
        first=first,
        part=part,
        projection=_PROJECTION if "projection.weight" in head else "",
        bias=' + head["classifier.bias"]' if "classifier.bias" in head else "",
    )
