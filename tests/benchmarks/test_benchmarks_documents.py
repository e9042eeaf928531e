"""The benchmarks of document encoders, in sizes that measure nothing: they measure what they say, the tables add up."""

import json

import numpy as np
import pytest

from benchmarks import document_memory, documents
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
    arrays = document_memory.documents(SMALL, 50)
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


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "FORM", {**FORM, "initializer_range": 0.2})
    monkeypatch.setattr(documents, "SIZE", SMALL)
    (tmp_path / "config.json").write_text(json.dumps(documents.FORM), "utf-8")
    return documents.Problem(SMALL, str(tmp_path), FORM["vocab_size"], dropout=0.0)


@pytest.mark.slow
def test_the_race_of_documents_runs_and_its_contenders_agree(problem, tmp_path):
    markdown = documents.run(1, tmp_path)
    for contender in documents.CONTENDERS:
        assert f"| {contender.kind} | {contender.name} | " in markdown


def still(contender):
    """That contender without its work: weights that do not move, scores that are one half."""

    class Still(contender):
        name = "still"

        def __call__(self, examples):
            result = super().__call__(examples)
            return self._weights if self.kind == documents.TRAINING else np.full_like(result, 0.5)

    return Still


@pytest.mark.parametrize(
    "contender", [pytest.param(documents.PlainLegacyTraining, marks=pytest.mark.slow), documents.PlainScores]
)
def test_a_contender_that_does_other_work_is_found(contender, problem):
    weights = problem.local_model().initial_weights(0).trainable
    documents.check_agreement(problem, weights, (contender, contender))
    with pytest.raises(AssertionError, match=f"{contender.name} and still differ"):
        documents.check_agreement(problem, weights, (contender, still(contender)))


def test_documents_a_second_are_the_slope(monkeypatch):
    """Two documents more take 0.5 and 1 s: 4 and 2 a second, 3 in the median; what is left of the first is fixed."""
    monkeypatch.setattr(documents, "COUNTS", (2, 4))
    markdown = documents.table(
        {
            ("training", "ours"): [(1.0, 1.5), (2.0, 3.0)],
            ("training", "plain slow"): [(1.0, 3.0), (1.0, 3.0)],
            ("training", "plain fast"): [(1.0, 2.0), (1.0, 2.0)],
            ("inference", "ours"): [(1.0, 2.0)],
            ("inference", "plain"): [(0.5, 1.0)],
        }
    )
    assert "| training | ours | 3.00 (2.00 to 4.00) | 1.50 | 0.75 |" in markdown
    assert "| training | plain slow | 1.00 (1.00 to 1.00) | 0.50 | -1.00 |" in markdown
    assert "| inference | ours | 2.00 (2.00 to 2.00) | 0.50 | 0.00 |" in markdown
