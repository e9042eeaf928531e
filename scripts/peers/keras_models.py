"""The models as usually written in Keras 3, compiled for `fit`."""

import keras
import numpy as np
from keras import layers, ops


class PiecewiseConvolution(layers.Layer):
    """Word and position vectors, one convolution, the maximum of each segment between the mentions, tanh (PCNN)."""

    def __init__(self, words: int, width: int, position_width: int, limit: int, filters: int, window: int):
        super().__init__()
        self.vectors = layers.Embedding(words, width, name="word_vectors")
        self.positions = [
            layers.Embedding(2 * limit + 1, position_width, name=f"{side}_position_vectors")
            for side in ("head", "tail")
        ]
        self.convolution = layers.Conv1D(filters, window, padding="same", name="convolution")
        self.limit = limit

    def call(self, input_ids, head_start, tail_start):
        positions = ops.arange(input_ids.shape[1], dtype="int32")
        starts = head_start[:, None], tail_start[:, None]
        distances = [ops.clip(positions - start, -self.limit, self.limit) + self.limit for start in starts]
        vectors = [self.vectors(input_ids), *(table(d) for table, d in zip(self.positions, distances, strict=True))]
        features = self.convolution(ops.concatenate(vectors, -1))
        segment = sum(ops.cast(positions > start, "int32") for start in starts)[..., None]
        pieces = [ops.max(ops.where(segment == s, features, -1e9), 1) for s in range(3)]
        pieces = [ops.where(piece == -1e9, 0.0, piece) for piece in pieces]  # a segment without tokens
        return ops.tanh(ops.concatenate(pieces, -1))


def make(problem: dict) -> keras.Model:
    """The model of problem.json, ready for `fit`."""
    sizes = dict(problem["sizes"])
    classes, length = sizes.pop("classes"), problem.get("length")
    classifier = layers.Dense(classes, name="classifier")
    if problem["kind"] == "lr":
        inputs = keras.Input([sizes["width"]], name="x")
        features = inputs
    elif problem["kind"] == "lstm":
        inputs = keras.Input([length], dtype="int32", name="tokens")
        features = layers.LSTM(sizes["units"], name="lstm")(
            layers.Embedding(sizes["words"], sizes["width"], name="word_vectors")(inputs)
        )
    else:
        inputs = {
            "input_ids": keras.Input([length], dtype="int32", name="input_ids"),
            **{name: keras.Input([], dtype="int32", name=name) for name in ("head_start", "tail_start")},
        }
        features = PiecewiseConvolution(**sizes)(**inputs)
    model = keras.Model(inputs, classifier(features))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(problem["rate"]), loss)
    return model


def weight_names(model: keras.Model) -> list[str]:
    """The weights' names (as in `start`), in the order of `get_weights`."""
    paths = [variable.path.split("/") for variable in model.trainable_variables]
    return ["/".join([path[-2].replace("lstm_cell", "lstm"), path[-1]]) for path in paths]


def input_arrays(model: keras.Model, arrays: dict[str, np.ndarray], count: int):
    """The first `count` examples of a client, in the form of the model's inputs."""
    inputs = {tensor.name: arrays[tensor.name][:count] for tensor in model.inputs}
    return inputs if isinstance(model.input, dict) else next(iter(inputs.values()))
