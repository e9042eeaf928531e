"""Smaller forms of an exported model: weights in float16, and TFLite with weights in 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tff_re.exporting.places import ExportError

SMALLEST_WEIGHT = 64
"""Constants of fewer numbers stay as they are."""

Core = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]
"""Encoded inputs by name -> probabilities, float32 [B, C]."""


def signature_of(core: Core, specs: Mapping[str, tf.TensorSpec]) -> Callable[..., dict[str, tf.Tensor]]:
    """A signature of a SavedModel around a core, with inputs of its names."""

    def serve(*arrays):
        return {"probabilities": core(dict(zip(specs, arrays, strict=True)))}

    named = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()]
    return tf.function(serve, input_signature=named, autograph=False)


class HalfCore(tf.Module):
    """A core whose weights are stored in float16 and cast to float32 before they are used."""

    def __init__(self, core: Core, specs: Mapping[str, tf.TensorSpec]):
        """Raises:
        ExportError: a weight is beyond the range of float16.
        """
        super().__init__(name="half")
        concrete = signature_of(core, specs).get_concrete_function()
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
        self._graph = frozen.graph.as_graph_def()
        if len(frozen.inputs) != len(specs):
            raise ExportError("the model's inputs changed when its weights were taken out; leave --quantise out")
        self._inputs = {tensor.op.name: name for tensor, name in zip(frozen.inputs, specs, strict=True)}  # in order
        self._output = frozen.outputs[0].name
        self.weights, self._weight_names = [], []
        for node in self._graph.node:
            if node.op != "Const" or node.attr["dtype"].type != tf.float32.as_datatype_enum:
                continue
            shape = [dimension.size for dimension in node.attr["value"].tensor.tensor_shape.dim]
            if np.prod(shape, dtype=np.int64) < SMALLEST_WEIGHT:
                continue
            value = tf.make_ndarray(node.attr["value"].tensor)
            with np.errstate(over="ignore"):
                half = value.astype(np.float16)
            if not np.isfinite(half).all():
                raise ExportError("a weight is beyond the range of float16 (65504); export without --quantise")
            self.weights.append(tf.Variable(half, trainable=False))
            self._weight_names.append(node.name)
            node.op = "Placeholder"
            del node.attr["value"]

    def __call__(self, arrays: Mapping[str, tf.Tensor]) -> tf.Tensor:
        weights = zip(self._weight_names, self.weights, strict=True)
        inputs = {f"{name}:0": tf.cast(weight, tf.float32) for name, weight in weights}
        inputs.update({f"{node}:0": arrays[name] for node, name in self._inputs.items()})
        # Under a name of its own: names of inlined functions may be those of functions around it.
        (output,) = tf.graph_util.import_graph_def(
            self._graph, input_map=inputs, return_elements=[self._output], name="half"
        )
        return output


def write_tflite(path: Path, core: Core, specs: Mapping[str, tf.TensorSpec]) -> None:
    """Writes the core for one text (batches of 1) with weights in 8 bits, scales by tensor or channel.

    It computes in float32.

    Raises:
      ExportError: TFLite has no operations for the model.
    """
    single = {name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype) for name, spec in specs.items()}
    concrete = signature_of(core, single).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], concrete.graph)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    problem = None
    for operations in ([], [tf.lite.OpsSet.SELECT_TF_OPS]):
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, *operations]
        try:
            path.write_bytes(converter.convert())
            return
        except OSError:
            raise
        except Exception as error:  # whatever the converter meets
            problem = type(error).__name__
    raise ExportError(
        f"TFLite cannot take this model ({problem}: an operation that it does not have); leave --tflite out"
    )


def tflite_core(path: Path) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Encoded inputs of any number of texts -> probabilities, by the interpreter, one text after the other."""
    interpreter = tf.lite.Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    places = {detail["name"].split(":")[0]: detail["index"] for detail in interpreter.get_input_details()}
    (output,) = interpreter.get_output_details()

    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        rows = []
        for row in range(len(next(iter(arrays.values())))):
            for name, index in places.items():
                interpreter.set_tensor(index, np.asarray(arrays[name][row : row + 1]))
            interpreter.invoke()
            rows.append(interpreter.get_tensor(output["index"])[0])
        return np.stack(rows)

    return run
