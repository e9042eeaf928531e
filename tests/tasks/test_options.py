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
        ({"max_length": 0}, "'task.max_length' must be at least 1, got 0"),
        ({"encoding": "word"}, "'task.encoding' must be one of 'words', 'characters', got 'word'"),
    ],
    "sentence_relations": [
        ({"dataset": "imcs_v2"}, "'task.dataset' 'imcs_v2' holds no pairs of mentions; use its own task"),
        ({"dataset": "chemprott"}, "there is no such data set"),
        ({"max_length": 0}, "'task.max_length' must be at least 1, got 0"),
        ({"subset": 0}, "'task.subset' must be at least 1, got 0"),
        ({"balanced_subset": 0}, "'task.balanced_subset' must be at least 1, got 0"),
        ({"test_subset": 0, "test": "official"}, "'task.test_subset' must be at least 1, got 0"),
        ({"min_clients": 0}, "'task.min_clients' must be at least 1, got 0"),
        ({"min_count": 0}, "'task.min_count' must be at least 1, got 0"),
        ({"test_seed": -1}, "'task.test_seed' must be at least 0, got -1"),
        ({"test_share": 0.0}, "'task.test_share' must be above 0 and below 1, got 0.0"),
        ({"test_share": 1.0}, "'task.test_share' must be above 0 and below 1, got 1.0"),
        ({"subset": 5, "balanced_subset": 5}, "'task.subset' and balanced_subset exclude each other"),
        ({"test_subset": 5}, "'task.test_subset' needs test = 'documents' or 'official'"),
        ({"test": "half"}, "'task.test' must be one of 'hold_out', 'documents', 'official', got 'half'"),
    ],
    "bag_relations": [
        ({"dataset": "chemprot"}, "'task.dataset' 'chemprot' holds no bags of sentences; use its own task"),
        ({"dataset": "nyt"}, "there is no such data set"),
        ({"dev_share": 1.0}, "'task.dev_share' must be at least 0 and below 1, got 1.0"),
        ({"dev_share": -0.1}, "'task.dev_share' must be at least 0 and below 1, got -0.1"),
        ({"dev_seed": -1}, "'task.dev_seed' must be at least 0, got -1"),
        ({**PLANTED, "planted_seed": -1}, "'task.planted_seed' must be at least 0, got -1"),
        ({"test_split": "dev", "dev_split": "dev"}, "'task.dev_split' is the split 'dev' of test_split, too"),
        ({"dataset": "nyt10", "misplaced": "keep"}, "'task.misplaced' must be one of"),
        ({"dataset": "nyt10", "train_on": "stated"}, "but what the sentences of 'nyt10' state is not known"),
        ({"server_share": 0.2}, "unknown key 'task.server_share'"),
        ({**PLANTED, "planted_bags": 1}, "'task.planted_bags' must be at least 2, got 1"),
        ({**PLANTED, "planted_relations": 0}, "'task.planted_relations' must be at least 1, got 0"),
        ({**PLANTED, "planted_sentences": 3}, "'task.planted_sentences' must be at least planted_bags, 24, got 3"),
        ({**PLANTED, "planted_zipf": -1.0}, "'task.planted_zipf' must be at least 0, got -1.0"),
        ({**PLANTED, "noise_rate": 1.5}, "'task.noise_rate' must be from 0 to 1, got 1.5"),
        ({**PLANTED, "other_share": -0.5}, "'task.other_share' must be from 0 to 1, got -0.5"),
        ({**PLANTED, "planted_cues": 0}, "'task.planted_cues' must be at least 1, got 0"),
        ({**PLANTED, "planted_cues_of_word": 0}, "'task.planted_cues_of_word' must be at least 1, got 0"),
        ({**PLANTED, "train_on": "true"}, "'task.train_on' must be one of"),
    ],
    "document_relations": [
        ({"dataset": "chemprot"}, "'task.dataset' 'chemprot' holds no documents with pairs of entities"),
        ({"dataset": "cdrr"}, "there is no such data set"),
        ({"dev_share": 1.0}, "'task.dev_share' must be at least 0 and below 1, got 1.0"),
        ({"dev_seed": -1}, "'task.dev_seed' must be at least 0, got -1"),
        ({"subset": 0}, "'task.subset' must be at least 1, got 0"),
        ({"test_subset": 0}, "'task.test_subset' must be at least 1, got 0"),
        ({"longest": 0}, "'task.longest' must be at least 1, got 0"),
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
