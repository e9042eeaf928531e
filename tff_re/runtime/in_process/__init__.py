"""The runtime that computes in the Python process itself, with its TensorFlow."""

from tff_re.runtime.in_process.runtime import InProcessRuntime

__all__ = ["InProcessRuntime"]
