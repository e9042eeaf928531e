"""The models as one writes them in Keras 3, compiled for `fit`."""

import keras
import numpy as np
from keras import layers, ops


class Pieces(layers.Layer):
    """Word and position vectors, one convolution, the maximum of each segment between the mentions, tanh (PCNN)."""

    def __init__(self, words: int, width: int, position_width: int, limit: int, filters: int, window: int):
        super().__init__()
        self.vectors = layers.Embedding(words, width, name="word_vectors")
        self.positions = [
            layers.Embedding(2 * limit + 1, position_width, name=f"{which}_position_vectors")
            for which in ("head", "tail")
        ]
        self.convolution = layers.Conv1D(filters, window, padding="same", name="convolution")
        self.limit = limit

    def call(self, input_ids, head_start, tail_start):
        place = ops.arange(input_ids.shape[1], dtype="int32")
        starts = head_start[:, None], tail_start[:, None]
        away = [ops.clip(place - start, -self.limit, self.limit) + self.limit for start in starts]
        parts = [self.vectors(input_ids), *(table(a) for table, a in zip(self.positions, away, strict=True))]
        found = self.convolution(ops.concatenate(parts, -1))
        segment = sum(ops.cast(place > start, "int32") for start in starts)[..., None]
        pieces = [ops.max(ops.where(segment == s, found, -1e9), 1) for s in range(3)]
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
        features = Pieces(**sizes)(**inputs)
    model = keras.Model(inputs, classifier(features))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(problem["rate"]), loss)
    return model


def names(model: keras.Model) -> list[str]:
    """Our names of the model's weights, in the order of `get_weights`."""
    paths = [variable.path.split("/") for variable in model.trainable_variables]
    return ["/".join([path[-2].replace("lstm_cell", "lstm"), path[-1]]) for path in paths]


def features_of(model: keras.Model, arrays: dict[str, np.ndarray], count: int):
    """The first examples of a client, as the model takes them."""
    taken = {one.name: arrays[one.name][:count] for one in model.inputs}
    return taken if isinstance(model.input, dict) else next(iter(taken.values()))
