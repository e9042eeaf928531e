"""Counts of the published corpora, from the folder that TFF_RE_DATA names."""

from collections import Counter

import pytest

from datasets.relations.loading import load_relations

pytestmark = pytest.mark.real_data

ORDER = "the marks follow the order in the sentence; the file does not say which mention is the chemical"
ADE_NOTES = (
    "2 mentions with blanks at their ends, which are left out of them",
    "93 pairs of overlapping mentions",
    "141 pairs that their sentence does not list are negatives",
)
NAMED = "2044 pairs of annotated names in sentences without an adverse effect are negatives"
PGR_NOTES = (
    "2 lines left out, a mention is not at its offsets (lines 1126, 1127)",
    "40 duplicate lines are kept",
)
GROUPS = tuple(f"CPR:{n}" for n in (3, 4, 5, 6, 9))
TRAIN, DEV = (
    dict(zip(GROUPS, counts, strict=True)) for counts in ((777, 2260, 170, 235, 727), (552, 1103, 116, 199, 457))
)


@pytest.mark.parametrize(
    "name, label, split, size, relations, counts, notes",
    [
        ("chemprot", "groups", "train", 4169, 5, TRAIN, (ORDER, "25 pairs have several relations")),
        (
            *("chemprot", "groups", "dev", 2427, 5, DEV),
            (ORDER, "2 duplicate lines are kept", "15 pairs have several relations"),
        ),
        ("chemprot", "names", "train", 4169, 13, {"INHIBITOR": 1642}, (ORDER, "25 pairs have several relations")),
        ("pgr", "relation", "train", 4081, 2, {"no_relation": 2638, "true": 1443}, PGR_NOTES),
        ("ade", "with_negatives", "train", 5688, 2, {"adverse_effect": 5547, "no_relation": 141}, ADE_NOTES),
        ("ade", "with_negative_sentences", "train", 5547 + 141 + 2044, 2, {}, (*ADE_NOTES, NAMED)),
        ("semeval2010_task8", "directed", "train", 8000, 19, {"Other": 1410, "Entity-Destination(e2,e1)": 1}, ()),
        ("semeval2010_task8", "undirected", "train", 8000, 10, {"Cause-Effect": 1003}, ()),
    ],
)
def test_counts(data_dir, name, label, split, size, relations, counts, notes):
    corpus = load_relations(name, data_dir, label=label, split=split)
    counted = Counter(m.relation for m in corpus.mentions)
    assert (len(corpus.mentions), len(counted), corpus.notes) == (size, relations, notes)
    assert counts.items() <= counted.items()
    if name == "chemprot":
        assert not any(m.overlapping or m.head > m.tail for m in corpus.mentions)


@pytest.mark.parametrize("name, size, f1", [("euadr", 355, 84.9), ("gad", 5330, 68.9)])
def test_f1_of_naming_every_pair_associated(data_dir, name, size, f1):
    """The figures of docs/results/feded.md: the mean over the ten folds."""
    tests = [load_relations(name, data_dir, split=split) for split in ("test", *(f"test-{n}" for n in range(2, 11)))]
    shares = [Counter(m.relation for m in test.mentions)["associated"] / len(test.mentions) for test in tests]
    assert sum(len(test.mentions) for test in tests) == size
    assert 100 * sum(2 * share / (1 + share) for share in shares) / 10 == pytest.approx(f1, abs=0.05)
