"""TFF aggregation factories, built around an inner sum so that private, secure or compressed sums compose with them.

What a recipe selects by `aggregation.rule` is one file in `computations/aggregation_rules/`.
"""

from computations.aggregators.attention import AttentionFactory
from computations.aggregators.major_classifier_vectors import MajorClassifierVectorsFactory
from computations.aggregators.mean import mean
from computations.aggregators.predictions import PredictionsFactory
from computations.aggregators.private_attention import PrivateAttentionFactory
from computations.aggregators.private_mean import PrivateMeanFactory
from computations.aggregators.private_noise import Noise, has_noise, with_noise_seed

__all__ = [
    "AttentionFactory",
    "MajorClassifierVectorsFactory",
    "Noise",
    "PredictionsFactory",
    "PrivateAttentionFactory",
    "PrivateMeanFactory",
    "has_noise",
    "mean",
    "with_noise_seed",
]
