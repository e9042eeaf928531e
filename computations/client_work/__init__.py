"""What a client does in a round, built from a local training with an objective and an optimizer."""

from computations.client_work.client_training import LocalTraining
from computations.client_work.client_updates import NormalisedDifference, Predictions
from computations.client_work.local_training import build_local_training
from computations.client_work.work import ClientWork

__all__ = ["ClientWork", "LocalTraining", "NormalisedDifference", "Predictions", "build_local_training"]
