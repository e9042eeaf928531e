"""Errors of the federated computations."""


class CompositionError(TypeError):
    """Two parts of an algorithm do not fit together.

    The message names the part and both types, e.g. ``aggregator: produces <float32[3]> where the finalizer takes
    <float32[4]>``.
    """


def require_assignable(part: str, expected, actual) -> None:
    """Raises CompositionError unless a value of TFF type `actual` can be used where `expected` is asked for."""
    if not expected.is_assignable_from(actual):
        raise CompositionError(f"{part}: expected the type {expected}, got {actual}")
