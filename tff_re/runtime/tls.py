"""Mutual TLS between us and workers on other machines: three files, named by the environment or given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tff_re.runtime.errors import RuntimeProblem

VARIABLES = {"cert": "TFF_RE_TLS_CERT", "key": "TFF_RE_TLS_KEY", "ca": "TFF_RE_TLS_CA"}


@dataclass(frozen=True)
class Tls:
    """Our certificate, its key, and the authority that signed the other side's certificate; PEM files."""

    cert: Path
    key: Path
    ca: Path

    def contents(self) -> dict[str, bytes]:
        """What is in the files, by `cert`, `key` and `ca`.

        Raises:
          RuntimeProblem: one of them cannot be read or is not PEM.
        """
        found = {}
        for name in VARIABLES:
            path = getattr(self, name)
            try:
                found[name] = path.read_bytes()
            except OSError as error:
                raise RuntimeProblem(f"TLS, {name}: {path}: {error.strerror}") from None
            if b"-----BEGIN " not in found[name]:
                raise RuntimeProblem(f"TLS, {name}: {path}: is not a PEM file")
        return found


def chosen(**given: Path | None) -> Tls | None:
    """Tls of `cert`, `key` and `ca`, or None where none of them is given.

    Raises:
      RuntimeProblem: some are given and others are not.
    """
    missing = [name for name in VARIABLES if not given.get(name)]
    if len(missing) == len(VARIABLES):
        return None
    if missing:
        options = ", ".join(f"--tls-{name} ({VARIABLES[name]})" for name in missing)
        raise RuntimeProblem(
            f"TLS needs a certificate, its key and the authority of the other side; missing: {options}"
        )
    return Tls(**{name: Path(given[name]) for name in VARIABLES})


def from_environment(environment: Mapping[str, str] | None = None) -> Tls | None:
    """`chosen` of the variables TFF_RE_TLS_CERT, TFF_RE_TLS_KEY and TFF_RE_TLS_CA."""
    environment = os.environ if environment is None else environment
    return chosen(**{name: environment.get(variable) or None for name, variable in VARIABLES.items()})
