"""What some tests need of the stack that they run on (docs/stacks.md)."""

import contextlib

import pytest

from computations.stack import STACK

NO_TFF = "TensorFlow Federated is not on this stack"
needs_tff = pytest.mark.skipif(STACK != "tff", reason=NO_TFF)


@contextlib.contextmanager
def computing_on(runtime):
    """Makes an open runtime's context the current one."""
    from computations import federated as tff

    previous = tff.framework.get_context_stack().current
    tff.framework.set_default_context(runtime.context)
    try:
        yield runtime
    finally:
        tff.framework.set_default_context(previous)
