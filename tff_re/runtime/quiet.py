"""Settings of a process before TensorFlow is imported: fewer messages, and fewer garbage collections."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.abc
import importlib.util
import logging
import os
import re
import sys
import tempfile
import warnings

from computations.stack import STACK


def collect_garbage_seldom() -> None:
    """Make Python's collector of reference cycles run seldom.

    TensorFlow's import and its graphs make about a million objects that stay. With Python's own thresholds, a fifth of
    the time to the first round is spent on scanning them.
    """
    gc.set_threshold(50_000, 20, 50)


def be_quiet() -> None:
    """Silence the messages that TensorFlow and related libraries print at start-up.

    Call it before they are imported. Later errors are still shown.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", message=".*pkg_resources.*")
    warnings.filterwarnings("ignore", message="IProgress not found")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    # Filters, because TensorFlow sets the levels: its own at a prompt or in a notebook, that of absl when it loads.
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).addFilter(_errors_only)
    if STACK == "language" and not any(isinstance(finder, _QuietImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietImport())
    atexit.unregister(_end_quietly)  # once, however often this is called
    atexit.register(_end_quietly)


class _QuietImport(importlib.abc.MetaPathFinder):
    """Imports TensorFlow without what its libraries report while they are loaded.

    TensorFlow 2.21 has no setting that silences it, because its own settings take effect only after that.
    """

    def find_spec(self, name, path=None, target=None):
        """Return TensorFlow's spec with a quiet loader, or None for other modules."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def load_quietly(module):
                with _without_reports():
                    load(module)

            spec.loader.exec_module = load_quietly
        return spec


_REPORT = re.compile(rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} ")
"""How a line begins that a library of TensorFlow reports to its developers."""


@contextlib.contextmanager
def _without_reports():
    """Drop such lines from this process's standard error, in any language."""
    try:
        written = tempfile.TemporaryFile()  # noqa: SIM115
    except OSError:  # no room there; whoever needs some says so
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            written.seek(0)
            os.write(2, b"".join(line for line in written if not _REPORT.match(line)))


def _errors_only(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _end_quietly() -> None:
    """Shorten the end of the interpreter.

    It scans the whole heap several times for cycles, which takes a command more than a second, but does not look at
    frozen objects. TFF's own default context prints a traceback if that scan frees it and it never had a worker.
    """
    gc.freeze()
    tff = sys.modules.get("tensorflow_federated")
    if (framework := getattr(tff, "framework", None)) is None:  # also after an import that failed
        return

    class NoContext(framework.SyncContext):
        def invoke(self, comp, arg):
            raise RuntimeError("the interpreter is shutting down; no computation runs any more")

    framework.set_default_context(NoContext())
