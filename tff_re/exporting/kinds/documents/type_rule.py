"""`details.named_by_types` of export.json: what a rule that reads no text names, for `evaluate`.

A list of [type of the head, type of the tail, whether a sentence mentions both, numbers of the relations that such a
pair is named with in the order of labels.json], see `tff_re.tasks.type_shares`. Kinds of pairs that are named with none
are left out. The rule is chosen on the run's dev documents; without these, and in older exports, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.json_values import Fail
from tff_re.exporting.layout import REMEDY
from tff_re.tasks.type_shares import TypeShares

_KEY = "named_by_types"


def to_details(rule: TypeShares | None) -> dict[str, Any]:
    """The key and its value, or nothing for None."""
    if rule is None:
        return {}
    named = {kind: np.flatnonzero(share).tolist() for kind, share in sorted(rule.shares.items())}
    return {_KEY: [[*kind, relations] for kind, relations in named.items() if relations]}


def from_details(details: Mapping[str, Any], relations: int) -> TypeShares | None:
    """The rule over a number of relations, or None where there is none."""
    if _KEY not in details:
        return None
    named = {}
    for head, tail, in_sentence, numbers in details[_KEY]:
        named[head, tail, in_sentence] = share = np.zeros(relations)
        share[numbers] = 1.0
    return TypeShares(named, relations)


def check(details: Mapping[str, Any], relations: int, fail: Fail) -> None:
    """Raises `fail` if the value is present but is not such a list."""
    rows = details.get(_KEY, [])
    if not isinstance(rows, list) or not all(_is_row(row, relations) for row in rows):
        raise fail(f'"details.{_KEY}" does not say which relations kinds of pairs are named with', remedy=REMEDY)


def _is_row(row: Any, relations: int) -> bool:
    if not isinstance(row, list) or len(row) != 4:
        return False
    *types, in_sentence, numbers = row
    return (
        all(isinstance(name, str) for name in types)
        and isinstance(in_sentence, bool)
        and isinstance(numbers, list)
        and all(type(number) is int and 0 <= number < relations for number in numbers)
    )
