"""Local objectives, one file each."""

from computations.client_work.objectives.base import Batch, Client, Objective, SideChannel
from computations.client_work.objectives.cross_entropy import CrossEntropy
from computations.client_work.objectives.proximal import Proximal

__all__ = ["Batch", "Client", "CrossEntropy", "Objective", "Proximal", "SideChannel"]
