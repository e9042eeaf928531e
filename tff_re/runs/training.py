"""The training loop: rounds, sampling, evaluation, checkpoints, and what to do when a worker dies."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from computations import federated as tff
from computations.aggregators import has_noise, with_noise_seed
from computations.federated_algorithm import FederatedAlgorithm
from tff_re.errors import Diverged, UserError
from tff_re.runs.checkpoints import Records
from tff_re.runs.client_states import ClientStates
from tff_re.runs.evaluation import Evaluation, Evaluator, ServerEvaluation, ServerEvaluator, arranged, measured_at
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.attack import Attack
from tff_re.runs.features.choice import choice_of
from tff_re.runs.features.failures import Participation
from tff_re.runs.features.own_models import chosen_round, final_models, model_state_of, models_of
from tff_re.runs.features.personalise import Personalised
from tff_re.runs.folder import RunFolder
from tff_re.runs.randomness import client_seed, noise_seed, seed_of
from tff_re.runs.resuming import DataDigests
from tff_re.runs.sampling import participation
from tff_re.runtime import Runtime, WorkerDied, events

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


class Training:
    """A run under way, as its features see it.

    Attributes:
      experiment, folder, runtime, records, seed: of the run; `seed` may be a secret.
      test: evaluates the clients' test examples; None: there are none, or they are left out.
      ids: of the clients with training examples.
      participation: who is asked in a round, and whose answers count.
      state: what checkpoints hold: the server's state, the clients' (`memory`), and what features add.
      round: the number of the last round that was begun.
      answers: those of that round.
      evaluation: the last one of the clients' test examples; None without any.
      timings: seconds of that round, as timings.csv has them.
      closing: what is closed when training ends, also by an error.
    """

    def __init__(
        self, experiment: Experiment, folder: RunFolder, runtime: Runtime, records: Records, seed, tested: bool
    ):
        self.experiment, self.folder, self.runtime, self.records, self.seed = experiment, folder, runtime, records, seed
        self.call = restarting(runtime)
        self.ids, self._examples = arranged(experiment, "train")
        self._attack = experiment.feature(Attack)
        self.at_sites = bool(experiment.prepared.sites)
        self.participation = participation(experiment, seed, self.ids, runtime.participation(Participation))
        self.state, self.round, self.answers, self.evaluation = OrderedDict(), 0, None, None
        self.timings, self.closing = {}, contextlib.ExitStack()
        self._noised, self._recorded_states = has_noise(experiment.algorithm), None
        test = Evaluator(experiment, "test") if tested else None
        self.test = None if test is None or test.empty else test
        self._train = Evaluator(experiment, "train") if experiment.recipe.evaluation.train_split else None
        self.at_server = None if experiment.scoring is None else ServerEvaluator(experiment, tested=tested)

    def begin(self, start_weights: Any) -> None:
        """Takes the newest checkpoint, or the state before the first round."""
        start = _start(self.experiment, self.call, self._examples, start_weights)
        state, self.round = self.records.load_latest(start)
        self.state = start if state is None else state
        for feature in self.experiment.features:
            feature.start(self)

    @property
    def model_state(self) -> Any:
        """What the models of the round are made of, see `own_models.model_state_of`."""
        return model_state_of(self.experiment, self.state)

    @property
    def stopped(self) -> str | None:
        """One line that says why training ends before its last round, or None if it does not."""
        if not 0 < self.round < self.experiment.recipe.training.rounds:
            return None
        reasons = [feature.stop(self) for feature in self.experiment.features]
        return next((reason for reason in reversed(reasons) if reason is not None), None)

    @property
    def is_last(self) -> bool:
        """Whether no round follows."""
        return self.round >= self.experiment.recipe.training.rounds or self.stopped is not None

    def next_round(self) -> tuple[dict[str, float], float]:
        """Computes a round: (its metrics, the seconds that it took)."""
        self.round += 1
        for feature in self.experiment.features:
            feature.begin_round(self)
        began = time.perf_counter()
        self.runtime.begin_round(self.round)
        self.answers = self.participation.of_round(self.round, self._compute, self._not_finite)
        took = time.perf_counter() - began
        work, indices, output = self.experiment.algorithm.client_work, self.answers.places, self.answers.output
        of_nobody = dict.fromkeys(OF_NOBODY, 0.0) if work.has_metrics else {}
        before = [self.state["memory"][i] for i in indices] if work.recorded_state else []
        if output is not None:
            if indices and not of_nobody:
                _require_new_weights(self.state["server"], output["state"], self.round)
            self.state["server"] = output["state"]
        for number, i in enumerate(indices if work.initial_client_state else ()):
            self.state["memory"][i] = output["client_state"][number]
        metrics = flat_metrics({"work": of_nobody} if output is None else output["metrics"])
        if indices:
            _require_progress(metrics, self.round, len(indices))
        else:
            metrics.pop("local/loss", None)  # zero would be the run's best
        # Who was asked is a secret where sampling amplifies privacy.
        if self.runtime.answered is not None and self.experiment.recipe.privacy_unit != "client":
            metrics["sites/answered"], metrics["sites/asked"] = map(float, self.runtime.answered)
        self._recorded_states = None
        if work.recorded_state and indices:
            self._recorded_states = _fresh_states(self.experiment, [self.ids[i] for i in indices], before, output)
        return metrics, took

    def evaluate(self) -> dict[str, float]:
        """Metrics of the round's weights."""
        weights, metrics = models_of(self.experiment, self.model_state), {}
        if self.test is not None:
            self.evaluation = self.evaluated(self.test, weights)
            metrics.update(self.evaluation.recorded("test"))
        if self._train is not None:
            metrics.update(self.evaluated(self._train, weights).recorded("train"))
        if self.at_server is not None:
            metrics.update(self.call(self.at_server, weights).metrics)
        for feature in self.experiment.features:
            metrics.update(self.call(feature.evaluate, self, weights))
        return metrics

    def evaluated(self, evaluator: Evaluator, weights: Any) -> Evaluation:
        """The evaluation of weights, with the number of sites that answered."""
        return self.of_sites(self.call(evaluator, weights))

    def of_sites(self, evaluation: Evaluation) -> Evaluation:
        """The runtime's last evaluation, with the number of sites that answered and rows of those that allow it."""
        by_site = measured_at(self.experiment.prepared.measures, self.runtime.own_results)
        return replace(evaluation, sites=self.runtime.answered, by_site=by_site)

    def release(self, metrics: dict[str, float]) -> None:
        """Writes the rows of a round."""
        self.records.release(self.round, metrics, self.timings)
        if self._recorded_states is not None:
            labels = self.experiment.prepared.class_names
            self.records.release_client_states(self.round, labels, self._recorded_states)

    def _compute(self, indices: list[int]):
        if not indices and not self._noised:
            return None
        algorithm, server = self.experiment.algorithm, self.state["server"]
        if self._noised:  # the state that comes back has no seed, and no checkpoint has one
            server = with_noise_seed(server, noise_seed(self.seed))
        nobody = algorithm.client_work.initial_client_state and not indices
        return self.call(_of_nobody(algorithm) if nobody else algorithm.next, *self._arguments(indices, server))

    def _not_finite(self, indices: list[int]) -> Sequence[float]:
        return self.call(self.experiment.algorithm.not_finite, *self._arguments(indices, self.state["server"]))

    def _arguments(self, indices: Sequence[int], server) -> tuple:
        clients = [self._client(i) for i in indices]
        keeps = self.experiment.algorithm.client_work.initial_client_state
        states = ([self.state["memory"][i] for i in indices],) if keeps else ()
        return server, clients, *states, *_at_server(self.experiment, self.round, self.seed)

    def _client(self, index: int) -> OrderedDict:
        """What the algorithm gets of a client in this round."""
        seed = client_seed(self.seed, self.round, self.ids[index])
        value = OrderedDict(examples=self._examples[index], seed=seed)
        return value if self._attack is None else self._attack.client_value(index, self.ids[index], value)


def train(
    experiment: Experiment,
    folder: RunFolder,
    runtime: Runtime,
    *,
    seed: int | bytes | None = None,
    start_weights: Any = None,
    on_round: Callable[[RoundReport], None] = lambda report: None,
    tested: bool = True,
) -> Result:
    """Trains from the newest checkpoint of the folder (or from the start) to the last round, or until a feature stops.

    In a round without clients (Poisson sampling) the server's state stays as it is, unless the clients' sum is noised:
    then the noise is released as in every round, or the weights would tell that there was nobody.

    Args:
      experiment: what to train.
      folder: begun and locked by the caller.
      runtime: open; its context is the current one.
      seed: `seed_of` the recipe, if the caller has asked for it.
      start_weights: ModelWeights before the first round; None: those that the recipe's seed draws.
      on_round: called after every round.
      tested: whether the metrics `test/…` are computed, of the clients' test examples and of the server's.

    Raises:
      UserError: no client of a round had a finite update, the metrics went NaN, the first round would spend more
        than the budget, or more clients were lost than `Participation.of_round` tolerates.
      WorkerDied: the worker died in the same round more than `RESTARTS_IN_A_ROW` times.
    """
    recipe, seed = experiment.recipe, seed_of(experiment.recipe) if seed is None else seed
    with contextlib.closing(Records(folder, DataDigests.from_prepared(experiment.prepared))) as records:
        training = Training(experiment, folder, runtime, records, seed, tested)
        with training.closing, records.saved_if_interrupted():
            training.begin(start_weights)
            last = training.is_last
            if last and training.test is not None:
                training.evaluation = training.evaluated(training.test, models_of(experiment, training.model_state))
            while not last:
                metrics, took = training.next_round()
                training.timings = {"seconds/training": took}
                if training.is_last or training.round % recipe.evaluation.every == 0:
                    began = time.perf_counter()
                    metrics.update(training.evaluate())
                    training.timings["seconds/evaluation"] = time.perf_counter() - began
                for feature in experiment.features:
                    feature.after_round(training, metrics)
                last = training.is_last
                training.release(metrics)
                # Across sites a round takes the work of several machines, so every one is kept.
                write = last or training.at_sites or training.round % recipe.training.checkpoint_every == 0
                records.finish_round(training.round, training.state, write=write)
                on_round(RoundReport(training.round, recipe.training.rounds, metrics, took))
            return _result(training)


def _result(training: Training) -> Result:
    """The result of the last round's models, or of the chosen ones."""
    weights = final_models(training.experiment, training.state)
    server_evaluation = None if training.at_server is None else training.call(training.at_server, weights)
    evaluation = training.evaluation
    if chosen_round(training.state) is not None and training.test is not None:
        evaluation = training.evaluated(training.test, weights)
    result = Result(weights, evaluation, server_evaluation, stopped=training.stopped)
    for feature in training.experiment.features:
        result = feature.finish(training, result)
    return result


def _start(experiment: Experiment, call, examples: Sequence, start_weights: Any = None) -> OrderedDict:
    """The state before the first round: the server's, each client's, and that of the chosen round if there is dev.

    The key 'memory' holds the client states.
    """
    weights = experiment.model.initial_weights(experiment.recipe.seed) if start_weights is None else start_weights
    if (own_models := experiment.algorithm.own_models) is not None:
        weights = own_models.sent(weights)
    server = call(experiment.algorithm.initialize, weights)
    if start_weights is not None:  # FedETF would replace the classifier that the weights were trained with
        server = OrderedDict(server, weights=start_weights)
    return _initial_state(experiment, server, examples)


def _initial_state(experiment: Experiment, server, examples: Sequence) -> OrderedDict:
    """The state before the first round with that of the server."""
    seed, initial_state_of = experiment.recipe.seed, experiment.algorithm.client_work.initial_client_state
    number = len(examples) if initial_state_of else 0
    memory = ClientStates(number, lambda index: initial_state_of(examples[index], seed))
    state = OrderedDict(server=server, memory=memory)
    for feature in experiment.features:
        state |= feature.checkpointed(experiment, state)
    return state


def _of_nobody(algorithm: FederatedAlgorithm) -> tff.Computation:
    """`next` without the client states, for a round without clients: TFF cannot read what no client gives."""

    @tff.federated_computation(algorithm.next.type_signature.parameter)
    def next_round(inputs):
        output = algorithm.next(inputs)
        return OrderedDict(state=output["state"], metrics=output["metrics"])

    return next_round


def _at_server(experiment: Experiment, round_num: int, seed: int | bytes) -> tuple:
    """The examples at the server, as the algorithm's last argument, or nothing for most algorithms."""
    if experiment.algorithm.server_type is None:
        return ()
    examples = experiment.model.arrange(experiment.prepared.examples.server)
    return (OrderedDict(examples=examples, seed=client_seed(seed, round_num, "the server")),)


def final_weights(experiment: Experiment, folder: RunFolder, *, last: bool = False):
    """(weights, round, None) of a run's newest checkpoint, or of the round selected on dev up to it (see `Result`).

    For a selected round, the third value is how it was selected. With `last`, the selection is ignored.

    Raises:
      UserError: the run has no checkpoint yet, or one that is not of the folder's recipe, partition and examples.
    """
    _, examples = arranged(experiment, "train")
    state_type = experiment.algorithm.initialize.type_signature.result.member
    blank = tff.types.structure_from_tensor_type_tree(lambda tensor: np.zeros(tensor.shape, tensor.dtype), state_type)
    with contextlib.closing(Records(folder, DataDigests.from_prepared(experiment.prepared))) as records:
        state, done = records.load_latest(_initial_state(experiment, blank, examples), resume=False)
    if state is None:
        raise UserError(f"{folder.path}: has no checkpoint yet; finish the run with: train --resume")
    number = chosen_round(state)
    if last or number is None:
        return models_of(experiment, model_state_of(experiment, state)), done, None
    return final_models(experiment, state), number, choice_of(experiment.recipe, experiment.prepared)


def _fresh_states(
    experiment: Experiment, ids: list[str], client_states: list, output
) -> dict[str, dict[str, np.ndarray]]:
    """Client id -> name -> what may be recorded of the client states after a round (`Objective.recorded_state`).

    A client whose update was not finite kept its state, and is left out.
    """
    names = experiment.algorithm.client_work.recorded_state
    all_counted = output["metrics"]["work"]["clients/counted"] == len(ids)
    return {
        client: {name: after[name] for name in names}
        for client, before, after in zip(ids, client_states, output["client_state"], strict=True)
        if all_counted or any(not np.array_equal(before[name], after[name]) for name in names)
    }


def flat_metrics(metrics) -> dict[str, float]:
    """Scalar metrics of a round by name, without empty measurements."""
    flat: dict[str, float] = {}

    def add(prefix: str, part) -> None:
        for name, value in part.items():
            if isinstance(value, dict):
                add(f"{prefix}{name}/", value)
            elif not isinstance(value, (tuple, list)) and np.ndim(value) == 0:
                flat[f"{prefix}{name}"] = float(value)

    for part_name, part in metrics.items():
        # Metrics of our own parts have full names; those of TFF's parts get the part's name as a prefix.
        if isinstance(part, dict):
            add("" if part_name in ("work", "aggregator") else f"{part_name}/", part)
    return flat


def restarting(runtime: Runtime) -> Callable:
    """Calls a computation and repeats the call if the worker died, after starting it again."""

    def call(computation, *arguments):
        for _ in range(RESTARTS_IN_A_ROW):
            try:
                return computation(*arguments)
            except WorkerDied as error:
                events.WORK_REPEATED.log(_log, reason=error)
                runtime.restart()
        return computation(*arguments)

    return call


def _require_new_weights(before, after, round_num: int) -> None:
    """Raises Diverged where a round of clients that tell nothing of their training left the weights as they were."""
    same = map(np.array_equal, *(tf.nest.flatten(state["weights"]) for state in (before, after)))
    if all(same):
        raise Diverged(
            f"round {round_num} left all weights unchanged: no client had a finite update; lower "
            "algorithm.learning_rate or algorithm.server_step"
        )


def _require_progress(metrics: dict[str, float], round_num: int, clients: int) -> None:
    if metrics.get("clients/counted", 1.0) == 0:
        raise Diverged(
            f"round {round_num}: no client had a finite update ({int(metrics['clients/non_finite'])} of {clients} "
            "became NaN or infinite); lower algorithm.learning_rate or algorithm.server_step, or set "
            "algorithm.max_gradient_norm"
        )
