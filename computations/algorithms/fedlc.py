"""FedLC (Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration")."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import CalibratedLogits
from computations.ranges import NOT_NEGATIVE, options_class


@options_class
class CalibratedLogitsOptions(AdamOrSgdOptions):
    """Attributes:
    tau: weight of the margins n^(-1/4).
    absent_factor: margin of a class that a client does not have, in margins of a class with one example.
    """

    tau: float = field(default=1.0, validator=NOT_NEGATIVE)
    absent_factor: float = field(default=1.0, validator=NOT_NEGATIVE)


@algorithm("fedlc", title="FedLC", source="Zhang et al. 2022, Section 4", options=CalibratedLogitsOptions)
def fedlc(model, options):
    """mean; cross-entropy of logits lowered by a margin that is larger for rarer classes"""
    require_one_label(model, "fedlc")
    return with_mean(model, options, adam_or_sgd(options), CalibratedLogits(options.tau, options.absent_factor))
