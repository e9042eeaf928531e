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
from tff_re.sites.masks import MAX_FLOAT, MAX_SITES, Form, NotMaskable, added, mask, own_key, pair_key, unmask

SITES = ("aachen", "bonn", "celle", "dresden", "essen")
KEYS = {site: mask_key(key_of(site)) for site in SITES}

WORDS, WIDE = Form(np.dtype("i4"), (3,), 22), Form(np.dtype("i8"), (2, 2), 41)
COUNTS, LOSSES, WIDE_LOSSES = (Form(np.dtype(d), (2,)) for d in ("i4", "f4", "f8"))
FORMS = (WORDS, WIDE, COUNTS, LOSSES, WIDE_LOSSES)


def drawn(form: Form, generator) -> np.ndarray:
    if form.dtype.kind == "f":
        return (generator.standard_normal(form.shape) * 10.0 ** generator.integers(-6, 9)).astype(form.dtype)
    if form.bits is None:
        return generator.integers(-(2**20), 2**20, form.shape).astype(form.dtype)
    return generator.integers(0, 2**form.bits, form.shape).astype(form.dtype)


def shared_keys(site, others, context="round 1"):
    return {
        other: pair_key(KEYS[site], KEYS[other].public_key(), (site, other), context) for other in others if other != site
    }


def sent_by(site, sites, arrays, forms=FORMS, context="round 1"):
    """(what a site sends, the key of its own mask)."""
    numbers, own = [form.encoded(array) for form, array in zip(forms, arrays, strict=True)], own_key(b"s", site, context)
    mask(numbers, forms, site, own, shared_keys(site, sites, context))
    return numbers, own


def opened(sent, left, sites, forms=FORMS):
    """The total over the sites that are left."""
    lost = [site for site in sites if site not in left]
    total = added([sent[site][0] for site in left], forms)
    with_lost = {site: {other: key for other, key in shared_keys(site, sites).items() if other in lost} for site in left}
    unmask(total, forms, {site: sent[site][1] for site in left}, with_lost)
    return [form.decoded(numbers) for form, numbers in zip(forms, total, strict=True)]


def exact(form: Form, arrays) -> np.ndarray:
    """The sum without masks."""
    if form.dtype.kind == "f":
        summed = [math.fsum(numbers) for numbers in zip(*(a.astype(float).ravel() for a in arrays), strict=True)]
        return np.array(summed).reshape(form.shape)
    total = sum(array.astype(object) for array in arrays)
    return (total % 2**form.bits if form.bits else total).astype(form.dtype)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), left=st.sets(st.sampled_from(SITES), min_size=1))
def test_masks_cancel_over_the_sites_that_are_left(seed, left):
    generator = np.random.default_rng(seed)
    arrays = {site: [drawn(form, generator) for form in FORMS] for site in SITES}
    sent = {site: sent_by(site, SITES, arrays[site]) for site in SITES}
    left = [site for site in SITES if site in left]
    for number, (form, total) in enumerate(zip(FORMS, opened(sent, left, SITES), strict=True)):
        expected = exact(form, [arrays[site][number] for site in left])
        assert total.dtype == form.dtype and total.shape == form.shape
        if form.dtype.kind == "f":
            np.testing.assert_allclose(total, expected, rtol=np.finfo(form.dtype).eps, atol=2.0**-50)
        else:
            np.testing.assert_array_equal(total, expected)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), form=st.sampled_from(FORMS))
def test_nothing_opens_with_a_key_missing_or_of_another_attempt(seed, form):
    """What is left on it is a stream that nobody without the key can tell from random numbers."""
    arrays = [drawn(form, np.random.default_rng(seed))]
    numbers, own = sent_by("aachen", SITES, arrays, [form])
    forms, with_lost = [form], {"aachen": shared_keys("aachen", SITES)}
    whole = [array.copy() for array in numbers]
    unmask(whole, forms, {"aachen": own}, with_lost)
    np.testing.assert_array_equal(whole[0], form.encoded(arrays[0]))
    for other_own, other_shared in (
        (own, {**with_lost["aachen"], "bonn": bytes(32)}),
        (own, shared_keys("aachen", SITES, "round 2")),
        (own_key(b"t", "aachen", "round 1"), with_lost["aachen"]),
    ):
        wrong = [array.copy() for array in numbers]
        unmask(wrong, forms, {"aachen": other_own}, {"aachen": other_shared})
        assert not np.array_equal(wrong[0], whole[0])


def test_a_masked_number_is_spread_over_all_it_may_be():
    form = Form(np.dtype("i4"), (40_000,), 20)
    sent, _ = sent_by("bonn", SITES, [np.zeros(form.shape, np.int32)], [form])
    counts = np.histogram(sent[0], bins=16, range=(0, 2**20))[0]
    assert sent[0].max() < 2**20
    np.testing.assert_allclose(counts, 2500, atol=300)  # six standard deviations


def test_two_sites_share_a_key_of_an_attempt_and_no_third_one_has_it():
    public = {site: public_mask_key(public_text(key)) for site, key in KEYS.items()}
    here = pair_key(KEYS["bonn"], public["aachen"], ("bonn", "aachen"), "round 1")
    assert here == pair_key(KEYS["aachen"], public["bonn"], ("aachen", "bonn"), "round 1")
    assert here != pair_key(KEYS["aachen"], public["bonn"], ("aachen", "bonn"), "round 2")
    assert here != pair_key(KEYS["celle"], public["bonn"], ("aachen", "bonn"), "round 1")


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
        form = Form(np.dtype("f8"), ())
        total = added([[form.encoded(np.array(number))]] * MAX_SITES, [form])
        assert form.decoded(total[0]) == number * MAX_SITES
