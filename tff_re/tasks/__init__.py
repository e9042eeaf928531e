"""Tasks by name. A task joins a data set, its encoding, the model's inputs and the metrics.

A file of this folder that defines `prepare(options, partitioner, seed, data_paths) -> Prepared` is one; it has
`Options`, too (a frozen attrs class: what a recipe may set under [task]).
"""

from computations.registry import Modules

TASKS = Modules(__name__, "prepare")


def module(name: str):
    """The module of a task; KeyError for an unknown name."""
    return TASKS[name]
