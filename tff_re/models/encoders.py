"""What the models with a pretrained encoder share: frozen layers that run once, adapters, and the whole model again.

A new model is a file with a subclass of `EncoderModel`; `model.py` declares models, `text_encoder.py` is a short
example. A new architecture of `transformers` is built in `pretrained.py`; what else depends on the architecture is in
`torch_names.py`, `adapters.py` (`TARGETS`), `frozen_layers.py`, `document_layers.py` (`READABLE`) and
`exporting/huggingface.py` (`MODEL_TYPES`).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs
import numpy as np
import tensorflow as tf
from attrs.validators import ge, optional

from computations.local_model import LABEL, LocalModel
from computations.randomness import SeededDropout
from computations.ranges import BELOW_ONE
from tff_re.errors import UserError
from tff_re.models import adapter_files
from tff_re.models.adapters import Adaptable, AdapterOptions, low_rank_layers
from tff_re.models.fixed_weights import FixedWeights, leaf_name
from tff_re.models.frozen_layers import UpperLayers, assign_lower, assign_upper, hidden_states
from tff_re.models.inputs import HiddenInput, PieceInput, RelationInput, pieces_of
from tff_re.models.model import Model
from tff_re.models.pretrained import (
    PieceEncoder,
    assign_pretrained,
    load_config,
    positions,
    require_vocabulary,
    rows_of,
    source_of,
    stack_of,
)
from tff_re.models.text_layers import TrimRelations, keras_inputs


@attrs.frozen(kw_only=True)
class EncoderOptions:
    """Attributes:
    encoder: folder or hub id of a BERT, DistilBERT or another encoder that `transformers` has for TensorFlow; the
      task's tokenizer if not set.
    pretrained: whether training starts from its weights; else from random ones of the same form.
    encoder_dropout: rate inside of the encoder; its own configuration's if not set.
    dropout: rate on what the classifier sees.
    frozen_layers: if at least 1, the embeddings and this many of the lowest layers stay as they are. They run once per
      text, without dropout, and local training starts from their outputs.
    precision: of the encoder's arithmetic; weights, moments and the classifier are float32 in both.
    adapter: trains only an adapter, the new pieces' vectors and the layers after the encoder. With frozen_layers only
      the layers above them have an adapter, and the new pieces' vectors stay as they were drawn.
    """

    encoder: str | None = None
    pretrained: bool = True
    encoder_dropout: float | None = attrs.field(default=None, validator=optional(BELOW_ONE))
    dropout: float = attrs.field(default=0.0, validator=BELOW_ONE)
    frozen_layers: int = attrs.field(default=0, validator=ge(0))
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    adapter: AdapterOptions | None = None


def last_outputs(options: EncoderOptions, inputs, trimmed: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The last layer's outputs [B, l, d] for texts, or for what frozen layers made of them."""
    source = source_of(options, pieces_of(inputs))
    config = load_config(source)
    if isinstance(inputs, HiddenInput):
        first, layer = "hidden", made(source, _upper_layers, options, inputs, config)
    else:
        first, layer = "input_ids", _piece_encoder(options, inputs, source, config)
    return layer({name: trimmed[name] for name in (first, "attention_mask")})


def classifier_of(
    options: EncoderOptions, inputs, num_classes: int, representation: Callable, *, bias: bool, name: str
) -> tf.keras.Model:
    """A model of texts: the encoder, a representation h of its outputs, dropout, logits W h (+ b).

    Args:
      options, inputs, num_classes: of the model; for a HiddenInput it has only what lies above the frozen layers.
      representation: layers, of the arrays of the inputs and `outputs` [B, l, d]; gives [B, n].
      bias: whether the classifier has one.
      name: of the model.

    Raises:
      UserError: there is no such encoder, or the options do not fit it.
    """
    arrays = keras_inputs(inputs)
    trimmed = TrimRelations(name="trim")(arrays)
    features = representation({**trimmed, "outputs": last_outputs(options, inputs, trimmed)})
    outputs = classified(options, inputs, num_classes, features, bias=bias)
    return tf.keras.Model(arrays, outputs, name=name)


def classified(options: EncoderOptions, inputs, num_classes: int, features, *, bias: bool) -> dict[str, tf.Tensor]:
    """`features` after dropout, and their `logits`.

    The arguments are those of `classifier_of`.
    """
    features = SeededDropout(options.dropout, dtype="float32", name="dropout")(features)
    # As the encoder's makers draw new weights.
    stddev = getattr(load_config(source_of(options, pieces_of(inputs))), "initializer_range", 0.02)
    classifier = tf.keras.layers.Dense(
        num_classes,
        use_bias=bias,
        kernel_initializer=tf.keras.initializers.TruncatedNormal(stddev=stddev),
        dtype="float32",
        name="classifier",
    )
    return {"logits": classifier(features), "features": features}


def adapter_arguments(options: EncoderOptions, inputs) -> dict:
    """The arguments of a PieceEncoder, or of UpperLayers for a HiddenInput, for the options' adapter."""
    if options.adapter is None:
        return {}
    adapter = {name: value for name, value in attrs.asdict(options.adapter).items() if name != "path"}
    arguments = {"adapter": {**adapter, "targets": list(adapter["targets"])}, "fixed": pieces_of(inputs).fixed}
    return arguments if isinstance(inputs, HiddenInput) else {**arguments, "new_rows": _new_rows(inputs)}


def _new_rows(inputs) -> tuple[int, int]:
    """(the first row of the embedding matrix that belongs to a new piece, their number)."""
    return inputs.vocabulary_size - inputs.new_pieces, inputs.new_pieces


def _piece_encoder(options: EncoderOptions, inputs: PieceInput | RelationInput, source: str, config) -> PieceEncoder:
    if options.pretrained and inputs.tokenizer is not None:
        require_vocabulary(config, source, inputs.vocabulary_size, inputs.new_pieces)
    encoder = made(
        source,
        PieceEncoder,
        config.to_dict(),
        max(inputs.vocabulary_size, config.vocab_size),
        options.encoder_dropout,
        options.frozen_layers,
        **adapter_arguments(options, inputs),
        dtype=options.precision,
        name="encoder",
    )
    readable = positions(encoder.main, config)
    if readable is not None and inputs.max_length > readable:
        raise UserError(
            f"encoder {source}: reads at most {readable} word pieces, but the task gives {inputs.max_length}; lower "
            "task.max_length"
        )
    return encoder


def _upper_layers(options: EncoderOptions, inputs: HiddenInput, config) -> UpperLayers:
    return UpperLayers(
        config.to_dict(),
        options.encoder_dropout,
        options.frozen_layers,
        **adapter_arguments(options, inputs),
        dtype=options.precision,
        name="encoder",
    )


def made(source: str, make: Callable, *arguments, **options):
    """Returns make(…) and turns a ValueError into a UserError that names the encoder."""
    try:
        return make(*arguments, **options)
    except ValueError as error:
        raise UserError(f"encoder {source}: {error}") from None


def _assign_rest(model: tf.keras.Model, other: tf.keras.Model) -> None:
    """The weights of all layers but the encoder, from another model with the same ones."""
    for layer in model.layers:
        if layer.name != "encoder" and layer.weights:
            layer.set_weights(other.get_layer(layer.name).get_weights())


def _fixed_weights(options: EncoderOptions, encoder: Adaptable) -> FixedWeights:
    """Of an encoder with an adapter in variables, which starts from the adapter's file if there is one."""
    if options.adapter.path is not None:
        adapter_files.assign_encoder(options.adapter.path, encoder)
    return FixedWeights.write(encoder.fixed_values(), [variable.numpy() for variable in encoder.trainable_variables])


def _assign_new_rows(encoder: PieceEncoder, inputs, rows) -> None:
    """Exchanges the new pieces' rows of an embedding matrix."""
    matrix, (first, count) = encoder.main.embeddings.weight, _new_rows(inputs)
    matrix.assign(tf.concat([rows_of(matrix, 0, first), rows, rows_of(matrix, first + count)], 0))


def _unfixed(inputs):
    """The inputs of a model whose weights are all in variables."""
    if isinstance(inputs, HiddenInput):
        return dataclasses.replace(inputs, pieces=_unfixed(inputs.pieces))
    return dataclasses.replace(inputs, fixed=None)


class EncoderModel(Model):
    """A model with a layer `encoder`, which may have frozen layers or an adapter.

    Its inputs come in three forms: as the task gives them; after frozen layers (HiddenInput); with the fixed weights
    of an encoder with an adapter (`fixed`). The methods here take the model from one form to another.
    """

    def local_parts(self, options: EncoderOptions, inputs) -> dict[str, Any]:
        return {"classifier": "classifier", "mask": "attention_mask"}

    def initialise(self, options: EncoderOptions, inputs):
        fixed = pieces_of(inputs).fixed
        if options.adapter is not None and fixed is not None:

            def start(model):
                for variable, value in zip(model.get_layer("encoder").trainable_variables, fixed.start, strict=True):
                    variable.assign(value)
                if options.adapter.path is not None:
                    adapter_files.assign_rest(options.adapter.path, model)

            return start
        if isinstance(inputs, HiddenInput):
            return lambda model: self._assign_from_whole(options, inputs, model)
        source = source_of(options, inputs)
        return (lambda model: assign_pretrained(model.get_layer("encoder"), source)) if options.pretrained else None

    def _assign_from_whole(self, options: EncoderOptions, inputs: HiddenInput, model: tf.keras.Model) -> None:
        """Gives the trained part the initial weights of the whole model, also those after the encoder."""
        complete = self.before_training(options, inputs, model.output["logits"].shape[-1])
        assign_upper(model.get_layer("encoder"), complete.get_layer("encoder"))
        _assign_rest(model, complete)

    def precompute(self, options: EncoderOptions, inputs, seed: int):
        """As `Model.precompute`, with the outputs of frozen layers in the place of the pieces.

        With an adapter the inputs have the fixed weights, of all layers or of those above the frozen ones.

        The seed draws what the checkpoint does not have: the markers' vectors, FFA-LoRA's A.
        """
        if isinstance(inputs, HiddenInput) or inputs.fixed is not None:
            return None
        if options.adapter is None and not options.frozen_layers:
            return None
        if not options.frozen_layers:
            encoder = self.whole(options, inputs, 2, seed).get_layer("encoder")
            return dataclasses.replace(inputs, fixed=_fixed_weights(options, encoder)), None
        encoder = self.frozen_encoder(options, inputs, seed)

        def run(arrays):
            hidden = hidden_states(encoder, arrays, options.frozen_layers)
            return {"hidden": hidden, **{name: array for name, array in arrays.items() if name != "input_ids"}}

        shape = (inputs.max_length, encoder.main.config.hidden_size)
        return self.hidden_input(options, inputs, shape, seed, encoder), run

    def frozen_encoder(self, options: EncoderOptions, inputs, seed: int) -> PieceEncoder:
        """The whole encoder, without an adapter, whose frozen layers are to run once (see `precompute`).

        Raises:
          UserError: an adapter has no layer above them, or its file cannot be read.
        """
        encoder = self.whole(attrs.evolve(options, adapter=None), inputs, 2, seed).get_layer("encoder")
        if options.adapter is None:
            return encoder
        layers = len(stack_of(encoder.main).layer)
        if options.frozen_layers >= layers:
            raise UserError(
                f"encoder {source_of(options, inputs)}: has {layers} layers and model.frozen_layers is "
                f"{options.frozen_layers}, so no layer is left for the adapter; set model.frozen_layers to at most "
                f"{layers - 1}"
            )
        if options.adapter.path is not None and inputs.new_pieces:
            shape = (inputs.new_pieces, encoder.main.config.hidden_size)
            _assign_new_rows(encoder, inputs, adapter_files.read_new_rows(options.adapter.path, shape))
        return encoder

    def hidden_input(
        self, options: EncoderOptions, inputs, shape: tuple[int, ...], seed: int, encoder: PieceEncoder
    ) -> HiddenInput:
        """The inputs after frozen layers.

        With an adapter they have the fixed weights of the layers above the frozen ones.

        Args:
          options, inputs, seed: as in `precompute`.
          shape: of a HiddenInput.
          encoder: from `frozen_encoder`.
        """
        hidden = HiddenInput(inputs, shape, seed)
        if options.adapter is None:
            return hidden
        upper = self.whole(options, hidden, 2, seed, initialised=False).get_layer("encoder")
        values = {encoder.tail(variable): variable for variable in encoder.main.weights}
        for variable in upper.stack.weights:
            if leaf_name(variable) not in ("lora_a", "lora_b"):
                variable.assign(values[upper.tail(variable)])
        first, count = _new_rows(inputs)
        rows = rows_of(encoder.main.embeddings.weight, first, first + count).numpy()
        return HiddenInput(dataclasses.replace(inputs, fixed=_fixed_weights(options, upper)), shape, seed, rows)

    def finished(self, options: EncoderOptions, inputs, num_classes: int, weights) -> tf.keras.Model:
        """As `Model.finished`, with only the effect of an adapter."""
        if options.adapter is not None:
            adapted = self._with_fixed_weights(options, inputs, num_classes, weights.trainable)
            return self._merged(options, inputs, adapted)
        complete = self.before_training(options, inputs, num_classes)
        for variable, value in zip(complete.trainable_variables, weights.trainable, strict=True):
            variable.assign(value)
        return complete

    def adapted(self, options: EncoderOptions, inputs, trained: tf.keras.Model) -> tf.keras.Model:
        classes = trained.output["logits"].shape[-1]
        return self._with_fixed_weights(options, inputs, classes, trained.trainable_variables)

    def whole_form(
        self, options: EncoderOptions, inputs, trained: tf.keras.Model, merged: bool = False
    ) -> tf.keras.Model:
        """As `Model.whole_form`: a model of variables that takes pieces.

        Frozen layers' outputs are rounded to float16 as in training, so that the predictions are those of the training
        process but for values that lie between two of these numbers; `finished` computes in float32 throughout.
        """
        if not isinstance(inputs, HiddenInput):
            if options.adapter is None:
                return trained
            adapted = self.adapted(options, inputs, trained)
            return self._merged(options, inputs, adapted) if merged else adapted
        trained, encoder = self.upper_form(options, inputs, trained, merged)
        config = copy.deepcopy(encoder.main.config)
        config.num_hidden_layers = options.frozen_layers
        lower = PieceEncoder(
            config.to_dict(),
            config.vocab_size,
            options.encoder_dropout,
            options.frozen_layers,
            dtype=options.precision,
            name="frozen_layers",
        )
        arrays = keras_inputs(inputs.pieces)  # of full width, which what was trained takes; that trims them itself
        outputs = lower({name: arrays[name] for name in ("input_ids", "attention_mask")})
        assign_lower(lower, encoder)
        mask = tf.expand_dims(tf.cast(arrays["attention_mask"], tf.float16), -1)
        outputs = trained(
            {**{n: arrays[n] for n in inputs.specs if n != "hidden"}, "hidden": tf.cast(outputs, tf.float16) * mask}
        )
        return tf.keras.Model(arrays, outputs, name=trained.name)

    def upper_form(
        self, options: EncoderOptions, inputs: HiddenInput, trained: tf.keras.Model, merged: bool
    ) -> tuple[tf.keras.Model, PieceEncoder]:
        """(the layers trained after frozen layers, in variables, and the whole encoder with these layers).

        Args: as `whole_form`'s.
        """
        if options.adapter is None:
            return trained, self.before_training(options, inputs, 2).get_layer("encoder")
        adapted = self.adapted(options, inputs, trained)
        if not merged:
            return adapted, self.before_training(options, inputs, 2).get_layer("encoder")
        complete = self._merged(options, inputs, adapted)
        upper = self.build(attrs.evolve(options, adapter=None), _unfixed(inputs), adapted.output["logits"].shape[-1])
        assign_upper(upper.get_layer("encoder"), complete.get_layer("encoder"))
        _assign_rest(upper, complete)
        return upper, complete.get_layer("encoder")

    def _merged(self, options: EncoderOptions, inputs, with_adapter: tf.keras.Model) -> tf.keras.Model:
        """The whole model without an adapter that computes the same as `with_adapter`, which `self.adapted` gave."""
        classes = with_adapter.output["logits"].shape[-1]
        if isinstance(inputs, HiddenInput):
            plain = self.before_training(options, inputs, classes)
        else:
            plain = self.build(attrs.evolve(options, adapter=None), _unfixed(inputs), classes)
        theirs, encoder = (model.get_layer("encoder") for model in (with_adapter, plain))
        values = {theirs.tail(v): v.read_value() for v in (*theirs.fixed_variables, *theirs.part().weights)}
        for layer in low_rank_layers(theirs.part()):
            values[theirs.tail(layer.kernel)] = layer.kernel.read_value() + layer.product()
        for variable in encoder.main.weights:
            # The frozen layers are as they were before the training.
            if not isinstance(inputs, HiddenInput) or encoder.tail(variable) in values:
                variable.assign(values[encoder.tail(variable)])
        if not isinstance(inputs, HiddenInput) and inputs.new_pieces:
            _assign_new_rows(encoder, inputs, theirs.main.embeddings.weight.new_rows)
        _assign_rest(plain, with_adapter)
        return plain

    def whole(
        self, options: EncoderOptions, inputs, num_classes: int, seed: int, initialised: bool = True
    ) -> tf.keras.Model:
        """The model of the inputs in variables, with the initial weights of the run's seed.

        Args:
          options, inputs, num_classes: of the model.
          seed: of the run.
          initialised: whether it has the checkpoint's weights, and not only drawn ones.
        """
        return LocalModel(
            build=lambda: self.build(options, inputs, num_classes),
            input_spec={**inputs.specs, LABEL: tf.TensorSpec([None], tf.int32)},
            num_classes=num_classes,
            initialise=self.initialise(options, inputs) if initialised else None,
        ).initial_model(seed)

    def before_training(self, options: EncoderOptions, inputs: HiddenInput, num_classes: int) -> tf.keras.Model:
        """The whole model whose frozen layers were run, as it was then: in variables, without an adapter."""
        plain, pieces = attrs.evolve(options, adapter=None), _unfixed(inputs.pieces)
        complete = self.whole(plain, pieces, num_classes, inputs.seed)
        if inputs.new_rows is not None:
            _assign_new_rows(complete.get_layer("encoder"), pieces, inputs.new_rows)
        return complete

    def _with_fixed_weights(self, options: EncoderOptions, inputs, num_classes: int, trained) -> tf.keras.Model:
        """The model of the inputs with an adapter in variables, with the fixed values and the `trained` ones."""
        complete, fixed = self.build(options, _unfixed(inputs), num_classes), pieces_of(inputs).fixed
        for variable, value in zip(complete.get_layer("encoder").fixed_variables, fixed.arrays(), strict=True):
            variable.assign(np.asarray(value))
        for variable, value in zip(complete.trainable_variables, trained, strict=True):
            variable.assign(value)
        return complete
