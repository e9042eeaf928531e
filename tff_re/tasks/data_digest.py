"""A digest of all examples that a run reads, by which a resume and a comparison notice that a file was rewritten."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tff_re.tasks.base import Prepared
from tff_re.tasks.held_out import TEST


def with_data_digest(prepared: Prepared) -> Prepared:
    """These data with the digest of their examples.

    It is of texts, annotations and ids of all examples for training, dev and test that are here, in the order of
    `Prepared.trained_on` and `Prepared.samples`, before anything is encoded: another machine or encoder gives the same.
    None is set where no examples with ids were read, as of made-up features.
    """
    if prepared.held_out is None:
        held_out = {TEST: prepared.samples(TEST)}
    else:
        held_out = {split: corpus.samples for split, corpus in prepared.held_out.corpora.items()}
    parts = {"trained on": prepared.trained_on(), **held_out}
    if not any(parts.values()):
        return prepared
    digest = hashlib.sha256(json.dumps(prepared.label_names).encode("utf-8"))
    for split, samples in parts.items():
        digest.update(json.dumps(split).encode("utf-8"))
        for sample in samples:
            digest.update(json.dumps(sample, default=_plain, sort_keys=True).encode("utf-8"))
    return dataclasses.replace(prepared, data_digest=digest.hexdigest())


def _plain(value: Any) -> Any:
    """What JSON has no form for, as lists and tables."""
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a sample holds a {type(value).__name__}, which has no place in a digest")
