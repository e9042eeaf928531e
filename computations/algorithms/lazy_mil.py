"""Distant supervision over platforms (FedDS, Sui et al. 2021, "Distant Supervision for Relation Extraction in Federated
Settings"): Lazy MIL and the baselines that the paper compares it with.

The baselines suppress noise inside of a client's own bags (Appendix C, Algorithm 3) and count clients by their
sentences; Lazy MIL selects one sentence a triple over all clients of the round (Algorithms 1 and 2) and counts clients
by the selected ones (Eq. 5).

`lazy_mil_alias` is another kind of control: what the authors' released code does instead, and what no client of a
federation can do.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf
from attrs import field
from attrs.validators import and_, ge, gt, le, optional

from computations import federated as tff
from computations.aggregators import AttentionFactory, mean
from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, with_aggregator
from computations.algorithms.registry import algorithm
from computations.bags import require_linear_classifier
from computations.client_work import ClientWork
from computations.client_work.client_training import Weighting
from computations.client_work.objectives import (
    AtLeastOne,
    BagAverage,
    CrossEntropy,
    Objective,
    RelationAwareAttention,
    SelectiveAttention,
)
from computations.client_work.selection import (
    build_cross_platform_selection,
    build_shared_winners,
    require_bags,
)
from computations.errors import CompositionError
from computations.federated.values import Structure, Value
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import COUNT, options_class


@options_class
class BagOptions(AdamOrSgdOptions):
    """Attributes:
    optimizer: of the clients: plain SGD, or Adam with fresh moments in every round (Self-Adam).
    learning_rate: of the client optimizer; the paper searches 0.05 to 0.2 for SGD, and takes 1e-5 for BERT.
    local_epochs: passes over what a client trains on in a round (the paper's E).
    batch_size: sentences in a batch (the paper's B); bags where a method trains on such.
    aggregation: `mean`: clients count as `weighting` says; `attention`: softmax of the sizes of their updates (FLCMC,
      Eqs. 10-14), whatever `weighting` is.
    granularity: with `attention`, one softmax per weight tensor (`layer`) or over the whole model (`model`).
    """

    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.1
    local_epochs: int = 3
    batch_size: int = 32
    aggregation: Literal["mean", "attention"] = "mean"
    granularity: Literal["layer", "model"] = "layer"


@options_class
class LazyOptions(BagOptions):
    """Attributes:
    num_triples: T, how many triples the clients have sentences of, pairs without a relation included; a run counts them
      if it is not set.
    select_na: whether one sentence is selected of a pair without a relation, too, which the paper does not say; false:
      all sentences of such pairs train.
    na_label: the label of pairs without a relation.
    most_share: a client offers and wins at most this share of the triples in a round, against one that claims them all;
      not set: no bound, as in the paper.
    """

    num_triples: int | None = field(default=None, validator=optional(COUNT))
    select_na: bool = True
    na_label: int = field(default=0, validator=ge(0))
    most_share: float | None = field(default=None, validator=optional(and_(gt(0), le(1))))


@options_class
class AliasOptions(BagOptions):
    """Attributes:
    num_triples: T, as Lazy MIL's; a run counts them if it is not set.
    """

    num_triples: int | None = field(default=None, validator=optional(COUNT))


# name, title, objective, pooling of a bag, source, what it is
_BASELINES: tuple[tuple[str, str, Callable[[], Objective], str, str, str], ...] = (
    ("mil_none", "NONE", CrossEntropy, "max", "Section 4.3, Algorithm 3; FedAvg", "cross-entropy on every sentence"),
    (
        *("mil_one", "ONE", AtLeastOne, "max", "Algorithm 3; Zeng et al. 2015, Section 3.4"),
        "of each local bag the sentence of the highest probability trains",
    ),
    (
        *("mil_ave", "AVE", BagAverage, "mean", "Algorithm 3; Lin et al. 2016, Section 3.2"),
        "a local bag is the mean of its sentences",
    ),
    (
        *("mil_att", "ATT", SelectiveAttention, "attention", "Algorithm 3; Lin et al. 2016, Eqs. 7-10"),
        "a local bag is its sentences, attended by the labelled relation",
    ),
    (
        *("mil_att_ra", "ATT_RA", RelationAwareAttention, "relation_attention"),
        "Algorithm 3; Ye and Ling 2019, Section 3.2",
        "a local bag is its sentences, attended by every relation for itself",
    ),
)


def _register(name: str, title: str, objective: Callable[[], Objective], pooling: str, source: str, what: str) -> None:
    def build(model: LocalModel, options: BagOptions) -> FederatedAlgorithm:
        require_bags(model, name)
        if pooling != "max":
            require_linear_classifier(model, name)
        return dataclasses.replace(_composed(model, options, objective()), bag_pooling=pooling)

    build.__doc__ = f"mean or attention; {what}"
    algorithm(name, title=title, source=f"FedDS, {source}", options=BagOptions)(build)


for _row in _BASELINES:
    _register(*_row)


@algorithm("lazy_mil", title="Lazy MIL", source="FedDS, Section 3, Algorithms 1-2, Eqs. 1-5", options=LazyOptions)
def lazy_mil(model: LocalModel, options: LazyOptions) -> FederatedAlgorithm:
    """mean or attention; of each triple the one best sentence among all clients trains"""
    num_triples = _require_triples("lazy_mil", model, options)
    if options.na_label >= model.num_classes:
        raise CompositionError(
            f"lazy_mil: na_label is {options.na_label}, but the model has {model.num_classes} classes, counted from "
            "0; lower na_label"
        )
    selection = build_cross_platform_selection(
        model,
        num_triples,
        select_na=options.select_na,
        na_label=options.na_label,
        max_share=options.most_share,
    )
    return _composed(model, options, CrossEntropy(), selection=selection)


@algorithm(
    "lazy_mil_alias",
    title="Lazy MIL, winners at all clients",
    source="a control: the authors' released code of FedDS",
    options=AliasOptions,
)
def lazy_mil_alias(model: LocalModel, options: AliasOptions) -> FederatedAlgorithm:
    """not a federated method: what Lazy MIL selects is copied to every client of the round, and all train on it"""
    num_triples = _require_triples("lazy_mil_alias", model, options)
    if options.example_privacy is not None:
        raise CompositionError(
            "lazy_mil_alias copies clients' sentences to all clients, which no noise can make private"
        )
    share = build_shared_winners(model, num_triples)
    return _composed(model, options, CrossEntropy(), changed=lambda work: _on_shared(work, share))


def _require_triples(name: str, model: LocalModel, options: LazyOptions | AliasOptions) -> int:
    """Return T.

    Raises CompositionError if it is not set, or if the examples are not in bags.
    """
    if options.num_triples is None:
        raise CompositionError(f"{name}: num_triples is not set; set it to the number of triples")
    require_bags(model, name)
    return options.num_triples


_COPIED = "lazy_mil_alias copies clients' sentences to all clients, which no noise can make private"


def _on_shared(work: ClientWork, share: tff.Computation) -> ClientWork:
    """Return the same work on examples that the clients share."""

    @tff.tensorflow.computation(share.type_signature.result.examples.member, work.clients_type.seed)
    def as_clients(examples: Structure, seed: tf.Tensor) -> Structure:
        return collections.OrderedDict(examples=examples, seed=seed)

    metrics = [result.metrics.member for result in (work.next.type_signature.result, share.type_signature.result)]

    @tff.tensorflow.computation(*metrics)
    def join(trained: Structure, selected: Structure) -> Structure:
        name = "clients/non_finite"
        return collections.OrderedDict(trained, **{**selected, name: trained[name] + selected[name]})

    def change(inputs: Value, run: Callable[..., Value]) -> dict[str, Value]:
        clients = inputs["clients"]
        shared = share(inputs["weights"], clients["examples"])
        output = run(clients=tff.federated_map(as_clients, (shared["examples"], clients["seed"])))
        return {"metrics": tff.federated_map(join, (output["metrics"], shared["metrics"]))}

    return work.wrapped(change, side_outputs={"examples": _COPIED})


def _composed(model: LocalModel, options: BagOptions, objective: Objective, **rest: Any) -> FederatedAlgorithm:
    attends = options.aggregation == "attention"
    aggregator = AttentionFactory(options.granularity) if attends else mean()
    weighting: Weighting = "uniform" if attends else options.weighting
    return with_aggregator(model, options, adam_or_sgd(options), objective, aggregator, weighting, **rest)
