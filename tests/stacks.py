"""What some tests need of the stack that they run on (docs/stacks.md)."""

import pytest

from computations.stack import STACK

needs_tff = pytest.mark.skipif(STACK != "tff", reason="TensorFlow Federated is not on this stack")
