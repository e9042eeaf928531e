"""Headless Chromium: which program it is, its options, and a call that leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--enable-logging=stderr", "--virtual-time-budget=10000"),
)


def browse(url: str, folder: Path, *options: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Open a page without a network, with `options` next to `OPTIONS`.

    The browser writes only into `folder` and a temporary folder that is removed. Its sockets lie in the latter, as
    their path may have only 108 bytes.
    """
    profile = folder / "profile"
    profile.mkdir(exist_ok=True)
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(profile))
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={profile}", *options, url]
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as sockets:
        return finish(command, timeout=timeout, env={**os.environ, **places, "TMPDIR": sockets})


def finish(command: Sequence[str], *, timeout: float | None = None, **more) -> subprocess.CompletedProcess[str]:
    """Run a command like `subprocess.run` with captured output, and end its own processes on every way out."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, err)
    return subprocess.CompletedProcess(command, 0, out, err)
