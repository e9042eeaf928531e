"""Tasks by name. A task joins a data set, its encoding, the model's inputs and the metrics.

A module of this folder has `Options` (a frozen dataclass: what a recipe may set under [task]) and
`prepare(options, partitioner, seed, where) -> Prepared`.
"""

from __future__ import annotations

import importlib

NAMES = {
    "bag_relations": "tff_re.tasks.bag_relations",
    "document_relations": "tff_re.tasks.document_relations",
    "sentence_relations": "tff_re.tasks.sentence_relations",
    "symptom_classification": "tff_re.tasks.symptom_classification",
    "synthetic": "tff_re.tasks.synthetic",
}


def module(name: str):
    """The module of a task; KeyError for an unknown name."""
    return importlib.import_module(NAMES[name])
