"""Folders that several test files or processes of a test run need, built by the first that needs them."""

import functools
import pathlib
import tempfile
from collections.abc import Callable

import filelock
import pytest


def temporary_folder(name: str) -> pathlib.Path:
    """A folder of this process, removed when it ends."""
    return pathlib.Path(_folder(name).name)


@functools.cache
def _folder(name: str) -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix=name)


def built_once(tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[pathlib.Path], None]):
    """The folder `name`, filled by `build(folder)` once in a test run by the first process; only to be read."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "built-once"
    shared.mkdir(exist_ok=True)
    folder = shared / name
    with filelock.FileLock(shared / f"{name}.lock"):
        if not folder.exists():
            partial = shared / f"{name}.part"
            partial.mkdir(exist_ok=True)
            build(partial)
            partial.rename(folder)
    return folder
