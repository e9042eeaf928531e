"""Federated relation extraction and Chinese medical text classification on TensorFlow Federated.

What stands in `__all__` is for notebooks and other programs; it is imported when it is first used, so that importing
this package costs nothing: no TensorFlow, no worker.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn


def _refuse(reason: str) -> NoReturn:
    if sys.argv[:1] == ["-m"]:  # `python -m tff_re.run`, while Python looks for it
        print(f"tff-re: {reason}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(reason) from None


if not (3, 11) <= sys.version_info < (3, 14):
    _refuse(
        "tff-re needs Python 3.11 to 3.13, and this is Python {}.{}; install the project's own "
        "environment with `make setup`, then use .venv/bin/python".format(*sys.version_info)
    )
try:
    import computations.stack  # noqa: F401
except ImportError as error:
    _refuse(str(error))

__version__ = "0.1.0"
"""The version of this project, read by setup.cfg and by `tff-re --version`."""

_PLACES = {
    "BagPredictor": "tff_re.exporting.kinds.bags",
    "DocumentPredictor": "tff_re.exporting.kinds.documents",
    "EntityPrediction": "tff_re.exporting.kinds.entities",
    "EntityPredictor": "tff_re.exporting.kinds.entities",
    "Prediction": "tff_re.exporting.predictors",
    "Predictor": "tff_re.exporting.predictors",
    "UserError": "tff_re.errors",
    "audit": "tff_re.api",
    "be_quiet": "tff_re.runtime.quiet",
    "build": "tff_re.api",
    "compare": "tff_re.api",
    "evaluate_extraction": "tff_re.api",
    "export": "tff_re.api",
    "extract": "tff_re.api",
    "load_export": "tff_re.exporting.prediction",
    "load_recipe": "tff_re.api",
    "score": "tff_re.api",
    "train": "tff_re.api",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tff_re' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
