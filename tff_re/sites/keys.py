"""Files that only a site's user may read: the sites' shared secret, and the key that a site signs with.

The file has an Ed25519 key. The X25519 key of masked sums is derived from it, so that a site keeps one file.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_re.errors import UserError

PREFIX = "ed25519:"
"""Before a public key's 32 bytes in base64, as site.toml has it."""

MASK_PREFIX = "x25519:"
"""The same, for the public key of masked sums."""

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64


def read_private(path: Path, missing: str = "") -> bytes:
    """Return a file's bytes.

    Args:
      path: of the file.
      missing: what to do where there is none, for the message.

    Raises:
      UserError: it is missing, unreadable, or other users may read or write it.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            content = file.read()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{missing and f'; {missing}'}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if mode & 0o077:
        raise UserError(f"{path}: other users of this machine may read or change it; type: chmod 600 {path}")
    return content


def make_key(path: Path) -> bool:
    """Write a new signing key (PEM, mode 0600), or return False if the file already exists.

    Raises:
      UserError: it cannot be written.
    """
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    content = Ed25519PrivateKey.generate().private_bytes(*form)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None
    with open(descriptor, "wb") as file:
        file.write(content)
    return True


def read_key(path: Path, command: str = "site SITE.TOML --key") -> Ed25519PrivateKey:
    """A signing key. Raises UserError as `read_private`, or if the file holds no Ed25519 key.

    Args:
      path: of the file.
      command: what makes one, for the message.
    """
    content = read_private(path, f"make it with: {command}")
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{path}: is not an Ed25519 key in PEM; move it away and make one with: {command}")
    return key


def mask_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Return the X25519 key of masked sums, derived from the site's signing key."""
    raw = key.private_bytes_raw()
    return X25519PrivateKey.from_private_bytes(HKDF(hashes.SHA256(), 32, None, b"tff-re mask key").derive(raw))


def public_text(key: Ed25519PrivateKey | X25519PrivateKey) -> str:
    """Return a public key as text.

    Other sites write it in [sites], or in [mask_keys] for a mask key.
    """
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    prefix = MASK_PREFIX if isinstance(key, X25519PrivateKey) else PREFIX
    return prefix + base64.b64encode(raw).decode()


def is_public_key(text: str, prefix: str = PREFIX) -> bool:
    """Return whether a text is a `public_text` with this prefix."""
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except ValueError:
        return False
    return len(raw) == PUBLIC_BYTES and text == prefix + base64.b64encode(raw).decode()


def public_key(text: str) -> Ed25519PublicKey:
    """Return the key of a `public_text`."""
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(text.removeprefix(PREFIX)))


def public_mask_key(text: str) -> X25519PublicKey:
    """Return the key of a mask key's `public_text`."""
    return X25519PublicKey.from_public_bytes(base64.b64decode(text.removeprefix(MASK_PREFIX)))
