"""The arithmetic of masked sums: masks cancel over any sites that are left, and nothing is rounded but floats once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sites.sites_for_tests import key_of
from tff_re.sites.keys import MASK_PREFIX, is_public_key, mask_key, public_mask_key, public_text
from tff_re.sites.masks import (
    MAX_FLOAT,
    MAX_SITES,
    Layout,
    NotMaskable,
    added,
    derive_own_key,
    derive_pair_key,
    mask,
    unmask,
)

SITES = ("aachen", "bonn", "celle", "dresden", "essen")
KEYS = {site: mask_key(key_of(site)) for site in SITES}

WORDS, WIDE = Layout(np.dtype("i4"), (3,), 22), Layout(np.dtype("i8"), (2, 2), 41)
COUNTS, LOSSES, WIDE_LOSSES = (Layout(np.dtype(d), (2,)) for d in ("i4", "f4", "f8"))
ONE_WORD, ONE_LOSS = Layout(np.dtype("i4"), (), 22), Layout(np.dtype("f4"), ())
LAYOUTS = (WORDS, WIDE, COUNTS, LOSSES, WIDE_LOSSES, ONE_WORD, ONE_LOSS)


def drawn(layout: Layout, generator) -> np.ndarray:
    if layout.dtype.kind == "f":
        numbers = generator.standard_normal(layout.shape or 1) * 10.0 ** generator.integers(-6, 9)
        return (numbers if layout.shape else numbers[0]).astype(layout.dtype)
    if layout.bits is None:
        return generator.integers(-(2**20), 2**20, layout.shape).astype(layout.dtype)
    numbers = generator.integers(0, 2**layout.bits, layout.shape or 1).astype(layout.dtype)
    return numbers if layout.shape else numbers[0]  # a scalar, as TensorFlow's numpy() gives


def shared_keys(site, others, context="round 1"):
    others = [other for other in others if other != site]
    return {other: derive_pair_key(KEYS[site], KEYS[other].public_key(), (site, other), context) for other in others}


def sent_by(site, sites, arrays, layouts=LAYOUTS, context="round 1"):
    """(what a site sends, the key of its own mask)."""
    numbers = [layout.encoded(array) for layout, array in zip(layouts, arrays, strict=True)]
    own = derive_own_key(b"s", site, context)
    mask(numbers, layouts, site, own, shared_keys(site, sites, context))
    return numbers, own


def opened(sent, left, sites, layouts=LAYOUTS):
    """The total over the sites that are left."""
    lost = [site for site in sites if site not in left]
    total = added([sent[site][0] for site in left], layouts)
    shared = {site: shared_keys(site, sites) for site in left}
    with_lost = {site: {other: keys[other] for other in lost} for site, keys in shared.items()}
    unmask(total, layouts, {site: sent[site][1] for site in left}, with_lost)
    return [layout.decoded(numbers) for layout, numbers in zip(layouts, total, strict=True)]


def exact(layout: Layout, arrays) -> np.ndarray:
    """The sum without masks."""
    if layout.dtype.kind == "f":
        summed = [math.fsum(numbers) for numbers in zip(*(a.astype(float).ravel() for a in arrays), strict=True)]
        return np.array(summed).reshape(layout.shape)
    total = sum(np.asarray(array).astype(object) for array in arrays)
    return np.array(total % 2**layout.bits if layout.bits else total).astype(layout.dtype)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), left=st.sets(st.sampled_from(SITES), min_size=1))
def test_masks_cancel_over_the_sites_that_are_left(seed, left):
    generator = np.random.default_rng(seed)
    arrays = {site: [drawn(layout, generator) for layout in LAYOUTS] for site in SITES}
    sent = {site: sent_by(site, SITES, arrays[site]) for site in SITES}
    left = [site for site in SITES if site in left]
    for number, (layout, total) in enumerate(zip(LAYOUTS, opened(sent, left, SITES), strict=True)):
        expected = exact(layout, [arrays[site][number] for site in left])
        assert total.dtype == layout.dtype and total.shape == layout.shape
        if layout.dtype.kind == "f":
            np.testing.assert_allclose(total, expected, rtol=np.finfo(layout.dtype).eps, atol=2.0**-50)
        else:
            np.testing.assert_array_equal(total, expected)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), layout=st.sampled_from(LAYOUTS))
def test_nothing_opens_with_a_key_missing_or_of_another_attempt(seed, layout):
    """What is left on it is a stream that nobody without the key can tell from random numbers."""
    arrays = [drawn(layout, np.random.default_rng(seed))]
    numbers, own = sent_by("aachen", SITES, arrays, [layout])
    layouts, with_lost = [layout], {"aachen": shared_keys("aachen", SITES)}
    whole = [array.copy() for array in numbers]
    unmask(whole, layouts, {"aachen": own}, with_lost)
    np.testing.assert_array_equal(whole[0], layout.encoded(arrays[0]))
    for other_own, other_shared in (
        (own, {**with_lost["aachen"], "bonn": bytes(32)}),
        (own, shared_keys("aachen", SITES, "round 2")),
        (derive_own_key(b"t", "aachen", "round 1"), with_lost["aachen"]),
    ):
        wrong = [array.copy() for array in numbers]
        unmask(wrong, layouts, {"aachen": other_own}, {"aachen": other_shared})
        assert not np.array_equal(wrong[0], whole[0])


def test_a_masked_number_is_spread_over_all_it_may_be():
    layout = Layout(np.dtype("i4"), (40_000,), 20)
    sent, _ = sent_by("bonn", SITES, [np.zeros(layout.shape, np.int32)], [layout])
    counts = np.histogram(sent[0], bins=16, range=(0, 2**20))[0]
    assert sent[0].max() < 2**20
    np.testing.assert_allclose(counts, 2500, atol=300)  # six standard deviations


def test_two_sites_share_a_key_of_an_attempt_and_no_third_one_has_it():
    public = {site: public_mask_key(public_text(key)) for site, key in KEYS.items()}
    here = derive_pair_key(KEYS["bonn"], public["aachen"], ("bonn", "aachen"), "round 1")
    assert here == derive_pair_key(KEYS["aachen"], public["bonn"], ("aachen", "bonn"), "round 1")
    assert here != derive_pair_key(KEYS["aachen"], public["bonn"], ("aachen", "bonn"), "round 2")
    assert here != derive_pair_key(KEYS["celle"], public["bonn"], ("aachen", "bonn"), "round 1")


def test_a_mask_key_comes_from_the_file_of_the_signing_key_and_is_another_one():
    text = public_text(KEYS["bonn"])
    assert text == public_text(mask_key(key_of("bonn"))) and text.startswith(MASK_PREFIX)
    assert is_public_key(text, MASK_PREFIX) and not is_public_key(text)
    raw = X25519PrivateKey.from_private_bytes(key_of("bonn").private_bytes_raw())
    assert public_text(raw) != text


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2 * MAX_FLOAT])
def test_what_cannot_be_masked(number):
    with pytest.raises(NotMaskable, match="not finite, or too large"):
        LOSSES.encoded(np.array([0.0, number], np.float32))


def test_the_largest_numbers_of_most_sites_do_not_wrap_around():
    for number in (MAX_FLOAT, -MAX_FLOAT, 0.5 - 2.0**-30):
        layout = Layout(np.dtype("f8"), ())
        total = added([[layout.encoded(np.array(number))]] * MAX_SITES, [layout])
        assert layout.decoded(total[0]) == number * MAX_SITES
