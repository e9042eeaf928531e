"""The language on the chosen stack, without the library of aggregators and processes."""

from computations.stack import STACK

if STACK == "tff":
    from computations.federated.on_tff import *  # noqa: F403
    from computations.federated.on_tff import __all__
else:
    from computations.federated.language import *  # noqa: F403
    from computations.federated.language import __all__

__all__ = [*__all__]
