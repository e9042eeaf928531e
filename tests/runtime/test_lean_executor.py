"""What is sent to a worker is what TFF would send."""

from __future__ import annotations

import asyncio
import collections
import itertools

import numpy as np
import pytest
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2

from tff_re.runtime.local.worker_context import LARGE_BYTES, LeanExecutor, fill

WEIGHTS = tff.learning.models.ModelWeights([np.ones([2, 3], np.float32), np.zeros([0], np.float32)], [])
WEIGHTS_TYPE = tff.types.to_type(
    tff.learning.models.ModelWeights([tff.TensorType(np.float32, [2, 3]), tff.TensorType(np.float32, [0])], [])
)
STATE = collections.OrderedDict(weights=WEIGHTS, round=np.int32(3), none=())
STATE_TYPE = tff.types.to_type(collections.OrderedDict(weights=WEIGHTS_TYPE, round=np.int32, none=()))
CLIENT_TYPE = tff.types.to_type(collections.OrderedDict(x=tff.TensorType(np.int32, [None, 2]), trained=np.bool_))
CLIENTS = [collections.OrderedDict(x=np.ones([n, 2], np.int32), trained=np.bool_(n)) for n in (0, 3)]

VALUES = [
    (STATE, STATE_TYPE),
    (STATE, tff.FederatedType(STATE_TYPE, tff.SERVER)),
    (tff.structure.from_container(STATE, recursive=True), STATE_TYPE),
    (CLIENTS, tff.FederatedType(CLIENT_TYPE, tff.CLIENTS)),
    ([], tff.FederatedType(CLIENT_TYPE, tff.CLIENTS)),
    ([1, 2.5], tff.types.to_type((np.int32, np.float32))),
    ((np.array([b"a", "药".encode()]), 1), tff.types.to_type((tff.TensorType(np.str_, [2]), np.int64))),
    ((), tff.types.to_type(())),
]


@pytest.mark.parametrize(("value", "type_spec"), VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_the_message_is_that_of_tff(value, type_spec):
    ours = executor_pb2.Value()
    fill(ours, value, type_spec)
    assert ours.SerializeToString(deterministic=True) == tff.framework.serialize_value(value, type_spec)[
        0
    ].SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("value", "type_spec"),
    [
        ((1, 2, 3), tff.types.to_type((np.int32, np.int32))),
        ((1, "a"), tff.types.to_type((np.int32, np.int32))),
        (CLIENTS[0], tff.FederatedType(CLIENT_TYPE, tff.CLIENTS)),
        ([np.ones([3], np.float32)], tff.types.to_type([tff.TensorType(np.float32, [2])])),
    ],
)
def test_a_value_of_another_type_is_refused(value, type_spec):
    with pytest.raises(TypeError):
        fill(executor_pb2.Value(), value, type_spec)


class RecordingStub:
    """In a worker's place; notes which values it is told to free."""

    def __init__(self):
        self.freed = []
        self._numbers = itertools.count()

    def get_executor(self, request):
        return executor_pb2.GetExecutorResponse(executor=executor_pb2.ExecutorId(id="0"))

    def create_value(self, request):
        return executor_pb2.CreateValueResponse(value_ref=executor_pb2.ValueRef(id=str(next(self._numbers))))

    def dispose(self, request):
        self.freed += [reference.id for reference in request.value_ref]


def test_large_values_are_freed_at_once_and_small_ones_together():
    stub = RecordingStub()
    executor = LeanExecutor(stub)
    executor.set_cardinalities({tff.CLIENTS: 1})

    def send(size):
        member = tff.types.to_type([tff.TensorType(np.int8, [size])])
        value = asyncio.run(executor.create_value([[np.zeros(size, np.int8)]], tff.FederatedType(member, tff.CLIENTS)))
        assert value.type_signature.member == member

    send(LARGE_BYTES - 1)
    assert stub.freed == []
    send(LARGE_BYTES)
    assert stub.freed == ["0", "1"]
    send(1)
    assert stub.freed == ["0", "1", "2"]
