"""What a site keeps on its disk: of a run its recipe and agreement, its clients' states, and what a later stage needs.

    state/runs/RUN/recipe.toml, agreement.json, counts.json, secret
    state/runs/RUN/clients/CLIENT/VERSION       a client's state after the round VERSION
    state/runs/RUN/kept/PROGRAM-ROUND-STAGE     between two stages of a call

Every file is written whole or not at all, and only this user may read them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.files import replace_file
from tff_re.sites.messages import Malformed, pack, unpack

RUN = re.compile("[0-9a-f]{32}")


class RunStore:
    """The folder of one run. OSErrors of a full disk come as they are; what was there before is still whole."""

    def __init__(self, state: Path, run: str):
        """Raises ValueError for what is no run's id."""
        if not RUN.fullmatch(run):
            raise ValueError("a run's id has 32 hexadecimal digits")
        self.folder = state / "runs" / run

    def write(self, name: str, content: bytes) -> None:
        """A file of the run."""
        path = self.folder / name
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder, *reversed(path.parents)):
            if folder.is_relative_to(self.folder.parent.parent):
                folder.mkdir(mode=0o700, exist_ok=True, parents=True)
        replace_file(path, content)

    def read(self, name: str) -> bytes | None:
        """A file of the run, or None."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def secret(self) -> bytes:
        """Of this site and run; no noise that is drawn from it can be told by anyone else."""
        secret = self.read("secret")
        if secret is None:
            secret = secrets.token_bytes(32)
            self.write("secret", secret)
        return secret

    # What was answered

    def counts(self) -> dict:
        """`rounds` (those answered), `bytes_up`, `first` (round -> digest of what was sent in its stage 0)."""
        content = self.read("counts.json")
        return {"rounds": [], "bytes_up": 0, "first": {}} if content is None else json.loads(content)

    def write_counts(self, counts: dict) -> None:
        """See `counts`."""
        self.write("counts.json", json.dumps(counts).encode())

    # Clients' states

    def _of_client(self, client: str) -> str:
        return f"clients/{hashlib.sha256(client.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def client_state(self, client: str, version: int) -> list[np.ndarray] | None:
        """The arrays of a client's state after a round, or None."""
        found = self._message(f"{self._of_client(client)}/{version}")
        return None if found is None else found[1]

    def write_client_state(self, client: str, version: int, arrays: Sequence[np.ndarray]) -> None:
        """See `client_state`."""
        self.write(f"{self._of_client(client)}/{version}", pack({}, arrays))

    def forget_states(self, client: str, checkpoint: int) -> None:
        """Removes a client's states that are older than the newest one up to a round that can be resumed from."""
        folder = self.folder / self._of_client(client)
        versions = sorted(int(path.name) for path in folder.glob("[0-9]*"))
        needed = max((v for v in versions if v <= checkpoint), default=-1)
        for version in versions:
            if version < needed:
                (folder / str(version)).unlink(missing_ok=True)

    # Between two stages

    def kept(self, program: str, round_num: int, stage: int) -> tuple[dict, list[np.ndarray]]:
        """(table, arrays) kept after a stage; empty where there are none."""
        return self._message(f"kept/{program[:16]}-{round_num}-{stage}") or ({}, [])

    def write_kept(
        self, program: str, round_num: int, stage: int, table: Mapping[str, Any], arrays: Sequence[np.ndarray]
    ) -> None:
        """See `kept`; what was kept of other rounds of the program goes."""
        for path in (self.folder / "kept").glob(f"{program[:16]}-*"):
            if path.name.split("-")[1] != str(round_num):
                path.unlink(missing_ok=True)
        self.write(f"kept/{program[:16]}-{round_num}-{stage}", pack(table, arrays))

    def forget(self) -> None:
        """After the run."""
        for name in ("kept", "clients"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _message(self, name: str) -> tuple[dict, list[np.ndarray]] | None:
        content = self.read(name)
        with contextlib.suppress(Malformed):
            return None if content is None else unpack(content)
        return None
