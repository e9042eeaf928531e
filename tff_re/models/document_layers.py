"""Layers over whole documents: the encoder with its last attention, entities, localized contexts, pairs.

Numbers: B documents, l pieces in the longest of the batch, M mentions, E entities and P pairs in the documents that
have most of them, N pairs in all, d the encoder's width, h its attention heads, w the width of a pair's
representations, R relations. Padding is -1 in indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tff_re.models.document_windows import Windows
from tff_re.models.pretrained import stack_of
from tff_re.models.transformers_version import CONFIG_MAPPING
from tff_re.models.windowed_layers import UpperWindowedPieces, WindowedPieces

READABLE = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Model types whose attention is softmax(Q K^T / sqrt(d / h)) over the inputs of a layer, and nothing else."""

LEAST_SUM = 1e-12
"""Below it, the sum in Eq. 4 is taken as this: two entities that attend to nothing in common have no context."""


@tf.keras.utils.register_keras_serializable("tff_re")
class TrimDocuments(tf.keras.layers.Layer):
    """The arrays of a DocumentInput, cut to the longest document, most mentions and most pairs of the batch.

    `hidden` [B, V, w, d] of frozen layers is cut to the longest document, too, and stays in its type.
    """

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, inputs):
        pieces = tf.reduce_max(tf.reduce_sum(inputs["attention_mask"], axis=-1))
        ends = {
            **dict.fromkeys(("input_ids", "attention_mask"), tf.maximum(pieces, 2)),
            **dict.fromkeys(("mention_place", "mention_entity"), _end(inputs["mention_entity"])),
            **dict.fromkeys(("pair_head", "pair_tail", "pair_labels"), _end(inputs["pair_head"])),
        }
        trimmed = {
            name: value[:, : ends[name]] if name in ends else tf.identity(value) for name, value in inputs.items()
        }
        if "hidden" in trimmed:
            trimmed["hidden"] = trimmed["hidden"][:, :, : ends["attention_mask"]]
        return trimmed


def _end(indices: tf.Tensor) -> tf.Tensor:
    """The number of columns up to the last that holds an index, and at least 1."""
    used = tf.reduce_any(indices >= 0, axis=0)
    return tf.reduce_max(tf.concat([tf.where(used)[:, 0] + 1, [1]], 0))


@tf.keras.utils.register_keras_serializable("tff_re")
class DocumentPieces(WindowedPieces):
    """Documents -> the last layer's outputs and its attention at the mentions.

    Takes `input_ids`, `attention_mask` [B, l] and `mention_place` [B, M], gives `outputs` [B, l, d] and `attention`
    [B, l, h, M]. `outputs` are the last layer's, `attention` is what each mention's first piece gives to every piece
    there (a distribution over l). Longer documents are encoded in windows; both are averaged where windows overlap, as
    in ATLOP (Zhou et al. 2021, released code).

    The attention is computed once more for the mentions alone, from the inputs of the last layer and its own query and
    key. So no layer's [h, l, l] has to be kept beyond what training it keeps anyway, and no dropout acts on it (the
    attention that `transformers` gives out under training has some).
    """

    def __init__(self, config, *args, **kwargs):
        """Args: WindowedPieces'.

        Raises:
          ValueError: as there, and the attention of such an encoder cannot be computed.
        """
        super().__init__(config, *args, **kwargs)
        require_readable(config)

    def call(self, inputs, training=None):
        output, windows = self.run(inputs, training, output_hidden_states=True, return_dict=True)
        return of_documents(stack_of(self.main), self.main.config, output, windows, inputs)


@tf.keras.utils.register_keras_serializable("tff_re")
class UpperDocumentPieces(UpperWindowedPieces):
    """What DocumentPieces gives, from the outputs of its frozen layers in place of `input_ids`.

    Of an encoder with all layers frozen the last one runs here, too: the attention at the mentions is its.
    """

    def __init__(self, config, dropout, frozen_layers, window: int, overlap: int, recompute: bool = False, **kwargs):
        require_readable(config)
        encoder_config = CONFIG_MAPPING[config["model_type"]].from_dict(config)
        all_frozen = frozen_layers == encoder_config.num_hidden_layers
        cached = cached_layers(config, frozen_layers)
        super().__init__(config, dropout, cached, window, overlap, recompute and not all_frozen, **kwargs)
        self._encoder_config, self._frozen = encoder_config, frozen_layers
        if all_frozen:
            self.stack.trainable = False

    def call(self, inputs, training=None):
        output, windows = self.run_windows(inputs, training, output_hidden_states=True)
        return of_documents(self.stack, self._encoder_config, output, windows, inputs)

    def get_config(self):
        return {**super().get_config(), "frozen_layers": self._frozen}


def cached_layers(config: Mapping[str, Any], frozen_layers: int) -> int:
    """How many frozen layers run once: not the last of all, whose inputs are needed for its attention."""
    layers = CONFIG_MAPPING[config["model_type"]].from_dict(config).num_hidden_layers
    return min(frozen_layers, layers - 1) if frozen_layers <= layers else frozen_layers


def require_readable(config: Mapping[str, Any]) -> None:
    """Raises ValueError for an encoder whose attention is not known here."""
    if config["model_type"] not in READABLE:
        raise ValueError(
            f"tff-re does not know how a model of type '{config['model_type']}' computes its attention; use one of "
            f"{', '.join(READABLE)}"
        )


def of_documents(stack, config, output, windows: Windows, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """`outputs` [B, l, d] and `attention` [B, l, h, M] of documents.

    Args:
      stack: the part of the encoder with the list of layers.
      config: the encoder's.
      output: what the encoder gave for the windows, hidden states included.
      windows: of the documents.
      inputs: `attention_mask` [B, l], `mention_place` [B, M].
    """
    like = inputs["attention_mask"]
    rows = mention_attention(
        stack.layer[-1].attention, config, output.hidden_states[-2], windows, inputs["mention_place"]
    )
    outputs = windows.mean(tf.cast(output.last_hidden_state, tf.float32), like)
    return {"outputs": outputs, "attention": _on_documents(rows, windows, like)}


def mention_attention(attention, config, states: tf.Tensor, windows: Windows, mention_place: tf.Tensor) -> tf.Tensor:
    """A layer's attention of the mentions in each window, float32 [V, h, M, w].

    It is zero for mentions that are not in the window.
    """
    places, holds = windows.places(mention_place)
    if hasattr(attention, "q_lin"):
        query, key = attention.q_lin, attention.k_lin
    else:
        query, key = attention.self_attention.query, attention.self_attention.key
    heads = config.num_attention_heads
    size = states.shape[-1] // heads

    def by_head(vectors):  # [V, n, d] -> [V, h, n, d / h]
        split = tf.reshape(vectors, [tf.shape(vectors)[0], -1, heads, size])
        return tf.transpose(tf.cast(split, tf.float32), [0, 2, 1, 3])

    queries = by_head(query(tf.gather(states, places, batch_dims=1)))
    scores = tf.matmul(queries, by_head(key(states)), transpose_b=True) / size**0.5
    attends = tf.nn.softmax(tf.where(windows.mask[:, tf.newaxis, tf.newaxis], scores, scores.dtype.min))
    return attends * tf.cast(holds, tf.float32)[:, tf.newaxis, :, tf.newaxis]


def _on_documents(rows: tf.Tensor, windows: Windows, documents: tf.Tensor) -> tf.Tensor:
    """[V, h, M, w] of the windows -> [B, l, h, M]: the mean over a mention's windows, scaled to a sum of one."""
    shape = tf.shape(rows)
    heads, mentions = rows.shape[1], shape[2]
    flat = tf.reshape(tf.transpose(rows, [0, 3, 1, 2]), [shape[0], shape[3], heads * mentions])
    summed = windows.summed(flat, documents)
    summed = tf.math.divide_no_nan(summed, tf.reduce_sum(summed, axis=1, keepdims=True))
    return tf.reshape(summed, [tf.shape(summed)[0], tf.shape(summed)[1], heads, mentions])


@tf.keras.utils.register_keras_serializable("tff_re")
class EntityPooling(tf.keras.layers.Layer):
    """{`outputs` [B, l, d], `attention` [B, l, h, M], `mention_place`, `mention_entity`} -> {`entities` [B, E, d],
    `attention` [B, l, h, E]}.

    An entity is the logsumexp over the outputs at its mentions (FedLCC, Eq. 2), its attention the mean over theirs.
    Rows without a mention are zero.
    """

    def call(self, inputs):
        position, entity = inputs["mention_place"], inputs["mention_entity"]
        count = tf.maximum(tf.reduce_max(tf.concat([tf.reshape(entity, [-1]), [0]], 0)) + 1, 1)
        documents, width = tf.shape(entity)[0], inputs["outputs"].shape[-1]
        mentions = tf.gather(inputs["outputs"], tf.maximum(position, 0), batch_dims=1)

        to = tf.where(entity >= 0, tf.range(documents)[:, tf.newaxis] * count + entity, -1)
        to, mentions = tf.reshape(to, [-1]), tf.reshape(mentions, [-1, width])
        greatest = tf.stop_gradient(tf.math.unsorted_segment_max(mentions, to, documents * count))
        powers = tf.exp(mentions - tf.gather(greatest, tf.maximum(to, 0)))
        summed = tf.math.unsorted_segment_sum(powers, to, documents * count)
        has = summed > 0
        entities = tf.where(has, tf.math.log(tf.where(has, summed, 1.0)) + greatest, 0.0)

        member = tf.one_hot(entity, count, dtype=tf.float32)  # [B, M, E]; none for an index of -1
        share = tf.math.divide_no_nan(member, tf.reduce_sum(member, axis=1, keepdims=True))
        rows = inputs["attention"]
        shape, heads = tf.shape(rows), rows.shape[2]
        attention = tf.matmul(tf.reshape(rows, [shape[0], shape[1] * heads, shape[3]]), share)
        return {
            "entities": tf.reshape(entities, [documents, count, width]),
            "attention": tf.reshape(attention, [shape[0], shape[1], heads, count]),
        }


@tf.keras.utils.register_keras_serializable("tff_re")
class LocalizedContext(tf.keras.layers.Layer):
    """{`outputs` [B, l, d], `attention` [B, l, h, E], `pair_head`, `pair_tail` [B, P]} -> contexts [N, d].

    FedLCC, Eqs. 3-5: the product of the two entities' attentions, summed over heads, scaled to a sum of one over the
    document, weighs its outputs. All E^2 products of a place are one small matrix product A^T A with A [h, E], so that
    nothing of the size h * P * l is made.
    """

    def call(self, inputs):
        attention, head, tail = inputs["attention"], inputs["pair_head"], inputs["pair_tail"]
        count = tf.shape(attention)[-1]
        products = tf.matmul(attention, attention, transpose_a=True)  # [B, l, E, E]
        products = tf.transpose(products, [0, 2, 3, 1])
        shape = tf.shape(products)
        products = tf.reshape(products, [shape[0], count * count, shape[3]])
        weights = tf.gather(products, tf.where(head >= 0, head * count + tail, 0), batch_dims=1)  # [B, P, l]
        weights /= tf.maximum(tf.reduce_sum(weights, axis=-1, keepdims=True), LEAST_SUM)
        contexts = tf.matmul(weights, inputs["outputs"])
        return tf.gather_nd(contexts, tf.where(head >= 0))


@tf.keras.utils.register_keras_serializable("tff_re")
class PairRepresentations(tf.keras.layers.Layer):
    """{`entities` [B, E, d], `context` [N, d], `pair_head`, `pair_tail` [B, P]} -> [z_s, z_o], [N, 2 w].

    FedLCC, Eqs. 6 and 7: z = tanh(W h + W_c c), with other weights for the head and the tail.
    """

    def __init__(self, width: int, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.of_entity = [tf.keras.layers.Dense(width, use_bias=False, name=f"{which}") for which in ("head", "tail")]
        self.of_context = [
            tf.keras.layers.Dense(width, use_bias=False, name=f"{which}_context") for which in ("head", "tail")
        ]

    def call(self, inputs):
        pairs = tf.where(inputs["pair_head"] >= 0)
        parts = []
        for which, of_entity, of_context in zip(("head", "tail"), self.of_entity, self.of_context, strict=True):
            entity = tf.cast(tf.gather_nd(inputs[f"pair_{which}"], pairs), tf.int64)
            rows = tf.gather_nd(of_entity(inputs["entities"]), tf.stack([pairs[:, 0], entity], axis=-1))
            parts.append(tf.tanh(rows + of_context(inputs["context"])))
        return tf.concat(parts, axis=-1)

    def get_config(self):
        return {**super().get_config(), "width": self.width}


@tf.keras.utils.register_keras_serializable("tff_re")
class GroupedBilinear(tf.keras.layers.Layer):
    """[z_s, z_o] [N, 2 w] -> [N, R]: sum_i z_s^i W_r^i z_o^i + b_r over groups of `block_size` numbers.

    FedLCC, Eqs. 8-10 without the sigmoid.
    """

    def __init__(self, relations: int, block_size: int, **kwargs):
        super().__init__(**kwargs)
        self.relations, self.block_size = relations, block_size

    def build(self, shape):
        groups, size = shape[-1] // 2 // self.block_size, self.block_size
        bound = (groups * size * size) ** -0.5
        self.kernel = self.add_weight(
            "kernel",
            [groups, size, size, self.relations],
            initializer=tf.keras.initializers.RandomUniform(-bound, bound),
        )
        self.bias = self.add_weight("bias", [self.relations], initializer="zeros")

    def call(self, inputs):
        groups, size = self.kernel.shape[0], self.block_size
        head, tail = (tf.reshape(half, [-1, groups, size]) for half in tf.split(inputs, 2, axis=-1))
        if self.relations <= size:  # the order that keeps fewer numbers a pair
            logits = tf.einsum("ngjr,ngj->nr", tf.einsum("ngi,gijr->ngjr", head, self.kernel), tail)
        else:
            logits = tf.einsum("ngij,gijr->nr", tf.einsum("ngi,ngj->ngij", head, tail), self.kernel)
        return logits + self.bias

    def get_config(self):
        return {**super().get_config(), "relations": self.relations, "block_size": self.block_size}


@tf.keras.utils.register_keras_serializable("tff_re")
class PairProbabilities(tf.keras.layers.Layer):
    """{`logits` [N, R], `pair_head` [B, P]} -> float32 [B, P, R], sigmoids at the places of pairs, 0 elsewhere."""

    def call(self, inputs):
        head, logits = inputs["pair_head"], inputs["logits"]
        places, relations = tf.cast(tf.where(head >= 0), tf.int32), logits.shape[-1]
        shape = tf.stack([tf.shape(head)[0], tf.shape(head)[1], relations])
        probabilities = tf.scatter_nd(places, tf.sigmoid(tf.cast(logits, tf.float32)), shape)
        return tf.ensure_shape(probabilities, [None, None, relations])


@tf.keras.utils.register_keras_serializable("tff_re")
class PairLabels(tf.keras.layers.Layer):
    """{`pair_labels` [B, P, R], `pair_head` [B, P]} -> the labels of the pairs, [N, R]."""

    def call(self, inputs):
        return tf.gather_nd(inputs["pair_labels"], tf.where(inputs["pair_head"] >= 0))
