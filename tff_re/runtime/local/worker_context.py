"""The TFF execution context that speaks to one worker."""

import contextlib
import functools
import math
import time

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.python.core.impl.executors.remote_executor import RemoteValue

from tff_re.runtime.base import execution_context
from tff_re.runtime.errors import ComputationFailed, RuntimeClosed, RuntimeProblem, WorkerDied, WorkerStartFailed
from tff_re.runtime.local import connection
from tff_re.runtime.local.worker import Worker

_READY_SECONDS = 20.0


class _Connected:
    """The part of a connected channel that `tff.framework.RemoteExecutorGrpcStub` uses.

    The stub would have a thread of gRPC watch the channel as long as it is open. Python's end stops such a thread in
    the middle of C++, which can end the process with SIGABRT.
    """

    def __init__(self, channel: grpc.Channel):
        self.unary_unary = channel.unary_unary

    def subscribe(self, callback, try_to_connect=False):
        callback(grpc.ChannelConnectivity.READY)


class WatchedStub(tff.framework.RemoteExecutorStub):
    """A `tff.framework.RemoteExecutorGrpcStub` that knows the worker's process.

    Without a connection TFF repeats a call without end. Here a call to a worker that has ended raises `WorkerDied`
    (or `RuntimeClosed`, if we ended it). What TensorFlow reports from inside a computation, as INTERNAL, becomes
    `ComputationFailed`. Other errors stay as they are: TFF repeats the call after those that it holds for passing ones.
    """

    def __init__(self, channel: grpc.Channel, worker: Worker):
        self._stub = tff.framework.RemoteExecutorGrpcStub(_Connected(channel))
        self._worker = worker

    @property
    def is_ready(self) -> bool:
        return self._stub.is_ready

    def _send(self, method: str, request):
        if not self._worker.alive:
            raise self._reason_of_end()
        try:
            return getattr(self._stub, method)(request)
        except grpc.RpcError as error:
            # The connection breaks a moment before the supervisor has reaped the worker. Errors of a computation are
            # common, so they do not wait long for that.
            computation_failed = error.code() == grpc.StatusCode.INTERNAL
            if self._worker.wait_for_end(0.05 if computation_failed else 1.0):
                raise self._reason_of_end() from error
            if computation_failed:
                details = " ".join(error.details().removeprefix("Failed to run computation:").split())
                message = f"a computation failed in the worker: {details}"
                raise ComputationFailed(message, code=error.code().name) from error
            raise

    def _free(self, method: str, request):
        # When a value is garbage-collected, also long after the worker's end: there is nothing to free then.
        with contextlib.suppress(WorkerDied, RuntimeClosed):
            return self._send(method, request)

    def _reason_of_end(self) -> RuntimeProblem:
        return RuntimeClosed() if self._worker.stopped else self._worker.death()

    get_executor = functools.partialmethod(_send, "get_executor")
    create_value = functools.partialmethod(_send, "create_value")
    create_struct = functools.partialmethod(_send, "create_struct")
    create_call = functools.partialmethod(_send, "create_call")
    create_selection = functools.partialmethod(_send, "create_selection")
    compute = functools.partialmethod(_send, "compute")
    dispose = functools.partialmethod(_free, "dispose")
    dispose_executor = functools.partialmethod(_free, "dispose_executor")


LARGE_BYTES = 2**22
"""An executor that has been sent a value of so many bytes frees values one by one: a message of some 0.3 ms each."""


class LeanExecutor(tff.framework.RemoteExecutor):
    """A `tff.framework.RemoteExecutor` that writes a value directly into the message, without a copy.

    TFF builds a message from the leaves up and copies what there is at every level, some ten times: 6 s for 90 MB of
    weights inside of a server's state, where 0.5 s will do. What is sent is the same, byte for byte.

    The worker frees a value when told so, and TFF tells it of twenty at a time: of several rounds. Here an
    executor that has been sent a large value has each freed as soon as nothing refers to it.
    """

    async def create_value(self, value, type_spec=None):
        """See tff.framework.Executor."""
        if isinstance(type_spec, tff.Type) and _at_least_bytes(type_spec) >= LARGE_BYTES:
            self._dispose_batch_size = 1
        if not isinstance(type_spec, (tff.StructType, tff.FederatedType)):
            return await super().create_value(value, type_spec)
        self._check_has_executor_id()
        request = executor_pb2.CreateValueRequest(executor=self._executor_id)
        fill(request.value, value, type_spec)
        response = self._stub.create_value(request)
        return RemoteValue(response.value_ref, type_spec, self)


def _at_least_bytes(type_spec: tff.Type) -> int:
    """Return a lower bound on the bytes of a value from its type.

    It counts one client, and 1 for dimensions that are not fixed.
    """
    if isinstance(type_spec, tff.FederatedType):
        return _at_least_bytes(type_spec.member)
    if isinstance(type_spec, tff.StructType):
        return sum(map(_at_least_bytes, type_spec.children()))
    if isinstance(type_spec, tff.TensorType) and type_spec.shape is not None:
        return math.prod(size or 1 for size in type_spec.shape) * type_spec.dtype.itemsize
    return 0


def fill(message: executor_pb2.Value, value, type_spec: tff.Type) -> None:
    """Write a value into an empty message like `tff.framework.serialize_value`.

    Raises TypeError for another type.
    """
    if isinstance(type_spec, tff.FederatedType):
        members = [value] if type_spec.all_equal else value
        if not isinstance(members, list):
            raise TypeError(f"a value of type {type_spec} must be a list, got {type(members).__name__}")
        for member in members:
            fill(message.federated.value.add(), member, type_spec.member)
        message.federated.type.CopyFrom(tff.types.serialize_type(type_spec).federated)
    elif isinstance(type_spec, tff.StructType):
        members = list(tff.structure.from_container(value))
        if len(members) != len(type_spec):
            raise TypeError(f"a value of {len(members)} elements cannot be of type {type_spec}")
        message.struct.SetInParent()
        for (name, kind), member in zip(tff.structure.to_elements(type_spec), members, strict=True):
            fill(message.struct.element.add(name=name).value, member, kind)
    else:
        message.CopyFrom(tff.framework.serialize_value(value, type_spec)[0])


def connect(worker: Worker, *, default_num_clients: int) -> tuple[tff.framework.SyncExecutionContext, grpc.Channel]:
    """Return an execution context for a listening worker, and the channel to close after the worker's end.

    One executor is kept for each number of clients, the ten used last, as TFF's own context does: training with 10
    clients and evaluation with 30 can alternate.

    Raises:
      WorkerDied: if the worker ends meanwhile.
      WorkerStartFailed: if it does not speak gRPC in time.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while isinstance(channel := connection.connect(worker.address, 1.0), str):
        if not worker.alive:
            raise worker.death()
        if time.monotonic() > deadline:
            raise WorkerStartFailed(
                f"the worker gave no answer within {_READY_SECONDS:g} s ({channel}); see {worker.log_path}"
            )
    stub = WatchedStub(channel, worker)

    def make_executor(cardinalities):
        executor = LeanExecutor(stub)
        executor.set_cardinalities({tff.CLIENTS: default_num_clients, **cardinalities})
        return executor

    return execution_context(tff.framework.ResourceManagingExecutorFactory(make_executor)), channel
