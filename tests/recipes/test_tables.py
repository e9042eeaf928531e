"""The tables of a recipe: what is refused before TensorFlow is imported, and keys read off the source."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.upper_floors import SYNTHETIC
from tff_re.recipes.structuring import keys
from tff_re.recipes.tables import TABLES, choices

REFUSE = """
import json, sys
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve
try:
    resolve(json.load(sys.stdin), "r.toml")
except UserError as error:
    print(error)
print("tensorflow" in sys.modules)
"""
REFUSED = {
    "no task": ({"task": None}, "the table [task] is missing"),
    "task": ({"task": {"name": "relation"}}, "there is no task 'relation'"),
    "training": ({"training": {"round": 3}}, "unknown key 'training.round'; did you mean 'rounds'?"),
    "algorithm": ({"algorithm": {"name": "fedpap", "muu": 1}}, "unknown key 'algorithm.muu'; did you mean 'mu'?"),
    "other": ({"algorithm": {"name": "fedavg", "xyzzy": 1}}, "unknown key 'algorithm.xyzzy'; no algorithm has it"),
    "aggregation": ({"aggregation": {"rules": "rfa"}}, "unknown key 'aggregation.rules'; did you mean 'rule'?"),
    "attack": ({"attack": {"kind": "nan", "client": 1}}, "unknown key 'attack.client'; did you mean 'clients'?"),
    "server_optimizer": ({"server_optimizer": {"nam": "adam"}}, "'server_optimizer.nam'; did you mean 'name'?"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_key_is_refused_before_tensorflow_is_imported(name):
    tables, message = REFUSED[name]
    given = {key: table for key, table in {**SYNTHETIC, **tables}.items() if table is not None}
    command = [sys.executable, "-c", REFUSE]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    said, imported = done.stdout.splitlines()
    assert said.startswith("r.toml: ") and message in said and imported == "False"


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.keys is not None])
def test_keys_read_off_the_source_are_those_of_the_classes(name):
    of_classes = {key.name for cls in choices(name).values() for key in keys(cls)}
    assert of_classes <= set(TABLES[name].keys())
