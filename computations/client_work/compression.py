"""Client work whose updates a code of `computations.aggregators.compression` represents without loss.

The randomness is the client's: it comes from its seed of the round, as its batches do, so that a resumed run and the
other runtime round alike, and that clients round independently of each other.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregators.compression import Code, TopShare
from computations.client_work.local_training import SEED_TYPE
from computations.client_work.work import ClientWork
from computations.federated.values import Structure, Value

RESIDUAL = "residual"
"""Of a client state: what the client has not sent yet, a list of tensors like its update's."""

_FOLD = -1
"""Folded into a client's seed; local training folds in its steps, which are not negative."""


def with_lossy_updates(work: ClientWork, code: Code) -> ClientWork:
    """Return the same work with every tensor of an update passed through the code, each with its own seed."""

    @tff.tensorflow.computation(work.update_type, SEED_TYPE)
    def lossy(update: Structure, seed: tf.Tensor) -> Structure:
        client_seed = tf.random.experimental.stateless_fold_in(seed, _FOLD)
        tensors = [
            code.lossy(tensor, tf.random.experimental.stateless_fold_in(client_seed, index))
            for index, tensor in enumerate(tf.nest.flatten(update))
        ]
        return tf.nest.pack_sequence_as(update, tensors)

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        return {"update": tff.federated_map(lossy, (run()["update"], inputs["clients"]["seed"]))}

    return work.wrapped(change)


def with_error_feedback(work: ClientWork, code: TopShare) -> ClientWork:
    """Return the same work with error feedback.

    What the code leaves out of an update is stored and added to the client's next (Stich et al. 2018, Algorithm 1).
    Here the compressed value is the update of a whole round.

    The client state gets an entry `residual` next to the work's own entries (`own`, if its state is a list). A client
    that does not count sends nothing and keeps its residual.
    """
    work_state_type, update_type, initial = work.client_state_type, work.update_type, work.initial_client_state
    flatten = tff.tensorflow.computation(lambda value: tf.nest.flatten(value), update_type)
    residual_type = flatten.type_signature.result
    entries = collections.OrderedDict([] if work_state_type is None else _entries(work_state_type))
    state_type = tff.types.to_type(collections.OrderedDict(entries, **{RESIDUAL: residual_type}))
    named = list(entries) != ["own"]

    @tff.tensorflow.computation(update_type, np.float32, residual_type)
    def send(update: Structure, weight: tf.Tensor, residual: Structure) -> Structure:
        wanted = [u + r for u, r in zip(tf.nest.flatten(update), residual, strict=True)]
        held = [code.lossy(tensor) for tensor in wanted]
        counts = weight > 0
        sent = [tf.where(counts, h, tf.zeros_like(h)) for h in held]
        left_out = [tf.where(counts, w - h, r) for w, h, r in zip(wanted, held, residual, strict=True)]
        return collections.OrderedDict(update=tf.nest.pack_sequence_as(update, sent), residual=left_out)

    @tff.tensorflow.computation(state_type)
    def work_state_of(state: Structure) -> Structure:
        return collections.OrderedDict((name, state[name]) for name in entries) if named else state["own"]

    def joined(work_state: Structure, residual: Structure) -> collections.OrderedDict[str, Structure]:
        values = collections.OrderedDict(
            [] if work_state is None else work_state.items() if named else [("own", work_state)]
        )
        return collections.OrderedDict(values, **{RESIDUAL: residual})

    join = work_state_type and tff.tensorflow.computation(joined, work_state_type, residual_type)
    alone = tff.tensorflow.computation(lambda residual: joined(None, residual), residual_type)
    inputs_type = collections.OrderedDict()
    for name, type_spec in work.inputs.items():
        if name != "client_state":
            inputs_type[name] = type_spec
        if name == "clients":
            inputs_type["client_state"] = tff.FederatedType(state_type, tff.CLIENTS)

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        arguments = {}
        if work_state_type is not None:
            arguments["client_state"] = tff.federated_map(work_state_of, inputs["client_state"])
        output = run(**arguments)
        residual = inputs["client_state"][RESIDUAL]
        sent = tff.federated_map(send, (output["update"], output["weight"], residual))
        if work_state_type is None:
            state = tff.federated_map(alone, sent["residual"])
        else:
            state = tff.federated_map(join, (output["client_state"], sent["residual"]))
        return {"update": sent["update"], "client_state": state}

    def initial_client_state(examples: Mapping[str, np.ndarray], *seed: int) -> collections.OrderedDict[str, Structure]:
        work_state = None if initial is None else initial(examples, *seed)
        return joined(work_state, [np.zeros(t.shape, t.dtype) for t in residual_type])

    return work.wrapped(change, inputs_type, client_state_type=state_type, initial_client_state=initial_client_state)


def _entries(state_type: tff.Type) -> list[tuple[str, tff.Type]]:
    """Return the named entries of a client state's type, or all of it as `own`."""
    elements: list[tuple[Any, Any]] = [(None, None)]
    if isinstance(state_type, tff.StructType):
        elements = tff.structure.to_elements(state_type)
    return elements if all(name is not None for name, _ in elements) else [("own", state_type)]
