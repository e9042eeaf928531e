"""Examples that stand in two of train, dev and test: counted, because a score on them says little. No text is kept."""

from __future__ import annotations

import dataclasses
import itertools
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tff_re.tasks.base import Prepared
from tff_re.tasks.held_out import DEV, TEST

TRAIN = "train"


def duplicate_notes(splits: Mapping[str, Iterable[Any]]) -> tuple[str, ...]:
    """A note for every two splits that share examples: how many of the later one's are in the earlier one, too.

    Two examples are the same where their texts are, whatever the width of characters, case and blanks, and where their
    marked mentions are, if they have any. Takes time and memory in proportion to the number of examples.

    Args:
      splits: name -> samples; of train, dev, test, in this order.
    """
    keys = {split: [example_key(sample) for sample in samples] for split, samples in splits.items()}
    notes = []
    for (first, earlier), (second, later) in itertools.combinations(keys.items(), 2):
        known = set(earlier)
        if count := sum(key in known for key in later):
            share = count / len(later)
            notes.append(f"duplicates: {count} of {len(later)} {second} examples ({share:.1%}) are also in {first}")
    return tuple(notes)


def with_duplicate_notes(prepared: Prepared) -> Prepared:
    """These data with `duplicate_notes` of the clients' training and test examples, or of those at the server."""
    train = prepared.samples(TRAIN)
    splits = (TEST,) if prepared.held_out is None else prepared.held_out.splits
    held_out = {split: samples for split in splits if (samples := prepared.samples(split))}
    notes = duplicate_notes({TRAIN: train, **held_out}) if train else ()
    return dataclasses.replace(prepared, notes=(*prepared.notes, *notes)) if notes else prepared


def notes_of_dev(prepared: Prepared, dev: Collection[str]) -> tuple[str, ...]:
    """The notes on dev examples that are left out of the clients' training examples.

    `dev` are their ids.
    """
    samples = prepared.samples(TRAIN)
    dev_samples, trained_on = [], []
    for sample in samples:
        (dev_samples if sample.sample_id in dev else trained_on).append(sample)
    notes = duplicate_notes({TRAIN: trained_on, DEV: dev_samples}) if samples else ()
    return notes + (duplicate_notes({DEV: dev_samples, TEST: prepared.samples(TEST)}) if samples else ())


def example_key(sample: Any) -> int:
    """A hash of what two equal examples have in common."""
    text = text_of(sample)
    if not hasattr(sample, "head"):
        return hash(normalised(text))
    mentions = (normalised(text[slice(*getattr(sample, side))]) for side in ("head", "tail"))
    return hash((normalised(text), *mentions))


def text_of(sample: Any) -> str:
    """The text of a sample, which of a document is that of the whole document."""
    return sample.text if hasattr(sample, "text") else sample.document.text


def normalised(text: str) -> str:
    """The text without differences in case, the width of characters, and blanks."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())
