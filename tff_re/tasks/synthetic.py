"""Synthetic(alpha, beta) and its IID form (FLCMC, Section 3.4.4, and Li et al. 2020)."""

from __future__ import annotations

import attrs
import numpy as np
from attrs.validators import ge

from computations.ranges import NOT_NEGATIVE
from datasets import synthetic
from datasets.federated import FederatedExamples
from datasets.partition import LabelCounts, Natural
from tff_re.errors import UserError
from tff_re.models.inputs import DenseInput
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.sizes import require_room_for_synthetic
from tff_re.tasks.task import Task


@attrs.frozen(kw_only=True)
class Options:
    """Attributes:
    alpha, beta: spread of the clients' models and of their features.
    iid: all clients alike; alpha and beta are then 0.
    num_clients, num_features, num_classes: sizes of the problem.
    total_train, total_test: totals over the clients; FLCMC's Table 4 gives those of its draw. Without them sizes are
      drawn freely.
    largest_train: with totals, the training examples of the largest client; FLCMC's Figure 5 gives 4,185 of 8,065 for
      alpha = beta = 0.5. The others share the rest as drawn.
    """

    alpha: float = attrs.field(default=0.5, validator=NOT_NEGATIVE)
    beta: float = attrs.field(default=0.5, validator=NOT_NEGATIVE)
    iid: bool = False
    num_clients: int = attrs.field(default=30, validator=ge(1))
    num_features: int = attrs.field(default=60, validator=ge(1))
    num_classes: int = attrs.field(default=10, validator=ge(2))
    total_train: int | None = None
    total_test: int | None = None
    largest_train: int | None = None

    def __attrs_post_init__(self):
        if self.iid and (self.alpha or self.beta):
            raise ValueError("alpha and beta must be 0 where iid is true")
        if (self.total_train is None) != (self.total_test is None):
            raise ValueError("total_train and total_test must be given together")
        if self.largest_train is not None and self.total_train is None:
            raise ValueError("largest_train needs total_train and total_test")


class Synthetic(Task):
    Options = Options

    def prepare(self, options: Options, partitioner, seed: int, data_paths: DataPaths) -> Prepared:
        if not isinstance(partitioner, Natural) or data_paths.partition is not None:
            raise UserError("the synthetic task generates its own clients; leave [partition] out of the recipe")
        total = None if options.total_train is None else options.total_train + options.total_test
        require_room_for_synthetic(options.num_clients, options.num_features, options.num_classes, total)
        examples = synthetic.generate(
            options.alpha,
            options.beta,
            iid=options.iid,
            num_clients=options.num_clients,
            num_features=options.num_features,
            num_classes=options.num_classes,
            total_train=options.total_train,
            total_test=options.total_test,
            largest_train=options.largest_train,
            seed=seed,
        )
        return Prepared(
            examples=examples,
            inputs=DenseInput(options.num_features),
            measures=self.measures(),
            counts=count_labels(examples),
        )


TASK = Synthetic()


def count_labels(examples: FederatedExamples) -> LabelCounts:
    """Label counts of generated clients."""
    clients, classes, table = len(examples.clients), len(examples.label_names), {}
    for split in ("train", "test"):
        client_of = np.repeat(np.arange(clients), examples.sizes(split))
        cells = client_of * classes + examples.pooled(split, ["y"])["y"]
        table[split] = np.bincount(cells, minlength=clients * classes).reshape(clients, classes)
    return LabelCounts(clients=examples.ids, label_names=examples.label_names, **table)
