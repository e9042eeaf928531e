"""The model's own loss and nothing else (FedAvg, McMahan et al. 2017)."""

from computations.client_work.objectives.base import Objective


class CrossEntropy(Objective):
    """Mean of the local model's losses over the batch."""
