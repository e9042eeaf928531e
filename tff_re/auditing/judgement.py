"""The first page of an audit: what the run reveals, in sentences, from the numbers of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tff_re.auditing.sections import Section

_PRECISION, _RECALL = 0.9, 0.5
"""Above both an update names a client's words."""

_RANKING, _MEMBERS = 0.6, 0.6
"""Areas under the ROC curve above which a client's words, or members, are told from others."""

_CLIENT = 1.0
"""The lower bound of epsilon above which one client's part in the model is called visible."""


def judgement(sections: Mapping[str, Section]) -> list[str]:
    """The verdict first, then a sentence for each part.

    Args:
      sections: part -> what it found.
    """
    revealed, said = [], []
    for part, section in sections.items():
        if section.not_applicable is not None:
            said.append(f"{_NAMES[part]}: nothing was measured: {section.not_applicable}.")
            continue
        what, sentences = _OF[part](section.numbers)
        revealed += [what] if what else []
        said += [f"{_NAMES[part]}: {sentence}" for sentence in sentences]
    if all(section.not_applicable is not None for section in sections.values()):
        return ["Nothing was audited, so this report says nothing about the run.", *said]
    if revealed:
        return [f"The run reveals {'; '.join(revealed)}.", *said]
    return [
        "Nothing was found that reveals single clients or examples. This is not a proof: other attacks exist.",
        *said,
    ]


def _of_update(numbers: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    words = numbers.get("words") or {}
    if "finished model" not in words:
        return None, [f"an update has no row for each word: {words.get('not_applicable', 'not looked at')}."]
    final = words["finished model"]
    if words.get("noised"):
        ranking = final["ranking_auc"]
        sentence = (
            "noise changes every row of the word vectors, so a changed row does not reveal a word; ranking words by "
            f"their change puts the client's words before others with an AUC of {ranking:.2f} (0.5 is a guess)."
        )
        revealed = "which words a client probably uses, to anyone who sees its update" if ranking > _RANKING else None
        return revealed, [sentence]
    named = final["precision"] > _PRECISION and final["recall"] > _RECALL
    sentence = (
        f"one client's update reveals {final['recall']:.0%} of its words; {final['precision']:.0%} of the words read "
        "from it are the client's."
    )
    return "the words of a client's texts, to anyone who sees its update" if named else None, [sentence]


def _of_membership(numbers: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    attacks = {name: measured for name, measured in numbers.items() if isinstance(measured, Mapping)}
    best = max(attacks, key=lambda name: attacks[name]["auc_interval"][0])
    low, high = attacks[best]["auc_interval"]
    degree = "no better than a guess" if low <= 0.5 else "a little better than a guess" if low < _MEMBERS else "clearly"
    sentence = (
        f"the model tells training examples from others {degree} (AUC {attacks[best]['auc']:.2f}, {low:.2f} "
        f"to {high:.2f}; 0.5 is a guess)."
    )
    revealed = "which examples were trained on, to anyone who has the model" if low >= _MEMBERS else None
    return revealed, [sentence]


def _of_canaries(numbers: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    lower = max(
        measured["lower_bound"]
        for measured in numbers.values()
        if isinstance(measured, Mapping) and "lower_bound" in measured
    )
    claim, below = numbers["claim"], numbers["below_the_claim"]
    bound = f"{lower:.2f}" if lower <= 50 else "more than 50"
    if claim["epsilon"] is None:
        claimed = "the run claims no bound"
    elif below is None:
        claimed = f"the run's claim, ε = {claim['epsilon']:.2f}, is for one {claim['unit']} and cannot be compared"
    else:
        claimed = f"the run claims at most {claim['epsilon']:.2f}" + ("" if below else ": THE CLAIM IS WRONG")
    revealed = "that a client took part, to anyone who has the model" if lower > _CLIENT else None
    return revealed, [f"the model's ε for one client is at least {bound}; {claimed}."]


def _of_artefacts(numbers: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    totals = numbers["occurrences"]
    with_ids = {item["file"] for item in numbers["found"] if item["kind"].startswith("id of")}
    ids = f"; ids are in {len(with_ids)} files" if with_ids else ""
    if not totals["raw text"]:
        return None, [f"the {numbers['files']} files of the run contain no text of a training example{ids}."]
    places = len({item["file"] for item in numbers["found"] if item["kind"] == "raw text"})
    return "texts of training examples, to anyone who has its files", [f"RAW TEXT IS IN {places} FILES{ids}."]


_OF = {"words": _of_update, "membership": _of_membership, "canaries": _of_canaries, "artefacts": _of_artefacts}
_NAMES = {"words": "Words", "membership": "Membership", "canaries": "Clients", "artefacts": "Files"}
