"""Headless Chromium: which program it is, its options, and a call that leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--enable-logging=stderr", "--virtual-time-budget=10000"),
)


def browse(url: str, folder: Path, *options: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Opens a page without a network, with `options` next to `OPTIONS`; the browser writes only into `folder`."""
    profile = folder / "profile"
    profile.mkdir(exist_ok=True)
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(profile))
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={profile}", *options, url]
    return finish(command, timeout=timeout, env={**os.environ, **places})


def finish(command: Sequence[str], *, timeout: float | None = None, **more) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured output that also ends the command's own processes, on every way out."""
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
