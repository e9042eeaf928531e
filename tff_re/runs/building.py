"""What an experiment is built of: clients, sizes, the algorithm's counts, the clients' own model."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from scipy import stats

from computations import algorithms
from computations import federated as tff
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.failures import asked_at_once
from tff_re.tasks.base import Prepared
from tff_re.tasks.sizes import LARGEST_MESSAGE


@dataclass(frozen=True)
class Setting:
    """The data, the model and the numbers of clients of an experiment that is being built.

    Attributes:
      recipe: resolved.
      prepared: the data as its features changed them.
      model: the server's.
      clients: how many have training examples.
      per_round: how many train in each round; with Poisson sampling, how many are expected.
      max_per_round: the most of a round; with Poisson sampling one round in 10^9 has more.
      sizes: see `sizes_of`.
      data_parts, computations: what was made before for the same data, and for the same sizes: key -> part.
    """

    recipe: Recipe
    prepared: Prepared
    model: LocalModel
    clients: int
    per_round: int
    sizes: tuple
    data_parts: dict = field(repr=False)
    computations: dict = field(repr=False)

    @property
    def max_per_round(self) -> int:
        """See the class."""
        if self.recipe.training.sampling == "fixed":
            return self.per_round
        return min(self.clients, int(stats.binom.ppf(1 - 1e-9, self.clients, self.per_round / self.clients)))

    def server_examples(self, who: str, key: str) -> dict[str, np.ndarray]:
        """The server's examples, which `who` needs.

        Raises UserError if the server has none, and suggests another value of `key`.
        """
        return server_examples(self.recipe, self.prepared, who, key)


def server_examples(recipe: Recipe, prepared: Prepared, who: str, key: str) -> dict[str, np.ndarray]:
    """See `Setting.server_examples`."""
    if prepared.examples.server is None:
        remedy = "; set task.server_share, e.g. to 0.2"
        if not hasattr(recipe.task.options, "server_share"):
            remedy = f", which the task '{recipe.task.name}' does not have; choose another {key}"
        raise UserError(f"{recipe.source}: {who} needs labelled examples at the server{remedy}")
    return prepared.examples.server


def named(recipe: Recipe, make, *arguments):
    """Returns make(*arguments) and names the recipe in a UserError."""
    try:
        return make(*arguments)
    except UserError as error:
        raise UserError(f"{recipe.source}: {error}") from None


@contextlib.contextmanager
def naming_algorithm(recipe: Recipe) -> Iterator[None]:
    """Turns what parts of an algorithm refuse into UserError that names the recipe and the algorithm."""
    try:
        yield
    except CompositionError as error:
        raise UserError(f"{recipe.source}: algorithm.name = '{recipe.algorithm.name}': {error}") from None


def expected_clients(recipe: Recipe) -> int | None:
    """The number of clients asked in a round, or None if the recipe does not say it without the data."""
    training, per_round = recipe.training, recipe.training.clients_per_round
    if training.client_fraction is not None:
        known = recipe.partition.get("num_clients")
        if known is None:
            return None
        per_round = _share(training, known)
    return asked_at_once(training, per_round)


def _share(training, clients: int) -> int:
    """training.client_fraction of that number of clients."""
    return max(1, round(training.client_fraction * clients))


def clients_per_round(recipe: Recipe, clients: int) -> int:
    """How many of the clients with training examples train in a round.

    Raises:
      UserError: there are too few.
    """
    training = recipe.training
    if not clients:
        raise UserError(f"{recipe.source}: no client has training examples; change [partition]")
    if training.client_fraction is not None:
        return _share(training, clients)
    if training.clients_per_round > clients:
        raise UserError(
            f"{recipe.source}: training.clients_per_round is {training.clients_per_round}, but only {clients} "
            "clients have training examples; lower it, or set training.client_fraction"
        )
    return training.clients_per_round


def weight_bytes(recipe: Recipe, model: LocalModel) -> int:
    """Bytes of a model's weights, computed from their shapes without allocating memory.

    Raises:
      UserError: TensorFlow refuses the shapes.
    """
    try:
        tensors = [tensor for group in model.weights_type.children() for tensor in group.children()]
    except (ValueError, OverflowError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"model '{recipe.model.name}' cannot be built with these sizes ({reason}); lower them"
        ) from None
    return sum(math.prod(map(int, tensor.shape)) * np.dtype(tensor.dtype).itemsize for tensor in tensors)


def require_room_for_states(setting: Setting, algorithm: FederatedAlgorithm) -> None:
    """Raises UserError where the client states of a round do not fit into one message from the worker (2 GB)."""
    blank = algorithm.client_work.initial_client_state
    if blank is None:
        return
    recipe, sampled, clients = setting.recipe, setting.max_per_round, setting.prepared.examples.clients
    if _has_fixed_size(algorithm.client_work.client_state_type):
        clients = clients[:1] * sampled
    elif setting.model.rows is None:  # else a client with fewer examples may have more rows
        largest = np.argsort(setting.prepared.examples.sizes("train"), kind="stable")[-sampled:]
        clients = [clients[index] for index in largest]
    sizes = (sum(array.nbytes for array in tf.nest.flatten(blank(client.train))) for client in clients)
    size = sum(sorted(sizes, reverse=True)[:sampled])
    if size > LARGEST_MESSAGE:
        raise UserError(
            f"{recipe.source}: the client states of {recipe.algorithm.name} take {size / 1e9:.1f} GB for {sampled} "
            f"clients, but a message to TFF's worker holds at most {LARGEST_MESSAGE / 1e9:g} GB; lower "
            "training.clients_per_round or choose a smaller model"
        )


def _has_fixed_size(type_spec: tff.Type) -> bool:
    """Whether all values of a type have the same shapes."""
    if isinstance(type_spec, tff.TensorType):
        return type_spec.shape is not None and None not in type_spec.shape
    return all(map(_has_fixed_size, type_spec.children()))


def with_counts(recipe: Recipe, clients: int, prepared: Prepared) -> Any:
    """The algorithm's options, with counts of the run filled in where the recipe leaves them open.

    These are all clients (SCAFFOLD divides by their number), the facts of the knowledge base (Lazy MIL selects for
    each), and the server's examples (FedED's uploads are predictions of them).
    """
    options = recipe.algorithm.options
    keys = attrs.fields_dict(type(options))
    if "num_clients" in keys and options.num_clients is None:
        options = attrs.evolve(options, num_clients=clients)
    if "num_triples" in keys and options.num_triples is None:
        if prepared.num_triples is None:
            raise UserError(
                f"{recipe.source}: {recipe.algorithm.name} needs bags of sentences; use task.name = 'bag_relations'"
            )
        options = attrs.evolve(options, num_triples=prepared.num_triples)
    if "num_server_examples" not in keys:
        return options
    held = len(server_examples(recipe, prepared, recipe.algorithm.name, "algorithm.name")["y"])
    if options.num_server_examples not in (None, held):
        raise UserError(
            f"{recipe.source}: algorithm.num_server_examples is {options.num_server_examples}, but the server has "
            f"{held} examples; leave the key out"
        )
    options = attrs.evolve(options, num_server_examples=held)
    model = prepared.local_model(recipe.model)
    if model.rows is None or "num_server_rows" not in keys:
        return options
    if prepared.sites:
        raise UserError(
            f"{recipe.source}: {recipe.algorithm.name} on tokens cannot run across sites, because a site does not "
            "know the number of tokens of the coordinator's texts; choose another algorithm.name"
        )
    return attrs.evolve(options, num_server_rows=model.num_rows(prepared.examples.server))


def client_model(recipe: Recipe, prepared: Prepared) -> LocalModel:
    """The clients' own model.

    Raises UserError for an algorithm that averages weights, or for frozen layers.
    """
    build = algorithms.find(recipe.algorithm.name).build
    if "client_model" not in inspect.signature(build).parameters:
        raise UserError(
            f"{recipe.source}: {recipe.algorithm.name} combines the clients' weights, so all clients must have the "
            "same model; leave [client_model] out, or use feded"
        )
    adapted = recipe.client_model.get("adapter") is not None
    apart = adapted and recipe.client_model.get("frozen_layers", 0)
    if "hidden" in prepared.inputs.specs or apart:
        where = "client_model" if apart else "model"
        raise UserError(
            f"{recipe.source}: [client_model] cannot be combined with {where}.frozen_layers; set that key to 0"
        )
    if getattr(prepared.inputs, "fixed", None) is not None:  # the server's model's
        prepared = dataclasses.replace(prepared, inputs=dataclasses.replace(prepared.inputs, fixed=None))
    if adapted:
        prepared = named(recipe, prepared.precomputed, recipe.client_model, recipe.seed)
    return named(recipe, prepared.local_model, recipe.client_model)


def sizes_of(prepared: Prepared) -> tuple:
    """The sizes, but not the values, that the computations depend on."""
    inputs = prepared.inputs
    vectors = getattr(inputs, "vectors", None)
    sizes = tuple(getattr(inputs, f.name) for f in dataclasses.fields(inputs) if f.compare and f.name != "vectors")
    side = (*sorted(prepared.side_arrays), None if prepared.truth is None else prepared.num_triples)
    return (type(inputs).__name__, sizes, None if vectors is None else vectors.shape, len(prepared.class_names), side)
