"""FedETF (Li et al. 2023, "No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and
Fixed Classifier", ICCV)."""

from __future__ import annotations

from attrs import field

from computations.algorithms.options import AdamOrSgdOptions
from computations.algorithms.parts import adam_or_sgd, require_one_label, with_mean
from computations.algorithms.registry import algorithm
from computations.client_work.objectives import SimplexClassifier
from computations.federated_algorithm import FederatedAlgorithm, FixedWeights, recompose
from computations.local_model import LocalModel
from computations.ranges import NOT_NEGATIVE, POSITIVE, options_class


@options_class
class FixedClassifierOptions(AdamOrSgdOptions):
    """Attributes:
    scale: of the cosines before the softmax, which the paper learns from a start of about 10.
    gamma: power of the class counts in the balanced softmax; 0: no balancing.
    """

    scale: float = field(default=10.0, validator=POSITIVE)
    gamma: float = field(default=1.0, validator=NOT_NEGATIVE)


@algorithm("fedetf", title="FedETF", source="Li et al. 2023, Section 4", options=FixedClassifierOptions)
def fedetf(model: LocalModel, options: FixedClassifierOptions) -> FederatedAlgorithm:
    """mean; a classifier fixed to a simplex, cosines with it in a softmax balanced by the client's class counts

    For models whose logits are a dense layer of their features, at least as wide as there are classes: logistic
    regression, LSTM, PCNN, text and sentence encoders; not for pairs of documents.
    """
    require_one_label(model, "fedetf")
    objective = SimplexClassifier(model, options.scale, options.gamma)
    plain = with_mean(model, options, adam_or_sgd(options), objective)
    return recompose(plain, fixed=FixedWeights(objective.start, objective.indices))
