# ruff: noqa: F401  (the names are in __all__)
"""The names of `tff.types` that this project uses."""

from federated_language import to_type
from federated_language.framework import type_contains as contains
from federated_language.framework import type_contains_only as contains_only
from federated_language.framework import type_to_py_container

from computations.federated.language.conversions import structure_from_tensor_type_tree, tensorflow_to_type

__all__ = [
    *("contains", "contains_only", "structure_from_tensor_type_tree", "tensorflow_to_type", "to_type"),
    "type_to_py_container",
]
