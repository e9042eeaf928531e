"""The benchmark of document encoders, in sizes that measure nothing: it measures what it says, the table adds up."""

import json

import numpy as np
import pytest

from benchmarks import document_memory
from benchmarks.memory import kind_of_memory

FORM = {
    "model_type": "bert",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
SMALL = document_memory.Size("small", pieces=30, entities=3, mentions=5, pairs=6)


def test_documents_are_of_their_size_and_every_pair_has_mentions():
    arrays = document_memory._documents(SMALL, 50)
    assert {name: np.shape(array)[1:] for name, array in arrays.items()} == {
        **dict.fromkeys(("input_ids", "attention_mask"), (30,)),
        **dict.fromkeys(("mention_place", "mention_entity"), (5,)),
        **dict.fromkeys(("pair_head", "pair_tail"), (6,)),
        "pair_labels": (6, 1),
        "y": (),
    }
    assert set(arrays["pair_head"].flat) <= set(arrays["mention_entity"].flat)
    assert (arrays["pair_head"] != arrays["pair_tail"]).all() and arrays["mention_place"].max() < 30


def test_the_largest_holds_all_ordered_pairs_of_its_entities():
    size = document_memory.SIZES[0]
    assert (size.entities, size.pieces, size.pairs) == (40, 1500, 40 * 39)


def test_the_table_says_whether_the_bound_is_met():
    measured = {("a step", "largest"): [(int(3e9), 20.0), (int(2e9), 5.0), (int(2.5e9), 4.0)]}
    markdown = document_memory.table(measured)
    assert "| largest | a step | 3.00 | 2.50 | 4.00 |" in markdown and "here 3.00, met." in markdown
    measured["a step", "largest"].append((int(4.1e9), 4.0))
    assert "here 4.10, not met." in document_memory.table(measured)


@pytest.mark.slow
def test_steps_and_rounds_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(document_memory, "FORM", FORM)
    monkeypatch.setattr(document_memory, "PARTS", 2)
    (tmp_path / "config.json").write_text(json.dumps(FORM), "utf-8")
    for work, more in ((document_memory.steps, ()), (document_memory.federated_rounds, (tmp_path / "worker.log",))):
        measured = document_memory.measure(work, SMALL, str(tmp_path), more, kind_of_memory())
        assert len(measured) == 2 and all(100e6 < peak < 10e9 and seconds > 0 for peak, seconds in measured)
