"""The GPUs of this machine, as TensorFlow sees them."""

from __future__ import annotations

import contextlib

import tensorflow as tf


def gpu_names() -> list[str]:
    """Return TensorFlow's names of the GPUs that it can use."""
    return [gpu.name for gpu in tf.config.list_physical_devices("GPU")]


def prepare_gpus() -> list[str]:
    """Let TensorFlow allocate a GPU's memory as it needs it, and return the names of the GPUs."""
    for gpu in tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):  # it is in use already, and keeps what was chosen then
            tf.config.experimental.set_memory_growth(gpu, True)
    return gpu_names()
