"""MOON (Li, He and Song 2021, "Model-Contrastive Federated Learning", Algorithm 1, Eqs. 3-4)."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import ModelContrast
from computations.ranges import NOT_NEGATIVE, POSITIVE, options_class


@options_class
class ModelContrastOptions(AdamOrSgdOptions):
    """Attributes:
    weight: of the contrast (the paper's mu).
    tau: temperature of the contrast.
    """

    weight: float = field(default=1.0, validator=NOT_NEGATIVE)
    tau: float = field(default=0.5, validator=POSITIVE)


@algorithm("moon", title="MOON", source="Li et al. 2021, Algorithm 1, Eqs. 3-4", options=ModelContrastOptions)
def moon(model, options):
    """mean; cross-entropy and a contrast: near to the global model's representation, far from the previous local one"""
    return with_mean(model, options, adam_or_sgd(options), ModelContrast(options.weight, options.tau))
