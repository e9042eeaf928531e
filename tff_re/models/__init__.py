"""Keras models by name. A module of this folder has `Options`, `build` and `build_plain`."""

from __future__ import annotations

import importlib

NAMES = {
    "document_encoder": "tff_re.models.document_encoder",
    "logistic_regression": "tff_re.models.logistic_regression",
    "lstm": "tff_re.models.lstm",
    "pcnn": "tff_re.models.pcnn",
    "sentence_encoder": "tff_re.models.sentence_encoder",
}


def module(name: str):
    """The module of a model; KeyError for an unknown name."""
    return importlib.import_module(NAMES[name])
