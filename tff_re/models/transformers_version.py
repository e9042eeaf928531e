"""The versions of `transformers` that have TensorFlow classes, and what encoders need of it.

Models import it from here, so that another version is refused before any of it is imported.
"""

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
            f"transformers {version} is installed, but encoders need {OLDEST} to {NEWEST}, the last version with "
            "TensorFlow classes; use the project's own environment (make setup), or run: pip install "
            f"transformers=={NEWEST}"
        )


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


require_supported(metadata.version("transformers"))

from transformers import CONFIG_MAPPING, TF_MODEL_MAPPING, AutoConfig  # noqa: E402
from transformers.utils import cached_file, logging  # noqa: E402

__all__ = ["CONFIG_MAPPING", "NEWEST", "OLDEST", "TF_MODEL_MAPPING", "AutoConfig", "cached_file", "logging"]
