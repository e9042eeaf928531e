"""MOON (Li, He and Song 2021, "Model-Contrastive Federated Learning", Algorithm 1, Eqs. 3-4)."""

from __future__ import annotations

from dataclasses import dataclass

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import ModelContrast
from computations.client_work.objectives.moon import check_contrast


@dataclass(frozen=True, kw_only=True)
class ModelContrastOptions(AdamOrSgdOptions):
    """Attributes:
    weight: of the contrast (the paper's mu).
    tau: temperature of the contrast.
    """

    weight: float = 1.0
    tau: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        check_contrast(self.weight, self.tau)


@algorithm("moon", title="MOON", source="Li et al. 2021, Algorithm 1, Eqs. 3-4", options=ModelContrastOptions)
def moon(model, options):
    """mean; cross-entropy and a contrast: near to the global model's representation, far from the previous local one"""
    return with_mean(model, options, adam_or_sgd(options), ModelContrast(options.weight, options.tau))
