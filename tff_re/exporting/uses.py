"""The sections of a model card on use, for models that give one class to each example and for models of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tff_re.exporting.layout import (
    DEFAULT_SIGNATURE,
    ENCODING_FILE,
    FLOAT16_FOLDER,
    KERAS_FILE,
    LABELS_FILE,
    SAVED_MODEL_FOLDER,
    TFLITE_FILE,
)

_KERAS = """## Use with Keras

```python
import json
import tensorflow as tf
{before}model = tf.keras.models.load_model("{file}")
labels = json.load(open("{labels}", encoding="utf-8"))
probabilities = model({example})["probabilities"].numpy()
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

{explanation}
"""

_SAVED_MODEL = """## Use with TensorFlow alone

```python
import json
import tensorflow as tf
{before}model = tf.saved_model.load("{file}")
labels = json.load(open("{labels}", encoding="utf-8"))
probabilities = model.signatures["{signature}"]({example})["probabilities"].numpy()
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
    print({shown})
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
model = tf.keras.models.load_model("{keras_file}")
{arrays}
probabilities = model(arrays)["probabilities"].numpy()
print(probabilities.shape)  # {shape}
```
"""


@dataclass(frozen=True)
class Use:
    """How a form of a model is called.

    Attributes:
      example: the arguments of the call.
      explanation: what these are.
      before: lines before the model is loaded; None: there is no example to run.
    """

    example: str
    explanation: str
    before: str | None = ""


@dataclass(frozen=True)
class FileUse:
    """How a model is called that takes files of a data set, and arrays where it is called without tff-re.

    Attributes:
      file: a name of a file.
      shown: the arguments of `print` for a prediction.
      answer: what predictions are, in words.
      arrays: lines that make `arrays`, inputs by name.
      shape: of the probabilities, in words.
      layers: modules of this project with the layers of model.keras.
      explanation: what the arrays are.
    """

    file: str
    shown: str
    answer: str
    arrays: str
    shape: str
    layers: tuple[str, ...]
    explanation: str


def uses(description: Mapping[str, Any], saved_model: Use, keras: Use) -> list[str]:
    """The sections of a model that gives one class to each example.

    Args:
      description: what export.json holds.
      saved_model, keras: how these forms are called.
    """
    forms, parts = description["forms"], []
    for name, template, use in ((SAVED_MODEL_FOLDER, _SAVED_MODEL, saved_model), (KERAS_FILE, _KERAS, keras)):
        if name in forms and use.before is None:
            parts.append(f"## Use with Keras\n\n{use.explanation}\n")
        elif name in forms:
            parts.append(template.format(file=name, labels=LABELS_FILE, signature=DEFAULT_SIGNATURE, **vars(use)))
    parts += _float16(forms, "signatures")
    if TFLITE_FILE in forms:
        names = ", ".join(description["arrays"])
        parts.append(_TFLITE.format(file=TFLITE_FILE, names=names, encoding_file=ENCODING_FILE))
    return parts


def file_uses(description: Mapping[str, Any], use: FileUse) -> list[str]:
    """The sections of a model that takes files.

    Args:
      description: what export.json holds.
      use: how it is called.
    """
    forms, parts = description["forms"], []
    given = {**vars(use), "layers": ", ".join(use.layers), "encoding": ENCODING_FILE, "signature": DEFAULT_SIGNATURE}
    if SAVED_MODEL_FOLDER in forms:
        parts.append(_FILES_PREDICTOR.format(**given))
        parts.append(_FILES_SAVED_MODEL.format(folder=SAVED_MODEL_FOLDER, **given))
    if KERAS_FILE in forms:
        parts.append(_FILES_KERAS.format(keras_file=KERAS_FILE, **given))
        if SAVED_MODEL_FOLDER not in forms:
            parts.append(use.explanation + "\n")
    return parts + _float16(forms, "signature")


def _float16(forms: Mapping[str, Any], what: str) -> list[str]:
    if FLOAT16_FOLDER not in forms:
        return []
    return [_FLOAT16.format(half=FLOAT16_FOLDER, what=what, whole=SAVED_MODEL_FOLDER)]
