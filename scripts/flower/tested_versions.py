"""The versions of Flower that the scripts of this folder work with; any other one is refused.

Run by the Python of Flower's environment, this file ends with one line and status 2 if its Flower was not tested.
It is the only place that knows versions: what the scripts use of Flower is the same in all of these.
"""

from __future__ import annotations

import sys
from importlib import metadata

TESTED = ("1.41", "1.42")
"""Minor versions. One is added when `FLOWER=/path/to/bin make hospitals` has passed with it."""


def refusal(version: str | None, environment: str) -> str | None:
    """Why Flower's version in an environment is refused; None if it was tested. `version`: None without Flower."""
    remedy = "run scripts/setup-flower, or name another environment by FLOWER=/path/to/bin"
    if version is None:
        return f"there is no Flower in {environment}; {remedy}"
    if ".".join(version.split(".")[:2]) not in TESTED:
        return f"Flower {version} in {environment} was not tested; {' and '.join(TESTED)} were: {remedy}"
    return None


def installed_version() -> str | None:
    """The version of the Flower that this Python imports; None if there is none."""
    try:
        return metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return None


def check() -> None:
    """Ends the program with one line and status 2 if its Flower was not tested."""
    if problem := refusal(installed_version(), sys.prefix):
        print(f"tff-re: {problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    check()
