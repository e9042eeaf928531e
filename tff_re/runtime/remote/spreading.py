"""One computation over clients, spread over several workers.

Clients are divided into *groups*, as many as there are workers at the beginning, in their order and as evenly as
possible. A group is computed by one worker, and groups are merged in their order, whichever worker computed them. So a
worker that is lost changes no number: another one computes its groups, from the same values.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.python.core.impl.executors.executor_base import Executor
from tensorflow_federated.python.core.impl.executors.executor_value_base import ExecutorValue

from tff_re.runtime.compiled_form import one_for_each_client
from tff_re.runtime.errors import RuntimeClosed, WorkerDied
from tff_re.runtime.local.worker_context import fill
from tff_re.runtime.remote.staged_form import ARGUMENT, SERVER_RESULT, ClientResult, Stage, merged, staged_form
from tff_re.runtime.remote.worker import RemoteWorker, Session, WorkerLost

_log = logging.getLogger("tff_re.runtime")

# A lost worker is asked again at the beginning of a computation, and has so many seconds to answer.
_BACK_SECONDS = 0.2
# A computation that crashes every worker that it is sent to is given up after so many losses.
_MOST_LOSSES = 10


class Workers:
    """The workers of a runtime: which of them answer, and which one computes a group."""

    def __init__(self, workers: Sequence[RemoteWorker], log_path):
        self.all = tuple(workers)
        self.closed = False
        self._log_path = log_path
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def look_again(self) -> None:
        """Uses those again that were lost and now answer."""
        for worker in self.all:
            if worker.lost and worker.comes_back(_BACK_SECONDS):
                self._told.discard(worker.address)
                _log.warning("the worker %s answers again and takes part", worker.address)

    def for_group(self, group: int) -> RemoteWorker:
        """The group's own worker, or one of the others where that is lost; WorkerDied if all are, or RuntimeClosed."""
        if self.closed:
            raise RuntimeClosed()
        own = self.all[group % len(self.all)]
        there = [worker for worker in self.all if not worker.lost]
        if not there:
            raise self.all_lost("all workers are lost")
        return there[group % len(there)] if own.lost else own

    def all_lost(self, what: str) -> WorkerDied:
        """The error for training, which waits for workers to come back and repeats the round."""
        addresses = ", ".join(worker.address for worker in self.all)
        return WorkerDied(f"{what} ({addresses}); see the logs on their machines", pid=None, log_path=self._log_path)

    def tell(self, error: WorkerLost, worker: RemoteWorker) -> None:
        """Writes into the log that a worker is lost, once."""
        with self._lock:
            if worker.address not in self._told:
                self._told.add(worker.address)
                _log.warning("%s; the others repeat the round of its clients", error)


class _Group:
    """Some clients of a computation. If their worker is lost, the steps so far are repeated on another one."""

    def __init__(self, workers: Workers, number: int, clients: int):
        self._workers, self._number, self._clients = workers, number, clients
        self._session: Session | None = None
        self._steps: list[Callable[[Session], Any]] = []
        self._done = self._losses = 0

    def plan(self, step: Callable[[Session], None]) -> None:
        """Adds a step that later ones build upon; it is done with the next that is asked for."""
        self._steps.append(step)

    def do(self, step: Callable[[Session], None]) -> None:
        """Adds a step and does it."""
        self.plan(step)
        self.ask()

    def ask(self, question: Callable[[Session], Any] = lambda session: None):
        """Does the steps that are left, then returns what `question` gives."""
        while True:
            worker = self._session.worker if self._session else self._workers.for_group(self._number)
            try:
                if self._session is None:
                    self._done = 0
                    self._session = Session(worker, self._clients)
                for step in self._steps[self._done :]:
                    step(self._session)
                    self._done += 1
                return question(self._session)
            except WorkerLost as error:
                if self._workers.closed:
                    raise RuntimeClosed() from None
                self._workers.tell(error, worker)
                self._session = None
                self._losses += 1
                if self._losses > _MOST_LOSSES:
                    what = f"workers were lost {self._losses} times for the same clients"
                    raise self._workers.all_lost(what) from None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


class Given(ExecutorValue):
    """A value that is not at any worker, or a result that has come back: TFF's context asks for nothing more."""

    def __init__(self, value, type_signature: tff.Type):
        self.value, self._type_signature = value, type_signature

    @property
    def type_signature(self):
        return self._type_signature

    @property
    def reference(self):
        return self.value

    async def compute(self):
        return self.value


class SpreadingExecutor(Executor):
    """What TFF's context calls a computation through; spreads it when it is called."""

    def __init__(self, workers: Workers, clients: int):
        self._workers, self._clients = workers, clients

    def close(self) -> None:
        pass

    async def create_value(self, value, type_spec=None):
        return Given(value, type_spec)

    async def create_struct(self, elements):
        named = tff.structure.to_elements(tff.structure.from_container(elements))
        return Given([e for _, e in named], tff.StructType([(n, e.type_signature) for n, e in named]))

    async def create_selection(self, source, index):
        return source.value[index]

    async def create_call(self, comp, arg=None):
        computation, result_type = comp.value, comp.type_signature.result
        self._workers.look_again()
        if self._clients and arg is not None:
            return Given(_spread(self._workers, computation, arg, self._clients), result_type)
        group = _Group(self._workers, 0, self._clients)
        try:
            if arg is not None:
                group.plan(_sending(comp.type_signature.parameter, arg)(0, self._clients))
            proto = tff.framework.serialize_computation(computation)
            group.do(lambda session: session.run_whole(proto, ARGUMENT if arg is not None else None, SERVER_RESULT))
            value = group.ask(lambda session: session.fetch(SERVER_RESULT))
            return Given(tff.framework.deserialize_value(value, result_type)[0], result_type)
        finally:
            group.close()


def _spread(workers: Workers, computation: tff.Computation, argument: Given, clients: int):
    form = staged_form(computation)
    count = min(len(workers.all), clients)
    bounds = [clients * number // count for number in range(count + 1)]
    groups = [_Group(workers, number, bounds[number + 1] - bounds[number]) for number in range(count)]
    sending = _sending(form.parameter_type, argument)
    with ThreadPoolExecutor(count, thread_name_prefix="tff-re-group") as threads:

        def everywhere(task, among=groups):
            """Does a task for several groups at once; waits for all, also where one fails."""
            futures = [threads.submit(task, group) for group in among]
            wait(futures)
            return [future.result() for future in futures]

        try:
            for number, group in enumerate(groups):
                group.plan(sending(bounds[number], bounds[number + 1]))
            for number, stage in enumerate(form.stages):
                _aggregate(groups, everywhere, stage, number, form.groups_need(number))
            if form.at_clients is not None:
                everywhere(lambda group: group.do(lambda session: session.run(form.at_clients)))
            if form.at_server is not None:
                groups[0].do(lambda session: session.run(form.at_server))
            return _gather(form, groups, everywhere)
        finally:
            for group in groups:
                group.close()


def _aggregate(groups: list[_Group], everywhere, stage: Stage, number: int, all_need_it: bool) -> None:
    """Runs a stage for all groups and merges their partials in the first; sends the aggregates to who needs them."""

    def work(group):
        group.do(lambda session: session.run(stage.work))
        if group is not groups[0]:  # whose own partials stay where they are
            return group.ask(lambda session: session.fetch(Stage.PARTIALS))

    _, *partials = everywhere(work)

    def merge(session):
        session.rename(Stage.PARTIALS, f"{Stage.PARTIALS} 0")
        for other, value in enumerate(partials, 1):
            session.send(f"{Stage.PARTIALS} {other}", value)
        session.run(stage.merge(len(groups)))
        session.rename("merged", merged(number))

    groups[0].do(merge)
    if all_need_it and len(groups) > 1:
        aggregates = groups[0].ask(lambda session: session.fetch(merged(number)))
        for group in groups[1:]:
            group.plan(lambda session: session.send(merged(number), aggregates))


def _gather(form, groups: list[_Group], everywhere):
    """The result, from where its parts are."""
    values = []
    for part, type_signature in zip(form.result, form.part_types, strict=True):
        if isinstance(part, ClientResult):
            shares = everywhere(lambda group, p=part: group.ask(lambda session: session.fetch(p.bundle, p.place)))
        else:
            shares = [groups[0].ask(lambda session, p=part: session.fetch(SERVER_RESULT, p))]
        read = [tff.framework.deserialize_value(share, type_signature)[0] for share in shares]
        values.append([member for share in read for member in share] if isinstance(part, ClientResult) else read[0])
    return tff.structure.pack_sequence_as(form.result_type, values)


def _sending(type_signature: tff.Type, argument: Given) -> Callable[[int, int], Callable[[Session], None]]:
    """Gives, for clients from `first` up to `last`, a step that sends what they get; common messages are made once."""
    apart = isinstance(type_signature, tff.StructType) and isinstance(argument.value, list)
    parts = argument.value if apart else [argument]
    common = {
        place: _message(part.value, part.type_signature)
        for place, part in enumerate(parts)
        if not tff.types.contains(part.type_signature, one_for_each_client)
    }

    def messages(first, last):
        for place, part in enumerate(parts):
            if place in common:
                yield common[place]
            else:
                yield _message(_share(part.value, part.type_signature, first, last), part.type_signature)

    if not apart:
        return lambda *clients: lambda session: session.send(ARGUMENT, *messages(*clients))
    names = tff.structure.name_list_with_nones(type_signature)
    return lambda *clients: lambda session: session.send_struct(ARGUMENT, zip(names, messages(*clients), strict=True))


def _message(value, type_signature: tff.Type) -> executor_pb2.Value:
    result = executor_pb2.Value()
    fill(result, value, type_signature)
    return result


def _share(value, type_signature: tff.Type, first: int, last: int):
    """A value with some clients of it alone."""
    if one_for_each_client(type_signature):
        return value[first:last]
    if isinstance(type_signature, tff.StructType):
        types = tff.structure.to_elements(type_signature)
        members = zip(types, tff.structure.from_container(value), strict=True)
        return tff.structure.Struct([(name, _share(v, t, first, last)) for (name, t), v in members])
    return value


class SpreadingFactory(tff.framework.ExecutorFactory):
    """Makes a SpreadingExecutor for a call; what is kept between calls is kept by the workers."""

    def __init__(self, workers: Workers):
        self._workers = workers

    def create_executor(self, cardinalities) -> SpreadingExecutor:
        return SpreadingExecutor(self._workers, cardinalities.get(tff.CLIENTS, 0))

    def clean_up_executor(self, cardinalities) -> None:
        pass
