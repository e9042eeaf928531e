"""The benchmarks of document encoders, in sizes that measure nothing: they measure what they say, the tables add up."""

import json

import numpy as np
import pytest

from benchmarks import document_memory, documents

pytestmark = pytest.mark.tools

CONFIG = {
    **{"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2},
    **{"intermediate_size": 32, "vocab_size": 50},
}
SMALL = document_memory.Size("small", pieces=30, entities=3, mentions=5, pairs=6)


def test_the_table_says_whether_the_bound_is_met():
    measured = {("a step", "largest"): [(int(3e9), 20.0), (int(2e9), 5.0), (int(2.5e9), 4.0)]}
    markdown = document_memory.table(measured)
    assert "| largest | a step | 3.00 | 2.50 | 4.00 |" in markdown and "here 3.00, met." in markdown
    measured["a step", "largest"].append((int(4.1e9), 4.0))
    assert "here 4.10, not met." in document_memory.table(measured)


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "CONFIG", {**CONFIG, "initializer_range": 0.2})
    monkeypatch.setattr(documents, "SIZE", SMALL)
    (tmp_path / "config.json").write_text(json.dumps(documents.CONFIG), "utf-8")
    return documents.Problem(SMALL, str(tmp_path), CONFIG["vocab_size"], dropout=0.0)


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


@pytest.mark.slow
@pytest.mark.parametrize("contender", [documents.PlainLegacyTraining, documents.PlainScores])
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
