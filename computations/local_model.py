"""What a client needs to know about a model: how to build it, its examples' types, its losses and metrics."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from computations import federated as tff
from computations.federated.values import Weights
from computations.stack import KERAS_MODULE

LABEL = "y"

TRIPLE = "triple"
"""int32 [n], the place of a sentence's (head, relation, tail) among the knowledge base's: distant supervision."""

PLATFORM = "platform"
"""int32 [n], the index of the client, the same in all of its rows."""

GROUP = "group"
"""int32 [n], equal where examples are of one patient or document, whose presence local training is to hide."""

GLOBAL = "global_"
"""Prefix of the names of the global model's outputs where losses read them."""

NOT_FEATURES = (LABEL, TRIPLE, PLATFORM, GROUP)
"""What an example may have beside the model's features."""

Statistics = Callable[[tf.Tensor, Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]
"""(labels, outputs) -> tensors by name, see `LocalModel`."""


def cross_entropy_losses(labels: tf.Tensor, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return the cross-entropy of every example: labels int32 [B], outputs['logits'] float32 [B, C] -> float32 [B]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs["logits"])


def confusion_statistics(num_classes: int) -> Statistics:
    """Return a single-label classifier's statistics: `confusion` float32 [C, C] (row: label, column: prediction)."""

    def statistics(labels: tf.Tensor, outputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        predicted = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
        cells = tf.cast(labels, tf.int32) * num_classes + predicted
        counts = tf.math.bincount(cells, minlength=num_classes**2, maxlength=num_classes**2, dtype=tf.float32)
        return {"confusion": tf.reshape(counts, [num_classes, num_classes])}

    return statistics


def zeros(shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Return tf.zeros as the initial value of a variable.

    TensorFlow folds tf.zeros into a constant, which every session of the worker then keeps as large as the variable.
    """
    return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)


@contextlib.contextmanager
def zero_initialisers() -> Iterator[None]:
    """Start variables made inside as zeros, for models whose weights are assigned at once anyway."""

    def creator(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        shape, dtype = kwargs.get("shape"), kwargs.get("dtype")
        if callable(kwargs.get("initial_value")) and shape is not None and tf.TensorShape(shape).is_fully_defined():
            kwargs["initial_value"] = lambda: zeros(shape, dtype or tf.float32)
        return next_creator(**kwargs)

    with tf.variable_creator_scope(creator):
        yield


@contextlib.contextmanager
def _isolated_seeds(seed: int) -> Iterator[None]:
    """Seed Keras' initialisers without disturbing the caller's global random states.

    TensorFlow and Keras have no public way to read their seeds; these names are those of the pinned versions.
    """
    keras_backend = importlib.import_module(f"{KERAS_MODULE}.src.backend")
    eager, keras_seeds = context.context(), keras_backend._SEED_GENERATOR
    python_state, numpy_state = random.getstate(), np.random.get_state()
    eager_state = {name: getattr(eager, name) for name in ("_seed", "_rng") if hasattr(eager, name)}
    keras_state = getattr(keras_seeds, "generator", None)
    try:
        tf.keras.utils.set_random_seed(seed)
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for name in ("_seed", "_rng"):
            if name in eager_state:
                setattr(eager, name, eager_state[name])
            elif hasattr(eager, name):
                delattr(eager, name)  # TensorFlow makes it with the first operation
        keras_seeds.generator = keras_state


class Sizes(NamedTuple):
    """The sizes of a model's weights and outputs.

    Attributes:
      weights: (dtype, shape) of each trainable and of each other weight.
      names: of the trainable weights.
      widths: last dimension of each output by name; None for a model that would have to be called for it.
    """

    weights: list[list[tuple[type, list[int]]]]
    names: list[str]
    widths: dict[str, int] | None


@dataclass(frozen=True)
class LocalModel:
    """A Keras model as the clients train it.

    Attributes:
      build: makes a fresh, built Keras model. Called inside a graph as well as eagerly, so it may not read files. The
        model takes a dict of the features by name and returns a dict with `logits` [B, C] and `features` [B, d] (the
        input of the classifier), so that an objective asks for what it needs by name.
      input_spec: name -> TensorSpec of a batch (leading dimension None), the label `y` included; where sentences come
        in bags, `triple` and `platform` too, and `group` where groups are protected. The model gets the rest.
      num_classes: C.
      classifier: the name of the layer that makes the logits, or None.
      losses: (labels, outputs) -> float32 [B], the loss of every example (of every row, see `rows`).
      statistics: (labels, outputs) -> dict of tensors which, summed over batches and clients, give the metrics.
      initialise: brings a model that was just built to its initial weights where its own initialisers do not
        (pretrained ones); called eagerly, so it may read files.
      rows: name of an integer feature [B, P] of which every entry that is not negative makes one row of the outputs, in
        their order (the pairs of a document); None: every example makes one.
      row_labels: name of an integer feature of the shape of `rows`, with the class of each row where that is not -1 (a
        token's tag); None: a row has the label of its example, or no single class.
      global_rows, global_parts: names of outputs that the losses get of the round's global model, too, as `global_` and
        the name, in local training and without dropout; of others (evaluation, the server's training) they do not.
        `global_rows` have an entry for each row of the outputs, `global_parts` are the same for all examples.
      inference_batch: examples at once where no gradients are taken, to bound the memory; None: the usual number.
      mask: name of an integer feature [B, l], 1 where an example has something and 0 on its padding, of a model that
        computes no more than the longest of a batch needs; a client then reads examples of like length together.
      threshold: the probability from which on a class of a row is predicted, where the loss sets it; None: it is
        chosen on dev examples, where rows may have more than one class.
      known_sizes: what `sizes` gives without building a model; None: it builds one. See `with_sizes`.
    """

    build: Callable[[], tf.keras.Model]
    input_spec: Mapping[str, tf.TensorSpec]
    num_classes: int
    classifier: str | None = None
    losses: Callable[[tf.Tensor, Mapping[str, tf.Tensor]], tf.Tensor] = cross_entropy_losses
    statistics: Statistics = None  # type: ignore[assignment]  # `__post_init__` replaces None
    initialise: Callable[[tf.keras.Model], None] | None = None
    rows: str | None = None
    row_labels: str | None = None
    global_rows: tuple[str, ...] = ()
    global_parts: tuple[str, ...] = ()
    inference_batch: int | None = None
    mask: str | None = None
    threshold: float | None = None
    known_sizes: Sizes | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if LABEL not in self.input_spec:
            raise ValueError(f"input_spec has no label {LABEL!r}: it names {sorted(self.input_spec)}")
        if self.row_labels is not None and self.rows is None:
            raise ValueError("row_labels needs rows")
        for name in ("rows", "row_labels", "mask"):
            if (feature := getattr(self, name)) is not None and feature not in self.input_spec:
                raise ValueError(f"{name} is {feature!r}, but input_spec names {sorted(self.input_spec)}")
        if self.statistics is None:
            object.__setattr__(self, "statistics", confusion_statistics(self.num_classes))

    @cached_property
    def examples_type(self) -> tff.StructWithPythonType:
        """Return the type of one client's examples, with one tensor per name.

        The leading dimension is the client's own size.
        """
        return tff.types.to_type(collections.OrderedDict((name, tensor_type(spec)) for name, spec in self._ordered()))

    def with_sizes(self, sizes: Sizes) -> LocalModel:
        """Return the same model with these sizes.

        They come from a model with the same weights, or with a part of its weights.
        """
        return dataclasses.replace(self, known_sizes=sizes)

    @cached_property
    def sizes(self) -> Sizes:
        """Return the sizes of the weights and outputs.

        It builds a whole model unless they are known.
        """
        if self.known_sizes is not None:
            return self.known_sizes
        with tf.Graph().as_default(), zero_initialisers():
            model = self.build()
            weights = tff.learning.models.ModelWeights.from_model(model)
            spec = tf.nest.map_structure(lambda v: (v.dtype.as_numpy_dtype, v.shape.as_list()), _as_lists(weights))
            names = [v.name.removesuffix(":0") for v in model.trainable_variables]
            outputs = getattr(model, "output_shape", None)
        widths: dict[Any, Any] = (
            {name: shape[-1] for name, shape in outputs.items()} if isinstance(outputs, dict) else {None: None}
        )
        return Sizes(spec, names, None if None in widths.values() else widths)

    @cached_property
    def weights_type(self) -> tff.StructWithPythonType:
        """Return tff.learning.models.ModelWeights of the model."""
        to_types = [[tff.TensorType(dtype, shape) for dtype, shape in group] for group in self.sizes.weights]
        return tff.types.to_type(tff.learning.models.ModelWeights(*to_types))

    @property
    def feature_width(self) -> int:
        """Return d, the width of the model's `features`."""
        return self.output_widths["features"]

    @cached_property
    def output_widths(self) -> dict[str, int]:
        """Return the last dimension of each of the model's outputs, by name."""
        if self.sizes.widths is not None:
            return self.sizes.widths
        with tf.Graph().as_default(), zero_initialisers():
            features = features_of(dict(self._ordered()))
            single = {name: tf.zeros([dim or 1 for dim in spec.shape], spec.dtype) for name, spec in features.items()}
            return {name: value.shape[-1] for name, value in self.build()(single, training=False).items()}

    @property
    def weight_names(self) -> list[str]:
        """Return the names of the trainable weights, in the order of `weights_type.trainable`."""
        return self.sizes.names

    def initial_model(self, seed: int) -> tf.keras.Model:
        """Return a Keras model in this process with initial weights.

        They are `initialise`'s where it sets them, and the rest are drawn by the initialisers.
        """
        with tf.init_scope(), _isolated_seeds(seed):
            model = self.build()
            if self.initialise is not None:
                self.initialise(model)
            return model

    def initial_weights(self, seed: int) -> Weights:
        """Return the weights of `initial_model`, as ModelWeights of NumPy arrays."""
        with tf.init_scope():
            model = self.initial_model(seed)
            return tff.learning.models.ModelWeights(
                [v.numpy() for v in model.trainable_variables], [v.numpy() for v in model.non_trainable_variables]
            )

    def keras_model(self, weights: Weights) -> tf.keras.Model:
        """Return a Keras model in this process that holds `weights` (ModelWeights of arrays)."""
        model = self.build()
        assign_weights(model, weights)
        return model

    def row_counts(self, examples: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return how many rows of the outputs each example makes, int32 [n]."""
        if self.rows is None:
            return tf.ones_like(examples[LABEL], tf.int32)
        return tf.reduce_sum(tf.cast(examples[self.rows] >= 0, tf.int32), axis=-1)

    def output_rows(self, examples: Mapping[str, tf.Tensor], places: tf.Tensor) -> tf.Tensor:
        """Return the indices of the output rows, int32 [N], that the examples at these places, int32 [B], make."""
        if self.rows is None:
            return places
        counts = self.row_counts(examples)
        of_places = tf.gather(counts, places)
        first = tf.gather(tf.cumsum(counts, exclusive=True), places)
        shift = first - tf.cumsum(of_places, exclusive=True)
        return tf.range(tf.reduce_sum(of_places)) + tf.repeat(shift, of_places)

    @property
    def one_label(self) -> bool:
        """Return whether each row of the outputs has exactly one class."""
        return self.rows is None or self.row_labels is not None

    def labels_of(self, examples: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the class of each row of the outputs, int32 [N].

        These are the labels of the examples if rows have no single class.
        """
        if self.row_labels is None or self.rows is None:  # `row_labels` needs `rows`
            return examples[LABEL]
        return tf.boolean_mask(examples[self.row_labels], examples[self.rows] >= 0)

    def num_rows(self, examples: Mapping[str, np.ndarray]) -> int:
        """Return how many rows of the outputs arrays of examples make."""
        return len(examples[LABEL]) if self.rows is None else int(np.count_nonzero(examples[self.rows] >= 0))

    def arrange(self, examples: Mapping[str, np.ndarray]) -> collections.OrderedDict:
        """Return examples in the order and types of `examples_type`.

        A KeyError names a missing array.
        """
        return collections.OrderedDict(
            (name, np.ascontiguousarray(examples[name], dtype=spec.dtype.as_numpy_dtype))
            for name, spec in self._ordered()
        )

    def _ordered(self) -> list[tuple[str, tf.TensorSpec]]:
        return sorted(self.input_spec.items())


def tensor_type(spec: tf.TensorSpec) -> tff.TensorType:
    """Return the TFF type of a TensorSpec."""
    return tff.TensorType(spec.dtype.as_numpy_dtype, spec.shape.as_list())


def _as_lists(weights: Weights) -> list[list[Any]]:
    return [list(weights.trainable), list(weights.non_trainable)]


def assign_weights(model: tf.keras.Model, weights: Weights) -> None:
    """Assign ModelWeights to the variables of a Keras model, in graphs and eagerly."""
    for group, values in (
        (model.trainable_variables, weights.trainable),
        (model.non_trainable_variables, weights.non_trainable),
    ):
        for variable, value in zip(group, values, strict=True):
            variable.assign(value)


def features_of(examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the examples that are the model's features, by name."""
    return {name: value for name, value in examples.items() if name not in NOT_FEATURES}


def split_label(examples: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return (features by name, labels) of a batch."""
    return features_of(examples), examples[LABEL]
