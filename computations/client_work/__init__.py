"""What a client does in a round: one builder of local training, objectives and optimizers plugged in."""

from computations.client_work.client_updates import NormalisedDifference, Predictions
from computations.client_work.local_training import ClientWork, LocalTraining, build_local_training

__all__ = ["ClientWork", "LocalTraining", "NormalisedDifference", "Predictions", "build_local_training"]
