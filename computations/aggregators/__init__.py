"""TFF aggregation factories, built around an inner sum so that private, secure or compressed sums compose with them."""

from computations.aggregators.attention import AttentionFactory
from computations.aggregators.major_classifier_vectors import MajorClassifierVectorsFactory
from computations.aggregators.mean import mean
from computations.aggregators.predictions import PredictionsFactory

__all__ = ["AttentionFactory", "MajorClassifierVectorsFactory", "PredictionsFactory", "mean"]
