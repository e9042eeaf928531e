"""The audit of a run on bags of sentences by a PCNN: words, and what does not apply."""

from __future__ import annotations

import pytest

from tests.bags_for_tests import HIDDEN, trained
from tests.upper_floors import share_computations
from tff_re.auditing.audit import audit_run
from tff_re.runtime import DEFAULT_RUNTIME
from tff_re.tasks.data_paths import DataPaths

pytestmark = pytest.mark.xdist_group("bags")


@pytest.mark.slow
def test_a_pcnn_names_its_words_and_bags_have_no_members(runtime, monkeypatch, tmp_path):
    share_computations(monkeypatch, runtime)
    run = trained(runtime, "mil_none")
    parts = ("words", "membership", "artefacts")
    report = audit_run(run.folder, DataPaths(), DEFAULT_RUNTIME, out=tmp_path / "audit", parts=parts)
    words = report.sections["words"]
    assert words.numbers["words"]["weight"] == "word_vectors/embeddings"
    final = words.numbers["words"]["finished model"]
    assert final["precision"] == 1.0 and final["recall"] > 0.7  # some never have the largest value of a filter
    assert final["clients"] == 2
    assert any("PCNN trains pretrained word vectors further by default" in sentence for sentence in words.means)
    assert set(words.numbers["labels"]) == {"guess", "labels", "first round", "finished model"}
    assert "have no test examples" in report.sections["membership"].not_applicable
    assert report.sections["artefacts"].numbers["occurrences"]["raw text"] == 0
    markdown = (tmp_path / "audit" / "audit.md").read_text("utf-8")
    assert "Not applicable: its clients have no test examples" in markdown
    assert "Parts that were not requested: canaries." in markdown and HIDDEN not in markdown
    assert ["membership", f"not applicable: {report.sections['membership'].not_applicable}"] in [
        row[:2] for row in report.summary
    ]
