"""Where a run's sampling of clients, their seeds and the noise come from: the run's seed, or a secret."""

from __future__ import annotations

import hmac
import secrets
import zlib
from pathlib import Path

import numpy as np

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe

FILE = "file:"
LEAST_SECRET_BYTES = 16


def seed_of(recipe: Recipe) -> int | bytes:
    """The recipe's seed, or with `privacy.noise_seed` a secret instead, which is never written.

    A secret of the operating system differs each time.

    Raises:
      UserError: the key has another value, or the secret's file cannot be read or is too short to be one.
    """
    source = recipe.noise_seed
    if source == "run":
        return recipe.seed
    if source == "system":
        return secrets.token_bytes(32)
    if not source.startswith(FILE) or source == FILE:
        raise UserError(f"{recipe.source}: 'privacy.noise_seed' must be 'run', 'system' or 'file:PATH', got {source!r}")
    path = Path(source.removeprefix(FILE))
    where = f"{recipe.source}: 'privacy.noise_seed': {path}"
    if path.exists() and not path.is_file():
        raise UserError(f"{where}: is not a regular file; a device or a pipe would give a different secret each time")
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise UserError(f"{where}: cannot be read ({error.strerror})") from None
    if len(secret) < LEAST_SECRET_BYTES:
        raise UserError(
            f"{where}: holds {len(secret)} bytes; a secret needs at least {LEAST_SECRET_BYTES}, e.g. 32 bytes from "
            "/dev/urandom"
        )
    return secret


def entropy(seed: int | bytes, *numbers: int) -> np.random.SeedSequence:
    """The randomness of one purpose, which numbers identify.

    It reveals nothing about a secret (HMAC-SHA-256).
    """
    if isinstance(seed, bytes):
        message = b"".join(number.to_bytes(8, "little") for number in numbers)
        return np.random.SeedSequence(int.from_bytes(hmac.digest(seed, message, "sha256"), "little"))
    return np.random.SeedSequence([seed, *numbers])


def two_words(sequence: np.random.SeedSequence) -> np.ndarray:
    """int32 [2], as TensorFlow's stateless operations take a seed."""
    return sequence.generate_state(2).astype(np.uint32).view(np.int32)


def client_seed(seed: int | bytes, round_num: int, client_id: str) -> np.ndarray:
    """The seed of a client's local training, int32 [2], from (seed, round, client) alone."""
    return two_words(entropy(seed, round_num, zlib.crc32(client_id.encode()), 2))


def noise_seed(seed: int | bytes) -> np.ndarray:
    """The seed of a run's noise, int32 [2], in which the rounds differ by their number."""
    return two_words(entropy(seed, 4))
