"""What a client does in a round: one builder of local training, objectives and optimizers plugged in."""

from computations.client_work.local_training import ClientWork, LocalTraining, build_local_training
from computations.client_work.offers import Offer, Predictions

__all__ = ["ClientWork", "LocalTraining", "Offer", "Predictions", "build_local_training"]
