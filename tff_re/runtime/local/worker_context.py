"""The TFF execution context that speaks to one worker.

Importing this module imports TensorFlow Federated, which takes seconds.
"""

import contextlib
import time

import grpc
import tensorflow_federated as tff

from tff_re.runtime import connection
from tff_re.runtime.base import execution_context
from tff_re.runtime.errors import ComputationFailed, RuntimeClosed, RuntimeProblem, WorkerDied, WorkerStartFailed
from tff_re.runtime.local.lean_executor import LeanExecutor
from tff_re.runtime.local.worker import Worker

_READY_SECONDS = 20.0
# A question is as long as this without an answer before we look whether there is still a worker.
_QUESTION_SECONDS = 1.0
# The connection breaks a moment before the supervisor has reaped the worker.
_GRACE_SECONDS = 1.0
_SHORT_GRACE_SECONDS = 0.05


class _Connected:
    """The part of a connected channel that `tff.framework.RemoteExecutorGrpcStub` uses.

    The stub would have a thread of gRPC watch the channel as long as it is open. Python's end stops such a thread in
    the middle of C++, which can end the process with SIGABRT in place of its own exit status.
    """

    def __init__(self, channel: grpc.Channel):
        self.unary_unary = channel.unary_unary

    def subscribe(self, callback, try_to_connect=False):
        callback(grpc.ChannelConnectivity.READY)


class WatchedStub(tff.framework.RemoteExecutorStub):
    """A `tff.framework.RemoteExecutorGrpcStub` that knows the worker's process.

    Without a connection TFF repeats a call without end. Here a call to a worker that has ended raises `WorkerDied`
    (or `RuntimeClosed`, if we ended it), which TFF passes on. What TensorFlow reports from inside a computation becomes
    `ComputationFailed`; whatever was tried came as INTERNAL. Other errors stay as they are, and TFF repeats the call
    after those that it holds for passing ones.
    """

    def __init__(self, channel: grpc.Channel, worker: Worker):
        self._stub = tff.framework.RemoteExecutorGrpcStub(_Connected(channel))
        self._worker = worker

    @property
    def is_ready(self) -> bool:
        return self._stub.is_ready

    def get_executor(self, request):
        return self._send(self._stub.get_executor, request)

    def create_value(self, request):
        return self._send(self._stub.create_value, request)

    def create_struct(self, request):
        return self._send(self._stub.create_struct, request)

    def create_call(self, request):
        return self._send(self._stub.create_call, request)

    def create_selection(self, request):
        return self._send(self._stub.create_selection, request)

    def compute(self, request):
        return self._send(self._stub.compute, request)

    # Called when a value is garbage-collected, also long after the worker's end; there is nothing to free then, and
    # nobody to tell.
    def dispose(self, request):
        with contextlib.suppress(WorkerDied, RuntimeClosed):
            return self._send(self._stub.dispose, request)

    def dispose_executor(self, request):
        with contextlib.suppress(WorkerDied, RuntimeClosed):
            return self._send(self._stub.dispose_executor, request)

    def _send(self, method, request):
        if not self._worker.alive:
            raise self._reason_of_end()
        try:
            return method(request)
        except grpc.RpcError as error:
            # Errors of a computation are common, so they do not wait long for the worker's end.
            computation_failed = error.code() == grpc.StatusCode.INTERNAL
            if self._worker.wait_for_end(_SHORT_GRACE_SECONDS if computation_failed else _GRACE_SECONDS):
                raise self._reason_of_end() from error
            if computation_failed:
                details = " ".join(error.details().removeprefix("Failed to run computation:").split())
                raise ComputationFailed(
                    f"a computation failed in the worker: {details}", code=error.code().name
                ) from error
            raise

    def _reason_of_end(self) -> RuntimeProblem:
        if self._worker.stopped:
            return RuntimeClosed()
        return self._worker.death()


def connect(worker: Worker, *, default_num_clients: int) -> tuple[tff.framework.SyncExecutionContext, grpc.Channel]:
    """Makes an execution context for a worker that listens.

    One executor is kept for each number of clients, the ten used last, as TFF's own context does: training with 10
    clients and evaluation with 30 can alternate.

    Args:
      worker: the worker, started.
      default_num_clients: the number of clients where the arguments of a computation tell none.

    Returns:
      The context, and the channel to be closed after the worker's end.

    Raises:
      WorkerDied: if the worker ends meanwhile.
      WorkerStartFailed: if it does not speak gRPC in time.
    """
    channel = _channel_to(worker)
    stub = WatchedStub(channel, worker)

    def make_executor(cardinalities):
        executor = LeanExecutor(stub)
        executor.set_cardinalities({tff.CLIENTS: default_num_clients, **cardinalities})
        return executor

    return execution_context(tff.framework.ResourceManagingExecutorFactory(make_executor)), channel


def _channel_to(worker: Worker) -> grpc.Channel:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        found = connection.connect(worker.address, None, _QUESTION_SECONDS)
        if not isinstance(found, str):
            return found
        if not worker.alive:
            raise worker.death()
        if time.monotonic() > deadline:
            raise WorkerStartFailed(
                f"the worker gave no answer within {_READY_SECONDS:g} s ({found}); see {worker.log_path}"
            )
