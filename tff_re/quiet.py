"""A start without the wall of messages that TensorFlow and its company print; imported before them."""

from __future__ import annotations

import logging
import os
import warnings


def be_quiet() -> None:
    """Silences start-up messages of the libraries; what goes wrong later still shows."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", message=".*pkg_resources.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    logging.getLogger("absl").setLevel(logging.ERROR)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
