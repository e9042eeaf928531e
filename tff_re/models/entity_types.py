"""A layer for the types of entities in documents, in the notation of `document_layers`."""

from __future__ import annotations

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("tff_re")
class EntityTypes(tf.keras.layers.Layer):
    """{`entities` [B, E, d], `entity_type` [B, E or more]} -> [B, E, d + width]: an entity and its type's vector.

    The vector is zero where the type is -1.
    """

    def __init__(self, types: int, width: int, **kwargs):
        super().__init__(**kwargs)
        self.types, self.width = types, width

    def build(self, shape):
        initializer = tf.keras.initializers.RandomUniform(-0.05, 0.05)
        self.embedding = self.add_weight("embedding", [self.types, self.width], initializer=initializer)

    def call(self, inputs):
        entities = inputs["entities"]
        types = inputs["entity_type"][:, : tf.shape(entities)[1]]
        vectors = tf.gather(self.embedding, tf.maximum(types, 0))
        return tf.concat([entities, tf.where((types >= 0)[..., tf.newaxis], vectors, 0.0)], axis=-1)

    def get_config(self):
        return {**super().get_config(), "types": self.types, "width": self.width}
