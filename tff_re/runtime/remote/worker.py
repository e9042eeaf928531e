"""A worker on another machine: whether it answers, and the values that it holds during a computation."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterable

import grpc
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc
from tensorflow_federated.python.core.impl.executors.value_serialization import serialize_cardinalities

from tff_re.runtime.connection import connect, open_channel, why_no_answer
from tff_re.runtime.errors import ComputationFailed
from tff_re.runtime.remote.staged_form import Program
from tff_re.runtime.tls import Tls

# FAILED_PRECONDITION is the answer of a worker that was restarted since and does not know our executor.
_LOST = {"UNAVAILABLE", "FAILED_PRECONDITION", "CANCELLED", "DEADLINE_EXCEEDED"}


class WorkerLost(Exception):
    """A worker does not answer, or was restarted and has lost its values. The text says which and why."""


class RemoteWorker:
    """A worker somewhere, reached by gRPC.

    There is no process to watch here. A call that takes longer than `patience` seconds is followed by a question
    whether the worker is there at all; if no answer comes within `patience` seconds, it counts as lost.
    """

    def __init__(self, address: str, tls: Tls | None = None, *, patience: float = 20.0):
        """`address` is HOST:PORT; RuntimeProblem if a file of `tls` cannot be read."""
        self.address, self.lost, self._reason = address, False, ""
        self.generation = 0  # how often it was lost; a session's values are lost with it
        self._tls, self._patience = tls, patience
        self._channel = open_channel(address, tls)
        self._rpc = executor_pb2_grpc.ExecutorGroupStub(self._channel)
        self._executors: collections.OrderedDict[int, executor_pb2.ExecutorId] = collections.OrderedDict()
        self._lock, self._making = threading.Lock(), threading.Lock()

    def comes_back(self, seconds: float) -> bool:
        """Whether a lost worker answers within so many seconds; it is not lost any more then."""
        if isinstance(channel := connect(self.address, self._tls, seconds), str):
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

        The ten used last are kept, with what they have compiled, as TFF's own context does.
        """
        with self._making:
            generation, executors = self.generation, self._executors
            if clients not in executors:
                request = executor_pb2.GetExecutorRequest(cardinalities=serialize_cardinalities({tff.CLIENTS: clients}))
                executors[clients] = self.send("GetExecutor", request, generation).executor
                if len(executors) > 10:
                    _, oldest = executors.popitem(last=False)
                    self.free("DisposeExecutor", executor_pb2.DisposeExecutorRequest(executor=oldest), generation)
            executors.move_to_end(clients)
            return executors[clients], generation

    def send(self, method: str, request, generation: int):
        """Calls a method of the worker, of the generation in which the executor of the request was made.

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
                details, code = " ".join((error.details() or "").split()), error.code().name
                if code in _LOST:
                    raise self._loss(details or code, generation) from None
                details = details.removeprefix("Failed to run computation:").strip()
                message = f"a computation failed in the worker {self.address}: {details}"
                raise ComputationFailed(message, code=code) from error

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

    def send_struct(self, name: str, elements: Iterable[tuple[str | None, executor_pb2.Value]]) -> None:
        """Sends the elements of a struct, each for itself."""
        self._names[name] = self._struct([(n, self._send_unnamed(value)) for n, value in elements])

    def run(self, program: Program) -> None:
        """Lets a program make its outputs of its inputs."""
        argument = self._struct([(None, self._names[name]) for name in program.inputs])
        result = self._call(program.body.proto, argument)
        for place, name in enumerate(program.outputs):
            self._names[name] = self._select(result, place)

    def run_whole(self, computation, name: str | None, result: str) -> None:
        """Lets a computation make one value of another."""
        self._names[result] = self._call(computation, None if name is None else self._names[name])

    def rename(self, old: str, new: str) -> None:
        """Gives a value another name."""
        self._names[new] = self._names.pop(old)

    def fetch(self, name: str, place: int | None = None) -> executor_pb2.Value:
        """A value, or an element of a struct."""
        ref = self._names[name] if place is None else self._select(self._names[name], place)
        request = executor_pb2.ComputeRequest(executor=self._executor, value_ref=ref)
        return self.worker.send("Compute", request, self._generation).value

    def close(self) -> None:
        """Frees all values there."""
        request = executor_pb2.DisposeRequest(executor=self._executor, value_ref=self._refs)
        self._refs = []
        self.worker.free("Dispose", request, self._generation)

    def _call(self, computation, argument: executor_pb2.ValueRef | None) -> executor_pb2.ValueRef:
        """The worker begins at once, and `fetch` waits."""
        function = self._send_unnamed(executor_pb2.Value(computation=computation))
        return self._made("Call", function_ref=function, argument_ref=argument)

    def _send_unnamed(self, value: executor_pb2.Value) -> executor_pb2.ValueRef:
        return self._made("Value", value=value)

    def _struct(self, elements) -> executor_pb2.ValueRef:
        members = [executor_pb2.CreateStructRequest.Element(name=name, value_ref=ref) for name, ref in elements]
        return self._made("Struct", element=members)

    def _select(self, source: executor_pb2.ValueRef, place: int) -> executor_pb2.ValueRef:
        return self._made("Selection", source_ref=source, index=place)

    def _made(self, kind: str, **fields) -> executor_pb2.ValueRef:
        request = getattr(executor_pb2, f"Create{kind}Request")(executor=self._executor, **fields)
        self._refs.append(self.worker.send(f"Create{kind}", request, self._generation).value_ref)
        return self._refs[-1]
