"""Differential privacy of clients at the aggregation, and of examples and groups in local training, with accounting."""
