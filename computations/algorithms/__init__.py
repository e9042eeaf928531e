"""Published algorithms, each a short composition.

A new file here that registers an algorithm is found automatically.
"""

from computations.algorithms.registry import Algorithm, algorithm, find, names

__all__ = ["Algorithm", "algorithm", "find", "names"]
