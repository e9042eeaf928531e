"""What annotations call the values of TensorFlow and of the federated language, neither of which has types."""

from __future__ import annotations

from typing import Any, TypeAlias

Structure: TypeAlias = Any
"""A tensor, or tensors in lists, tuples and mappings within each other; of NumPy arrays where nothing is traced."""

Weights: TypeAlias = Any
"""`tff.learning.models.ModelWeights`: the trainable and the other weights of a model, tensors or arrays."""

Value: TypeAlias = Any
"""A value in a federated computation (`tff.Value`): at the clients or the server, or a structure of such values."""
