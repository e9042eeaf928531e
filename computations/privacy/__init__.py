"""Differential privacy: of clients at the aggregation, of examples and groups in local training; and its counting."""
