"""FedRS (Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data")."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import RestrictedSoftmax
from computations.ranges import SHARE, options_class


@options_class
class RestrictedSoftmaxOptions(AdamOrSgdOptions):
    """Attributes:
    alpha: scale of the logits of classes that a client does not have, in [0, 1]; 0.5 in the paper and in FedCMC.
    """

    alpha: float = field(default=0.5, validator=SHARE)


@algorithm("fedrs", title="FedRS", source="Li and Zhan 2021, Section 4", options=RestrictedSoftmaxOptions)
def fedrs(model, options):
    """mean; cross-entropy with the logits of absent classes scaled by alpha"""
    require_one_label(model, "fedrs")
    return with_mean(model, options, adam_or_sgd(options), RestrictedSoftmax(options.alpha))
