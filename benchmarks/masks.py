"""Cost of masked sums beside plain ones: bytes and seconds of a stage, at one site and at the coordinator.

Sites are in memory and only write messages: nothing is trained, and nothing waits for a network. Each site is measured
by itself, because in a federation it has a machine by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.common import machine, spread
from computations.aggregators.secure import modulus_bits_for
from tff_re.sites import protocol
from tff_re.sites.keys import SIGNATURE_BYTES, mask_key
from tff_re.sites.masks import KEY_BYTES, Layout, added, derive_own_key, derive_pair_key, mask, unmask

SITES = (3, 10, 30)
WEIGHTS = (1_000_000, 20_000_000)

BITS = 20
"""Of a number, as aggregation.secure_bits has by default."""

RUN = "0" * 32

Measured = dict[str, list[float]]


def run(rounds: int, out: Path) -> str:
    """Measures all; returns the Markdown table."""
    del out
    lines = [
        "| sites | weights | sums | MB up, a site | bytes to open, a site | seconds, a site | seconds, coordinator |",
        "| --: | --: | :-- | --: | --: | --: | --: |",
    ]
    for weights in WEIGHTS:
        for count in SITES:
            for name, stage in (("plain", plain_stage), ("masked", masked_stage)):
                lines.append(row(name, count, weights, measure(stage, count, weights, rounds)))
                print(lines[-1], flush=True)
    return "\n".join(lines) + f"\n\nMedian (least to most) of {rounds} stages after one not counted. {machine()}.\n"


def row(name: str, sites: int, weights: int, measured: Measured) -> str:
    """A row of the table."""
    up, opening = int(measured["up"][-1]), int(measured["opening"][-1])
    seconds = " | ".join(spread(measured[where], 3) for where in ("site", "coordinator"))
    return f"| {sites} | {weights / 1e6:g} M | {name} | {up / 1e6:.2f} | {opening} | {seconds} |"


def measure(stage: Callable[[int, int], dict[str, float]], sites: int, weights: int, rounds: int) -> Measured:
    """Each figure of a stage -> its values in the rounds."""
    turns = [stage(sites, weights) for _ in range(rounds + 1)][1:]
    return {name: [turn[name] for turn in turns] for name in turns[0]}


def plain_stage(sites: int, weights: int) -> dict[str, float]:
    """Sums in float32, which the coordinator adds up in the sites' order."""
    sums = np.random.default_rng(0).standard_normal(weights, np.float32)
    began = time.perf_counter()
    message = protocol.to_bytes(protocol.StageAnswer(site="s0", arrays=(sums,)))
    at_site = time.perf_counter() - began
    began = time.perf_counter()
    total = np.zeros(weights, np.float32)
    for _ in range(sites):
        total += protocol.answer_of(protocol.Stage, message).arrays[0]
    return {"up": len(message), "opening": 0, "site": at_site, "coordinator": time.perf_counter() - began}


def masked_stage(count: int, weights: int) -> dict[str, float]:
    """Sums as integers, masked; a roster, and the opening by all sites. Raises RuntimeError for a wrong total.

    All sites send the masks of a sum; only the first one's seconds are measured.
    """
    sites, layouts = (
        [f"s{number}" for number in range(count)],
        [Layout(np.dtype("i4"), (weights,), modulus_bits_for(BITS, count))],
    )
    signing = {site: Ed25519PrivateKey.generate() for site in sites}
    public = {site: mask_key(key).public_key() for site, key in signing.items()}
    sums = np.random.default_rng(0).integers(0, 1 << BITS, weights, np.int32)
    seconds, messages, own_keys = [], [], {}
    for site in sites:
        began = time.perf_counter()
        numbers, private = [layouts[0].encoded(sums)], mask_key(signing[site])
        shared = {
            other: derive_pair_key(private, public[other], (site, other), "round 1") for other in sites if other != site
        }
        own_keys[site] = derive_own_key(site.encode(), "round 1")
        mask(numbers, layouts, site, own_keys[site], shared)
        messages.append(protocol.to_bytes(protocol.MaskedAnswer(site=site, arrays=tuple(numbers))))
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    total = added([protocol.answer_of(protocol.Masked, message).arrays for message in messages], layouts)
    unmask(total, layouts, own_keys, {})
    at_coordinator = time.perf_counter() - began
    if not np.array_equal(layouts[0].decoded(total[0]), sums.astype(np.int64) * count % (1 << layouts[0].bits)):
        raise RuntimeError("the total is not the sum of what was masked")
    opening, at_site = opening_of(sites, signing)
    return {
        "up": len(messages[0]),
        "opening": opening,
        "site": float(np.median(seconds)) + at_site,
        "coordinator": at_coordinator,
    }


def opening_of(sites: Sequence[str], signing: dict[str, Ed25519PrivateKey]) -> tuple[int, float]:
    """(bytes of the four messages that open a total, there and back; seconds of one site for them)."""
    ways = {"run": RUN, "attempt": 1, "sites": tuple(sites)}
    text = protocol.to_bytes(protocol.Roster(**ways))
    began = time.perf_counter()
    signature = signing[sites[0]].sign(text)
    at_site = time.perf_counter() - began
    others = [signing[site].sign(text) for site in sites[1:]]
    began = time.perf_counter()
    for site, other in zip(sites[1:], others, strict=True):
        signing[site].public_key().verify(other, text)
    at_site += time.perf_counter() - began
    signatures = np.frombuffer(b"".join([signature, *others]), np.uint8).reshape(-1, SIGNATURE_BYTES)
    keys = {"own_key": np.zeros(KEY_BYTES, np.uint8), "shared_keys": np.zeros([0, KEY_BYTES], np.uint8)}
    messages = (
        protocol.Roster(**ways),
        protocol.RosterAnswer(site=sites[0], signature=signatures[0]),
        protocol.Open(**ways, signatures=signatures),
        protocol.OpenAnswer(site=sites[0], **keys),
    )
    return sum(len(protocol.to_bytes(message)) for message in messages), at_site
