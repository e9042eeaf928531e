"""Errors of the federated computations."""


class CompositionError(TypeError):
    """Two parts of an algorithm do not fit together.

    The message names the part and both types, e.g. ``aggregator: produces <float32[3]> where the finalizer takes
    <float32[4]>``.
    """
