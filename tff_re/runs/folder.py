"""The folder of a run: its files, its lock, permissions, and writing without half-written files."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from computations.stack import DISTRIBUTION, DISTRIBUTIONS, KERAS, STACK
from datasets.files import replace_file
from tff_re.errors import UserError
from tff_re.runtime.base import usable_cores

PACKAGES = (
    *("tensorflow", DISTRIBUTION, KERAS, "tensorflow-text"),
    *("transformers", "jieba", "gensim", "numpy"),
)
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    `writing` translates its OSError.
    """
    replace_file(path, text.encode("utf-8"))


@contextlib.contextmanager
def writing(folder: Path):
    """Turns the errors of a full disk and of a read-only folder into UserError."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise UserError(
                f"{folder}: the disk is full ({error.strerror}); free some space, then continue with --resume"
            ) from None
        if error.errno in READ_ONLY:
            raise UserError(f"{error.filename or folder}: cannot be written ({error.strerror})") from None
        raise


@contextlib.contextmanager
def permissions(mask: int = 0o077):
    """Sets the umask so that files made inside lack these permissions.

    By default only this user may read and write them.

    The umask is the whole process's: other threads' files are made with it, too. Yields the mask before.
    """
    before = os.umask(mask)
    try:
        yield before
    finally:
        os.umask(before)


def make_private_folder(path: Path) -> None:
    """Makes a folder that only this user may enter.

    An existing folder keeps its permissions.

    Raises:
      UserError: a part of its path is a file.
    """
    parent = next((parent for parent in path.parents if parent.exists()), Path())
    if not parent.is_dir():
        raise UserError(f"{parent}: is a file, not a folder; give another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


STARTS = ("start_weights.safetensors", "start.json")
"""What a run starts from that does not start from its seed's initial weights, see `tff_re.runs.warm_start`."""

FILES = (
    *("recipe.toml", "environment.json", "partition.json", "labels.csv", "metrics.csv", "timings.csv"),
    "rounds.jsonl",  # of runs that are tracked as JSON
    *("clients.csv", "classes.csv", "confusion.csv"),  # of the last evaluation
    *("sites.json", "took_part.csv", "site_metrics.csv"),  # of runs across sites
    *STARTS,
    "client_states.csv",  # of algorithms whose client states are recorded
    "answers.csv",  # of runs in which clients may be lost
    "precision_recall.csv",  # of tasks that rank
    "test_units.npz",  # what was measured on each test unit
    "diverged.txt",  # of a sweep's runs whose values became NaN
    "spent.json",  # of private runs with noise from the system's randomness
    *("summary.json", "digests.json", "tensorboard", "checkpoints", "plots", "model.keras", "export"),
)


TABLES = ("partition.json", "labels.csv", "clients.csv")
"""Those of `FILES` that are `.npz` where they would be too large for people, see `tff_re.runs.tables`."""


def as_table(path: Path) -> Path:
    """A file of `TABLES`, or the one in the form of tables if only that is there."""
    table = path.with_suffix(".npz")
    return table if not path.exists() and table.exists() else path


class RunFolder:
    """Paths of a run: its own, and those of `FILES` as attributes, such as `metrics`."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.usual_mask = 0o077  # of permissions outside of `locked`
        self.lock, self.log = self.path / ".lock", self.path / "run.log"
        vars(self).update({Path(name).stem: self.path / name for name in FILES if name not in TABLES})

    @property
    def partition(self) -> Path:
        """Which client has which sample: JSON or a table, whichever is there."""
        return as_table(self.path / "partition.json")

    @property
    def labels(self) -> Path:
        """Examples of each class at each client: CSV or a table, whichever is there."""
        return as_table(self.path / "labels.csv")

    @property
    def clients(self) -> Path:
        """The evaluation of each client: CSV or a table, whichever is there."""
        return as_table(self.path / "clients.csv")

    def begin(self, recipe_toml: str, *, resume: bool, start: Mapping[str, bytes] | None = None) -> None:
        """Takes the folder for a run.

        Args:
          recipe_toml: the content of its recipe.toml, which makes the folder a run's.
          resume: whether the folder may hold this run.
          start: of a new run, the contents of `STARTS`; None: it has none.

        Raises:
          UserError: the folder holds another run, or something that is not a run, or there is nothing to resume.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path}: is a file; give a folder as --out")
        if self.recipe.exists():
            if self.recipe.read_bytes() != recipe_toml.encode("utf-8"):
                raise UserError(
                    f"{self.path}: holds another run (its recipe.toml differs); give another --out or remove the folder"
                )
            if not resume:
                raise UserError(f"{self.path}: already holds this run; continue it with --resume or give another --out")
            self.require_stack()
        else:
            # These are left by a kill while the folder was begun.
            left = {path for name in STARTS for path in self.path.glob(name)}
            left |= {path for name in ("recipe.toml", *STARTS) for path in self.path.glob(f".{name}.*.part")}
            if self.path.exists() and set(self.path.iterdir()) - left:
                raise UserError(f"{self.path}: is not empty and holds no run; give an empty or new folder as --out")
            if resume and not self.path.exists():
                raise UserError(f"{self.path}: there is no run to resume; leave --resume out")
            make_private_folder(self.path)
            with permissions():
                for name in STARTS:
                    (self.path / name).unlink(missing_ok=True)
                for name, content in (start or {}).items():
                    replace_file(self.path / name, content)
                write_text(self.recipe, recipe_toml)
        if not self.environment.exists():
            with permissions():
                write_text(self.environment, json.dumps(environment(), indent=2) + "\n")

    def require_stack(self) -> None:
        """Raises UserError if the run was begun on the other stack, whose checkpoints and last digits differ."""
        try:
            versions = json.loads(self.environment.read_text("utf-8")) if self.environment.exists() else {}
        except ValueError:
            raise UserError(f"{self.environment}: is damaged (not JSON); put the original back") from None
        begun = [stack for stack, name in DISTRIBUTIONS.items() if name in versions]
        if begun and STACK not in begun:
            raise UserError(
                f"{self.path}: was started with {DISTRIBUTIONS[begun[0]]}, but this environment has {DISTRIBUTION}; "
                "resume it in the environment it was started in, or give another --out"
            )

    @contextlib.contextmanager
    def locked(self):
        """Keeps a second process out of the folder and makes the files written inside readable by this user only."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.lock, mode=0o600)
        with permissions() as self.usual_mask:
            try:
                lock.acquire(timeout=0.2)  # `watch` may look at it for a moment
            except Timeout:
                raise UserError(
                    f"{self.path}: another process is using this folder; wait or give another --out"
                ) from None
            try:
                yield
            finally:
                lock.release()

    def wait_until_free(self, seconds: float) -> None:
        """Waits until no process uses the run that the folder holds, at most this long."""
        from filelock import FileLock, Timeout

        if self.recipe.exists():
            with permissions(), contextlib.suppress(Timeout), FileLock(self.lock, timeout=seconds, mode=0o600):
                pass

    def require_run(self) -> None:
        """Raises UserError unless the folder holds a run."""
        if not self.path.exists():
            raise UserError(f"{self.path}: no such folder")
        if not self.recipe.exists():
            raise UserError(f"{self.path}: holds no run (recipe.toml is missing)")


def environment() -> dict:
    """Versions of what a run's numbers depend on, and the model of the processor, which decides on their last digits.

    `commit` is that of a checkout, with `+` after it where files were changed; '' for an installed package.
    """
    from tff_re import __version__

    return {
        "tff-re": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": usable_cores(),
        "processor": _processor(),
        "commit": _commit(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """The model of the processor, by its name in Linux or, elsewhere, in Python."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def _commit() -> str:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):  # no git here, or a folder of another user
        return ""
