"""BioRED: relations of eight kinds between genes, diseases, chemicals and variants in whole abstracts.

PubTator's form with a fifth column of relations. Several identifiers of a mention are joined by a comma; a bar is part
of a variant's (``p|SUB|V|600|E``). The corpus gives its relations no direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.pairs import document_corpus, rule_of
from datasets.documents.pubtator import ANY_NO_IDENTIFIER, read_pubtator
from datasets.files import PathLike
from datasets.relations.reading import notes_of

RELATIONS = (
    *("Association", "Positive_Correlation", "Negative_Correlation", "Bind"),
    *("Cotreatment", "Comparison", "Drug_Interaction", "Conversion"),
)

KINDS = (
    *("GeneOrGeneProduct", "DiseaseOrPhenotypicFeature", "ChemicalEntity", "OrganismTaxon"),
    *("SequenceVariant", "CellLine"),
)
_GENE, _DISEASE, _CHEMICAL, _, _VARIANT, _ = KINDS

PAIR_TYPES = (
    *((_DISEASE, _GENE), (_CHEMICAL, _GENE), (_DISEASE, _VARIANT), (_GENE, _GENE)),
    *((_CHEMICAL, _DISEASE), (_CHEMICAL, _CHEMICAL), (_CHEMICAL, _VARIANT), (_VARIANT, _VARIANT)),
)
"""The eight pairs of types that were annotated."""


@data_set(
    "biored",
    title="BioRED, whole abstracts",
    kind="documents",
    task="genes, diseases, chemicals and variants in an abstract: which of eight relations two of them have",
    labels=("relation",),
    files={split: f"biored/{split}.pubtator" for split in ("train", "dev", "test")},
    pair_types=PAIR_TYPES,
    licence="public domain (NCBI)",
    citation="Luo et al., BioRED: a rich biomedical relation extraction dataset, Briefings in Bioinformatics 2022",
    available_from="NCBI: ftp.ncbi.nlm.nih.gov/pub/lu/BioRED, Train.PubTator, Dev.PubTator and Test.PubTator",
)
def read_biored(
    path: PathLike,
    *,
    name: str,
    label: str,
    split: str,
    pair_types: Sequence[Sequence[str]] = PAIR_TYPES,
    directed: bool | Collection[str] = False,
) -> DocumentCorpus:
    """Read the documents of a file (see `datasets.documents.pairs.rule_of`).

    Whether a relation is novel is not classified.
    """
    tally: Counter[str] = Counter()
    documents = read_pubtator(
        path,
        separators=",",
        kinds=KINDS,
        relations=RELATIONS,
        tally=tally,
        no_identifier=ANY_NO_IDENTIFIER,
        novelty=True,
    )
    # Types that are not the corpus's are told at once; a small file need not have all that are.
    rule = rule_of(documents, path, relations=RELATIONS, pair_types=pair_types, directed=directed, kinds=KINDS)
    return document_corpus(documents, rule, name=name, split=split, notes=notes_of(tally))
