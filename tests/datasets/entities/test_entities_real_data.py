"""Entities of the published corpora, from the folder that TFF_RE_DATA names.

The sums are the published ones: CDR (Li et al. 2016), BioRED's table of splits (13,351 and 3,533 mentions), ChemProt's
(25,752 and 15,567). The NCBI disease corpus has 5,145 and 787 mentions; the columns of train have 5,134.
"""

from collections import Counter

import pytest

from datasets.entities.loading import load_entities

pytestmark = pytest.mark.real_data

OVERLAP = "{} entities that overlap a longer one left out".format
REPEAT = "{} texts repeat an earlier one".format
NO_DOCUMENTS = "the file does not say which abstract a sentence is from, so every sentence is its own document"


@pytest.mark.parametrize(
    "name, split, samples, counts, notes",
    [
        ("cdr_entities", "train", 500, {"Chemical": 5203, "Disease": 4182}, ()),
        ("cdr_entities", "dev", 500, {"Chemical": 5347, "Disease": 4244}, ()),
        ("chr_entities", "train", 822, {"ChemMet": 7517}, (OVERLAP(74),)),
        ("chr_entities", "dev", 118, {"ChemMet": 1118}, (OVERLAP(9),)),
        ("biored_entities", "train", 400, {"GeneOrGeneProduct": 4430, "CellLine": 103, None: 13351}, ()),
        ("biored_entities", "dev", 100, {"SequenceVariant": 250, "OrganismTaxon": 370, None: 3533}, ()),
        ("chemprot_entities", "train", 1020, {"chemical": 11507, "gene": 12596, None: 25752 - 1649}, (OVERLAP(1649),)),
        ("chemprot_entities", "dev", 612, {"chemical": 7125, "gene": 7496, None: 15567 - 946}, (OVERLAP(946),)),
        (
            *("ade_entities", "train", 3458, {"drug": 3991, "adverse effect": 4707}),
            ("2 mentions with blanks at their ends, which are left out of them", OVERLAP(93)),
        ),
        ("ncbi_disease", "train", 5424, {"Disease": 5134}, (NO_DOCUMENTS, REPEAT(24))),
        ("ncbi_disease", "dev", 923, {"Disease": 787}, (NO_DOCUMENTS,)),
    ],
)
def test_counts(data_dir, name, split, samples, counts, notes):
    corpus = load_entities(name, data_dir, split=split)
    counted = Counter(span.type for sample in corpus.samples for span in sample.spans)
    counted[None] = counted.total()
    assert len(corpus.samples) == samples and counts.items() <= counted.items() and corpus.notes == notes


@pytest.mark.parametrize(
    "name, sentences, entities, repeated",
    [
        *(("cdr_entities", 4569, 9591, 12), ("chr_entities", 1130, 1118, 0), ("biored_entities", 1113, 3533, 0)),
        ("chemprot_entities", 6174, 14621, 45),
    ],
)
def test_sentences_have_all_entities(data_dir, name, sentences, entities, repeated):
    corpus = load_entities(name, data_dir, split="dev", unit="sentence")
    assert (len(corpus.samples), sum(len(sample.spans) for sample in corpus.samples)) == (sentences, entities)
    assert (REPEAT(repeated) in corpus.notes) == bool(repeated)


def test_sentences_without_an_adverse_effect(data_dir):
    corpus = load_entities("ade_entities", data_dir, negative_sentences=True)
    assert (len(corpus.samples), sum(bool(sample.spans) for sample in corpus.samples)) == (16874, 3458)
