"""The ranges of a recipe's keys: what validators say is refused; tests/test_docs.py holds them to docs/recipes.md."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest

from tff_re.errors import UserError
from tff_re.recipes.reading import EvaluationOptions, TrainingOptions
from tff_re.recipes.structuring import _parts, keys, structure
from tff_re.recipes.tables import choices

CLASSES = {(s, name): cls for s in ("task", "model", "algorithm", "partition") for name, cls in choices(s).items()}
CLASSES |= {("training", ""): TrainingOptions, ("evaluation", ""): EvaluationOptions}
REQUIRED = {"num_clients": 10, "alpha": 0.5, "field": "diagnosis"}


def beyond_and_at(bound: float, sign: str, whole: bool):
    """A number just out of a bound, and one that is at it or, where the bound is excluded, next to it."""
    up = 1 if sign.startswith(">") else -1
    outer, inner = (
        (bound - up, bound + up)
        if whole
        else (math.nextafter(bound, -up * math.inf), math.nextafter(bound, up * math.inf))
    )
    at = bound if whole else float(bound)
    return (outer, at) if sign.endswith("=") else (at, inner)


@pytest.mark.parametrize(("section", "name"), CLASSES)
def test_a_bound_is_taken_and_what_is_beyond_it_is_refused_in_one_line(section, name):
    cls = CLASSES[section, name]
    required = {key: value for key, value in REQUIRED.items() if key in {f.name for f in attrs.fields(cls)}}
    for field in attrs.fields(cls):
        for part in _parts(field.validator):
            if not hasattr(part, "bound"):
                continue
            out, within = beyond_and_at(part.bound, part.compare_op, "int" in str(field.type))
            field.validator(None, field, within)
            with pytest.raises(UserError) as caught:
                structure(cls, {**required, field.name: out}, section=section, source="r.toml")
            message = str(caught.value)
            assert message.startswith(f"r.toml: '{section}.{field.name}' must be ") and "\n" not in message
            assert message.endswith(f", got {out}")


def test_keys_that_set_another_default_keep_place_and_range():
    mean, adam = (keys(CLASSES["algorithm", name]) for name in ("fedavg", "fedavgs"))
    assert [key.name for key in mean] == [key.name for key in adam] and mean[0].name == "learning_rate"
    assert (mean[0].default, adam[0].default) == (0.01, 0.001)


def test_choices_are_held_to_in_python_too():
    with pytest.raises(ValueError, match=r"'weighting' must be in \('examples', 'uniform'\) \(got 'sizes'\)"):
        CLASSES["algorithm", "fedavg"](weighting="sizes")


def test_a_share_below_one_is_below_one_in_float32_too():
    """One minus 1e-9 is 1 in float32: a dropout of all units."""
    fields = [field for cls in CLASSES.values() for field in attrs.fields(cls) if "dropout" in field.name]
    assert len(fields) >= 3
    for field in fields:
        with pytest.raises(ValueError, match=field.name):
            field.validator(None, field, 1 - 1e-9)
        field.validator(None, field, float(np.nextafter(np.float32(1), np.float32(0))))
