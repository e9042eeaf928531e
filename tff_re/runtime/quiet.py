"""What a process of ours sets before TensorFlow is imported: fewer messages, fewer collections of garbage."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import warnings


def collect_garbage_seldom() -> None:
    """For Python's collector of reference cycles. TensorFlow's import and its graphs make some million objects that
    stay; with Python's own thresholds a fifth of the time to the first round goes into looking through them."""
    gc.set_threshold(50_000, 20, 50)


def be_quiet() -> None:
    """Silences the messages that TensorFlow and the libraries around it print at their start; imported before them.
    Later errors are still shown."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", message=".*pkg_resources.*")
    warnings.filterwarnings("ignore", message="IProgress not found")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # Filters, because TensorFlow sets the levels: its own at a prompt or in a notebook, that of absl when it loads.
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).addFilter(_errors_only)
    atexit.unregister(_end_quietly)  # once, however often this is called
    atexit.register(_end_quietly)


def _errors_only(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _end_quietly() -> None:
    """The interpreter's end looks through the whole heap several times for cycles to free, which takes a command more
    than a second; it does not look at what is frozen. TFF's own default context prints a traceback where that end frees
    it and it never had a worker."""
    gc.freeze()
    tff = sys.modules.get("tensorflow_federated")
    if (framework := getattr(tff, "framework", None)) is None:  # also after an import that failed
        return

    class NoContext(framework.SyncContext):
        def invoke(self, comp, arg):
            raise RuntimeError("the interpreter is shutting down; no computation runs any more")

    framework.set_default_context(NoContext())
