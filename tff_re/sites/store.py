"""What a site stores on disk for a run: its recipe and agreement, client states, and answers of a round.

    state/runs/RUN/recipe.toml, agreement.json, requests.json, secret
    state/runs/RUN/clients/CLIENT/VERSION       a client's state after the round VERSION
    state/runs/RUN/kept/PROGRAM-ROUND-STAGE     an answer, and what the next stage of the call needs

Every file is written whole or not at all, and only this user may read them. No file or folder below the state's is a
link: through one, what is written and deleted would lie elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.files import replace_file
from tff_re.sites.messages import Malformed, Refused, pack, unpack

RUN = re.compile("[0-9a-f]{32}")


class RunStore:
    """The folder of one run, `state/runs/RUN`.

    An OSError (for example of a full disk) is not caught, and earlier files stay intact.
    """

    def __init__(self, state: Path, run: str):
        """Open the folder.

        Raises ValueError for an invalid run id.
        """
        if not RUN.fullmatch(run):
            raise ValueError("a run's id has 32 hexadecimal digits")
        self.folder = state / "runs" / run

    def _path(self, name: str) -> Path:
        """Return the path of a file or folder of the run.

        Raises Refused if it, or a folder on the way to it, is a link.
        """
        path = self.folder / name
        for part in (path, *path.parents):
            if part == self.folder.parent.parent:
                return path
            if part.is_symlink():
                raise Refused("a file or folder in its state is a link; its operator puts the original back")
        return path

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the run."""
        path = self._path(name)
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder, *reversed(path.parents)):
            if folder.is_relative_to(self.folder.parent.parent):
                folder.mkdir(mode=0o700, exist_ok=True, parents=True)
        replace_file(path, content)

    def read(self, name: str) -> bytes | None:
        """Return a file of the run, or None."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def secret(self) -> bytes:
        """Return a secret of this site and run.

        Nobody else can predict noise drawn from it.
        """
        secret = self.read("secret")
        if secret is None:
            secret = secrets.token_bytes(32)
            self.write("secret", secret)
        return secret

    # Clients' states

    def _of_client(self, client: str) -> str:
        return f"clients/{hashlib.sha256(client.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def client_state(self, client: str, version: int) -> list[np.ndarray] | None:
        """Return the arrays of a client's state after a round, or None."""
        message = self._message(f"{self._of_client(client)}/{version}")
        return None if message is None else message[1]

    def write_client_state(self, client: str, version: int, arrays: Sequence[np.ndarray]) -> None:
        """See `client_state`."""
        self.write(f"{self._of_client(client)}/{version}", pack({}, arrays))

    def forget_states(self, client: str, checkpoint: int, *, made_of: int, version: int) -> None:
        """Remove a client's states that a coordinator can no longer ask for.

        Args:
          client: its id.
          checkpoint: the oldest round that can be resumed from; the newest state up to it stays.
          made_of, version: of the newest state: those between were of rounds that did not count.
        """
        folder = self._path(self._of_client(client))
        versions = sorted(int(path.name) for path in folder.glob("[0-9]*"))
        not_counted = {v for v in versions if made_of < v < version}
        needed = max((v for v in versions if v <= checkpoint and v not in not_counted), default=-1)
        for old in versions:
            if old < needed or old in not_counted:
                (folder / str(old)).unlink(missing_ok=True)

    # Answers, and what is kept between two stages

    def stage_record(self, program: str, round_num: int, stage: int) -> tuple[dict, list[np.ndarray]]:
        """Return the stored (table, arrays) of a stage, or empty ones."""
        return self._message(f"kept/{program[:16]}-{round_num}-{stage}") or ({}, [])

    def write_stage_record(
        self, program: str, round_num: int, stage: int, table: Mapping[str, Any], arrays: Sequence[np.ndarray]
    ) -> None:
        """See `stage_record`."""
        self.write(f"kept/{program[:16]}-{round_num}-{stage}", pack(table, arrays))

    def forget_stage_records(self, program: str, round_num: int) -> None:
        """Remove what was stored for other rounds of the program."""
        for path in self._path("kept").glob(f"{program[:16]}-*"):
            if path.name.split("-")[1] != str(round_num):
                path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove what was stored, after the run."""
        for name in ("kept", "clients"):
            shutil.rmtree(self._path(name), ignore_errors=True)

    def _message(self, name: str) -> tuple[dict, list[np.ndarray]] | None:
        content = self.read(name)
        with contextlib.suppress(Malformed):
            return None if content is None else unpack(content)
        return None
