"""Algorithms and client work that several tests share, built once."""

import pytest
import tensorflow as tf

from tests.computations.toolbox import linear_model


@pytest.fixture(autouse=True)
def _in_the_session_worker(runtime):
    """Every test of the computations may call one."""


@pytest.fixture(autouse=True)
def _same_global_seed():
    """Nothing below may depend on TensorFlow's global seed; a test that does by mistake at least repeats."""
    tf.random.set_seed(0)


@pytest.fixture(scope="session")
def model():
    """Softmax regression, 3 features, 3 classes."""
    return linear_model(3, 3)
