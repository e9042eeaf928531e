"""Keras models by name, each declared as `model.py` describes."""

from computations.registry import FileRegistry

MODELS = FileRegistry(__name__, "MODEL")
"""Name -> `Model`, of the files here that declare one (`MODEL = …`)."""
