"""Whether an encoder of a hub id can be read: asked once, with one request, before `transformers` does."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tff_re.errors import UserError

SECONDS = 5.0
"""How long the one request may take."""


def is_path(source: str) -> bool:
    """Whether a source can only be a folder of this machine, there or not: hub ids begin with a letter or digit."""
    return Path(source).is_dir() or Path(source).is_absolute() or source.startswith((".", "~"))


def how_to_read(source: str, what: str, key: str) -> dict[str, bool]:
    """The arguments of `from_pretrained` for a folder or hub id.

    Without network, those of an id say to read only the local copy.

    Without them `transformers` tries each file six times before it looks for the copy.

    Args:
      source: folder or hub id.
      what: `encoder` or `tokenizer`, for the message.
      key: the recipe's key that names it.

    Raises:
      UserError: an id of which there is no local copy, and the hub cannot be reached.
    """
    if is_path(source):
        return {}
    from transformers.utils import hub  # imported late: recipes are read without it

    if not _offline.get() and not hub.is_offline_mode() and reachable(hub.HUGGINGFACE_CO_RESOLVE_ENDPOINT):
        return {}
    if _is_cached(source):
        return {"local_files_only": True}
    raise UserError(
        f"{what} {source}: there is no such folder, and the Hugging Face hub cannot be reached; set {key} to the "
        "folder of an encoder saved on this machine, or download it once while online"
    )


_offline = contextvars.ContextVar("offline", default=False)


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Within it, `how_to_read` connects to nothing: of an id, only a local copy is read."""
    token = _offline.set(True)
    try:
        yield
    finally:
        _offline.reset(token)


@functools.lru_cache(maxsize=4)
def reachable(endpoint: str) -> bool:
    """Whether a server answers there, even with a refusal."""
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        urllib.request.urlopen(request, timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError as error:  # URLError among them
        return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
    return True


def _is_cached(source: str) -> bool:
    """Whether the hub's local cache has the encoder's configuration."""
    from transformers.utils import cached_file

    try:
        return cached_file(source, "config.json", local_files_only=True) is not None
    except (OSError, ValueError):
        return False
