"""Sentences with two mentions, at sites and as a recipe."""

from __future__ import annotations

from tests.upper_floors import SECRET

RELATIONS = {"dataset": "relations", "path": "texts.jsonl", "test_path": "test.jsonl"}

LABELS = ["raises", "lowers", "stops"]


def mention(number: int, label: str, words: int = 3) -> dict:
    """A record with a text of its own."""
    text = f"{SECRET} aspirin affects fever {'very ' * words}{number}"
    head, tail = text.index("aspirin"), text.index("fever")
    values = {"id": str(number), "document": str(number), "text": text, "label": label}
    return {**values, "head": [head, head + 7], "tail": [tail, tail + 5]}


def relations_table(**task) -> dict:
    """A recipe that lists the labels and cuts texts at 30 tokens."""
    return {
        "name": "tiny-relations",
        "task": {
            **{"name": "sentence_relations", "dataset": "relations", "class_names": LABELS, "encoding": "words"},
            **{"max_length": 30, "test": "official", **task},
        },
        "model": {"name": "pcnn"},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.1, "batch_size": 32},
        "training": {"rounds": 1, "clients_per_round": 1},
    }
