"""An export of entities, and exports of relations that say what their pairs are; each is written once in a test run."""

import json
import random
import tempfile
from pathlib import Path

import pytest

import tff_re
from tests import exports_for_tests
from tests.exports_for_tests import arguments, written_once
from tests.recognition_for_tests import recipe_of
from tff_re.exporting.export_model import export_model

WORDS = {"drug": "drug", "gene": "gene", "rash": "gene", "pain": "gene"}
"""What the export of entities recognises; all other words are no entities."""


@pytest.fixture(scope="session", autouse=True)
def _shared_exports(tmp_path_factory):
    exports_for_tests.set_folder_factory(tmp_path_factory)


def _with_details(kind, name, **details):
    values = arguments(kind)
    values["details"] = {**values["details"], **details}
    return written_once(name, lambda folder: export_model(folder, **values, formats="saved_model"))


@pytest.fixture(scope="session")
def sentence_export():
    """Word pieces of a sentence: no_relation, inhibits, binds."""
    details = {"negative_label": "no_relation", "pair_types": [["drug", "gene"]]}
    return _with_details("word pieces", "word pieces with types", **details)


@pytest.fixture(scope="session")
def document_export():
    """Whole documents: CID, at a threshold of 0.5."""
    return _with_details("documents", "documents with types", pair_types=[["drug", "gene"]])


def _train_recogniser(folder):
    """Trains a tiny tagger on texts of `WORDS`, common words and words that are in one text only, and exports it."""
    draw, records = random.Random(0), []
    for number in range(80):
        text, entities = "", []
        for position in range(draw.randint(3, 12)):
            word = draw.choice([*WORDS, "the", "The", "A", "inhibits", "binds", ".", ":", ",", f"w{number}x{position}"])
            if word in WORDS:
                entities.append([len(text), len(text) + len(word), WORDS[word]])
            text += f"{word} "
        records.append({"id": str(number), "text": text.strip(), "entities": entities, "ward": str(number % 2)})
    with tempfile.TemporaryDirectory() as runs:
        path = Path(runs) / "texts.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        task = {"encoding": "words", "max_length": 60, "min_clients": 2}
        ways = {"local_epochs": 10, "learning_rate": 0.05, "batch_size": 8}
        recipe = recipe_of(path, task=task, algorithm=ways, training={"rounds": 2, "clients_per_round": 2})
        tff_re.train(recipe, Path(runs) / "run")
        tff_re.export(Path(runs) / "run", folder, formats="saved_model")


@pytest.fixture(scope="session")
def ner():
    """The folder of an export that recognises `WORDS`."""
    return written_once("recogniser of drugs and genes", _train_recogniser)
