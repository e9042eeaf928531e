"""Local objectives, one file each."""

from computations.client_work.objectives.bags import (
    AtLeastOne,
    BagAverage,
    BagObjective,
    RelationAwareAttention,
    SelectiveAttention,
)
from computations.client_work.objectives.base import Batch, Client, CrossEntropy, Objective, SideChannel
from computations.client_work.objectives.class_counts import CalibratedLogits, RestrictedSoftmax
from computations.client_work.objectives.control_variates import ControlVariates
from computations.client_work.objectives.decorrelation import Decorrelation
from computations.client_work.objectives.distillation import Distillation
from computations.client_work.objectives.dynamic_regularizer import DynamicRegularizer
from computations.client_work.objectives.fixed_classifier import SimplexClassifier
from computations.client_work.objectives.major_classifier_contrast import MajorClassifierContrast
from computations.client_work.objectives.moon import LocalizedContextContrast, ModelContrast
from computations.client_work.objectives.proximal import Proximal

__all__ = [
    "AtLeastOne",
    "BagAverage",
    "BagObjective",
    "Batch",
    "CalibratedLogits",
    "Client",
    "ControlVariates",
    "CrossEntropy",
    "Decorrelation",
    "Distillation",
    "DynamicRegularizer",
    "LocalizedContextContrast",
    "MajorClassifierContrast",
    "ModelContrast",
    "Objective",
    "Proximal",
    "RelationAwareAttention",
    "RestrictedSoftmax",
    "SelectiveAttention",
    "SideChannel",
    "SimplexClassifier",
]
