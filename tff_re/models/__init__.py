"""Keras models by name. A file of this folder that defines `build_plain` is one; it has `Options` and `build`, too."""

from computations.registry import Modules

MODELS = Modules(__name__, "build_plain")


def module(name: str):
    """The module of a model; KeyError for an unknown name."""
    return MODELS[name]
