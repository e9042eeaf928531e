"""BioRED's form of PubTator, and pairs of several types with and without a direction."""

import pytest
from datasets_for_tests import refused
from test_pubtator import write

from datasets.documents.biored import PAIR_TYPES
from datasets.documents.loading import load_documents
from datasets.documents.scoring import gold_facts

LINES = (
    "1|t|MODY and insulin in diabetes.",
    "1|a|V600E of insulin raises glucose in mice.",
    "1\t0\t4\tMODY\tGeneOrGeneProduct\t3172,3651",
    "1\t9\t16\tinsulin\tGeneOrGeneProduct\t3630",
    "1\t20\t28\tdiabetes\tDiseaseOrPhenotypicFeature\tD003920",
    "1\t30\t35\tV600E\tSequenceVariant\tp|SUB|V|600|E",
    "1\t39\t46\tinsulin\tGeneOrGeneProduct\t-",
    "1\t54\t61\tglucose\tChemicalEntity\tD005947",
    "1\t65\t69\tmice\tOrganismTaxon\t10090",
    "1\tAssociation\tD003920\t3630\tNo",
    "1\tPositive_Correlation\t3630\tD005947\tNovel",
    "1\tBind\t3630\tD005947\tNovel",
    "1\tAssociation\t3651\t3172\tNo",
    "1\tBind\tp|SUB|V|600|E\t3630\tNo",
    "1\tNone\t3172\tD003920\tNone",
)


def load(folder, *lines, **options):
    return load_documents("biored", path=write(folder, *(lines or LINES)), **options)


def labels_of(corpus):
    """(head, tail) -> the names of the relations of each positive pair."""
    (sample,) = corpus.samples
    named = {sample.pair_ids(pair)[1:]: [corpus.relation_names[i] for i in pair.labels] for pair in sample.pairs}
    return {ids: names for ids, names in named.items() if names}


def test_a_document(tmp_path):
    """Two genes of a composite mention, a bar inside of an identifier, two relations of a pair, a fact of two genes in
    the order of the text, a variant with a gene, which is no pair of the corpus."""
    corpus = load(tmp_path)
    (sample,) = corpus.samples
    assert [e.entity_id for e in sample.entities] == [
        "3172",
        "3651",
        "3630",
        "D003920",
        "p|SUB|V|600|E",
        "D005947",
        "10090",
    ]
    assert corpus.pair_types == PAIR_TYPES and len(corpus.relation_names) == 8
    assert labels_of(corpus) == {
        ("3172", "3651"): ["Association"],
        ("D003920", "3630"): ["Association"],
        ("D005947", "3630"): ["Positive_Correlation", "Bind"],
    }
    # Three genes in 3 pairs, each with the disease and the chemical; the other three with each other.
    assert len(sample.pairs) == 3 + 3 + 3 + 3
    assert corpus.notes == (
        "1 pairs are stated to have no relation",
        "1 mentions without an identifier",
        "1 mentions name several entities",
        "1 relations of entities that are not candidates, which count as missed",
    )
    gold = gold_facts(corpus)
    assert gold.facts == {
        ("1", "D003920", 0, "3630"): True,
        ("1", "D005947", 1, "3630"): False,
        ("1", "D005947", 3, "3630"): False,
        ("1", "3172", 0, "3651"): True,
        ("1", "3630", 3, "p|SUB|V|600|E"): False,
    }
    assert corpus.entity_types == (
        *("ChemicalEntity", "DiseaseOrPhenotypicFeature", "GeneOrGeneProduct", "SequenceVariant"),
    )


def test_types_and_directions_by_option(tmp_path):
    gene, chemical = "GeneOrGeneProduct", "ChemicalEntity"
    some = load(tmp_path, pair_types=[[gene, chemical]])
    assert labels_of(some) == {("3630", "D005947"): ["Positive_Correlation", "Bind"]}
    assert {sample.entities[pair.head].kind for sample in some.samples for pair in sample.pairs} == {gene}
    other_way = load(tmp_path, pair_types=[[chemical, gene]], directed=True)
    assert labels_of(other_way) == {}, "the chemical is the tail of both facts"
    both = load(tmp_path, pair_types=[[chemical, gene], [gene, chemical]], directed=["Bind"])
    assert labels_of(both) == {
        ("3630", "D005947"): ["Positive_Correlation", "Bind"],
        ("D005947", "3630"): ["Positive_Correlation"],
    }
    (sample,) = both.samples
    uncounted = {sample.pair_ids(pair)[1:]: pair.uncounted for pair in sample.pairs}
    assert uncounted["3630", "D005947"] == () and uncounted["D005947", "3630"] == (0, 1, 2, 4, 5, 6, 7)
    assert set(gold_facts(both).facts) == {
        *(("1", "3630", relation, "D005947") for relation in (1, 3)),
        # Of no candidates: in the order of their identifiers.
        *(("1", "3630", 0, "D003920"), ("1", "3172", 0, "3651"), ("1", "p|SUB|V|600|E", 3, "3630")),
    }, "what has no direction is in the order of the first candidate"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1\tAssociation\tD003920\t3630\tMaybe", "unknown novelty in column 5; use one of Novel, No"),
        ("1\tAssociation\tD003920\t3630\tNone", "unknown novelty in column 5; use one of Novel, No"),
        ("1\tCause\tD003920\t3630\tNo", "unknown relation in column 2; use one of Association, "),
        ("1\tAssociation\tD003920\t3172,3651\tNo", "one side of a relation names several entities"),
        ("1\tAssociation\tD003920\t-\tNo", "a relation names an entity without an identifier"),
        ("1\tAssociation\tD003920\t3630\tNo\tx\ty\tz", "has 8 columns; give it 4 or 5 or 6 or 7"),
        ("1\t0\t4\tMODY\tGeneOrGeneProduct", "unknown relation in column 2; use one of Association, "),
        ("1\t0\t4\tMODY\tProtein\t1", "unknown entity type in column 5; use one of GeneOrGeneProduct, "),
    ],
)
def test_malformed_lines(tmp_path, line, reason):
    message = refused(load, tmp_path, *LINES, line)
    assert f"line {len(LINES) + 1}: {reason}" in message and "insulin" not in message


def test_options_that_do_not_fit(tmp_path):
    assert "directed names an unknown relation; did you mean 'Bind'?" in refused(load, tmp_path, directed=["Bnd"])
    message = refused(load, tmp_path, pair_types=[["GeneOrGeneProduct", "ChemicalEntiti"]])
    assert message.endswith("pair_types names a type that no mention has; did you mean 'ChemicalEntity'?")
    assert "has no use for relations" in refused(load, tmp_path, relations=["Bind"])
    assert "has no use for separators" in refused(load, tmp_path, separators=";")
