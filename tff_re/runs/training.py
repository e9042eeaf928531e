"""The training loop: rounds, sampling, evaluation, checkpoints, and what to do when a worker dies."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from computations.aggregators import has_noise, with_noise_seed
from computations.federated_algorithm import FederatedAlgorithm
from tff_re.errors import Diverged, UserError
from tff_re.runs.at_sites import ParticipationOfSites
from tff_re.runs.checkpoints import Records
from tff_re.runs.evaluation import (
    Evaluation,
    Evaluator,
    SelectionEvaluator,
    ServerEvaluation,
    ServerEvaluator,
    arranged,
)
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.attack import SUCCESS, SuccessEvaluator
from tff_re.runs.features.choice import choice_of
from tff_re.runs.features.failures import Participation, asked_at_once
from tff_re.runs.features.own_models import OnAll, final_models, kept_of, models_of, trains_alone
from tff_re.runs.features.personalise import Personalised, personalise
from tff_re.runs.features.privacy import EPSILON, Spending
from tff_re.runs.folder import RunFolder
from tff_re.runs.randomness import client_seed, entropy, noise_seed, seed_of
from tff_re.runs.record import notice, partition_digest
from tff_re.runtime import Runtime, WorkerDied
from tff_re.tasks.at_sites import SitesPrepared
from tff_re.tasks.held_out import DEV

_log = logging.getLogger(__name__)

RESTARTS_IN_A_ROW = 3

OF_NOBODY = ("local/steps", "clients/counted", "clients/non_finite")
"""Metrics of a round without clients."""


@dataclass(frozen=True)
class RoundReport:
    """A finished round: its number from 1, the number of rounds, its metrics by name, the seconds of its training."""

    round: int
    rounds: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run.

    Attributes:
      weights: ModelWeights of the last round, or of the chosen one where there is a dev split; client id -> its own
        where every client has a model of its own.
      test: the evaluation of these weights on the clients' test examples, if they have any.
      server_evaluation: of these weights, where the server holds examples.
      chosen: (the round whose metric on the dev split is best, that metric), where there is a dev split.
      chosen_on: what the round was chosen on, in words; where it was chosen.
      stopped: why the run ended before its last round: one line; None: it did not.
      privacy: what the run guarantees, see `privacy.description`; None without [privacy].
      personalised: what fine-tuning at the clients gave; None without [personalise].
      on_all: of models that clients train alone, on the test examples of all; empty else.
    """

    weights: object
    test: Evaluation | None
    server_evaluation: ServerEvaluation | None = None
    chosen: tuple[int, str] | None = None
    chosen_on: str | None = None
    stopped: str | None = None
    privacy: Mapping[str, Any] | None = None
    personalised: Personalised | None = None
    on_all: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        metrics = {} if self.test is None else {f"test/{name}": value for name, value in self.test.metrics.items()}
        metrics |= {} if self.server_evaluation is None else self.server_evaluation.metrics
        parts = [f"{name} {value:.4f}" for name, value in metrics.items()]
        parts += [] if self.chosen is None else [f"round {self.chosen[0]}, chosen by {self.chosen[1]}"]
        return f"Result({', '.join([*parts, *([] if self.stopped is None else [self.stopped])])})"


def sample_clients(
    seed: int | bytes, round_num: int, eligible: int, count: int, sampling: Literal["fixed", "poisson"] = "fixed"
) -> np.ndarray:
    """Indices of the clients of a round, from (seed, round) alone; sorted.

    `fixed`: so many, without replacement. `poisson`: each with the probability count / eligible, independently; there
    may be none.
    """
    if sampling == "poisson":
        generator = np.random.default_rng(entropy(seed, round_num, 3))
        return np.flatnonzero(generator.random(eligible) < count / eligible)
    generator = np.random.default_rng(entropy(seed, round_num, 1))
    return np.sort(generator.choice(eligible, size=count, replace=False))


def participation(
    experiment: Experiment, seed: int | bytes, ids: Sequence[str], of: Callable[..., Participation] = Participation
) -> Participation:
    """Who is asked in each round of a run, and whose answers count; `ids` are of the clients with training examples.

    `of`: makes it, as the class does.
    """
    training, per_round = experiment.recipe.training, experiment.clients_per_round

    def first(round_num: int) -> np.ndarray:
        asked = min(asked_at_once(training, per_round), len(ids))
        return sample_clients(seed, round_num, len(ids), asked, training.sampling)

    return of(experiment.recipe, seed, ids, per_round, first)


def train(
    experiment: Experiment,
    folder: RunFolder,
    runtime: Runtime,
    *,
    seed: int | bytes | None = None,
    start_weights: Any = None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
) -> Result:
    """Trains from the newest checkpoint of the folder (or from the start) to the last round, or to the last before the
    budget of [privacy] would be spent.

    In a round without clients (Poisson sampling) the server's state stays as it is, unless the clients' sum is noised:
    then the noise is released as in every round, or the weights would tell that there was nobody.

    Args:
      experiment: what to train.
      folder: begun and locked by the caller.
      runtime: open; its context is the current one.
      seed: `seed_of` the recipe, if the caller has asked for it.
      start_weights: ModelWeights before the first round; None: those that the recipe's seed draws.
      on_round: called after every round.

    Raises:
      UserError: no client of a round had a finite update, the metrics went NaN, the first round would spend more
        than the budget, or clients were lost as `Participation.of_round` does not bear.
      WorkerDied: the worker died in the same round more than `RESTARTS_IN_A_ROW` times.
    """
    recipe, seed = experiment.recipe, seed_of(experiment.recipe) if seed is None else seed
    ids, examples = arranged(experiment, "train")
    attack, success = experiment.attack, None
    if attack is not None:
        examples = attack.trained_on(ids, examples)
        success = None if attack.trigger is None else SuccessEvaluator(experiment, attack)
    test, on_dev = Evaluator(experiment, "test"), Evaluator(experiment, DEV)
    choice = choice_of(recipe, experiment.prepared)
    on_train = Evaluator(experiment, "train") if recipe.evaluation.train_split else None
    initial_state_of = experiment.algorithm.client_work.initial_client_state
    server_evaluator = None if experiment.scoring is None else ServerEvaluator(experiment)
    selection = None if experiment.selection is None else SelectionEvaluator(experiment)
    noised = has_noise(experiment.algorithm)
    of_nobody = dict.fromkeys(OF_NOBODY, 0.0) if experiment.algorithm.client_work.has_metrics else {}
    each_on_all = OnAll(experiment) if trains_alone(experiment) and not test.empty else None
    call = _restarting(runtime)

    def evaluated(evaluator: Evaluator, weights) -> Evaluation:
        return replace(call(evaluator, weights), sites=runtime.answered)

    at_sites = isinstance(experiment.prepared, SitesPrepared)
    of = functools.partial(ParticipationOfSites, runtime=runtime) if at_sites else Participation
    taking_part = participation(experiment, seed, ids, of)

    opened = contextlib.closing(Records(folder, partition_digest(experiment.prepared.partition)))
    with opened as records, records.kept_if_interrupted():
        start = _start(experiment, call, examples, start_weights)
        state, done = records.load_latest(start)
        state = start if state is None else state
        spending = None
        if experiment.accounting is not None:
            spending = Spending(recipe, experiment.accounting, folder, taking_part.asked, done)
            if done and recipe.privacy.noise_seed == "system":
                notice(f"{folder.path}: goes on with new randomness; every round that was begun counts")

        def is_last(number: int) -> bool:
            if number >= recipe.training.rounds or (choice is not None and choice.ends(state["chosen"], number)):
                return True
            return spending is not None and spending.stops_before(number + 1)

        def arguments(places: Sequence[int], server) -> tuple:
            beside = (lambda client: {}) if attack is None else attack.beside
            clients = [
                OrderedDict(examples=examples[i], seed=client_seed(seed, round_num, ids[i]), **beside(ids[i]))
                for i in places
            ]
            client_state = ([state["memory"][i] for i in places],) if initial_state_of else ()
            return server, clients, *client_state, *_at_server(experiment, round_num, seed)

        def compute(places: list[int]):
            if not places and not noised:
                return None
            # The state that comes back has no seed, and no checkpoint has one.
            server = with_noise_seed(state["server"], noise_seed(seed)) if noised else state["server"]
            of_nobody = initial_state_of and not places
            computation = _of_nobody(experiment.algorithm) if of_nobody else experiment.algorithm.next
            return call(computation, *arguments(places, server))

        def not_finite(places: list[int]) -> Sequence[float]:
            return call(experiment.algorithm.not_finite, *arguments(places, state["server"]))

        evaluation, round_num = None, done
        if done and is_last(done) and not test.empty:
            evaluation = evaluated(test, models_of(experiment, kept_of(experiment, state)))
        while not (round_num and is_last(round_num)):
            round_num += 1
            if spending is not None:
                spending.begin(round_num)
            began = time.perf_counter()
            runtime.begin_round(round_num)
            answers = taking_part.of_round(round_num, compute, not_finite)
            took = time.perf_counter() - began
            chosen, output = answers.places, answers.output
            before = [state["memory"][i] for i in chosen] if initial_state_of else []
            if output is not None:
                if chosen and not of_nobody:
                    _require_new_weights(state["server"], output["state"], round_num)
                state["server"] = output["state"]
            for place, i in enumerate(chosen if initial_state_of else ()):
                state["memory"][i] = output["client_state"][place]
            metrics = flat_metrics({"work": of_nobody} if output is None else output["metrics"])
            if chosen:
                _require_progress(metrics, round_num, len(chosen))
            else:
                metrics.pop("local/loss", None)  # zero would be the run's best
            if taking_part.is_recorded:
                metrics |= answers.metrics
                records.release_answers(round_num, [(n, ids[i], what) for n, i, what in answers.outcomes])
            # Who was asked is a secret where sampling amplifies privacy.
            if runtime.answered is not None and (recipe.privacy is None or recipe.privacy.unit != "client"):
                metrics["sites/answered"], metrics["sites/asked"] = map(float, runtime.answered)
            if spending is not None:
                metrics[EPSILON] = spending.epsilon
            if attack is not None:
                metrics["attack/clients"] = float(sum(ids[i] in attack.clients for i in chosen))
            timings = {"seconds/training": took}
            last = is_last(round_num)
            if last or round_num % recipe.evaluation.every == 0:
                began = time.perf_counter()
                kept = kept_of(experiment, state)
                weights, of_each = models_of(experiment, kept), [{}] * len(ids)
                if not test.empty:
                    evaluation = evaluated(test, weights)
                    metrics.update(evaluation.recorded("test"))
                if success is not None:
                    metrics[SUCCESS] = call(success, weights)
                if on_train is not None:
                    metrics.update(evaluated(on_train, weights).recorded("train"))
                if not on_dev.empty:
                    on_own = evaluated(on_dev, weights)
                    metrics.update(on_own.recorded(DEV))
                    of_each = [on_own.by_client.get(client, {}) for client in ids]
                if each_on_all is not None:
                    metrics.update(call(each_on_all, weights)[0])
                if server_evaluator is not None:
                    metrics.update(call(server_evaluator, weights).metrics)
                if choice is not None:
                    state["chosen"] = choice.take(state["chosen"], round_num, metrics, of_each, kept)
                    last = is_last(round_num)
                if selection is not None:
                    metrics.update(call(selection, weights))
                timings["seconds/evaluation"] = time.perf_counter() - began
            records.release(round_num, metrics, timings)
            if experiment.algorithm.client_work.shown and chosen:
                fresh = _fresh_states(experiment, [ids[i] for i in chosen], before, output)
                records.release_client_states(round_num, experiment.prepared.label_names, fresh)
            # Across sites a round takes the work of several machines, so every one is kept.
            write = last or at_sites or round_num % recipe.training.checkpoint_every == 0
            records.finish_round(round_num, state, write=write)
            on_round(RoundReport(round_num, recipe.training.rounds, metrics, took))
        weights, by_dev, own_rounds = final_models(experiment, state)
        stopped = None
        if round_num < recipe.training.rounds:
            early = choice is not None and choice.ends(state["chosen"], round_num)
            stopped = choice.reason(by_dev, round_num) if early else spending.reason(round_num)
        server_evaluation = None if server_evaluator is None else call(server_evaluator, weights)
        if by_dev is not None and not test.empty:
            evaluation = evaluated(test, weights)
        more, columns = ({}, {}) if each_on_all is None else call(each_on_all, weights)
        personalised = None
        if recipe.personalise is not None and recipe.personalise.epochs:
            personalised = personalise(experiment, weights, call, lambda client: client_seed(seed, 0, client))
            columns = {**columns, **personalised.columns}
        if own_rounds:
            columns = {**columns, "round": own_rounds}
        if evaluation is not None and columns:
            evaluation = replace(evaluation, columns=columns)
    chosen = (None, None) if by_dev is None else ((by_dev, choice.criterion), choice.statement)
    return Result(weights, evaluation, server_evaluation, *chosen, stopped, personalised=personalised, on_all=more)


def _start(experiment: Experiment, call, examples: list, given: Any = None) -> OrderedDict:
    """The state before the first round: the server's, each client's, and that of the chosen round if there is dev.

    The key 'memory' holds the client states; it is part of the checkpoints' structure.
    """
    weights = experiment.model.initial_weights(experiment.recipe.seed) if given is None else given
    if (own := experiment.algorithm.own_models) is not None:
        weights = own.sent(weights)
    server = call(experiment.algorithm.initialize, weights)
    if given is not None:  # FedETF would replace the classifier that the weights were trained with
        server = OrderedDict(server, weights=given)
    return _around(experiment, server, examples)


def _around(experiment: Experiment, server, examples: list) -> OrderedDict:
    """The state before the first round with that of the server."""
    seed, initial_state_of = experiment.recipe.seed, experiment.algorithm.client_work.initial_client_state
    memory = [initial_state_of(e, seed) for e in examples] if initial_state_of else []
    state = OrderedDict(server=server, memory=memory)
    if (choice := choice_of(experiment.recipe, experiment.prepared)) is not None:
        state["chosen"] = choice.start(kept_of(experiment, state))
    return state


def _of_nobody(algorithm: FederatedAlgorithm) -> tff.Computation:
    """`next` without the client states, for a round without clients: TFF cannot read what no client gives."""

    @tff.federated_computation(algorithm.next.type_signature.parameter)
    def next_round(inputs):
        output = algorithm.next(inputs)
        return OrderedDict(state=output["state"], metrics=output["metrics"])

    return next_round


def _at_server(experiment: Experiment, round_num: int, seed: int | bytes) -> tuple:
    """The examples at the server, as the algorithm's last argument; empty for most algorithms."""
    if experiment.algorithm.server_type is None:
        return ()
    examples = experiment.model.arrange(experiment.prepared.examples.server)
    return (OrderedDict(examples=examples, seed=client_seed(seed, round_num, "the server")),)


def final_weights(experiment: Experiment, folder: RunFolder, *, last: bool = False):
    """(weights, round, None) of the newest checkpoint of a run, see `Result`; or of the round chosen on dev up to it,
    unless `last`, with what chose it.

    Raises:
      UserError: the run has no checkpoint yet, or one that is not of the folder's recipe and partition.
    """
    _, examples = arranged(experiment, "train")
    state_type = experiment.algorithm.initialize.type_signature.result.member
    blank = tff.types.structure_from_tensor_type_tree(lambda tensor: np.zeros(tensor.shape, tensor.dtype), state_type)
    with contextlib.closing(Records(folder, partition_digest(experiment.prepared.partition))) as records:
        state, done = records.load_latest(_around(experiment, blank, examples), resume=False)
    if state is None:
        raise UserError(f"{folder.path}: has no checkpoint yet; finish the run with: train --resume")
    weights, by_dev, _ = final_models(experiment, state)
    if last or by_dev is None:
        return models_of(experiment, kept_of(experiment, state)), done, None
    return weights, by_dev, choice_of(experiment.recipe, experiment.prepared)


def _fresh_states(
    experiment: Experiment, ids: list[str], client_states: list, output
) -> dict[str, dict[str, np.ndarray]]:
    """Client id -> name -> what may be recorded of the client states after a round (`Objective.shown`).

    A client whose update was not finite kept its state, and is left out.
    """
    shown = experiment.algorithm.client_work.shown
    all_counted = output["metrics"]["work"]["clients/counted"] == len(ids)
    return {
        client: {name: after[name] for name in shown}
        for client, before, after in zip(ids, client_states, output["client_state"], strict=True)
        if all_counted or any(not np.array_equal(before[name], after[name]) for name in shown)
    }


def flat_metrics(metrics) -> dict[str, float]:
    """Scalar metrics of a round by name; empty measurements drop out."""
    flat: dict[str, float] = {}

    def add(prefix: str, part) -> None:
        for name, value in part.items():
            if isinstance(value, dict):
                add(f"{prefix}{name}/", value)
            elif not isinstance(value, (tuple, list)) and np.ndim(value) == 0:
                flat[f"{prefix}{name}"] = float(value)

    for place, part in metrics.items():
        # Metrics of our own parts have full names; those of TFF's parts get the part's name as a prefix.
        if isinstance(part, dict):
            add("" if place in ("work", "aggregator") else f"{place}/", part)
    return flat


def _restarting(runtime: Runtime) -> Callable:
    """Calls a computation; if the worker died, starts it again and repeats the call."""

    def call(computation, *arguments):
        for _ in range(RESTARTS_IN_A_ROW):
            try:
                return computation(*arguments)
            except WorkerDied as error:
                _log.warning("%s; starting it again and repeating the work", error)
                runtime.restart()
        return computation(*arguments)

    return call


def _require_new_weights(before, after, round_num: int) -> None:
    """Raises Diverged where a round of clients that tell nothing of their training left the weights as they were."""
    same = map(np.array_equal, *(tf.nest.flatten(state["weights"]) for state in (before, after)))
    if all(same):
        raise Diverged(
            f"round {round_num} changed no weight: no client had a finite update; lower algorithm.learning_rate or "
            "algorithm.server_step"
        )


def _require_progress(metrics: dict[str, float], round_num: int, clients: int) -> None:
    if metrics.get("clients/counted", 1.0) == 0:
        raise Diverged(
            f"round {round_num}: no client had a finite update ({int(metrics['clients/non_finite'])} of "
            f"{clients} went NaN or infinite); lower algorithm.learning_rate or "
            "algorithm.server_step, or set algorithm.max_gradient_norm"
        )
