"""model.onnx: encoded inputs to logits and probabilities, for ONNX runtimes.

The tokenizer is not part of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from computations.stack import STACK
from tff_re.exporting.forms import TOLERANCE, Form
from tff_re.exporting.layout import ENCODING_FILE, LABELS_FILE, ONNX_FILE, TOKENIZER_FILE
from tff_re.exporting.places import ExportError, write

PACKAGES = {
    "onnx": "onnx<1.18" if STACK == "tff" else "onnx>=1.19",
    "onnxruntime": "onnxruntime",
    "tf2onnx": "tf2onnx>=1.17",
}
"""Import name of an optional package -> its requirement on this stack, as the extra `onnx` of setup.cfg has it."""

_OPSET = 17
"""What onnxruntime 1.12 (2022) and later read."""


def require_packages() -> None:
    """Raises ExportError where an optional package is missing or does not fit the others."""
    words = " ".join(f"'{requirement}'" for requirement in PACKAGES.values())
    for name in PACKAGES:
        problem = None
        try:
            with _quiet():
                importlib.import_module(name)
        except ImportError:
            problem = "is not installed" if importlib.util.find_spec(name) is None else "cannot be imported"
        if problem is not None:
            raise ExportError(f"{ONNX_FILE} needs the package {name}, which {problem}; run: pip install {words}")


def write_onnx(path: Path, exported: Form, model_name: str) -> None:
    """Writes a form's logits and probabilities as ONNX, and its tokenizer next to it if it has one.

    The outputs are `logits` and `probabilities`, float32 [B, C], of tokens [B, L, T]; the inputs those of
    `exported.core_specs`.

    Raises:
      ExportError: ONNX has no form of this model, tf2onnx or onnxruntime cannot take it, or onnxruntime's logits differ
        from those of Keras by more than 1e-5 of the largest logit (more than `exported.tolerance` of it).
    """
    if exported.no_onnx:
        raise ExportError(f"{_refused(model_name)}: {exported.no_onnx}; leave --onnx out")
    import tf2onnx

    def outputs(*arrays):
        return exported.with_logits(dict(zip(exported.core_specs, arrays, strict=True)))

    specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in exported.core_specs.items()]
    function = tf.function(outputs, input_signature=specs, autograph=False)
    probes, problem = exported.probes().arrays, None
    try:
        with _quiet():
            handlers = {"Erfc": (_write_erfc, [])}
            tf2onnx.convert.from_function(
                function, input_signature=specs, opset=_OPSET, custom_op_handlers=handlers, output_path=str(path)
            )
            answers = onnx_core(path, exported.at_once)(probes)
    except OSError:
        raise
    except Exception as error:  # whatever the converter and the runtime meet
        problem = type(error).__name__
    if problem is not None:
        raise ExportError(f"{_refused(model_name)} ({problem}); leave --onnx out")
    expected = exported.logits({n: tf.constant(v) for n, v in probes.items()}).numpy()
    largest = float(np.abs(expected).max())
    difference = float(np.abs(answers["logits"] - expected).max())
    if not difference <= exported.tolerance * max(largest, TOLERANCE):  # a NaN has to fail
        raise ExportError(
            f"{_refused(model_name)}: onnxruntime's logits differ from Keras' by {difference:.2g} (the largest logit "
            f"is {largest:.2g}); leave --onnx out"
        )
    if exported.tokenizer is not None:
        write(path.parent / TOKENIZER_FILE, exported.tokenizer.backend_tokenizer.to_str(pretty=True))


def _write_erfc(graph: Any, node: Any, name: str, _arguments: list) -> None:
    """1 - erf(x) in place of erfc(x), which TensorFlow 2.21 has in its gelu and ONNX does not have."""
    shape, dtype = graph.get_shape(node.output[0]), graph.get_dtype(node.output[0])
    erf = graph.make_node("Erf", [node.input[0]])
    constant = graph.make_const(f"{name}/one", np.array(1, np.float32))
    graph.remove_node(name)
    inputs = [constant.output[0], erf.output[0]]
    graph.make_node("Sub", inputs, name=name, outputs=node.output, shapes=[shape], dtypes=[dtype])


def onnx_core(path: Path, at_once: int | None) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Encoded inputs -> `logits` and `probabilities`, by onnxruntime.

    Args:
      path: of model.onnx.
      at_once: so many examples at a time; None: all.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs = [tensor.name for tensor in session.get_inputs()]  # what a model does not read is not among them

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(next(iter(arrays.values())))
        size = at_once or count
        parts = [
            session.run(names, {name: np.asarray(arrays[name][start : start + size]) for name in inputs})
            for start in range(0, count, size)
        ]
        return {name: np.concatenate(values) for name, values in zip(names, zip(*parts, strict=True), strict=True)}

    return run


def _refused(model_name: str) -> str:
    return f"{ONNX_FILE} cannot be written for this {model_name} model"


@contextlib.contextmanager
def _quiet():
    """Silences tf2onnx and onnx, which write pages about what they convert.

    What matters is the check afterwards.
    """
    logger = logging.getLogger("tf2onnx")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


_USE = """## Use with onnxruntime

```python
import json
import numpy as np
import onnxruntime
{arrays}session = onnxruntime.InferenceSession("{file}")
arrays = {{tensor.name: arrays[tensor.name] for tensor in session.get_inputs()}}
logits, probabilities = session.run(["logits", "probabilities"], arrays)
labels = json.load(open("{labels}", encoding="utf-8"))
print(labels[probabilities[0].argmax()], probabilities[0].max())
```

`{file}` takes encoded inputs ({names}) and needs neither TensorFlow nor this project.{explanation}
"""

_IDS = """encoding = json.load(open("{encoding_file}", encoding="utf-8"))
length, ids = encoding["max_length"], {{word: number for number, word in enumerate(encoding["vocabulary"], 2)}}
tokens = [ids.get(word, 1) for word in {words}][:length]
arrays = {{"tokens": np.array([tokens + [0] * (length - len(tokens))], np.int32)}}
"""
_PIECES = """from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file("{tokenizer_file}")
encoding = json.load(open("{encoding_file}", encoding="utf-8"))
length, padding = encoding["max_length"], tokenizer.token_to_id(encoding["special"]["pad_token"])
tokenizer.enable_truncation(length)
tokenizer.enable_padding(length=length, pad_id=padding)
encoded = tokenizer.encode_batch(["肚子疼"])
arrays = {{
    "input_ids": np.array([text.ids for text in encoded], np.int32),
    "attention_mask": np.array([text.attention_mask for text in encoded], np.int32),
}}
"""
_MARKED = """from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file("{tokenizer_file}")
encoding = json.load(open("{encoding_file}", encoding="utf-8"))
length, special, markers = encoding["max_length"], encoding["special"], list(encoding["markers"].values())
text = "<e1>{head}</e1> inhibits <e2>{tail}</e2>."
pieces = tokenizer.encode(text, add_special_tokens=False).ids
ids = [special["cls"], *pieces, special["sep"]]
rows = {{"input_ids": ids, "attention_mask": [1] * len(ids)}}
arrays = {{}}
for name, opening, closing in (("head", *markers[:2]), ("tail", *markers[2:])):
    start, end = ids.index(opening), ids.index(closing)
    rows[f"{{name}}_mask"] = [int(start < i < end and ids[i] not in markers) for i in range(len(ids))]
    arrays[f"{{name}}_start"] = np.array([start], np.int32)
for name, row in rows.items():
    fill = special["padding"] if name == "input_ids" else 0
    arrays[name] = np.array([row + [fill] * (length - len(row))], np.int32)
"""
_PLAIN_TEXT = (
    " A special piece that a text spells out, such as `[SEP]`, is plain text to the SavedModel and to tff-re; "
    f"`{TOKENIZER_FILE}` reads it as the piece."
)
_LONG_TEXT = " A text has to fit into the model's length; the SavedModel cuts a longer one around the mentions."


def use(description: Mapping[str, Any]) -> str:
    """The card's section on model.onnx, of what export.json holds."""
    source, names = description["input"], ", ".join(description["arrays"])
    blind = source.get("blind")
    marked = {"head": "drug", "tail": "gene"} if blind else {"head": "Aspirin", "tail": "COX-2"}
    examples = {
        "vectors": ('arrays = {{"x": np.zeros([1, {width}], np.float32)}}\n', "", {"width": source.get("width")}),
        "words": (_IDS, "", {"words": '"肚子 疼".split()'}),
        "characters": (_IDS, "", {"words": 'list("肚子疼")'}),
        "pieces": (_PIECES, _PLAIN_TEXT, {}),
        "relation_pieces": (_MARKED, _PLAIN_TEXT + _LONG_TEXT, marked),
        "relation_words": (_MARKED, _LONG_TEXT, marked),
    }
    if source["kind"] not in examples:
        return f"## Use with onnxruntime\n\n`{ONNX_FILE}` takes encoded inputs ({names}).\n"
    lines, explanation, example = examples[source["kind"]]
    files = {"tokenizer_file": TOKENIZER_FILE, "encoding_file": ENCODING_FILE}
    return _USE.format(
        arrays=lines.format(**files, **example),
        file=ONNX_FILE,
        labels=LABELS_FILE,
        names=names,
        explanation=explanation,
    )
