"""FedLCC (Xiao, Jin and Hao, "Federated Document-Level Biomedical Relation Extraction with Localized Context Contrast",
Algorithm 1, Eqs. 11-14)."""

from __future__ import annotations

from typing import Literal

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import LocalizedContextContrast
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import NOT_NEGATIVE, POSITIVE, options_class


@options_class
class LocalizedContextOptions(AdamOrSgdOptions):
    """Attributes:
    weighting: `uniform`: all clients alike (Eq. 14); `examples`: by their number of documents.
    learning_rate: of the client optimizer; the default suits Adam and a pretrained transformer (Table 2).
    local_epochs: passes over a client's documents in a round.
    batch_size: documents in a batch.
    mu: weight of the contrast (Eq. 13).
    tau: temperature of the contrast (Eq. 12).
    previous: whose contexts a client keeps for its next round's contrast. `model`: its trained model's, with which it
      reads its documents once more (Algorithm 1); `steps`: those that the steps of the round computed in passing, which
      saves this reading and is not the paper's.
    """

    weighting: Literal["examples", "uniform"] = "uniform"
    learning_rate: float = 2.5e-5
    local_epochs: int = 1
    batch_size: int = 3
    mu: float = field(default=0.1, validator=NOT_NEGATIVE)
    tau: float = field(default=0.5, validator=POSITIVE)
    previous: Literal["model", "steps"] = "model"


@algorithm(
    "fedlcc",
    title="FedLCC",
    source="Xiao, Jin and Hao, Section 3, Algorithm 1, Eqs. 11-14",
    options=LocalizedContextOptions,
)
def fedlcc(model: LocalModel, options: LocalizedContextOptions) -> FederatedAlgorithm:
    """plain mean; a contrast of localized contexts: near to the global model's, far from the previous local model's"""
    contrast = LocalizedContextContrast(options.mu, options.tau, remembers=options.previous == "steps")
    return with_mean(model, options, adam_or_sgd(options), contrast)
