"""Keras' private names are used in one file."""

import re

from tests.test_rooms import ROOT

PRIVATE = re.compile(
    r"\._(flatten_layers|dtype_policy|trainable_weights|non_trainable_weights|keras_\w+|inbound_nodes)\b|keras\.src"
    r"|_keras_initialized|layer\._name\b"
)


def test_private_names_of_keras_are_in_one_file():
    users = {p.name for p in (ROOT / "tff_re").rglob("*.py") if PRIVATE.search(p.read_text("utf-8"))}
    assert users == {"keras_private.py"}
