"""[baseline] and [personalise]: what they change in the data and the algorithm, and what they do not go with."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from computations.aggregators import mean
from computations.algorithms.own_models import head_places, require_plain, trained_alone, with_local_heads
from computations.client_work import LocalTraining
from computations.client_work.optimizers import SGD, SelfAdam
from computations.errors import CompositionError
from computations.federated_algorithm import FederatedAlgorithm, recompose
from computations.local_model import LABEL, PLATFORM, LocalModel
from computations.server_updates import gradient_step
from datasets.federated import ClientExamples, FederatedExamples
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.tasks.base import Prepared

POOLED = "all training examples"
"""Id of the client that trains."""


def require_baseline(recipe: Recipe) -> None:
    """Raises UserError for tables that go with no [baseline]."""
    if recipe.baseline is None:
        return
    for table in ("privacy", "aggregation", "client_model", "server_optimizer", "attack", "failures"):
        if getattr(recipe, table) is not None:
            raise UserError(
                f"{recipe.source}: [baseline] has no server that [{table}] could change; leave one of the two out"
            )
    if recipe.baseline.kind == "local" and recipe.personalise is not None:
        raise UserError(
            f"{recipe.source}: [personalise] is of a global model, and with baseline.kind = 'local' there is none; "
            "leave one of the two out"
        )
    if recipe.personalise is not None and recipe.personalise.local_head:
        raise UserError(f"{recipe.source}: 'personalise.local_head' goes with no [baseline]; leave one of the two out")


def pooled(prepared: Prepared) -> Prepared:
    """These data with all training examples at one client; dev and test examples stay where they are, so that the
    metrics are over the same clients as a federated run's."""
    train = prepared.examples.pooled("train")
    none = {name: array[:0] for name, array in train.items()}
    if PLATFORM in train:
        train[PLATFORM] = np.zeros_like(train[PLATFORM])
    dev = None if all(client.dev is None for client in prepared.examples.clients) else none
    others = [dataclasses.replace(client, train=none) for client in prepared.examples.clients]
    holders = [c for c in others if len(c.test[LABEL]) or (c.dev is not None and len(c.dev[LABEL]))]
    clients = (ClientExamples(POOLED, train, none, dev), *holders)
    examples = FederatedExamples(clients, prepared.examples.label_names, prepared.examples.server)
    truth = prepared.truth and (np.concatenate(prepared.truth), *([prepared.truth[0][:0]] * len(holders)))
    return dataclasses.replace(prepared, examples=examples, truth=truth)


def with_own_models(recipe: Recipe, algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """The algorithm as [baseline] or `personalise.local_head` change it.

    Raises:
      UserError: its clients keep a state or send more than updates, or the model is its head alone.
    """
    try:
        if recipe.baseline is not None:
            if recipe.baseline.kind == "local":
                return trained_alone(algorithm)
            require_plain(algorithm.client_work, "one client with all examples")
            return recompose(algorithm, aggregator=mean(), finalizer=gradient_step(algorithm.model))
        if recipe.personalise is not None and recipe.personalise.local_head:
            return with_local_heads(algorithm)
    except CompositionError as error:
        table = "[baseline]" if recipe.baseline is not None else "'personalise.local_head'"
        raise UserError(f"{recipe.source}: {table} with {recipe.algorithm.name}: {error}") from None
    return algorithm


def places_of(recipe: Recipe, model: LocalModel) -> frozenset[int]:
    """Places of the weights that `personalise.layers` trains among the trainable ones.

    Raises:
      UserError: the model has no such part.
    """
    layers, every = recipe.personalise.layers, range(len(model.weight_names))
    if layers == "all":
        return frozenset(every)
    of = f"{recipe.source}: 'personalise.layers' is '{layers}'"
    if layers == "adapter" and getattr(recipe.model.options, "adapter", None) is None:
        raise UserError(f"{of}, and the model has no adapter; set [model.adapter], or 'all' or 'head'")
    try:
        head = frozenset(head_places(model))
    except CompositionError as error:
        raise UserError(f"{of}: {error}; set it to 'all'") from None
    return head if layers == "head" else frozenset(every) - head


def require_sites(recipe: Recipe, prepared: Prepared, model: LocalModel) -> None:
    """Raises UserError where models of single clients do not fit the task or the model."""
    alone = recipe.baseline is not None and recipe.baseline.kind == "local"
    if not alone and recipe.personalise is None:
        return
    if prepared.held_out is not None or not prepared.examples.size("test"):
        table = "baseline.kind = 'local'" if alone else "[personalise]"
        raise UserError(
            f"{recipe.source}: {table} is measured on clients' own test examples, and here they have none; leave it out"
        )
    if alone:
        return
    if recipe.client_model is not None:
        raise UserError(f"{recipe.source}: [personalise] does not go with [client_model]; leave one of the two out")
    if recipe.personalise.epochs:
        places_of(recipe, model)


def fine_tuning_settings(recipe: Recipe, model: LocalModel) -> dict[str, Any]:
    """The arguments of `build_fine_tuning` beside the model; they can be compared."""
    options, algorithm = recipe.personalise, recipe.algorithm.options
    rate = algorithm.learning_rate if options.learning_rate is None else options.learning_rate
    return {
        "optimizer": (SelfAdam if options.optimizer == "adam" else SGD)(rate),
        "training": LocalTraining(local_epochs=options.epochs, batch_size=algorithm.batch_size),
        "places": places_of(recipe, model),
    }
