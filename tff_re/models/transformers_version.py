"""The versions of `transformers` that have TensorFlow classes, which encoders are made of."""

from __future__ import annotations

from importlib import metadata

from tff_re.errors import UserError

OLDEST, NEWEST = "4.53", "4.57.6"
"""The range that is supported. NEWEST is the last version with TensorFlow classes."""


def require_supported(version: str) -> None:
    """Refuses a version of `transformers` that is not supported.

    Raises:
      UserError: it is older than OLDEST, or of a later series than NEWEST.
    """
    if not _series(OLDEST) <= _series(version) <= _series(NEWEST):
        raise UserError(
            f"transformers {version} is installed, and encoders need {OLDEST} to {NEWEST}, the last version with "
            f"TensorFlow classes; use the project's own environment (make setup), or run: pip install "
            f"transformers=={NEWEST}"
        )


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


require_supported(metadata.version("transformers"))

from transformers import TF_MODEL_MAPPING  # noqa: E402  later versions lack it

__all__ = ["NEWEST", "OLDEST", "TF_MODEL_MAPPING", "require_supported"]
