"""The tables of a recipe; that wrong keys are refused before TensorFlow is imported is in tests/test_imports.py."""

from __future__ import annotations

import sys

import pytest

from tests.upper_floors import SYNTHETIC
from tff_re.errors import UserError
from tff_re.recipes.structuring import keys
from tff_re.recipes.tables import TABLES, choices, read_tables


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.keys is not None])
def test_keys_read_off_the_source_are_those_of_the_classes(name):
    of_classes = {key.name for cls in choices(name).values() for key in keys(cls)}
    assert of_classes <= set(TABLES[name].keys())


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"algorithm": {"name": "fedpap", "muu": 1}}, "unknown key 'algorithm.muu'; did you mean 'mu'?"),
        ({"algorithm": {"name": "fedavg", "xyzzy": 1}}, "unknown key 'algorithm.xyzzy'; no algorithm has this key"),
        ({"model": {"name": "lstm", "unitz": 1}}, "unknown key 'model.unitz'; did you mean 'units'?"),
        ({"client_model": {"name": "lstm", "xyzzy": 1}}, "unknown key 'client_model.xyzzy'; no model has this key"),
        ({"aggregation": {"rules": "rfa"}}, "unknown key 'aggregation.rules'; did you mean 'rule'?"),
        ({"server_optimizer": {"nam": "adam"}}, "unknown key 'server_optimizer.nam'; did you mean 'name'?"),
    ],
)
def test_what_a_wrong_key_is_told_without_tensorflow(tables, message, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(UserError) as caught:
        read_tables({**SYNTHETIC, **tables}, "r.toml")
    assert str(caught.value) == f"r.toml: {message}"


def test_tables_that_are_left_out():
    tables = read_tables({name: SYNTHETIC[name] for name in ("task", "model", "algorithm")}, "r.toml")
    assert tables.keys() == TABLES.keys() and tables["attack"] is None and tables["client_model"] is None
    assert tables["partition"].name == "natural" and tables["training"].rounds == 100
