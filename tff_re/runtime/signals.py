"""What a command does on SIGTERM."""

import signal
import threading

SIGTERM_EXIT_STATUS = 128 + signal.SIGTERM


def install_signal_handlers() -> bool:
    """Makes SIGTERM raise `SystemExit(143)`, so that `finally` blocks, context managers and `atexit` functions run.

    For the command line to call, once, at its start. A program that uses us as a library keeps its own handlers:
    nothing is changed outside the main thread, nor where SIGTERM has a handler or is ignored.

    Returns:
      True if this handler is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is _raise_system_exit:
        return True
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, _raise_system_exit)
    return True


def _raise_system_exit(number, frame):
    # A second SIGTERM must not interrupt the cleanup that the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(SIGTERM_EXIT_STATUS)
