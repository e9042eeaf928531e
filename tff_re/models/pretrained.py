"""Encoders of the `transformers` library as Keras layers: by folder or hub id, without PyTorch."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError

from computations.randomness import SeededDropout
from tff_re.errors import UserError
from tff_re.models.adapters import NEW_ROWS, Adaptable, WithNewRows, trained_by
from tff_re.models.checkpoint_files import Checkpoint, open_checkpoint
from tff_re.models.fixed_weights import FixedWeights, leaf_name, sort_weights
from tff_re.models.hub import how_to_read, is_path
from tff_re.models.keras_private import layers_in, precision_of, track_untrained, unwrapped
from tff_re.models.transformers_version import CONFIG_MAPPING, TF_MODEL_MAPPING, AutoConfig
from tff_re.models.transformers_version import logging as transformers_logging

KEY = "task.tokenizer (or model.encoder)"
"""What names an encoder in a recipe."""

PLAIN = (
    *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "mobilebert", "mpnet"),
    *("rembert", "roberta", "roformer", "xlm-roberta"),
)
"""Model types without Python's `if` and `for` on tensors, which BART and Longformer have."""

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")

_DEEPEST = 20

_PADDING = 0.1
"""The share of an embedding matrix's rows that may have no piece: matrices are padded to round numbers."""

_LAYER = re.compile(r"\blayer(?:_\._|\.)(\d+)\b")
"""The number of a layer in a weight's name, TensorFlow's or PyTorch's."""


class _UnusedChecks(logging.Filter):
    """Drops a page that TensorFlow logs on each check of ids by `transformers`, whose operation TFF's graphs drop."""

    def filter(self, record):
        message = record.getMessage()
        return not ("Object was never used" in message and "assert_less" in message)


logging.getLogger("tensorflow").addFilter(_UnusedChecks())


def source_of(options, inputs) -> str:
    """Folder or hub id of a model's encoder: its own option or the task's tokenizer.

    Raises UserError if neither is set.
    """
    source = options.encoder or inputs.tokenizer
    if source is None:
        raise UserError("the model needs an encoder: set task.tokenizer (or model.encoder) to its folder or id")
    return source


@functools.lru_cache(maxsize=16)
def load_config(source: str):
    """The configuration of an encoder, by folder or hub id.

    It is read only once, because models are built many times.

    Raises:
      UserError: there is none, or `transformers` has no TensorFlow model for it.
    """
    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UserError(f"encoder {source}: holds no config.json; give the folder that an encoder was saved to")
    with _in_one_line(source, "its configuration"):
        config = AutoConfig.from_pretrained(source, **how_to_read(source, "encoder", KEY))
        _require_shallow(vars(config))
    if type(config) not in TF_MODEL_MAPPING:
        raise UserError(
            f"encoder {source}: a model of type '{config.model_type}' has no TensorFlow version in transformers; use "
            "one that has, such as BERT, DistilBERT or RoBERTa"
        )
    for name in _SIZES:
        value = getattr(config, name, 1)
        if type(value) is not int or value < 1:
            raise UserError(
                f"encoder {source}: its config.json has an invalid value ({name} must be a positive integer); use "
                "the config.json that the weights were saved with"
            )
    return config


def _require_shallow(values: Mapping[str, Any]) -> None:
    """Raises RecursionError for values nested so deep that what copies a configuration would run out of stack."""
    level: list = [values]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise RecursionError


def require_vocabulary(config, source: str, pieces: int, added: int) -> None:
    """Refuses a tokenizer that is not the encoder's.

    Args:
      config: the encoder's.
      source: its folder or hub id.
      pieces: the tokenizer's word pieces, with those that were added to them.
      added: how many may have been added; their vectors are drawn.

    Raises:
      UserError: the tokenizer has more pieces than the embedding matrix has rows, or leaves more rows without a piece
        than padding to a round number does.
    """
    rows = config.vocab_size
    if pieces > rows + added or pieces < (1 - _PADDING) * rows:
        raise UserError(
            f"encoder {source}: its embedding matrix has {rows} rows, but the tokenizer has {pieces} word pieces; "
            "use the encoder's own tokenizer"
        )


@contextlib.contextmanager
def _in_one_line(source: str, what: str):
    """Errors of `transformers`, which run over many lines, in one."""
    folder = Path(source)
    if is_path(source) and not folder.is_dir():
        raise UserError(f"encoder {source}: there is no such folder")
    try:
        yield
    except RecursionError:
        raise UserError(f"encoder {source}: {what} cannot be read (nested too deeply); copy it again") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "give the folder of an encoder, or the id of one on the Hugging Face hub"
        raise UserError(f"encoder {source}: {what} cannot be read ({first}); {remedy}") from None


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Layers made inside compute in this precision, for which Keras has only a global setting."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


@tf.keras.utils.register_keras_serializable("tff_re")
class PieceEncoder(Adaptable):
    """{`input_ids`, `attention_mask`} int32 [B, l] -> the last layer's outputs [B, l, d].

    The main layer of a `transformers` model, without its pooler; its dropout draws from the step's seed.
    """

    def __init__(
        self,
        config: dict[str, Any],
        vocabulary_size: int,
        dropout: float | None,
        frozen_layers: int,
        adapter: dict[str, Any] | None = None,
        new_rows: tuple[int, int] = (0, 0),
        fixed: FixedWeights | None = None,
        **kwargs,
    ):
        """Args:
          config: the encoder's configuration as a dict, `model_type` included.
          vocabulary_size: rows of the embedding matrix.
          dropout: rate in place of the configuration's own ones; None: those.
          frozen_layers: if at least 1, the embeddings and this many of the lowest layers are not trained.
          adapter: fields of AdapterOptions; then only the adapter and the new rows are trained.
          new_rows: with an adapter, (the first row of the embedding matrix that belongs to a new piece, their number).
          fixed: where an adapter's encoder has its other weights; None: in variables.

        Raises:
          ValueError: more layers are to be frozen than there are, the layers cannot be told apart, the adapter does not
            fit, or the configuration holds an impossible value.
        """
        super().__init__(**kwargs)
        # A saved model does not say what folder its encoder came from.
        self._settings = {
            "config": {**config, "_name_or_path": ""},
            "vocabulary_size": vocabulary_size,
            "dropout": dropout,
            "frozen_layers": frozen_layers,
            "adapter": adapter,
            "new_rows": list(new_rows),
        }
        self._first_new, self._count_new = new_rows
        made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
        made.vocab_size = vocabulary_size
        with policy(precision_of(self).name), quiet():
            try:
                self.main = main_layer(made)
            except (TypeError, KeyError) as error:
                raise ValueError(f"its config.json has an invalid value ({error})") from None
            seed_dropout(self.main, dropout)
            self._adapt(self.main, adapter, fixed)
        if frozen_layers:
            if adapter is not None:
                raise ValueError("an adapter above frozen layers takes their outputs as input, not word pieces")
            for layer in lowest(self.main, frozen_layers):
                layer.trainable = False

    def part(self):
        return self.main

    def build(self, shape):
        super().build(shape)
        if self.adapter is None:
            return  # the main layer is built as it is called
        trained, embeddings = trained_by(self.adapter.kind), self.main.embeddings
        with self._maker.active(), tf.name_scope(self.main.name), quiet():
            self.main.build(None)
        if self._count_new:
            config = self.main.config
            normal = tf.keras.initializers.TruncatedNormal(stddev=getattr(config, "initializer_range", 0.02))
            width = embeddings.weight.shape[1]
            with tf.name_scope(f"{self.main.name}/embeddings"):
                rows = embeddings.add_weight(NEW_ROWS, [self._count_new, width], initializer=normal)
            matrix = embeddings.weight
            embeddings.weight = WithNewRows(matrix, rows, self._first_new)
            track_untrained(embeddings, matrix)  # which was removed with the attribute
        sort_weights(self.main, trained)

    def fixed_values(self) -> list[np.ndarray]:
        """The values of `fixed_variables`.

        The embedding matrix is without the rows of new pieces, which are drawn and not used.
        """
        values = super().fixed_values()
        if self._count_new:
            matrix = self.main.embeddings.weight.matrix
            (index,) = (
                i for i, variable in enumerate(self.fixed_variables) if unwrapped(variable) is unwrapped(matrix)
            )
            values[index][self._first_new : self._first_new + self._count_new] = 0
        return values

    def call(self, inputs, training=None):
        return unconverted(self.main, self._settings["config"]["model_type"])(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], training=training
        ).last_hidden_state

    def get_config(self):
        return {**super().get_config(), **self._settings}


def unconverted(layer: tf.keras.layers.Layer, model_type: str) -> Callable:
    """The layer, left alone by AutoGraph where that has nothing to convert: a tenth of the time to build a graph."""
    return tf.autograph.experimental.do_not_convert(layer) if model_type in PLAIN else layer


def seed_dropout(layer: tf.keras.layers.Layer, rate: float | None) -> None:
    """Exchanges Keras' dropout inside of a layer for one that draws from the step's seed, at `rate` if given."""
    for part in layers_in(layer):
        for name, value in list(vars(part).items()):
            if isinstance(value, tf.keras.layers.Dropout):
                setattr(part, name, SeededDropout(value.rate if rate is None else rate))


def stack_of(main: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    """The part that holds the list of layers (`layer`). Raises ValueError where there is none of that form."""
    stack = getattr(main, "encoder", None) or getattr(main, "transformer", None)
    if not hasattr(main, "embeddings") or not isinstance(getattr(stack, "layer", None), (list, tuple)):
        raise ValueError("its layers cannot be identified, so none can be frozen; set frozen_layers to 0")
    return stack


def main_layer(config) -> tf.keras.layers.Layer:
    """The main layer of the configuration's TensorFlow model, without its pooler."""
    cls = TF_MODEL_MAPPING[type(config)]
    with quiet():
        model = cls(config, **_without_pooler(cls))
    return getattr(model, model.base_model_prefix)


def positions(main: tf.keras.layers.Layer, config) -> int | None:
    """The number of pieces that the main layer can read, or None for any number.

    RoBERTa's positions begin after the padding's id.
    """
    count = getattr(config, "max_position_embeddings", None)
    padding = getattr(getattr(main, "embeddings", None), "padding_idx", None)
    return count if count is None or padding is None else count - padding - 1


def _without_pooler(cls) -> dict[str, bool]:
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(cls.__init__).parameters else {}


def lowest(main: tf.keras.layers.Layer, count: int) -> list[tf.keras.layers.Layer]:
    """The embeddings and the `count` lowest layers.

    Raises:
      ValueError: there are fewer, or the encoder does not name them like BERT or DistilBERT.
    """
    layers = stack_of(main).layer
    if count > len(layers):
        raise ValueError(f"frozen_layers is {count}, but the encoder has {len(layers)} layers")
    return [main.embeddings, *layers[:count]]


def assign_pretrained(encoder: PieceEncoder, source: str) -> None:
    """Reads a checkpoint and assigns it to an encoder that was built from its configuration.

    Nothing is assigned unless all weights fit and are finite. Rows of the embedding matrix beyond the checkpoint's
    (markers) keep what they have; so does a pooler that the checkpoint lacks, which nothing reads.

    Raises:
      UserError: the checkpoint is not there, or it lacks weights or has them in other shapes; names them.
    """
    config = load_config(source)
    how = {**how_to_read(source, "encoder", KEY), "_commit_hash": getattr(config, "_commit_hash", None)}
    with _in_one_line(source, "its weights"), open_checkpoint(source, **how) as checkpoint:
        variables = _variables(encoder, checkpoint)
        _require_floats(checkpoint, source)
        _require_all_layers(checkpoint.weights.keys() - variables.keys(), config, source)
        rows = encoder.get_config()["vocabulary_size"]
        shapes = {
            name: _shape(checkpoint, name, variable, rows, config, source)
            for name, variable in variables.items()
            if name in checkpoint.weights
        }
        _require_no_more(variables.keys() - shapes.keys(), source)

        def value_of(name: str) -> np.ndarray:
            return checkpoint.read(name, shapes[name], leaf_name(variables[name]))

        for name in variables:
            if not np.isfinite(value_of(name)).all():
                raise UserError(
                    f"encoder {source}: weight {name} contains NaN or infinity; copy the weights again, or use "
                    "another encoder"
                )
        for name, variable in variables.items():
            value = value_of(name)
            if value.shape != tuple(variable.shape):
                value = tf.concat([value, rows_of(variable, len(value))], 0)
            variable.assign(value)


def rows_of(variable: tf.Variable, start: int, end: int | None = None) -> tf.Tensor:
    """Rows of a variable, for computing with them at once.

    `variable[start:end]` would keep the variable for as long as the process lives: its result has a method `assign`,
    and TensorFlow 2.14 does not free the cycle.
    """
    return variable.read_value()[start:end]


def _variables(encoder: PieceEncoder, checkpoint: Checkpoint) -> dict[str, tf.Variable]:
    """Name in the checkpoint -> the encoder's variable.

    Variables that a checkpoint does not or need not have are left out.
    """
    variables = {}
    for variable in encoder.main.weights:
        tail = encoder.tail(variable)
        name = checkpoint.name_of(encoder.main.name, tail)
        unread = tail.startswith("pooler/") and name not in checkpoint.weights
        if not unread and leaf_name(variable) not in (NEW_ROWS, "lora_a", "lora_b"):
            variables[name] = variable
    return variables


def _shape(checkpoint: Checkpoint, name: str, variable: tf.Variable, rows: int, config, source: str) -> tuple[int, ...]:
    """The shape of a weight in the checkpoint, in Keras' layout: the variable's, or with rows for fewer pieces.

    Args:
      rows: the encoder's, which are the configuration's and those of new pieces.
    """
    leaf, shapes = leaf_name(variable), [tuple(variable.shape)]
    if shapes[0][:1] == (rows,):
        shapes.append((config.vocab_size, *shapes[0][1:]))
    for shape in shapes:
        if checkpoint.fits(name, shape, leaf):
            return shape
    raise UserError(
        f"encoder {source}: weight {name} has shape {checkpoint.weights[name].shape}, but by config.json it has "
        f"{checkpoint.shape_of(shapes[-1], leaf)}"
    )


def _require_no_more(lacking: Iterable[str], source: str) -> None:
    """Refuses a checkpoint without weights that the encoder has."""
    names = sorted(lacking)
    if names:
        more = f" and {len(names) - 1} others" if len(names) > 1 else ""
        raise UserError(
            f"encoder {source}: the checkpoint has no weight {names[0]}{more}; does it belong to another model?"
        )


def _require_all_layers(unread: Iterable[str], config, source: str) -> None:
    """Refuses a configuration with fewer layers than the checkpoint, whose upper ones would be left out."""
    numbers = [int(match[1]) for match in map(_LAYER.search, unread) if match]
    if any(number >= config.num_hidden_layers for number in numbers):
        raise UserError(
            f"encoder {source}: the checkpoint has {max(numbers) + 1} layers, but config.json has "
            f"{config.num_hidden_layers}; use the config.json that the weights were saved with"
        )


def _require_floats(checkpoint: Checkpoint, source: str) -> None:
    """Refuses whole numbers (ids of positions apart)."""
    name = checkpoint.not_float()
    if name is not None:
        raise UserError(
            f"encoder {source}: weight {name} has numbers of type {checkpoint.weights[name].kind}, not floats; use "
            "weights that are not quantised"
        )


@contextlib.contextmanager
def quiet():
    """Without the warnings of `transformers`: that version 5 has no TensorFlow classes, and what it assumes."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
