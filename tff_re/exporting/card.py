"""The model card: what a user must know before using an exported model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from computations.stack import KERAS
from tff_re.exporting.layout import (
    DEFAULT_SIGNATURE,
    ENCODING_FILE,
    FLOAT16_FOLDER,
    KERAS_FILE,
    LABELS_FILE,
    SAVED_MODEL_FOLDER,
    TFLITE_FILE,
)
from tff_re.runs.site_comparisons import MEASURES, site_comparisons

_KERAS_IMPORTS, _LOAD_KERAS = {
    "keras": ("", "tf.keras.models.load_model"),
    "tf-keras": ("import tf_keras\n", "tf_keras.models.load_model"),  # TensorFlow's own is Keras 3 by then
}[KERAS]
"""How a reader of the card loads a file of the Keras that wrote it."""

_FACTS = {"dataset": "read in the form of", "label": "label choice"}
"""Keys of `details` -> their name for readers, where they have another one."""

_HEAD = """# {title}

A model trained by federated learning with tff-re {version}. For research. It is not a medical device and
must not be used for decisions about patients.
"""

_USE = """## Use with {title}

```python
import json
import tensorflow as tf
{imports}{before}model = {load}
labels = json.load(open("{labels}", encoding="utf-8"))
probabilities = {call}({example})["probabilities"].numpy()
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

{explanation}
"""

_TFLITE = (
    "`{file}` takes the encoded inputs of one text ({names}; {encoding_file} says how they are made) and gives its "
    "probabilities; its weights are stored in 8 bits. It may need an interpreter with TensorFlow's own operations "
    "(Flex), as TensorFlow's is.\n"
)

_FLOAT16 = "`{half}/` has the {what} of `{whole}/`; its weights are stored in 16 bits and computed with in 32.\n"

_FILES_PREDICTOR = """## Use with tff-re

```python
import tff_re
predictor = tff_re.load_export(".")
for prediction in predictor.predict_file("{file}"):
    print({printed})
```

`predict_file` reads a file in the form of the data set of the run, encodes it with the tokenizer in `{encoding}` and
gives {answer}. On the command line: `python -m tff_re.run predict EXPORT --file FILE`.
"""

_FILES_SAVED_MODEL = """## Use with TensorFlow alone

```python
import tensorflow as tf
model = tf.saved_model.load("{folder}")
{arrays}
probabilities = model.signatures["{signature}"](**arrays)["probabilities"].numpy()
print(probabilities.shape)  # {shape}
```

{explanation}
"""

_FILES_KERAS = """## Use with Keras

```python
import tensorflow as tf
import {layers}  # the model's layers
{imports}model = {loader}("{keras_file}")
{arrays}
probabilities = model(arrays)["probabilities"].numpy()
print(probabilities.shape)  # {shape}
```
"""


_TAGGING_SAVED_MODEL = """## Use with TensorFlow alone

```python
import json
import tensorflow as tf
{imports}model = tf.saved_model.load("{folder}")
labels = json.load(open("{labels}", encoding="utf-8"))
answer = model.signatures["{signature}"](text=tf.constant(["{text}"]))
for start, end, tag in zip(*(answer[name][0].numpy() for name in ("starts", "ends", "tags"))):
    if start >= 0:
        print(int(start), int(end), labels[tag])
```

{takes} Of n texts with up to L tokens it gives `probabilities`, float32 [n, L, tags], and int32 [n, L]: `tags`, places
in the list below, `starts` and `ends`. Offsets are characters (code points), the end exclusive. All three are -1 where
there is no token. The signature `encoded` takes ids, and `encode` gives them.{crf}
"""

_TAGGING_CRF = (
    " `tags` are the most probable tagging of the whole text, `probabilities` those of each tag by itself (marginals)."
)

_TAGGING_PREDICTOR = """## Use with tff-re

```python
import tff_re
predictor = tff_re.load_export(".")
for entity in predictor.predict(["{text}"])[0]:
    print(entity.start, entity.end, entity.type, entity.probability)
```

The probability of an entity is the mean over its tokens of the probability of their tags. On the command line:
`python -m tff_re.run predict EXPORT --file FILE`, with `--format jsonl`, `pubtator` or `brat`.
"""

_TAGGING_KERAS = """## Use with Keras

```python
import tensorflow as tf
import tff_re.models.{model}  # its layers
{imports}{keras_imports}model = {loader}("{keras_file}")
encode = tf.saved_model.load("{folder}").signatures["encode"]
encoded = encode(text=tf.constant(["{text}"]))
answer = model({{name: encoded[name] for name in ({names})}})
print(answer["tags"][0].numpy().tolist())
```

"""

_TAGGING_ENCODED = (
    "`{keras_file}` takes encoded inputs ({arrays}; int32 [n, L], as the signature `encode` of the SavedModel "
    "gives them) and, for its layers, the package tff-re. It gives `probabilities` and `tags`. The SavedModel needs no "
    "tff-re.\n"
)


def card(description: Mapping[str, Any], labels: Sequence[str], uses: Sequence[str]) -> str:
    """The card in Markdown.

    Args:
      description: what export.json holds.
      labels: the classes.
      uses: the sections on use, in Markdown.
    """
    details, precision = description["details"], description.get("precision")
    title, version = details.get("recipe") or description["model"], description["versions"]["tff-re"]
    facts = {"model": description["model"]}
    facts |= {_FACTS.get(key, key): value for key, value in details.items() if isinstance(value, str | int | float)}
    parts = [
        _HEAD.format(title=_plain(title), version=version),
        "\n".join(f"- {_plain(key)}: {_plain(value)}" for key, value in facts.items()) + "\n",
        *(_section(key, details[key]) for key in ("data", "training", "privacy", "limits") if details.get(key)),
        _metrics(details.get("metrics"), details.get("exported_metrics"), precision),
        *_comparisons(details.get("comparisons")),
        _forms(description.get("forms")),
        _precision(precision),
        *uses,
    ]
    names = "\n".join(f"{number}. {_plain(label)}" for number, label in enumerate(labels))
    parts.append(f"## Classes\n\nNumbers are places in `probabilities`.\n\n{names}")
    return "\n".join(part for part in parts if part)


def _section(title: str, lines: Mapping[str, Any] | Sequence[str]) -> str:
    if isinstance(lines, Mapping):
        lines = [f"{key}: {value}" for key, value in lines.items() if value is not None]
    return f"## {title.capitalize()}\n\n" + "\n".join(f"- {_plain(line)}" for line in lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table in Markdown.

    The first columns, as many as the caller says, hold words and the others numbers.
    """
    lines = [head, [":--"] * words + ["--:"] * (len(head) - words), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _metrics(metrics: Any, exported: Any, precision: Mapping[str, Any] | None) -> str:
    """The run's metrics.

    Where the exported model computes in another precision, its metrics stand next to them.
    """
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    columns, head = [_by_name(metrics)], ["value"]
    if precision is not None and isinstance(exported, Mapping) and exported:
        columns.append(_by_name(exported))
        head = [f"the run, in {_plain(precision['trained'])}", f"exported, in {precision['exported']}"]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[*map(_plain, name), *(_plain(column.get(name, "")) for column in columns)] for name in names]
    return "## Metrics\n\n" + _table(["examples", "metric", *head], rows, 2)


def _comparisons(comparisons: Any) -> Iterator[str]:
    """What sites tell of their own models on their own test examples, a table for each kind of model."""
    for compared in site_comparisons(comparisons):
        rows = [[_plain(site), *cells] for site, *cells in compared.rows]
        yield f"## {compared.title}\n\n{_table(compared.heading, rows, 1)}\n{compared.caption}\n"


def _by_name(metrics: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    splits = {split: values if isinstance(values, Mapping) else {"": values} for split, values in metrics.items()}
    return {(split, name): value for split, values in splits.items() for name, value in values.items()}


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
    called = MEASURES[measure]
    rows = [
        [f"`{name}`", f"{form['bytes'] / 1e6:.2f} MB", *(_number(form.get(key)) for key in (measure, "difference"))]
        for name, form in forms.items()
    ]
    measured = next((f"{form['examples']} test {form['unit']}" for form in forms.values() if measure in form), "")
    note = f"The {called} is that on {measured} of the run; " if measured else ""
    table = _table(["form", "size", called, "largest difference of a probability"], rows, 1)
    return f"## Forms\n\n{table}\n{note}differences are to the trained model in float32.\n"


_SERIES = ".".join(metadata.version("tensorflow").split(".")[:2])
OF_TENSORFLOW_TEXT = (
    f" with operations of tensorflow-text (`pip install tensorflow=={_SERIES}.* tensorflow-text=={_SERIES}.* "
    "'setuptools<81'`; tensorflow-text needs the last and does not say so)"
)
"""Behind what is said of a tokenizer in the graph."""

IMPORT_TENSORFLOW_TEXT = "import tensorflow_text  # the SavedModel's tokenizer is made of its operations\n"

ENCODED = (
    "`{keras_file}` takes encoded inputs ({names}; int32, as the signature `encode` of the SavedModel gives them) and, "
    "for its layers, the package tff-re. The SavedModel needs neither."
)
"""Of a model.keras whose texts the SavedModel tokenizes."""


@dataclass(frozen=True)
class Use:
    """How a form of a model that gives one class to each example is called.

    Attributes:
      example: the arguments of the call.
      explanation: what these are.
      before: lines before the model is loaded; None: there is no example to run.
    """

    example: str
    explanation: str
    before: str | None = ""


def uses(description: Mapping[str, Any], saved_model: Use, keras: Use) -> list[str]:
    """The sections on use of a model that gives one class to each example.

    Args:
      description: what export.json holds.
      saved_model, keras: how these forms are called.
    """
    forms, parts = description["forms"], []
    called = f'model.signatures["{DEFAULT_SIGNATURE}"]'
    for name, title, imports, loader, call, use in (
        (SAVED_MODEL_FOLDER, "TensorFlow alone", "", "tf.saved_model.load", called, saved_model),
        (KERAS_FILE, "Keras", _KERAS_IMPORTS, _LOAD_KERAS, "model", keras),
    ):
        if name in forms and use.before is None:
            parts.append(f"## Use with {title}\n\n{use.explanation}\n")
        elif name in forms:
            load = f'{loader}("{name}")'
            code = {"imports": imports, "load": load, "call": call, "labels": LABELS_FILE}
            parts.append(_USE.format(title=title, **code, **vars(use)))
    parts += _float16(forms, "signatures")
    if TFLITE_FILE in forms:
        names = ", ".join(description["arrays"])
        parts.append(_TFLITE.format(file=TFLITE_FILE, names=names, encoding_file=ENCODING_FILE))
    return parts


def file_uses(description: Mapping[str, Any], *, layers: Sequence[str], explanation: str, **use: str) -> list[str]:
    """The sections on use of a model that takes files of a data set, and arrays where it is called without tff-re.

    Args:
      description: what export.json holds.
      layers: modules of this project with the layers of model.keras.
      explanation: what the arrays are.
      use: `file`, a file's name; `printed`, the arguments of `print` for a prediction; `answer`, what predictions are,
        in words; `arrays`, lines that make `arrays`, inputs by name; `shape`, of the probabilities, in words.
    """
    forms, parts = description["forms"], []
    if SAVED_MODEL_FOLDER in forms:
        parts.append(_FILES_PREDICTOR.format(encoding=ENCODING_FILE, **use))
        common = {"folder": SAVED_MODEL_FOLDER, "signature": DEFAULT_SIGNATURE, "explanation": explanation}
        parts.append(_FILES_SAVED_MODEL.format(**common, **use))
    if KERAS_FILE in forms:
        code = {"imports": _KERAS_IMPORTS, "loader": _LOAD_KERAS, "layers": ", ".join(layers)}
        parts.append(_FILES_KERAS.format(keras_file=KERAS_FILE, **code, **use))
        if SAVED_MODEL_FOLDER not in forms:
            parts.append(explanation + "\n")
    return parts + _float16(forms, "signature")


def tagging_uses(description: Mapping[str, Any], *, text: str, takes: str, imports: str) -> list[str]:
    """The sections on use of a model that gives each token of a text a tag.

    Args:
      description: what export.json holds.
      text: an example, as the SavedModel takes it.
      takes: a sentence on what it takes.
      imports: lines before the SavedModel is loaded.
    """
    forms, arrays, parts = description["forms"], description["arrays"], []
    code = {"folder": SAVED_MODEL_FOLDER, "labels": LABELS_FILE, "signature": DEFAULT_SIGNATURE, "text": text}
    if SAVED_MODEL_FOLDER in forms:
        parts.append(_TAGGING_PREDICTOR.format(text=text))
        crf = _TAGGING_CRF if description["input"]["crf"] else ""
        parts.append(_TAGGING_SAVED_MODEL.format(**code, imports=imports, takes=takes, crf=crf))
    if KERAS_FILE in forms:
        files = {"keras_file": KERAS_FILE, "keras_imports": _KERAS_IMPORTS, "loader": _LOAD_KERAS}
        names = "".join(f'"{name}", ' for name in arrays).rstrip(" " if len(arrays) == 1 else ", ")
        if SAVED_MODEL_FOLDER in forms:
            parts.append(
                _TAGGING_KERAS.format(**code, **files, imports=imports, names=names, model=description["model"])
            )
        else:
            parts.append("## Use with Keras\n\n")
        parts[-1] += _TAGGING_ENCODED.format(keras_file=KERAS_FILE, arrays=", ".join(arrays))
    return parts + _float16(forms, "signatures")


def _float16(forms: Mapping[str, Any], what: str) -> list[str]:
    if FLOAT16_FOLDER not in forms:
        return []
    return [_FLOAT16.format(half=FLOAT16_FOLDER, what=what, whole=SAVED_MODEL_FOLDER)]


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if value >= 1e-4 or value == 0 else f"{value:.1e}"


def _plain(value: Any) -> str:
    """One line of Markdown without markup."""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return "".join("\\" + c if c in r"\`*_[]<>#|" else c for c in " ".join(text.split()))
