"""How a site answers stages.

Each request is decided on, computed once, and stored until the next round.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.errors import CompositionError
from computations.local_model import LABEL
from tff_re.runs.features.shares import noise_is_shared
from tff_re.runs.randomness import client_seed, entropy, two_words
from tff_re.runtime.compiled_form import Step
from tff_re.runtime.in_process.values import Values
from tff_re.sites import protocol
from tff_re.sites.agreement import SPLITS
from tff_re.sites.decisions import Decisions
from tff_re.sites.experiments import NO_STATE
from tff_re.sites.masked_layout import layouts_of
from tff_re.sites.messages import Lost, Malformed, Refused
from tff_re.sites.noise_share import with_noise_share
from tff_re.sites.program import Carried, Program, SiteStage, arrays_of, member, value_of
from tff_re.sites.requests import TRAIN, Request
from tff_re.sites.updates import keep_update, update_of


class StageAnswers:
    """Answers the stages of all runs of a site."""

    def __init__(self, decisions: Decisions, threads: int, keep_updates: int = 0):
        self._decisions, self._threads, self._keep_updates = decisions, threads, keep_updates
        self._values = Values()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="tff-re-client")

    def close(self) -> None:
        """Cancel the running computation."""
        self._pool.shutdown(cancel_futures=True)

    def answer(self, run: Any, question: protocol.Stage) -> list[np.ndarray]:
        """Return the sums over the clients (see `tff_re.sites.program`).

        Args:
          run: the site's, with `recipe`, `store`, `examples`, `experiment` and `programs`.
          question: the request.

        Raises:
          Malformed, Refused: it is not answered, and nothing is computed.
          Lost: what an earlier stage or round left is not there.
          ComputationFailed, TypeError: a computation failed, or an array is not of its type.
        """
        program: Program = run.programs[question.purpose]
        if question.program != program.digest:
            raise Refused("this site would compute something else for this run; start the run again")
        request = Request(question)
        sizes = {client: _sizes(examples) for client, examples in run.examples.items()}
        ways = {"stages": len(program.stages), "keeps_states": bool(program.client_results())}
        self._decisions.check(request, run.recipe, sizes, **ways)
        stage = program.stages[request.stage]
        values = iter(question.arrays)
        sent = {step.name: value_of(step.type_signature, values) for step in stage.sent}
        if next(values, None) is not None:
            raise Malformed("the message holds more arrays than the stage takes")
        size = program.bytes_up(stage, len(request.clients))
        if isinstance(question, protocol.Masked):
            size = sum(layout.sent_bytes for layout in layouts_of(stage))
        first = self._decisions.stage(run, request, size)
        return self._answer(run, program, stage, request, first, sent)

    def _answer(self, run, program: Program, stage: SiteStage, request: Request, first: str, sent) -> list[np.ndarray]:
        if request.purpose == TRAIN:
            recorded, arrays = run.store.stage_record(program.digest, request.round, stage.number)
            if recorded.get("request") == request.digest:  # the bytes that were sent
                return arrays[: recorded["answer"]]
            run.store.forget_stage_records(program.digest, request.round)
        before = self._before(run, program, request)
        arguments = [self._argument(run, request, first, index) for index in range(len(request.clients))]
        ways = {"clients": len(arguments), "threads": self._threads, "pool": self._pool}
        totals, after = program.run_at_site(stage, sent, lambda client, step: arguments[client](step), before, **ways)
        answer = arrays_of(totals)
        if request.purpose == TRAIN and noise_is_shared(run.recipe):
            answer = with_noise_share(run.experiment, stage, request, run.store.secret(), answer)
        if request.purpose == TRAIN:
            last = stage is program.stages[-1]
            if last:
                self._keep_states(run, program, request, after)
            table = {"request": request.digest, "answer": len(answer), "clients": list(request.clients)}
            arrays = [*answer, *([] if last else program.carried_arrays(stage, after, len(arguments)))]
            run.store.write_stage_record(program.digest, request.round, stage.number, table, arrays)
            self._keep_update(run, stage, request, answer)
        return answer

    def _keep_update(self, run, stage: SiteStage, request: Request, answer: list[np.ndarray]) -> None:
        """Store what left, if the site's file asks for it (see `updates`)."""
        if self._keep_updates:
            update = update_of(stage, answer, run.experiment.model.weights_type)
            if update is not None:
                keep_update(run.store, request.round, request.clients, update, self._keep_updates)

    def _before(self, run, program: Program, request: Request) -> Carried | None:
        """Return what earlier stages of the call stored, or None for the first stage."""
        if request.stage == 0:
            return None
        earlier = program.stages[request.stage - 1]
        table, arrays = run.store.stage_record(program.digest, request.round, earlier.number)
        if table.get("clients") != list(request.clients):
            raise Lost(f"what it kept of round {request.round} is not on its disk")
        return program.carried_of(earlier, iter(arrays[table["answer"] :]), len(request.clients))

    # A client's part of the argument: nothing of it is the coordinator's to say, but which of its own states

    def _argument(self, run, request: Request, first: str, index: int) -> Callable[[Step], object]:
        client = request.clients[index]

        def examples(type_signature: tff.Type):
            held = run.examples[client][SPLITS.index(request.split)]
            return self._values.take(run.experiment.model.arrange(held), type_signature)

        def argument(step: Step):
            type_signature = member(step.type_signature)
            if request.purpose != TRAIN:
                return examples(type_signature)
            parts = tff.structure.name_list(type_signature) if isinstance(type_signature, tff.StructType) else ()
            if sorted(parts) == ["examples", "seed"]:
                seed = tf.constant(_seed(run, request.round, client, first))
                return tuple(seed if name == "seed" else examples(type_signature[name]) for name in parts)
            if request.versions:
                return self._state(run, client, request.versions[index], type_signature)
            raise CompositionError("clients at sites are given examples, a seed and their states")

        return argument

    def _state(self, run, client: str, version: int, type_signature: tff.Type):
        if version == NO_STATE:
            examples = run.experiment.model.arrange(run.examples[client][0])
            blank = run.experiment.algorithm.client_work.initial_client_state(examples, run.recipe.seed)
            return self._values.take(blank, type_signature)
        arrays = run.store.client_state(client, version)
        if arrays is None:
            raise Lost(f"a client's state after round {version} is not on its disk")
        return value_of(type_signature, iter(arrays))

    def _keep_states(self, run, program: Program, request: Request, after: Carried) -> None:
        results = program.client_results()
        if not results:
            return
        for number, (client, version) in enumerate(zip(request.clients, request.versions, strict=True)):
            state = after.clients.of(number)
            arrays = arrays_of([state[step.name] for step in results])
            run.store.write_client_state(client, request.round, arrays)
            # The coordinator keeps the checkpoints of the last two rounds, whatever training.checkpoint_every says.
            run.store.forget_states(client, request.round - 2, made_of=version, version=request.round)


def _sizes(parts: Sequence) -> tuple[int, ...]:
    """Return the number of examples in each of `SPLITS`."""
    return tuple(0 if part is None else len(part[LABEL]) for part in parts)


def _seed(run, round_num: int, client: str, first: str) -> np.ndarray:
    """Return the seed (int32 [2]) of a client's training in a round.

    Where the noise of its steps comes from the seed, it is made of the site's secret, and of what the round was asked
    for: the clients, the weights and the states. So two requests never share noise.
    """
    if run.recipe.privacy_unit in (None, "client"):
        return client_seed(run.recipe.seed, round_num, client)
    (number,) = struct.unpack("<Q", hashlib.sha256(client.encode("utf-8", "surrogatepass")).digest()[:8])
    return two_words(entropy(run.store.secret(), round_num, number, *struct.unpack("<4Q", bytes.fromhex(first))))
