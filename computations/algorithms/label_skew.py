"""The methods against label skew that FedCMC is compared with (FedRS, FedLC, MOON, SCAFFOLD), and FedDecorr."""

from __future__ import annotations

from typing import Literal

from attrs import field
from attrs.validators import optional

from computations.algorithms.options import AdamOrSgdOptions, MeanOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import (
    CalibratedLogits,
    ControlVariates,
    Decorrelation,
    ModelContrast,
    RestrictedSoftmax,
)
from computations.client_work.optimizers import SGD
from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import LocalModel
from computations.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, options_class, refuse_unread


@options_class
class RestrictedSoftmaxOptions(AdamOrSgdOptions):
    """Attributes:
    alpha: scale of the logits of classes that a client does not have, in [0, 1]; 0.5 in the paper and in FedCMC.
    graded: whether the scales of the others grow with their number of examples, alpha + (1 - alpha) n_c / max n, as in
      code in circulation; false: they are 1, as in the paper.
    """

    alpha: float = field(default=0.5, validator=SHARE)
    graded: bool = False


@algorithm("fedrs", title="FedRS", source="Li and Zhan 2021, Section 4", options=RestrictedSoftmaxOptions)
def fedrs(model: LocalModel, options: RestrictedSoftmaxOptions) -> FederatedAlgorithm:
    """mean; cross-entropy with the logits of absent classes scaled by alpha"""
    require_one_label(model, "fedrs")
    return with_mean(model, options, adam_or_sgd(options), RestrictedSoftmax(options.alpha, options.graded))


@options_class
class CalibratedLogitsOptions(AdamOrSgdOptions):
    """Attributes:
    tau: weight of the margins n^(-1/4).
    absent_factor: margin of a class that a client does not have, in margins of a class with one example; 100 in code
      in circulation, which counts 1e-8 examples of it.
    absent: what such a class has: that `margin`, or it is `left_out` of the softmax, the formula's limit.
    over_others: whether the softmax's sum leaves out the true class, as the paper prints it; false: it runs over all
      classes, as in code in circulation.
    """

    tau: float = field(default=1.0, validator=NOT_NEGATIVE)
    absent_factor: float = field(default=1.0, validator=NOT_NEGATIVE)
    absent: Literal["margin", "left_out"] = "margin"
    over_others: bool = False

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        refuse_unread(self, dict.fromkeys(("over_others", "absent_factor"), ("absent", ("margin",))))


@algorithm("fedlc", title="FedLC", source="Zhang et al. 2022, Section 4", options=CalibratedLogitsOptions)
def fedlc(model: LocalModel, options: CalibratedLogitsOptions) -> FederatedAlgorithm:
    """mean; cross-entropy of logits lowered by a margin that is larger for rarer classes"""
    require_one_label(model, "fedlc")
    objective = CalibratedLogits(options.tau, options.absent_factor, options.absent, options.over_others)
    return with_mean(model, options, adam_or_sgd(options), objective)


@options_class
class ModelContrastOptions(AdamOrSgdOptions):
    """Attributes:
    weight: of the contrast (the paper's mu).
    tau: temperature of the contrast.
    """

    weight: float = field(default=1.0, validator=NOT_NEGATIVE)
    tau: float = field(default=0.5, validator=POSITIVE)


@algorithm("moon", title="MOON", source="Li et al. 2021, Algorithm 1, Eqs. 3-4", options=ModelContrastOptions)
def moon(model: LocalModel, options: ModelContrastOptions) -> FederatedAlgorithm:
    """mean; cross-entropy and a contrast: near to the global model's representation, far from the previous local one"""
    return with_mean(model, options, adam_or_sgd(options), ModelContrast(options.weight, options.tau))


@options_class
class DecorrelationOptions(AdamOrSgdOptions):
    """Attributes:
    beta: weight of the penalty on the features' correlations.
    form: of the penalty: as in the `paper`, or as in its released `code`, about a batch's size as strong.
    """

    beta: float = field(default=0.1, validator=NOT_NEGATIVE)
    form: Literal["paper", "code"] = "paper"


@algorithm("feddecorr", title="FedDecorr", source="Shi et al. 2023, Section 4", options=DecorrelationOptions)
def feddecorr(model: LocalModel, options: DecorrelationOptions) -> FederatedAlgorithm:
    """mean; cross-entropy and a penalty on correlations between the features of a batch"""
    return with_mean(model, options, adam_or_sgd(options), Decorrelation(options.beta, options.form))


@options_class
class ControlVariateOptions(MeanOptions):
    """Attributes:
    num_clients: N, the number of all clients with training examples, sampled in a round or not; a run counts them if
      it is not set.
    weighting: `uniform`: clients count all alike (Algorithm 1); `examples`: by their number of examples; the control
      variates, and so the objective that the rounds settle on, count all clients alike in both.
    """

    num_clients: int | None = field(default=None, validator=optional(COUNT))
    weighting: Literal["examples", "uniform"] = "uniform"


@algorithm(
    "scaffold",
    title="SCAFFOLD",
    source="Karimireddy et al. 2020, Algorithm 1, option II",
    options=ControlVariateOptions,
)
def scaffold(model: LocalModel, options: ControlVariateOptions) -> FederatedAlgorithm:
    """mean, SGD whose gradient is corrected by the server's control variate minus the client's own"""
    return with_mean(model, options, SGD(options.learning_rate), ControlVariates(options.num_clients))
