"""Masks that cancel in a total (Bonawitz et al. 2017, "Practical Secure Aggregation", CCS), on arrays of integers.

Every two sites share a key for an attempt. From it both draw the same stream of numbers: one adds it, the other
subtracts it, so that all of these cancel in the total over all sites. Each site also adds a stream of a key of its own,
which it tells when the total is opened. If a site is lost, the others tell the keys that they share with it.

An array of sums becomes numbers modulo 2^b first (`Layout`). No TensorFlow and no message is in here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32

FRACTION_BITS = 53
"""A float is sent as its nearest whole number and the rest in units of 2^-53."""

MAX_SITES = 1 << 9
"""Of a total: so many rests of at most 2^52 units add up to less than 2^63."""

MAX_FLOAT = 2.0**53
"""The largest number of a site's sums in floats: `MAX_SITES` of them add up to less than 2^63."""

_CHUNK = 1 << 18
"""Numbers whose masks are drawn at once."""


class NotMaskable(Exception):
    """A site's sums cannot be masked, for a reason given in one line."""


@dataclass(frozen=True)
class Layout:
    """How an array of a stage's sums becomes numbers modulo 2^bits, and back.

    Integers of `bits` bits (secure sums) are taken as they are, other integers modulo 2^64. Floats become two numbers
    modulo 2^64, for the whole and the rest, so that a total of floats is exact to 2^-53 and rounded once.

    Attributes:
      dtype: of the array.
      shape: of the array.
      bits: of a number; None: the array is none of a secure sum.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    bits: int | None = None

    @property
    def modulus_bits(self) -> int:
        """Return b, where numbers are sent modulo 2^b."""
        return 64 if self.bits is None else self.bits

    @property
    def sent_dtype(self) -> np.dtype:
        """Return the dtype of the array that is sent."""
        return np.dtype("<u4" if self.modulus_bits <= 32 else "<u8")

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """Return the shape of the array that is sent."""
        return (2, *self.shape) if self.dtype.kind == "f" else self.shape

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of the array that is sent."""
        return math.prod(self.sent_shape) * self.sent_dtype.itemsize

    def encoded(self, array: np.ndarray) -> np.ndarray:
        """Return the array as numbers modulo 2^b, in a new array.

        Raises:
          NotMaskable: a number is not finite, or too large.
        """
        array = np.asarray(array)  # a scalar has no memory that masks could be added in
        if self.dtype.kind != "f":
            return array.astype(self.sent_dtype, order="C")  # of a negative number modulo 2^64
        wide = array.astype(np.float64)
        if not (np.abs(wide) <= MAX_FLOAT).all():
            raise NotMaskable("its sums hold numbers that are not finite, or too large to be masked")
        whole = np.rint(wide)
        rest = np.rint((wide - whole) * 2.0**FRACTION_BITS)
        return np.stack([whole, rest]).astype(np.int64).astype(self.sent_dtype)

    def decoded(self, numbers: np.ndarray) -> np.ndarray:
        """Return a total of `encoded` as an array of the sums' type."""
        if self.dtype.kind != "f":
            return numbers.astype(self.dtype)
        whole, rest = numbers.astype(np.int64)
        return (whole + rest * 2.0**-FRACTION_BITS).astype(self.dtype)

    def fits(self, array: np.ndarray) -> bool:
        """Return whether an array has the type and shape of one that is sent."""
        return array.dtype == self.sent_dtype and array.shape == self.sent_shape


def derive_pair_key(private: X25519PrivateKey, public: X25519PublicKey, names: tuple[str, str], context: str) -> bytes:
    """Return the key that two sites share for one attempt, the same for both.

    Args:
      private: the one's.
      public: the other's.
      names: of both, in any order.
      context: what the attempt is of; another text gives another key, which tells nothing of this one.
    """
    return _derived(private.exchange(public), "pair", *sorted(names), context)


def derive_own_key(secret: bytes, *context: str) -> bytes:
    """Return the key of a site's own mask, derived from a secret that no other party has."""
    return _derived(secret, "own", *context)


def derive_noise_key(secret: bytes, *context: str) -> bytes:
    """Return the key of a site's noise on its sums, derived from a secret that no other party has."""
    return _derived(secret, "noise", *context)


def _derived(secret: bytes, *info: str) -> bytes:
    text = json.dumps(["tff-re masks", *info]).encode()
    return HKDF(hashes.SHA256(), KEY_BYTES, None, text).derive(secret)


def random_words(key: bytes) -> Callable[[int], np.ndarray]:
    """Return what gives the next words (uint64) of a key's stream (ChaCha20), each once."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return lambda number: np.frombuffer(stream.update(bytes(8 * number)), "<u8").astype(np.uint64)


def mask(
    numbers: Sequence[np.ndarray],
    layouts: Sequence[Layout],
    site: str,
    own_key: bytes,
    shared_keys: Mapping[str, bytes],
) -> None:
    """Add a site's masks, in place.

    Args:
      numbers: the site's, as `Layout.encoded` gives them.
      layouts: of the numbers.
      site: its name.
      own_key: the key of its own mask.
      shared_keys: other site -> the key shared with it.
    """
    _add(numbers, layouts, own_key)
    for other, key in shared_keys.items():
        _add(numbers, layouts, key, subtract=site > other)


def unmask(
    total: Sequence[np.ndarray],
    layouts: Sequence[Layout],
    own_keys: Mapping[str, bytes],
    with_lost: Mapping[str, Mapping[str, bytes]],
) -> None:
    """Remove the masks from a total over some of the sites, in place.

    Args:
      total: the sum of what these sites sent, as `added` gives it.
      layouts: of the numbers.
      own_keys: site -> the key of its own mask, of each site in the total.
      with_lost: site -> lost site -> the key that they share, of each site in the total.
    """
    for site, key in own_keys.items():
        _add(total, layouts, key, subtract=True)
        for lost, shared in with_lost.get(site, {}).items():
            _add(total, layouts, shared, subtract=site < lost)


def added(parts: Sequence[Sequence[np.ndarray]], layouts: Sequence[Layout]) -> list[np.ndarray]:
    """Return the sum of what several sites sent, modulo 2^b, as a new list of arrays."""
    total = [array.copy() for array in parts[0]]
    for part in parts[1:]:
        for array, other, layout in zip(total, part, layouts, strict=True):
            array += other
            array &= _largest(layout)
    return total


def _largest(layout: Layout):
    return layout.sent_dtype.type(2**layout.modulus_bits - 1)


def _add(numbers: Sequence[np.ndarray], layouts: Sequence[Layout], key: bytes, subtract: bool = False) -> None:
    """Add or subtract the stream of a key, modulo 2^b, in place."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()  # a key is of one attempt: no nonce is needed
    zeros = memoryview(bytes(8 * _CHUNK))
    for array, layout in zip(numbers, layouts, strict=True):
        flat, largest = array.reshape(-1), _largest(layout)
        for begin in range(0, flat.size, _CHUNK):
            part = flat[begin : begin + _CHUNK]
            drawn = np.frombuffer(stream.update(zeros[: part.nbytes]), layout.sent_dtype)
            (np.subtract if subtract else np.add)(part, drawn, out=part)
            part &= largest
