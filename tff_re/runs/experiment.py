"""From a resolved recipe to what a run needs: data at clients, a model, an algorithm, an evaluation."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from computations import algorithms
from computations.algorithms.aggregation import require_round, with_aggregation
from computations.algorithms.fine_tuning import build_fine_tuning
from computations.algorithms.server_optimizer import with_server_optimizer
from computations.client_work.selection import build_selection
from computations.errors import CompositionError
from computations.evaluation import build_evaluation
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.privacy.accounting import Accounting
from computations.traffic import Traffic, round_traffic
from tff_re import tasks
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.attack import Attack, attack_of, with_attack
from tff_re.runs.features.baseline import fine_tuning_settings, pooled, require_baseline, require_sites, with_own_models
from tff_re.runs.features.choice import choice_of, with_dev
from tff_re.runs.features.failures import asked_at_once, require_fitting, require_possible
from tff_re.runs.features.privacy import (
    accounting_of,
    form_of,
    refusals,
    require_covered,
    require_private_statistics,
    with_private_clients,
    with_private_examples,
)
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.duplicates import with_duplicate_notes
from tff_re.tasks.sizes import LARGEST_MESSAGE, available_memory, require_room_for_model, require_room_in_message


@dataclass(frozen=True, repr=False)
class Experiment:
    """A recipe with its data and computations, ready to run.

    Attributes:
      recipe: with all its values.
      prepared: the task's data at the clients.
      model: the server's model, its initial weights included; the clients' too, unless they have one of their own.
      algorithm: the federated algorithm as computations.
      clients_per_round: how many clients are sampled in each round; with Poisson sampling, how many are expected.
      scoring: scores the examples at the server, see `HeldOut`; None where the clients hold the test examples.
      accounting: of [privacy]; None without it.
      attack: of [attack]; None without it.
      selection: what Lazy MIL would select, see `build_selection`; None unless it is known which sentences state their
        relation.
    """

    recipe: Recipe
    prepared: Prepared
    model: LocalModel
    algorithm: FederatedAlgorithm
    clients_per_round: int
    _evaluation: Callable[[], tff.Computation]
    _traffic: Callable[[], Traffic]
    scoring: tff.Computation | None = None
    selection: tff.Computation | None = None
    accounting: Accounting | None = None
    attack: Attack | None = None
    _fine_tuning: Callable[[], tff.Computation] | None = None

    def __repr__(self) -> str:
        recipe, clients = self.recipe, len(self.prepared.examples.clients)
        return (
            f"Experiment({recipe.name}, seed {recipe.seed}: {recipe.algorithm.name} on {recipe.task.name}, "
            f"{clients} clients)"
        )

    @property
    def fine_tuning(self) -> tff.Computation:
        """The clients' fine-tuning after training, of a recipe with `personalise.epochs`; compiled when first asked
        for."""
        return self._fine_tuning()

    @property
    def evaluation(self) -> tff.Computation:
        """The federated evaluation, see `build_evaluation`; compiled when it is first asked for."""
        return self._evaluation()

    @property
    def traffic(self) -> Traffic:
        """Bytes per client and round; the first who asks has the whole round compiled."""
        return self._traffic()

    @property
    def notes(self) -> tuple[str, ...]:
        """For readers of the results: of the data, and of what is done to the clients' updates."""
        return (*self.prepared.notes, *self.recipe.notes)


@dataclass
class ExperimentBuilder:
    """Builds experiments; parts that two of them share are built once.

    Seeds differ in data and initial weights, not in computations; algorithms compared on a seed differ in
    computations, not in data.
    """

    data_paths: DataPaths = field(default_factory=DataPaths)
    _prepared: dict = field(default_factory=dict)
    _computations: dict = field(default_factory=dict)

    def build(self, recipe: Recipe, *, trains: bool = True) -> Experiment:
        """An Experiment of a resolved recipe.

        Args:
          recipe: resolved.
          trains: whether the model will be trained, which needs more memory than computing with it.

        Raises:
          UserError: what the recipe asks for does not fit together.
          DataError: the data are missing or malformed.
        """
        if trains:  # without it a finished run is evaluated or exported
            require_private_statistics(recipe, at_sites=False)
        prepared = self.prepare(recipe)
        require_baseline(recipe)
        trainable = sum(len(client.train["y"]) > 0 for client in prepared.examples.clients)
        sampled = _clients_per_round(recipe, trainable)
        if recipe.baseline is not None:  # all clients, or the one, train in every round
            sampled = trainable = 1 if recipe.baseline.kind == "pooled" else trainable
        require_possible(recipe, trainable, sampled)
        prepared = self._behind(recipe, prepared)
        model = _of(recipe, prepared.local_model, recipe.model)
        require_sites(recipe, prepared, model)
        of, form = f"{recipe.source}: model '{recipe.model.name}'", sizes_of(prepared)
        alike = self._computations.setdefault((LocalModel, recipe.model, form), model)
        require_room_for_model(_of(recipe, _weight_bytes, recipe, alike), of, trains=trains)
        model = model.with_sizes(alike.sizes)
        options = _with_counts(recipe, trainable, prepared)
        accounting = self._accounting(recipe, prepared, sampled)
        options = with_private_examples(recipe, options, accounting)
        most = _most(recipe, trainable, sampled)
        sums = _sums(recipe, prepared, most)
        private = accounting and (form_of(recipe.privacy, accounting), sampled)
        attack = attack_of(recipe, prepared)
        local_head = recipe.personalise is not None and recipe.personalise.local_head
        on_update = attack and attack.options.on_update
        tables = (recipe.aggregation, recipe.server_optimizer, recipe.baseline)
        around = (private, *tables, on_update, local_head, *sums.values())
        key = (recipe.model, recipe.client_model, recipe.algorithm.name, options, around, form)
        if key not in self._computations:
            of_clients = () if recipe.client_model is None else (_client_model(recipe, prepared),)
            with refusals(recipe):
                algorithm = _of(recipe, algorithms.find(recipe.algorithm.name).build, model, options, *of_clients)
                algorithm = with_own_models(recipe, algorithm)
                algorithm = with_attack(recipe, algorithm)
                algorithm = with_private_clients(recipe, algorithm, accounting, sampled)
            if accounting is not None:
                require_covered(recipe)
            keeps = algorithm.client_work.client_state_type
            algorithm = _of(recipe, _with_aggregation, algorithm, recipe.aggregation, sums)
            if algorithm.own_models is not None and algorithm.client_work.client_state_type is not keeps:
                raise UserError(
                    f"{recipe.source}: this [aggregation] keeps a state at the clients, and so does "
                    "'personalise.local_head'; leave one of the two out"
                )
            algorithm = _of(recipe, _with_server_optimizer, algorithm, recipe)
            evaluation = functools.cache(lambda: build_evaluation(model))
            evaluation = self._computations.setdefault((recipe.model, form), evaluation)
            scoring = None if prepared.held_out is None else prepared.held_out.scoring(algorithm)
            selection = None if prepared.truth is None else build_selection(model, prepared.num_triples)
            alone = recipe.baseline is not None  # of what no client sends the metrics' bytes would be all
            traffic = functools.cache(lambda: Traffic(0, 0) if alone else round_traffic(algorithm.next))
            self._computations[key] = (algorithm, evaluation, traffic, scoring, selection)
        algorithm, *of_model = self._computations[key]
        _require_room(recipe, algorithm, prepared, most)
        _require_rule(recipe, algorithm, prepared, sampled, most)
        require_fitting(recipe, algorithm)
        tuning = None
        if recipe.personalise is not None and recipe.personalise.epochs:
            settings = fine_tuning_settings(recipe, model)
            tuning = functools.cache(lambda: build_fine_tuning(model, **settings))
            tuning = self._computations.setdefault((recipe.model, form, *settings.values()), tuning)
        return Experiment(recipe, prepared, model, algorithm, sampled, *of_model, accounting, attack, tuning)

    def with_model_options(self, experiment: Experiment, options) -> Experiment:
        """An experiment of this builder whose model has the same weights with other options, such as its precision.

        Nothing can be trained with it: the computations of training are those of the first one, not built again.
        """
        recipe = experiment.recipe
        recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, options=options))
        prepared = self._behind(recipe, self.prepare(recipe))
        model = _of(recipe, prepared.local_model, recipe.model).with_sizes(experiment.model.sizes)
        algorithm = dataclasses.replace(experiment.algorithm, model=model)
        return dataclasses.replace(
            experiment,
            recipe=recipe,
            prepared=prepared,
            model=model,
            algorithm=algorithm,
            scoring=None if prepared.held_out is None else prepared.held_out.scoring(algorithm),
            _evaluation=functools.cache(lambda: build_evaluation(model)),
        )

    def _behind(self, recipe: Recipe, prepared: Prepared) -> Prepared:
        """Prepared data as the clients' model takes them: grouped, behind frozen layers, with dev examples, pooled."""
        grouped = recipe.privacy is not None and recipe.privacy.unit == "group"
        behind = (recipe.task, recipe.partition, recipe.seed, recipe.model, grouped)
        if behind not in self._prepared:
            if grouped:
                prepared = _of(recipe, prepared.with_groups)
            self._prepared[behind] = _of(recipe, prepared.precomputed, recipe.model, recipe.seed)
        prepared = self._prepared[behind]
        split = (*behind, recipe.choice, recipe.baseline)
        if split not in self._prepared:
            if choice_of(recipe, prepared) is not None and prepared.held_out is None:
                prepared = _of(recipe, with_dev, prepared, recipe.choice, recipe.seed)
            if recipe.baseline is not None and recipe.baseline.kind == "pooled":
                prepared = pooled(prepared)
            self._prepared[split] = prepared
        return self._prepared[split]

    def _accounting(self, recipe: Recipe, prepared: Prepared, sampled: int) -> Accounting | None:
        """Of [privacy]; made once for the algorithms of a comparison, because calibration takes seconds."""
        if recipe.privacy is None:
            return None
        steps = recipe.privacy.unit != "client" and recipe.algorithm.options
        key = (recipe.task, recipe.partition, recipe.seed, recipe.privacy, recipe.training, recipe.choice, steps)
        if key not in self._prepared:
            self._prepared[key] = accounting_of(recipe, prepared, sampled)
        return self._prepared[key]

    def prepare(self, recipe: Recipe) -> Prepared:
        """The task's data for the recipe's seed."""
        key = (recipe.task, recipe.partition, recipe.seed)
        if key not in self._prepared:
            self._prepared.clear()  # one seed at a time is in use, and the data may be large
            arguments = recipe.task.options, recipe.partition.options, recipe.seed, self.data_paths
            prepared = _of(recipe, tasks.module(recipe.task.name).prepare, *arguments)
            self._prepared[key] = with_duplicate_notes(prepared)
        return self._prepared[key]


def expected_clients(recipe: Recipe) -> int | None:
    """How many clients are asked in a round, as far as the recipe says it without the data; None: it does not."""
    training, per_round = recipe.training, recipe.training.clients_per_round
    if training.client_fraction is not None:
        known = getattr(recipe.partition.options, "num_clients", None)
        if known is None:
            return None
        per_round = _share(training, known)
    return asked_at_once(training, per_round)


def _share(training, clients: int) -> int:
    """training.client_fraction of so many clients."""
    return max(1, round(training.client_fraction * clients))


def _clients_per_round(recipe: Recipe, trainable: int) -> int:
    training = recipe.training
    if not trainable:
        raise UserError(f"{recipe.source}: no client has training examples; change [partition]")
    if training.client_fraction is not None:
        return _share(training, trainable)
    if training.clients_per_round > trainable:
        raise UserError(
            f"{recipe.source}: training.clients_per_round is {training.clients_per_round}, but only {trainable} "
            "clients have training examples; lower it, or set training.client_fraction"
        )
    return training.clients_per_round


def _most(recipe: Recipe, trainable: int, sampled: int) -> int:
    """So many clients a round, or fewer; with Poisson sampling up to one round in 10^9 that has more."""
    if recipe.training.sampling == "fixed":
        return sampled
    return min(trainable, int(stats.binom.ppf(1 - 1e-9, trainable, sampled / trainable)))


def require_messages(experiment: Experiment, runtime: str) -> None:
    """Raises UserError where the weights do not fit into a message to the runtime's worker."""
    recipe = experiment.recipe
    of = f"{recipe.source}: model '{recipe.model.name}'"
    require_room_in_message(_weight_bytes(recipe, experiment.model), of, runtime)


def _weight_bytes(recipe: Recipe, model: LocalModel) -> int:
    """Bytes of a model's weights, from their shapes; nothing is allocated.

    Raises:
      UserError: TensorFlow refuses the shapes.
    """
    try:
        tensors = [tensor for group in model.weights_type.children() for tensor in group.children()]
    except (ValueError, OverflowError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model '{recipe.model.name}' cannot be built in these sizes ({reason}); lower them") from None
    return sum(math.prod(map(int, tensor.shape)) * np.dtype(tensor.dtype).itemsize for tensor in tensors)


def _require_room(recipe: Recipe, algorithm: FederatedAlgorithm, prepared: Prepared, sampled: int) -> None:
    """Raises UserError where the client states of a round do not fit into one message from the worker (2 GB)."""
    blank = algorithm.client_work.initial_client_state
    if blank is None:
        return
    kept = (sum(array.nbytes for array in tf.nest.flatten(blank(c.train))) for c in prepared.examples.clients)
    size = sum(sorted(kept, reverse=True)[:sampled])
    if size > LARGEST_MESSAGE:
        raise UserError(
            f"{recipe.source}: the states of {sampled} clients of {recipe.algorithm.name} are {size / 1e9:.1f} GB, and "
            f"a message to TFF's worker holds {LARGEST_MESSAGE / 1e9:g}; sample fewer clients a round, or choose a "
            "smaller model"
        )


def _require_rule(recipe: Recipe, algorithm: FederatedAlgorithm, prepared: Prepared, sampled: int, most: int) -> None:
    """Raises UserError where the rule of [aggregation] cannot work with the run's clients or the server's examples."""
    options = recipe.aggregation
    if options is None or options.chosen_rule is None:
        return
    if options.chosen_rule.server_examples:
        _server_examples(recipe, prepared, f"aggregation.rule = {options.rule!r}", "aggregation.rule")
    try:
        update_type = algorithm.client_work.update_type
        require_round(options, update_type, expected=sampled, max_clients=most, free_bytes=available_memory())
    except CompositionError as error:
        raise UserError(f"{recipe.source}: {error}") from None


def _with_counts(recipe: Recipe, trainable: int, prepared: Prepared):
    """The algorithm's options, with counts of the run filled in where the recipe leaves them open.

    These are all clients (SCAFFOLD divides by their number), the facts of the knowledge base (Lazy MIL selects for
    each), and the server's examples (FedED's uploads are predictions of them).
    """
    options = recipe.algorithm.options
    if getattr(options, "num_clients", trainable) is None:
        options = attrs.evolve(options, num_clients=trainable)
    if getattr(options, "num_triples", 0) is None:
        if prepared.num_triples is None:
            raise UserError(
                f"{recipe.source}: {recipe.algorithm.name} needs bags of sentences; use task.name = 'bag_relations'"
            )
        options = attrs.evolve(options, num_triples=prepared.num_triples)
    if not hasattr(options, "num_server_examples"):
        return options
    held = len(_server_examples(recipe, prepared, recipe.algorithm.name, "algorithm.name")["y"])
    if options.num_server_examples not in (None, held):
        raise UserError(
            f"{recipe.source}: algorithm.num_server_examples is {options.num_server_examples}, but the server holds "
            f"{held}; leave it out"
        )
    return attrs.evolve(options, num_server_examples=held)


def _server_examples(recipe: Recipe, prepared: Prepared, who: str, key: str):
    """The server's examples, or UserError: `who` needs them, or `key` another value."""
    if prepared.examples.server is None:
        remedy = "; set task.server_share, e.g. to 0.2"
        if not hasattr(recipe.task.options, "server_share"):
            remedy = f", which the task '{recipe.task.name}' does not have; choose another {key}"
        raise UserError(f"{recipe.source}: {who} needs labelled examples at the server{remedy}")
    return prepared.examples.server


def _sums(recipe: Recipe, prepared: Prepared, most: int) -> dict[str, float]:
    """What the clients of a secure sum agree on before it: how many they are at most, and the largest weight."""
    if recipe.aggregation is None or recipe.aggregation.secure == "none":
        return {"clients": 1, "largest_weight": 1.0}
    by_examples = getattr(recipe.algorithm.options, "weighting", "uniform") == "examples"
    sizes = [len(client.train["y"]) for client in prepared.examples.clients]
    return {"clients": most, "largest_weight": float(max(sizes)) if by_examples else 1.0}


def _with_aggregation(algorithm: FederatedAlgorithm, options, sums: dict[str, float]) -> FederatedAlgorithm:
    try:
        return algorithm if options is None else with_aggregation(algorithm, options, **sums)
    except CompositionError as error:
        raise UserError(str(error)) from None


def _with_server_optimizer(algorithm: FederatedAlgorithm, recipe: Recipe) -> FederatedAlgorithm:
    if recipe.server_optimizer is None:
        return algorithm
    try:
        return with_server_optimizer(algorithm, recipe.server_optimizer, recipe.algorithm.options)
    except CompositionError as error:
        raise UserError(str(error)) from None


def _client_model(recipe: Recipe, prepared: Prepared) -> LocalModel:
    """The clients' own model; UserError for an algorithm that averages weights, or frozen layers."""
    build = algorithms.find(recipe.algorithm.name).build
    if "client_model" not in inspect.signature(build).parameters:
        raise UserError(
            f"{recipe.source}: {recipe.algorithm.name} combines the clients' weights, so that all have one model; "
            "leave [client_model] out, or use feded"
        )
    options = recipe.client_model.options
    apart = getattr(options, "frozen_layers", 0) and getattr(options, "adapter", None) is not None
    if "hidden" in prepared.inputs.specs or apart:
        where = "client_model" if apart else "model"
        raise UserError(f"{recipe.source}: [client_model] does not go with {where}.frozen_layers; set that to 0")
    if getattr(prepared.inputs, "fixed", None) is not None:  # the server's model's
        prepared = dataclasses.replace(prepared, inputs=dataclasses.replace(prepared.inputs, fixed=None))
    if getattr(options, "adapter", None) is not None:
        prepared = _of(recipe, prepared.precomputed, recipe.client_model, recipe.seed)
    return _of(recipe, prepared.local_model, recipe.client_model)


def _of(recipe: Recipe, make, *arguments):
    """make(*arguments); a UserError names the recipe."""
    try:
        return make(*arguments)
    except UserError as error:
        raise UserError(f"{recipe.source}: {error}") from None


def sizes_of(prepared: Prepared) -> tuple:
    """The sizes that the computations depend on; they do not depend on values."""
    inputs = prepared.inputs
    vectors = getattr(inputs, "vectors", None)
    sizes = tuple(getattr(inputs, f.name) for f in dataclasses.fields(inputs) if f.compare and f.name != "vectors")
    beside = (*sorted(prepared.beside), None if prepared.truth is None else prepared.num_triples)
    return (type(inputs).__name__, sizes, None if vectors is None else vectors.shape, len(prepared.label_names), beside)
