"""How models of bags and of documents are used: the part of their card that other models' cards do not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets.documents.scoring import NOTHING
from tff_re.exporting.places import ENCODING_FILE, FLOAT16_FOLDER, KERAS_FILE, SAVED_MODEL_FOLDER

_PREDICTOR = """## Use with tff-re

```python
import tff_re
predictor = tff_re.load_export("{folder}")
for prediction in predictor.predict_file("{file}"):
    print({shown})
```

`predict_file` reads a file in the form of the data set of the run, encodes it with the tokenizer in `{encoding}` and
gives {answer}. On the command line: `python -m tff_re.run predict EXPORT --file FILE`.
"""

_SAVED_MODEL = """## Use with TensorFlow alone

```python
import tensorflow as tf
model = tf.saved_model.load("{folder}")
{arrays}
probabilities = model.signatures["serving_default"](**arrays)["probabilities"].numpy()
print(probabilities.shape)  # {shape}
```

{explanation}
"""

_KERAS = """## Use with Keras

```python
import tensorflow as tf
import {layers}  # the model's layers
model = tf.keras.models.load_model("{keras_file}")
{arrays}
probabilities = model(arrays)["probabilities"].numpy()
print(probabilities.shape)  # {shape}
```
"""

_BAGS = """ones = tf.ones([3, {length}], tf.int32)
arrays = dict(input_ids=ones, attention_mask=ones, head_mask=ones, tail_mask=ones)
arrays.update(head_start=tf.constant([1, 1, 1]), tail_start=tf.constant([4, 4, 4]), bag=tf.constant([0, 0, 1]))"""

_OF_BAGS = """`input_ids` and `attention_mask`, int32 [n, {length}], are n sentences as the tokenizer cuts them, with
markers around the two mentions; `head_mask` and `tail_mask` have a 1 at the pieces of a mention, `head_start` and
`tail_start`, int32 [n], are the places of its opening marker. `bag`, int32 [n], is the bag of each sentence: 0, 1, …
without a gap. There is a row of probabilities for each bag, the method's pooling ({pooling}) of its sentences; a bag of
one sentence has that sentence's own. `{encoding}` has the tokenizer (`tokenizer` is what the library tokenizers reads)
and all else that makes the arrays. Texts are encoded outside, so that the model needs nothing but TensorFlow."""

_DOCUMENTS = """arrays = dict.fromkeys(("input_ids", "attention_mask"), tf.ones([1, 8], tf.int32))
arrays.update(mention_place=tf.constant([[1, 4, 6]]), mention_entity=tf.constant([[0, 1, 0]]))
arrays.update(pair_head=tf.constant([[0, 1]]), pair_tail=tf.constant([[1, 0]]))"""

_OF_DOCUMENTS = """All arrays are int32, and all their dimensions are free. `input_ids` and `attention_mask` [D, L] are
D documents as the tokenizer cuts them, with a marker on either side of each mention; `mention_place` [D, M] are the
places of the opening markers, `mention_entity` [D, M] the entity of each mention, from 0 on in each document;
`pair_head` and `pair_tail` [D, P] are the entities of the pairs that are asked for. -1 fills up where a document has
fewer mentions or pairs. `probabilities`, float32 [D, P, R], are of each relation on its own; a relation is predicted
from {threshold}. `{encoding}` has the tokenizer (`tokenizer` is what the
library tokenizers reads) and the marker. Texts are encoded outside, so that the model needs nothing but TensorFlow."""


def record_uses(description: Mapping[str, Any]) -> list[str]:
    """The sections on use.

    Args:
      description: what export.json holds, of a model of bags or of documents.
    """
    source, forms = description["input"], description["forms"]
    of_bags = source["kind"] == "bags"
    if of_bags:
        layers = ["tff_re.models.bag_layers"] + ([] if source["stock"] else [f"tff_re.models.{description['model']}"])
        arrays = _BAGS.format(length=source["max_length"])
        explanation = _OF_BAGS.format(length=source["max_length"], pooling=source["pooling"], encoding=ENCODING_FILE)
        shape, file = "bags, relations", "sentences.jsonl"
        shown = "prediction.head_id, prediction.tail_id, prediction.label, prediction.probability"
        answer = "for each pair of entities the relation with the highest score, and the scores of all"
    else:
        layers, arrays = [f"tff_re.models.{description['model']}"], _DOCUMENTS
        threshold = _threshold(description["details"].get("threshold"))
        explanation = _OF_DOCUMENTS.format(threshold=threshold, encoding=ENCODING_FILE)
        shape, file = "documents, pairs, relations", "documents.pubtator"
        shown = "prediction.document_id, prediction.head_id, prediction.tail_id, prediction.labels"
        answer = "for each pair of entities of each document the relations whose probability reaches the threshold"
    parts = []
    if SAVED_MODEL_FOLDER in forms:
        parts.append(_PREDICTOR.format(folder=".", file=file, shown=shown, encoding=ENCODING_FILE, answer=answer))
        parts.append(
            _SAVED_MODEL.format(folder=SAVED_MODEL_FOLDER, arrays=arrays, shape=shape, explanation=explanation)
        )
    if KERAS_FILE in forms:
        names = ", ".join(layers)
        parts.append(_KERAS.format(layers=names, keras_file=KERAS_FILE, arrays=arrays, shape=shape))
        if SAVED_MODEL_FOLDER not in forms:
            parts.append(explanation + "\n")
    if FLOAT16_FOLDER in forms:
        parts.append(
            f"`{FLOAT16_FOLDER}/` has the signature of `{SAVED_MODEL_FOLDER}/`; its weights are stored in 16 bits and "
            "computed with in 32.\n"
        )
    return parts


def _threshold(value: float | None) -> str:
    if value is None:
        return "a threshold of your choice on"
    if value >= NOTHING:
        return f"{value:g} on, so that none is: the run's dev documents state nothing that the model could find"
    return f"{value:.6g} on, a threshold chosen on the run's dev documents, midway between two of their scores"
