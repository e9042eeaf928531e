"""The runtime that computes in the Python process itself, with its TensorFlow."""
