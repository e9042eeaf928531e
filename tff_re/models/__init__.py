"""Keras models by name; what one declares is in `model.py`."""

from computations.registry import FileRegistry

MODELS = FileRegistry(__name__, "MODEL")
"""Name -> `Model`, of the files here that declare one (`MODEL = …`)."""
