"""Texts with entities in a file of one's own, and tiny recipes that recognise them: a tagger over characters."""

from __future__ import annotations

import json
from pathlib import Path

from tests.upper_floors import SECRET
from tff_re.recipes.reading import Recipe, resolve

TYPES = ("drug", "symptom")

DRUGS, SYMPTOMS = ("布洛芬", "阿司匹林"), ("气促", "发热", "头痛")

WARDS = ("north", "south", "east", "west")
"""The clients of `table`, in the order in which they are numbered."""


def marked(text: str) -> dict:
    """`text` and `entities` of a text in which `<drug:布洛芬>` is an entity."""
    plain, entities = "", []
    for number, part in enumerate(text.replace(">", "<").split("<")):
        if number % 2:
            kind, _, part = part.partition(":")
            entities.append([len(plain), len(plain) + len(part), kind])
        plain += part
    return {"text": plain, "entities": entities}


def record(number: int, kinds=TYPES, prefix: str = "") -> dict:
    """The text of this number: a symptom, in two of three texts a drug; two texts a document, four a patient.

    SECRET stands in it. Wards have the same number of texts.
    """
    took = f"，吃<drug:{DRUGS[number % 3 - 1]}>" if number % 3 else "，没吃药"
    symptom = SYMPTOMS[number // 3 % 3]
    values = marked(f"{SECRET}第{number}天<symptom:{symptom}>{took}{'。' * (number % 4)}")
    return {
        "id": f"{prefix}{number}",
        "document": f"{prefix}note-{number // 2}",
        "text": values["text"],
        "entities": [entity for entity in values["entities"] if entity[2] in kinds],
        "group": f"{prefix}patient-{number // 4}",
        "ward": WARDS[number // 4 % len(WARDS)],
    }


def write_texts(path: Path, records) -> Path:
    """JSON lines of one's own."""
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in records), "utf-8")
    return path


def table(path, **sections) -> dict:
    """Tables of a recipe on a file: a tagger over characters, a ward is a client; keywords add to the tables."""
    result = {
        "name": "tiny-entities",
        "task": {
            "name": "entity_recognition",
            "dataset": "entities",
            "path": str(path),
            **{"max_length": 40, "min_clients": 1, "test_share": 0.25},
        },
        "partition": {"name": "by_field", "field": "ward"},
        "model": {"name": "tagger", "units": 4, "embedding_width": 4},
        "algorithm": {"name": "fedavgs", "learning_rate": 0.05, "batch_size": 8, "local_epochs": 1},
        "training": {"rounds": 1, "clients_per_round": 4},
    }
    for name, values in sections.items():
        replaced = values is None or not isinstance(result.get(name), dict) or values.get("name", "") != ""
        result[name] = values if replaced and name != "task" else {**result.get(name, {}), **values}
    for name, values in list(result.items()):
        if isinstance(values, dict):
            result[name] = {key: value for key, value in values.items() if value is not None}
    return {name: values for name, values in result.items() if values is not None}


def recipe_of(path, seed: int | None = None, **sections) -> Recipe:
    """The recipe, resolved."""
    return resolve(table(path, **sections), "r.toml", seed=seed)
