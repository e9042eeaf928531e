"""Tables become attrs classes and dataclasses strictly: nothing is converted in silence; what is refused is named."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import attrs
import pytest
from attrs.validators import and_, ge, gt, in_, le, lt, optional

from computations.ranges import FLOAT32_MAX, refuse_unread
from tff_re.errors import UserError
from tff_re.recipes.structuring import REQUIRED, keys, range_of, structure, to_table


@dataclass(frozen=True, kw_only=True)
class Part:
    width: int = 1

    def __post_init__(self):
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")


@attrs.frozen(kw_only=True)
class Options:
    count: int = attrs.field(default=3, validator=ge(1))
    rate: float = attrs.field(default=0.5, validator=le(FLOAT32_MAX))
    label: str = attrs.field(default="a", validator=in_(("a", "b", "bad")))
    flag: bool = False
    kind: Literal["mean", "max"] = "mean"
    limit: int | None = attrs.field(default=None, validator=optional(and_(ge(2), le(9))))
    seeds: tuple[int, ...] = (0,)
    values: dict[str, float] = attrs.field(factory=dict)
    free: dict | None = None
    parts: tuple[Part, ...] = ()

    def __attrs_post_init__(self):
        if self.label == "bad":
            raise ValueError("two things do not fit")
        refuse_unread(self, {"limit": ("kind", ("max",))})


def options(**table):
    return structure(Options, table, section="algorithm", source="r.toml")


def message(**table) -> str:
    with pytest.raises(UserError) as caught:
        options(**table)
    text = str(caught.value)
    assert "\n" not in text and text.startswith("r.toml: ")
    return text.removeprefix("r.toml: ")


def test_values_of_the_right_type_are_taken_as_they_are():
    values = {
        **{"count": 7, "rate": 0.25, "label": "b", "flag": True, "kind": "max", "limit": 9, "seeds": [1, 2]},
        **{"values": {"x": 1.5}, "free": {"y": [1]}, "parts": [{"width": 4}]},
    }
    made = options(**values)
    assert made == Options(**{**values, "seeds": (1, 2), "parts": (Part(width=4),)})
    assert to_table(made) == values
    assert structure(Options, to_table(made), section="", source="x") == made


def test_a_whole_number_is_a_number_and_nothing_is_a_default():
    assert type(options(rate=2).rate) is float
    assert options() == Options()
    assert "limit" not in to_table(Options()), "TOML has no null"


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("count", True, "must be a whole number, got True"),
        ("count", 3.0, "must be a whole number, got 3.0"),
        ("count", "3", "must be a whole number, got '3'"),
        ("count", None, "must be a whole number, got None"),
        ("count", 2**63, "must be a number of at most 64 bits"),
        ("rate", "0.5", "must be a number, got '0.5'"),
        ("rate", False, "must be a number, got False"),
        ("rate", math.nan, "must be a finite number, got nan"),
        ("rate", -math.inf, "must be a finite number, got -inf"),
        ("rate", 10**400, "must be a number of at most 64 bits"),
        ("label", 3, "must be a string in quotes, got 3"),
        ("flag", 1, "must be true or false, got 1"),
        ("flag", "true", "must be true or false, got 'true'"),
        ("kind", "men", "must be one of 'mean', 'max', got 'men'"),
        ("kind", ["mean"], "must be one of 'mean', 'max', got ['mean']"),
        ("limit", "2", "must be a whole number, got '2'"),
        ("seeds", "012", "must be a list, got '012'"),
        ("seeds", 3, "must be a list, got 3"),
        ("seeds", [1, "2"], "must be a whole number, got '2'"),
        ("values", [1], "must be a table, got [1]"),
        ("values", {"x": "1"}, "must be a number, got '1'"),
        ("free", 3, "must be a table, got 3"),
        ("parts", {"width": 3}, "must be a list, got {'width': 3}"),
        ("parts", [3], "must be a list of tables, got 3 in it"),
        ("count", 0, "must be at least 1, got 0"),
        ("rate", 1e39, "must be at most 3.4e+38 (float32), got 1e+39"),
        ("limit", 10, "must be from 2 to 9, got 10"),
        ("limit", 3, "needs kind = 'max'"),
        ("label", "c: (got 3)\n", "must be one of 'a', 'b', 'bad', got 'c: (got 3)\\n'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_key(key, value, wanted):
    assert message(**{key: value}) == f"'algorithm.{key}' {wanted}"


@pytest.mark.parametrize(
    ("validator", "wanted"),
    [
        (None, ""),
        (ge(1), "at least 1"),
        (gt(0.5), "above 0.5"),
        (le(7), "at most 7"),
        (and_(lt(1), ge(0)), "at least 0 and below 1"),
        (and_(ge(1e-3), le(10**6)), "from 0.001 to 1000000"),
        (optional(and_(gt(0), le(FLOAT32_MAX))), "above 0"),
        (and_(ge(0), and_(lt(1), lt(1 - 2**-25))), "at least 0 and below 1"),
        (optional(in_(("a", "b"))), "one of 'a', 'b'"),
    ],
)
def test_ranges_in_words(validator, wanted):
    assert range_of(validator) == wanted


def test_the_keys_of_attrs_classes_and_dataclasses():
    @dataclass
    class Other:
        size: int
        seeds: list = field(default_factory=list, init=False)

    assert [(key.name, key.default is REQUIRED) for key in keys(Other)] == [("size", True)]
    assert [(key.name, key.default) for key in keys(Options)][:3] == [("count", 3), ("rate", 0.5), ("label", "a")]


def test_keys_within_a_list_of_tables_are_named():
    assert message(parts=[{"width": 0}]) == "'algorithm.parts.width' must be at least 1, got 0"
    assert message(parts=[{"width": "a"}]) == "'algorithm.parts.width' must be a whole number, got 'a'"
    assert message(parts=[{"widht": 3}]) == "unknown key 'algorithm.parts.widht'; did you mean 'width'?"


def test_unknown_keys_get_the_nearest_or_the_list_of_valid_ones():
    assert message(cuont=3) == "unknown key 'algorithm.cuont'; did you mean 'count'?"
    assert message(zzz=3).endswith("; valid: count, flag, free, kind, label, limit, parts, rate, seeds, values")


def test_values_that_do_not_fit_each_other_name_the_table():
    assert message(label="bad") == "algorithm: two things do not fit"


def test_a_missing_key_is_named():
    @dataclass(frozen=True)
    class Needs:
        size: int

    with pytest.raises(UserError, match=r"^r.toml: the key 'task.size' is missing$"):
        structure(Needs, {}, section="task", source="r.toml")


def test_no_table_at_all_is_refused():
    with pytest.raises(UserError, match=r"^r.toml: \[task\] must be a table of keys and values, got \[1\]$"):
        structure(Options, [1], section="task", source="r.toml")
