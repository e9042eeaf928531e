"""The verdict of an audit, from the numbers of its parts."""

from __future__ import annotations

import pytest

from computations.privacy.options import PrivacyOptions
from tff_re.auditing.advice import Advice
from tff_re.auditing.judgement import judgement
from tff_re.auditing.sections import Section


def update(precision, recall, ranking, noised=False):
    measured = {"precision": precision, "recall": recall, "ranking_auc": ranking}
    return Section("", numbers={"words": {"finished model": measured, "noised": noised}})


def members(low, high):
    measured = {"auc": (low + high) / 2, "auc_interval": (low, high)}
    return Section("", numbers={"loss threshold": measured, "members": 9, "others": 9, "shadows": 0})


def clients(lower, claimed=None, unit="client"):
    claim = {"unit": unit, "epsilon": claimed, "delta": 0.1}
    below = lower <= claimed if claimed is not None and unit == "client" else None
    return Section("", numbers={"the final model": {"lower_bound": lower}, "claim": claim, "below_the_claim": below})


def files(texts):
    held = [{"file": "a.csv", "kind": "raw text"}] if texts else []
    held.append({"file": "partition.json", "kind": "id of an example"})
    return Section("", numbers={"occurrences": {"raw text": texts}, "files": 7, "found": held})


def test_all_that_is_revealed_stands_in_the_verdict():
    sections = {"words": update(1.0, 0.9, 1.0), "membership": members(0.7, 0.8)}
    verdict, *said = judgement({**sections, "canaries": clients(60.0), "artefacts": files(2)})
    assert verdict == (
        "The run reveals the words of a client's texts, to anyone who sees its update; which examples were trained on, "
        "to anyone who has the model; that a client took part, to anyone who has the model; texts of training "
        "examples, to anyone who has its files."
    )
    assert said[0] == (
        "Words: one client's update reveals 90% of its words; 100% of the words read from it are the client's."
    )
    assert said[1].startswith("Membership: the model tells training examples from others clearly (AUC 0.75")
    assert said[2] == "Clients: the model's ε for one client is at least more than 50; the run claims no bound."
    assert said[3] == "Files: RAW TEXT IS IN 1 FILES; ids are in 1 files."


def test_nothing_found_is_no_proof():
    sections = {"words": update(0.4, 1.0, 0.52, noised=True), "membership": members(0.45, 0.6)}
    verdict, *said = judgement({**sections, "canaries": clients(0.2, 2.0), "artefacts": files(0)})
    assert (
        verdict
        == "Nothing was found that reveals single clients or examples. This is not a proof: other attacks exist."
    )
    assert "100%" not in said[0] and "AUC of 0.52 (0.5 is a guess)" in said[0]
    assert "no better than a guess" in said[1] and "the run claims at most 2.00." in said[2]
    assert "contain no text of a training example" in said[3]


def test_a_false_claim_another_unit_and_an_audit_of_nothing():
    assert judgement({"canaries": clients(3.0, 2.0)})[1].endswith("the run claims at most 2.00: THE CLAIM IS WRONG.")
    assert "cannot be compared" in judgement({"canaries": clients(3.0, 2.0, "example")})[1]
    verdict, said = judgement({"canaries": Section("", not_applicable="--canaries 0 was given")})
    assert verdict == "Nothing was audited, so this report says nothing about the run."
    assert said == "Clients: nothing was measured: --canaries 0 was given."


@pytest.mark.parametrize("unit", ["example", "group", "client", None])
def test_nothing_is_advised_that_the_run_has(unit):
    advice = Advice(None if unit is None else PrivacyOptions(unit=unit, noise_multiplier=1.0))
    assert ("more noise than the run's" in advice.noise_on_sum) == (unit == "client")
    assert ("more noise than the run's" in advice.update) == (unit in ("example", "group"))
    assert ("privacy.unit = 'example' or 'group'" in advice.membership) == (unit not in ("example", "group"))
