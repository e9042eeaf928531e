"""FedCMC (Du, He and Jin, "Contrast with Major Classifier Vectors for Federated Medical Relation Extraction with
Heterogeneous Label Distribution", Section 3) and its ablations.

Encoder and classifier are averaged as in FedAvg (Eqs. 8 and 9). Beside the model a client sends a score per class and,
for the classes where its score is the least, its classifier's vector; it gets the elected vectors back.
"""

from __future__ import annotations

from typing import Literal

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import MajorClassifierContrast
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import NOT_NEGATIVE, options_class


@options_class
class MajorClassifierOptions(AdamOrSgdOptions):
    """Attributes:
    mu: weight of the contrast (Eq. 15); the paper does not say which it used.
    vectors: whose classifier vector of a class the encoder is contrasted with: `major`: of the client whose vector is
      least similar to those of its other classes (Eq. 12); `minor`: most similar; `random`: of a random client, in
      every round another; `none`: no contrast, whatever mu is (FedAvg).
    """

    mu: float = field(default=1.0, validator=NOT_NEGATIVE)
    vectors: Literal["major", "minor", "random", "none"] = "major"


@algorithm(
    "fedcmc", title="FedCMC", source="Du, He and Jin, Section 3, Eqs. 8-17, Algorithm 1", options=MajorClassifierOptions
)
def fedcmc(model: LocalModel, options: MajorClassifierOptions) -> FederatedAlgorithm:
    """mean; cross-entropy and a contrast of the encoder with the clients' major classifier vectors"""
    require_one_label(model, "fedcmc")
    contrast = None if options.vectors == "none" else MajorClassifierContrast(model, options.mu, options.vectors)
    return with_mean(model, options, adam_or_sgd(options), contrast)
