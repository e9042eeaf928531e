"""Counts of the published corpora, from the folder that TFF_RE_DATA names."""

from collections import Counter

import pytest

from datasets.relations import ade, chemprot, pgr
from datasets.relations import semeval2010_task8 as semeval

pytestmark = pytest.mark.real_data


def relations_of(corpus):
    return dict(Counter(m.relation for m in corpus.mentions))


def test_chemprot(data_dir):
    expected = {
        "train": {"CPR:3": 777, "CPR:4": 2260, "CPR:5": 170, "CPR:6": 235, "CPR:9": 727},
        "dev": {"CPR:3": 552, "CPR:4": 1103, "CPR:5": 116, "CPR:6": 199, "CPR:9": 457},
    }
    notes = {
        "train": ("25 pairs have several relations",),
        "dev": ("2 duplicate lines are kept", "15 pairs have several relations"),
    }
    for split, size in (("train", 4169), ("dev", 2427)):
        path = data_dir / "chemprot" / f"{split}.jsonl.gz"
        corpus = chemprot.read_sentences(path, split=split)
        assert len(corpus.mentions) == size and relations_of(corpus) == expected[split]
        assert corpus.notes[1:] == notes[split]
        names = relations_of(chemprot.read_sentences(path, split=split, classes="names"))
        assert (
            names["INHIBITOR"] == {"train": 1642, "dev": 812}[split] and len(names) == {"train": 13, "dev": 12}[split]
        )
        assert not any(m.overlapping or m.head > m.tail for m in corpus.mentions)


def test_pgr(data_dir):
    corpus = pgr.read_pairs(data_dir / "pgr" / "train.tsv.gz")
    assert relations_of(corpus) == {"no_relation": 2638, "true": 1443}
    assert len(corpus.mentions) + 2 == 4083
    assert corpus.notes == (
        "2 lines left out, a mention is not at its offsets (lines 1126, 1127)",
        "40 duplicate lines are kept",
    )


def test_ade(data_dir):
    corpus = ade.read_pairs(data_dir / "ade" / "DRUG-AE.rel.gz")
    assert relations_of(corpus) == {"adverse_effect": 5547, "no_relation": 141}
    assert corpus.notes == (
        "2 mentions with blanks at their ends, which are left out of them",
        "93 pairs of overlapping mentions",
        "141 pairs that their sentence does not list are negatives",
    )
    both = ade.read_pairs(data_dir / "ade" / "DRUG-AE.rel.gz", negative_sentences=data_dir / "ade" / "ADE-NEG.txt.gz")
    assert Counter(m.relation for m in both.mentions) == {"adverse_effect": 5547, "no_relation": 141 + 2044}


def test_semeval(data_dir):
    path = data_dir / "semeval2010_task8" / "train.txt.gz"
    corpus = semeval.read_sentences(path)
    assert len(corpus.mentions) == 8000 and len(relations_of(corpus)) == 19
    assert relations_of(corpus)["Other"] == 1410 and relations_of(corpus)["Entity-Destination(e2,e1)"] == 1
    assert relations_of(semeval.read_sentences(path, directed=False))["Cause-Effect"] == 1003
