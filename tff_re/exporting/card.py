"""The model card: what a stranger has to know before using an exported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tff_re.exporting.forms import MEASURES
from tff_re.exporting.places import (
    ENCODING_FILE,
    FLOAT16_FOLDER,
    KERAS_FILE,
    LABELS_FILE,
    SAVED_MODEL_FOLDER,
    TFLITE_FILE,
)
from tff_re.exporting.record_card import record_uses

_HEAD = """# {title}

A model trained by federated learning with tff-re {version}. For research; not a medical device, and not to be used for
decisions about patients.
"""

_KERAS = """## Use with Keras

```python
import json
import tensorflow as tf
{setup}model = tf.keras.models.load_model("{keras_file}")
labels = json.load(open("{labels_file}", encoding="utf-8"))
probabilities = model({example})["probabilities"].numpy()
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

{explanation}
"""

_SAVED_MODEL = """## Use with TensorFlow alone

```python
import json
import tensorflow as tf
{imports}model = tf.saved_model.load("{folder}")
labels = json.load(open("{labels_file}", encoding="utf-8"))
probabilities = model.signatures["serving_default"]({example})["probabilities"].numpy()
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

{explanation}
"""

_WORDS = (
    "The model takes texts of words joined by blanks: segment them with jieba, after adding each word of "
    f"`added_words` in `{ENCODING_FILE}` to its dictionary (`jieba.add_word`), and leave out words that are blanks. "
    "`tff_re.load_export` does this."
)
_CHARACTERS = "The model takes raw text and reads it character by character."
_VECTORS = "The model takes feature vectors, float32 [n, {width}]."
_MARKED = """The model takes sentences with the two mentions marked, each marker once: `<e1>` and `</e1>` around the
head, `<e2>` and `</e2>` around the tail. It tokenizes them by itself{with_text}. The signature `spans` takes `text`,
`head` and `tail` (int32 [n, 2]: start and end in characters, the end exclusive) in place of markers; `encoded` takes
ids, and `encode` gives them. {blind}A request with a sentence that cannot be read is refused as a whole; the message
gives its number in the batch."""
_OF_TEXT = (
    " with operations of tensorflow-text (`pip install tensorflow==2.14.* tensorflow-text==2.14.* 'setuptools<81'`; "
    "tensorflow-text needs the last and does not say so)"
)
_BLIND = """Mentions are replaced by their types before the model reads them: `head_type` and `tail_type`, strings [n],
go with every signature but `encoded`. The words of the mentions are not used. """
_ENCODED = (
    "`{keras_file}` takes encoded inputs ({names}; int32, as the signature `encode` of the SavedModel gives them) and, "
    "for its layers, the package tff-re. The SavedModel needs neither."
)
_PLAIN_ENCODED = (
    "`{keras_file}` is made of Keras' own layers and takes encoded inputs ({names}; int32, as the signature `encode` "
    "of the SavedModel gives them)."
)
_TFLITE = (
    "`{file}` takes the encoded inputs of one text ({names}; {encoding_file} says how they are made) and gives its "
    "probabilities; its weights are stored in 8 bits. It may need an interpreter with TensorFlow's own operations "
    "(Flex), as TensorFlow's is.\n"
)


def card(description: Mapping[str, Any], labels: Sequence[str]) -> str:
    """The card in Markdown.

    Args:
      description: what export.json holds.
      labels: the classes.
    """
    details = description["details"]
    parts = [_HEAD.format(title=_plain(details.get("recipe") or description["model"]), version=_version(description))]
    facts = [("model", description["model"])]
    facts += [(key, value) for key, value in details.items() if isinstance(value, str | int | float)]
    parts.append("\n".join(f"- {_plain(key)}: {_plain(value)}" for key, value in facts) + "\n")
    for title in ("data", "training", "privacy", "limits"):
        if lines := details.get(title):
            parts.append(_section(title.capitalize(), lines))
    precision = description.get("precision")
    parts.append(_metrics(details.get("metrics"), details.get("exported_metrics"), precision))
    parts.append(_forms(description.get("forms")))
    parts.append(_precision(precision))
    parts += _uses(description)
    names = "\n".join(f"{number}. {_plain(label)}" for number, label in enumerate(labels))
    parts.append(f"## Classes\n\nNumbers are places in `probabilities`.\n\n{names}")
    return "\n".join(part for part in parts if part)


def _version(description: Mapping[str, Any]) -> str:
    return description["versions"]["tff-re"]


def _section(title: str, lines: Mapping[str, Any] | Sequence[str]) -> str:
    if isinstance(lines, Mapping):
        lines = [f"{key}: {value}" for key, value in lines.items() if value is not None]
    return f"## {title}\n\n" + "\n".join(f"- {_plain(line)}" for line in lines) + "\n"


def _metrics(metrics: Any, exported: Any = None, precision: Mapping[str, Any] | None = None) -> str:
    """The run's metrics; beside them those of the exported model where that computes in another precision."""
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    own, theirs = _by_name(metrics), _by_name(exported if isinstance(exported, Mapping) else {})
    if not theirs or precision is None:
        rows = [f"| {_plain(split)} | {_plain(name)} | {_plain(value)} |" for (split, name), value in own.items()]
        return "\n".join(["## Metrics", "", "| examples | metric | value |", "| :-- | :-- | --: |", *rows, ""])
    rows = []
    for split, name in own | theirs:
        values = " | ".join("" if (split, name) not in of else _plain(of[split, name]) for of in (own, theirs))
        rows.append(f"| {_plain(split)} | {_plain(name)} | {values} |")
    head = f"| examples | metric | the run, in {_plain(precision['trained'])} | exported, in {precision['exported']} |"
    return "\n".join(["## Metrics", "", head, "| :-- | :-- | --: | --: |", *rows, ""])


def _by_name(metrics: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    found = {}
    for split, values in metrics.items():
        values = values if isinstance(values, Mapping) else {"": values}
        found.update({(split, name): value for name, value in values.items()})
    return found


def _precision(precision: Mapping[str, Any] | None) -> str:
    if not precision:
        return ""
    trained, exported = _plain(precision["trained"]), precision["exported"]
    return (
        f"## Precision\n\nThe model was trained and evaluated in {trained}. The files here hold the same weights and "
        f"compute in {exported}: on {precision['examples']} {precision['unit']} of the run a probability differs by up "
        f"to {_number(precision['difference'])}. Metrics in both precisions are above.\n"
    )


def _forms(forms: Any) -> str:
    """Size and accuracy of every form that was written, side by side."""
    if not forms:
        return ""
    measure = next((key for form in forms.values() for key in MEASURES if key in form), "accuracy")
    rows = []
    for name, form in forms.items():
        value, difference = (_number(form.get(key)) for key in (measure, "difference"))
        rows.append(f"| `{name}` | {form['bytes'] / 1e6:.2f} MB | {value} | {difference} |")
    called = MEASURES[measure]
    measured = next((f"{form['examples']} test {form['unit']}" for form in forms.values() if measure in form), "")
    note = f"The {called} is that on {measured} of the run; " if measured else ""
    head = [f"| form | size | {called} | largest difference of a probability |", "| :-- | --: | --: | --: |"]
    return "\n".join(["## Forms", "", *head, *rows, "", f"{note}differences are to the trained model in float32.", ""])


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if value >= 1e-4 or value == 0 else f"{value:.1e}"


def _uses(description: Mapping[str, Any]) -> list[str]:
    source, forms, arrays = description["input"], description["forms"], ", ".join(description["arrays"])
    kind, parts = source["kind"], []
    if kind in ("bags", "documents"):
        return record_uses(description)
    if SAVED_MODEL_FOLDER in forms:
        example, explanation = _saved_model(source)
        parts.append(
            _SAVED_MODEL.format(
                imports=_text_import(kind),
                folder=SAVED_MODEL_FOLDER,
                labels_file=LABELS_FILE,
                example=example,
                explanation=explanation,
            )
        )
    if KERAS_FILE in forms:
        example, explanation, setup = _keras(source, description["model"], arrays, SAVED_MODEL_FOLDER in forms)
        parts.append(
            "## Use with Keras\n\n" + explanation + "\n"
            if setup is None
            else _KERAS.format(
                setup=setup,
                keras_file=KERAS_FILE,
                labels_file=LABELS_FILE,
                example=example,
                explanation=explanation,
            )
        )
    if FLOAT16_FOLDER in forms:
        parts.append(
            f"`{FLOAT16_FOLDER}/` has the signatures of `{SAVED_MODEL_FOLDER}/`; its weights are stored in 16 bits and "
            "computed with in 32.\n"
        )
    if TFLITE_FILE in forms:
        parts.append(_TFLITE.format(file=TFLITE_FILE, names=arrays, encoding_file=ENCODING_FILE))
    return parts


def _text_import(kind: str) -> str:
    return "import tensorflow_text  # the SavedModel's tokenizer is made of its operations\n" if _is(kind) else ""


def _is(kind: str) -> bool:
    return kind == "relation_pieces"


def _saved_model(source: Mapping[str, Any]) -> tuple[str, str]:
    kind = source["kind"]
    if kind == "vectors":
        return f"x=tf.zeros([1, {source['width']}])", _VECTORS.format(**source)
    if kind == "words":
        return 'text=tf.constant(["肚子 疼"])', _WORDS
    if kind == "characters":
        return 'text=tf.constant(["肚子疼"])', _CHARACTERS
    example = f'text=tf.constant(["<e1>Aspirin</e1> inhibits <e2>COX-2</e2>."]){_types(source)}'
    return example, _MARKED.format(with_text=_OF_TEXT if _is(kind) else "", blind=_BLIND if source["blind"] else "")


_ENCODE = """encode = tf.saved_model.load("{folder}").signatures["encode"]
arrays = encode(text=tf.constant(["Aspirin inhibits COX-2."]), {spans}{types})
"""


def _keras(source: Mapping[str, Any], model: str, arrays: str, with_encoder: bool) -> tuple[str, str, str | None]:
    """(the model's argument, explanation, lines before); no lines where an example cannot be run."""
    kind = source["kind"]
    if kind == "vectors":
        return f"tf.zeros([1, {source['width']}])", _VECTORS.format(**source), ""
    if kind == "words":
        return 'tf.constant(["肚子 疼"])', _WORDS, ""
    if kind == "characters":
        return 'tf.constant(["肚子疼"])', _CHARACTERS, ""
    text = _PLAIN_ENCODED if source["stock"] else _ENCODED
    imports = _text_import(kind) + ("" if source["stock"] else f"import tff_re.models.{model}  # its layers\n")
    spans = "head=tf.constant([[0, 7]]), tail=tf.constant([[17, 22]])"
    setup = imports + _ENCODE.format(folder=SAVED_MODEL_FOLDER, spans=spans, types=_types(source))
    explanation = text.format(keras_file=KERAS_FILE, names=arrays)
    return "dict(arrays)", explanation, setup if with_encoder else None


def _types(source: Mapping[str, Any]) -> str:
    return ', head_type=tf.constant(["drug"]), tail_type=tf.constant(["gene"])' if source["blind"] else ""


def _plain(value: Any) -> str:
    """One line of Markdown without markup."""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return "".join("\\" + c if c in r"\`*_[]<>#|" else c for c in " ".join(text.split()))
