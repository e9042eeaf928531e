"""FedCMC (Du, He and Jin, "Contrast with Major Classifier Vectors for Federated Medical Relation Extraction with
Heterogeneous Label Distribution", Section 3) and its ablations.

Encoder and classifier are averaged as in FedAvg (Eqs. 8 and 9). Beside the model a client sends a score per class and,
for the classes where its score is the least, its classifier's vector; it gets the elected vectors back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import MajorClassifierContrast
from computations.client_work.objectives.major_classifier_contrast import check_contrast


@dataclass(frozen=True, kw_only=True)
class MajorClassifierOptions(AdamOrSgdOptions):
    """Attributes:
    mu: weight of the contrast (Eq. 15); the paper does not say which it used.
    vectors: whose classifier vector of a class the encoder is contrasted with: `major`: of the client whose vector is
      least similar to those of its other classes (Eq. 12); `minor`: most similar; `random`: of a random client, in
      every round another; `none`: no contrast, whatever mu is (FedAvg).
    """

    mu: float = 1.0
    vectors: Literal["major", "minor", "random", "none"] = "major"

    def __post_init__(self):
        super().__post_init__()
        check_contrast(self.mu, "major" if self.vectors == "none" else self.vectors)


@algorithm(
    "fedcmc", title="FedCMC", source="Du, He and Jin, Section 3, Eqs. 8-17, Algorithm 1", options=MajorClassifierOptions
)
def fedcmc(model, options):
    """mean; cross-entropy and a contrast of the encoder with the clients' major classifier vectors"""
    require_one_label(model, "fedcmc")
    contrast = None if options.vectors == "none" else MajorClassifierContrast(model, options.mu, options.vectors)
    return with_mean(model, options, adam_or_sgd(options), contrast)
