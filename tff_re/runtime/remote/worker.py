"""A worker on another machine: whether it answers, and the values that it holds during a computation.

Importing this module imports TensorFlow Federated, which takes seconds.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Sequence

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc
from tensorflow_federated.python.core.impl.executors.value_serialization import serialize_cardinalities

from tff_re.runtime.connection import connect, open_channel, why_no_answer
from tff_re.runtime.errors import ComputationFailed
from tff_re.runtime.local.lean_executor import fill
from tff_re.runtime.remote.staged_form import Program
from tff_re.runtime.tls import Tls

# As many numbers of clients as TFF's own context keeps executors for.
_MOST_EXECUTORS = 10
# FAILED_PRECONDITION is the answer of a worker that was restarted since and does not know our executor.
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


class WorkerLost(Exception):
    """A worker does not answer, or was restarted and has lost its values. The text says which and why."""


class RemoteWorker:
    """A worker somewhere, reached by gRPC.

    There is no process to watch here. A call that takes longer than `patience` seconds is followed by a question
    whether the worker is there at all; if no answer comes within `patience` seconds, it counts as lost.
    """

    def __init__(self, address: str, tls: Tls | None = None, *, patience: float = 20.0):
        """Args:
          address: HOST:PORT.
          tls: certificates; None: without TLS.
          patience: see above.

        Raises:
          RuntimeProblem: a file of `tls` cannot be read.
        """
        self.address, self.lost = address, False
        self._reason = ""
        self.generation = 0  # how often it was lost; a session's values are lost with it
        self._tls, self._patience = tls, patience
        self._channel = open_channel(address, tls)
        self._rpc = executor_pb2_grpc.ExecutorGroupStub(self._channel)
        self._executors: collections.OrderedDict[int, executor_pb2.ExecutorId] = collections.OrderedDict()
        self._lock, self._making = threading.Lock(), threading.Lock()

    def comes_back(self, seconds: float) -> bool:
        """Whether a lost worker answers within so many seconds; it is not lost any more then."""
        channel = connect(self.address, self._tls, seconds)
        if isinstance(channel, str):
            return False
        with self._lock:
            before, self._channel = self._channel, channel
            self._rpc = executor_pb2_grpc.ExecutorGroupStub(channel)
            self.lost = False
        before.close()
        return True

    def close(self) -> None:
        """Frees what is ours at the worker, if it is there, and closes the channel."""
        for executor in self._executors.values():
            self.free("DisposeExecutor", executor_pb2.DisposeExecutorRequest(executor=executor), self.generation)
        self._executors.clear()
        self._channel.close()

    def executor(self, clients: int) -> tuple[executor_pb2.ExecutorId, int]:
        """(the worker's executor for so many clients, the generation that it is of).

        The ten used last are kept, with what they have compiled.
        """
        with self._making:
            generation, executors = self.generation, self._executors
            if clients not in executors:
                request = executor_pb2.GetExecutorRequest(cardinalities=serialize_cardinalities({tff.CLIENTS: clients}))
                executors[clients] = self.send("GetExecutor", request, generation).executor
                if len(executors) > _MOST_EXECUTORS:
                    _, oldest = executors.popitem(last=False)
                    self.free("DisposeExecutor", executor_pb2.DisposeExecutorRequest(executor=oldest), generation)
            executors.move_to_end(clients)
            return executors[clients], generation

    def send(self, method: str, request, generation: int):
        """Calls a method of the worker.

        Args:
          method: its name in the service.
          request: its message.
          generation: of the worker when the executor of the request was made.

        Raises:
          WorkerLost: the worker did not answer or has forgotten its executors.
          ComputationFailed: TensorFlow reports an error.
        """
        if self.lost or generation != self.generation:
            raise WorkerLost(f"the worker {self.address} was lost ({self._reason})")
        call = getattr(self._rpc, method).future(request)
        while True:
            try:
                return call.result(timeout=self._patience)
            except grpc.FutureTimeoutError:
                reason = why_no_answer(self._channel, self._patience)
                if reason is not None:
                    call.cancel()
                    raise self._loss(reason, generation) from None
            except grpc.FutureCancelledError:
                raise self._loss("the call was cancelled", generation) from None
            except grpc.RpcError as error:
                details = " ".join((error.details() or "").split())
                if error.code() in _LOST:
                    raise self._loss(details or error.code().name, generation) from None
                details = details.removeprefix("Failed to run computation:").strip()
                raise ComputationFailed(
                    f"a computation failed in the worker {self.address}: {details}", code=error.code().name
                ) from error

    def free(self, method: str, request, generation: int) -> None:
        """Lets the worker forget something. Does nothing if it was lost."""
        if not self.lost and generation == self.generation:
            with contextlib.suppress(grpc.RpcError, ValueError):
                getattr(self._rpc, method)(request, timeout=self._patience)

    def _loss(self, reason: str, generation: int) -> WorkerLost:
        with self._lock:
            if generation == self.generation:
                self.generation += 1
                self.lost, self._reason = True, reason
                self._executors = collections.OrderedDict()
        return WorkerLost(f"the worker {self.address} was lost ({reason})")


class Session:
    """Values at one worker, by name, for the time of one computation on so many clients."""

    def __init__(self, worker: RemoteWorker, clients: int):
        self.worker = worker
        self._executor, self._generation = worker.executor(clients)
        self._names: dict[str, executor_pb2.ValueRef] = {}
        self._refs: list[executor_pb2.ValueRef] = []

    def send(self, name: str, value: executor_pb2.Value) -> None:
        """Sends a value there."""
        self._names[name] = self._send_unnamed(value)

    def send_struct(self, name: str, elements: Sequence[tuple[str | None, executor_pb2.Value]]) -> None:
        """Sends the elements of a struct, each for itself."""
        self._names[name] = self._struct([(n, self._send_unnamed(value)) for n, value in elements])

    def run(self, program: Program) -> None:
        """Lets a program make its outputs of its inputs."""
        argument = self._struct([(None, self._names[name]) for name in program.inputs])
        result = self.call(program.body.proto, argument)
        for place, name in enumerate(program.outputs):
            self._names[name] = self._select(result, place)

    def run_whole(self, computation, name: str | None, result: str) -> None:
        """Lets a computation make one value of another."""
        self._names[result] = self.call(computation, None if name is None else self._names[name])

    def call(self, computation, argument: executor_pb2.ValueRef | None) -> executor_pb2.ValueRef:
        """Calls a serialized computation; the worker begins at once, and `fetch` waits."""
        function = self._send_unnamed(executor_pb2.Value(computation=computation))
        request = executor_pb2.CreateCallRequest(executor=self._executor, function_ref=function, argument_ref=argument)
        return self._hold(self._send("CreateCall", request).value_ref)

    def rename(self, old: str, new: str) -> None:
        """Gives a value another name."""
        self._names[new] = self._names.pop(old)

    def fetch(self, name: str, place: int | None = None) -> executor_pb2.Value:
        """A value, or an element of a struct."""
        ref = self._names[name] if place is None else self._select(self._names[name], place)
        request = executor_pb2.ComputeRequest(executor=self._executor, value_ref=ref)
        return self._send("Compute", request).value

    def close(self) -> None:
        """Frees all values there."""
        refs, self._refs = self._refs, []
        self.worker.free(
            "Dispose", executor_pb2.DisposeRequest(executor=self._executor, value_ref=refs), self._generation
        )

    def _send(self, method: str, request):
        return self.worker.send(method, request, self._generation)

    def _send_unnamed(self, value: executor_pb2.Value) -> executor_pb2.ValueRef:
        request = executor_pb2.CreateValueRequest(executor=self._executor, value=value)
        return self._hold(self._send("CreateValue", request).value_ref)

    def _struct(self, elements) -> executor_pb2.ValueRef:
        request = executor_pb2.CreateStructRequest(executor=self._executor)
        for name, ref in elements:
            request.element.add(name=name, value_ref=ref)
        return self._hold(self._send("CreateStruct", request).value_ref)

    def _select(self, source: executor_pb2.ValueRef, place: int) -> executor_pb2.ValueRef:
        request = executor_pb2.CreateSelectionRequest(executor=self._executor, source_ref=source, index=place)
        return self._hold(self._send("CreateSelection", request).value_ref)

    def _hold(self, ref: executor_pb2.ValueRef) -> executor_pb2.ValueRef:
        self._refs.append(ref)
        return ref


def message(value, type_signature: tff.Type) -> executor_pb2.Value:
    """A value as it is sent."""
    result = executor_pb2.Value()
    fill(result, value, type_signature)
    return result
