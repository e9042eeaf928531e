"""What losses read of the round's global model, in addition to the outputs of the model in training."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from computations.client_work.objectives.base import Client, output_rows
from computations.client_work.objectives.moon import representations
from computations.local_model import GLOBAL, features_of

GlobalOutputs = Mapping[str, tf.Tensor]


def global_outputs(client: Client) -> GlobalOutputs:
    """Return the outputs that `LocalModel.global_rows` and `global_parts` name, under the model's current weights.

    Called before the first step, when these are the global ones. Float32, of all rows of the client's examples, without
    dropout; empty if the losses read none.
    """
    local_model = client.local_model
    outputs = {f"{GLOBAL}{name}": representations(client, name) for name in local_model.global_rows}
    if local_model.global_parts:
        first = {name: array[:1] for name, array in features_of(client.examples).items()}
        of_first = client.model(first, training=False)
        outputs |= {f"{GLOBAL}{name}": tf.cast(of_first[name], tf.float32) for name in local_model.global_parts}
    return outputs


def of_batch(client: Client, outputs: GlobalOutputs, rows: tf.Tensor) -> GlobalOutputs:
    """Return what the losses of a batch read of `global_outputs`.

    `rows`, int32 [B], are the batch's examples.
    """
    by_row = {f"{GLOBAL}{name}" for name in client.local_model.global_rows}
    places = output_rows(client, rows) if by_row else None
    return {name: tf.gather(value, places) if name in by_row else value for name, value in outputs.items()}
