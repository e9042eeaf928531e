"""Options of tasks that are refused when a recipe is read; unread keys are in tests/recipes/test_unread_keys.py."""

from __future__ import annotations

import pytest

from datasets.errors import DataError
from tests.upper_floors import SYNTHETIC
from tff_re.errors import UserError
from tff_re.recipes.reading import resolve

PLANTED = {"dataset": "planted", "planted_bags": 24}

REFUSED = {
    "symptom_classification": [
        ({"vectors": "file"}, "'task.vectors' = 'file' needs vectors_path"),
        ({"vectors": "trained", "encoding": "words"}, "'task.vectors' = 'trained' needs vectors_corpus"),
        ({"vectors": "trained", "vectors_corpus": "shipped", "encoding": "characters"}, "needs encoding = 'words'"),
        ({"encoding": "word"}, "'task.encoding' must be one of 'words', 'characters', 'pieces', got 'word'"),
    ],
    "sentence_relations": [
        ({"dataset": "imcs_v2"}, "'task.dataset' 'imcs_v2' has no pairs of mentions; use its own task"),
        ({"dataset": "chemprott"}, "there is no such data set"),
        ({"subset": 5, "balanced_subset": 5}, "'task.subset' and balanced_subset cannot be set together"),
        ({"test_subset": 5}, "'task.test_subset' needs test = 'documents' or 'official'"),
    ],
    "bag_relations": [
        ({"dataset": "chemprot"}, "'task.dataset' 'chemprot' has no bags of sentences; use its own task"),
        ({"dataset": "nyt"}, "there is no such data set"),
        ({"test_split": "dev", "dev_split": "dev"}, "'task.dev_split' and test_split are both 'dev'"),
        ({"dataset": "nyt10", "train_on": "stated"}, "what each sentence states, which 'nyt10' does not record"),
        ({"server_share": 0.2}, "unknown key 'task.server_share'"),
        ({**PLANTED, "planted_sentences": 3}, "'task.planted_sentences' must be at least planted_bags, 24, got 3"),
    ],
    "document_relations": [
        ({"dataset": "chemprot"}, "'task.dataset' 'chemprot' has no documents with pairs of entities"),
        ({"dataset": "cdrr"}, "there is no such data set"),
        ({"dev_splt": "test"}, "unknown key 'task.dev_splt'"),
        ({"server_share": 0.2}, "unknown key 'task.server_share'"),
    ],
}


@pytest.mark.parametrize(("task", "options", "wanted"), [(t, *case) for t, cases in REFUSED.items() for case in cases])
def test_options_that_do_not_fit(task, options, wanted):
    table = {**SYNTHETIC, "task": {"name": task, **options}, "partition": {"name": "iid", "num_clients": 3}}
    with pytest.raises((UserError, DataError)) as caught:
        resolve(table, "r.toml")
    assert wanted in str(caught.value)
