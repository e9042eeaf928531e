"""The sentence on a run's result, and when a model is no better than one without training."""

from __future__ import annotations

import pytest

from tff_re.report.headline import no_better, of_run

CLASSES = {"trivial: largest class": {"test/accuracy": 0.6}}
PAIRS = {
    "trivial: largest class": {"test/accuracy": 0.9, "test/micro_f1": 0.0},
    "trivial: every pair the most frequent relation": {"test/accuracy": 0.1, "test/micro_f1": 0.3},
}
BAGS = {
    "ranking by chance": {"test/auc": 0.2},
    "oracle (perfect sentence classifier)": {"test/auc": 1.0},
}


def summary(final, references, **more):
    return {"algorithm": "fedavg", "rounds": 4, "final": final, "references": references, **more}


@pytest.mark.parametrize(
    ("final", "references", "worse", "named"),
    [
        ({"test/accuracy": 0.6}, CLASSES, True, "always predicting the most frequent class gives 60.00 %"),
        ({"test/accuracy": 0.61}, CLASSES, False, "test accuracy of 61.00 % after 4 rounds"),
        # Accuracy on relations counts "no relation"; F1 does not.
        ({"test/accuracy": 0.85, "test/micro_f1": 0.4}, PAIRS, False, "test micro-F1 of 40.00 %"),
        (
            {"test/accuracy": 0.95, "test/micro_f1": 0.3},
            PAIRS,
            True,
            "predicting the most frequent relation for every pair",
        ),
        ({"test/auc": 0.19}, BAGS, True, "a random ranking gives 20.00 %"),
        ({"test/auc": 0.5}, BAGS, False, "area under the precision-recall curve of 50.00 %"),
        ({"test/accuracy": float("nan")}, CLASSES, False, "no test examples"),
    ],
)
def test_the_sentence_and_the_judgement(final, references, worse, named):
    run_summary = summary(final, references)
    assert named in of_run(run_summary)
    assert (no_better(run_summary) is not None) == worse
    if worse:
        assert no_better(run_summary).startswith("The model is no better than ")


def test_the_chosen_round_is_the_result():
    chosen = {"round": 2, "by": "dev/accuracy", "test/accuracy": 0.5}
    run_summary = summary({"test/accuracy": 0.7}, CLASSES, chosen=chosen)
    assert of_run(run_summary).startswith("fedavg reaches a test accuracy of 50.00 % in round 2 of 4, chosen on dev; ")
    assert no_better(run_summary) == "The model is no better than always predicting the most frequent class."
