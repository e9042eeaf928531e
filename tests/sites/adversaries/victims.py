"""What adversaries attack: a site with its disk, and a coordinator's call with recorded answers of sites."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import tomli_w

from tests.sites.adversaries.federations import VICTIM, Begun
from tests.upper_floors import SECRET
from tff_re.recipes.reading import tomllib
from tff_re.sites import protocol
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import read_site
from tff_re.sites.site import SiteService


class Victim:
    """A site that has taken part in the first round of a run, as a process that was started again."""

    def __init__(self, begun: Begun, folder: Path, name: str = VICTIM):
        self.begun, self.folder, self.name = begun, folder, name
        self.service = SiteService(read_site(folder / "site.toml"))

    @classmethod
    def copied(cls, begun: Begun, folder: Path, name: str = VICTIM) -> Victim:
        """Return one that may be changed."""
        shutil.copytree(begun.folder / name, folder / name, ignore=shutil.ignore_patterns("*.sock"), symlinks=True)
        return cls(begun, folder / name, name)

    def answer(self, question: protocol.Question) -> protocol.Answer:
        """Return the answer to a question."""
        return self.answer_to(protocol.to_bytes(question), type(question))

    def answer_to(self, message: bytes, question: type[protocol.Question] = protocol.Ping) -> protocol.Answer:
        """Return the answer to the bytes of a question of this class."""
        return protocol.answer_of(question, self.service.answer(message))

    def disk(self) -> dict[str, bytes | str]:
        """Return all that it has on its disk."""
        paths = sorted(self.folder.rglob("*"))
        return {
            str(p): str(p.readlink()) if p.is_symlink() else p.read_bytes()
            for p in paths
            if p.is_symlink() or p.is_file()
        }

    def require_refusal(self, sent: protocol.Question | bytes, line: str) -> None:
        """Assert that a message is refused with one line that has these words, and that nothing is written."""
        before = self.disk()
        message = sent if isinstance(sent, bytes) else protocol.to_bytes(sent)
        answer = self.answer_to(message)
        assert isinstance(answer, protocol.No) and line in answer.reason, answer
        assert answer.reason.isprintable() and len(answer.reason) < 1000, answer
        assert SECRET not in answer.reason and str(self.folder) not in answer.reason, answer
        assert self.disk() == before, "something was written"

    def require_as_before(self) -> None:
        """Assert that all that it answered in training gets the same bytes again, the latest first."""
        asked = [(message, answer) for message, answer in self.begun.asked[self.name] if is_training(message)]
        assert asked
        for message, answer in reversed(asked):
            assert self.service.answer(message) == answer

    def restarted(self, **allow) -> Victim:
        """Return it as a process that was started again, whose file allows something else."""
        self.service.close()
        path = self.folder / "site.toml"
        table = tomllib.loads(path.read_text("utf-8"))
        path.write_text(tomli_w.dumps({**table, "allow": {**table["allow"], **allow}}), "utf-8")
        return Victim(self.begun, self.folder, self.name)


def is_training(message: bytes) -> bool:
    """Return whether a message is a stage of a round of training."""
    return unpack(message)[0].get("purpose") == "train"


def changed(question: protocol.Question, **values) -> bytes:
    """Return a question's bytes with values of its table that no question can have; None leaves a key out."""
    table, arrays = unpack(protocol.to_bytes(question))
    return pack({key: value for key, value in {**table, **values}.items() if value is not None}, arrays)


def shifted(arrays, by: float = 1.0) -> tuple[np.ndarray, ...]:
    """Return other weights."""
    return tuple(a + np.asarray(by, a.dtype) if a.dtype.kind == "f" else a for a in arrays)
