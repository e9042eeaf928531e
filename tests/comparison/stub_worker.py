"""A worker process of `tff_re.comparison.parallel` that trains nothing: what it does is the name of the run's folder.

It imports no TensorFlow. Its process id is in a file next to that folder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from tff_re.comparison import worker
from tff_re.errors import Diverged

ERRORS = {"diverges": Diverged("no client had a finite update"), "full": OSError(28, "No space left on device", "f")}


class Report(str):
    """A report of a round."""

    @property
    def round(self):
        return 1 if self.endswith("first") else 2


def serve(link, set_up):
    while (order := link.next_message()) is not None:
        link.send(*answer(link, order.folder, order.again))


def answer(link, folder, again):
    what = folder.name.partition("-")[0]
    if what.startswith("once"):  # the first time only
        what = "ends" if again else what.removeprefix("once")
    folder.with_name(f"{folder.name}.pid").write_text(str(os.getpid()), "utf-8")
    for report in ("first", "second"):
        link.send("round", Report(f"{folder.name}, {report}"))
    if what in ERRORS:
        return "failed", ERRORS[what]
    if what == "talks":
        for _ in range(200):
            link.send("round", Report(f"{folder.name}, second"))
            time.sleep(0.01)
    if what == "says":
        print("one line\nanother", file=sys.stderr)
    if what == "stuck":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "hangs":  # when the interpreter has ended, and with it the threads of Python
        ctypes.pythonapi.Py_AtExit(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))
    if what in ("sleeps", "stuck", "naps", "hangs"):
        time.sleep(0.5 if what == "naps" else 60)
    if what == "exits":
        os._exit(3)
    return "ended", f"{folder.name} in {os.getpid()}"


def main():
    worker._serve = serve
    worker.main()
