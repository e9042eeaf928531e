"""The benchmark of models that tag tokens, in sizes that measure nothing: all contenders train, the table adds up."""

import pytest

from benchmarks import tagging
from tests.benchmarks.test_benchmarks_documents import CONFIG

pytestmark = pytest.mark.tools


@pytest.mark.slow
def test_all_contenders_train(tmp_path, monkeypatch):
    for name, value in {"CONFIG": CONFIG, "LENGTH": 6, "WORDS": 20, "BATCH": 2}.items():
        monkeypatch.setattr(tagging, name, value)
    for name in ("PIECE_STEPS", "WORD_STEPS"):
        monkeypatch.setattr(tagging, name, (1, 2))
    markdown = tagging.run(1, tmp_path)
    for contender in ("text_encoder", "token_encoder", "token_encoder, CRF", "lstm", "tagger", "tagger, CRF"):
        assert f"\n| {contender} | " in markdown
