"""CDR, CHR and BioRED as texts with entities, read from abstracts in PubTator format without relations."""

from __future__ import annotations

from collections.abc import Sequence

from datasets.catalogue import data_set
from datasets.entities.building import DOCUMENT, EntityBuilder
from datasets.entities.pubtator import read_pubtator_texts
from datasets.entities.records import EntityCorpus
from datasets.files import PathLike

_SPLITS = ("train", "dev", "test")

BIORED_TYPES = (
    *("GeneOrGeneProduct", "DiseaseOrPhenotypicFeature", "ChemicalEntity", "OrganismTaxon", "SequenceVariant"),
    "CellLine",
)


def _read(path: PathLike, types: Sequence[str], *, name: str, split: str, **options) -> EntityCorpus:
    builder = EntityBuilder(path, name, known=types, **options)
    read_pubtator_texts(path, builder, f"{name}-{split}", kinds=types)
    return builder.build()


@data_set(
    "cdr_entities",
    title="CDR, entities",
    kind="entities",
    task="chemicals and diseases in an abstract, or in its sentences",
    labels=("types",),
    files={split: f"cdr/{split}.pubtator" for split in _SPLITS},
    licence="none stated for the data",
    citation="Li et al., BioCreative V CDR task corpus, Database 2016",
    available_from="BioCreative V, track 3: CDR_TrainingSet.PubTator.txt, CDR_DevelopmentSet and CDR_TestSet",
)
def read_cdr(
    path: PathLike,
    *,
    name: str = "cdr_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
    unit: str = DOCUMENT,
) -> EntityCorpus:
    """Read the documents of a file with the types ``Chemical`` and ``Disease``, or their sentences.

    The ids are ``<name>-<split>-<PMID>``, those of sentences with ``/<n>``; the documents are the PMIDs. A composite
    mention is one entity.

    Raises:
      DataError: as `read_pubtator_texts` and `EntityBuilder`.
    """
    return _read(
        *(path, ("Chemical", "Disease")), name=name, split=split, entity_types=entity_types, nested=nested, unit=unit
    )


@data_set(
    "chr_entities",
    title="CHR, entities",
    kind="entities",
    task="chemicals in an abstract, or in its sentences",
    labels=("types",),
    files={split: f"chr/{split}.pubtator" for split in _SPLITS},
    licence="Creative Commons Attribution 4.0 (annotations, NaCTeM)",
    citation="Sahu et al., Inter-sentence Relation Extraction with Document-level Graph Convolutional Neural Network, "
    "ACL 2019",
    available_from="the National Centre for Text Mining, Manchester: nactem.ac.uk/CHR",
)
def read_chr(
    path: PathLike,
    *,
    name: str = "chr_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
    unit: str = DOCUMENT,
) -> EntityCorpus:
    """Read the documents of a file with the type ``ChemMet``, or their sentences.

    Ids and errors are as in `read_cdr`.
    """
    return _read(path, ("ChemMet",), name=name, split=split, entity_types=entity_types, nested=nested, unit=unit)


@data_set(
    "biored_entities",
    title="BioRED, entities",
    kind="entities",
    task="genes, diseases, chemicals, species, variants and cell lines in an abstract, or in its sentences",
    labels=("types",),
    files={split: f"biored/{split}.pubtator" for split in _SPLITS},
    licence="public domain (NCBI)",
    citation="Luo et al., BioRED: a rich biomedical relation extraction dataset, Briefings in Bioinformatics 23, 2022",
    available_from="NCBI: ftp.ncbi.nlm.nih.gov/pub/lu/BioRED, Train.PubTator, Dev.PubTator and Test.PubTator",
)
def read_biored(
    path: PathLike,
    *,
    name: str = "biored_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
    unit: str = DOCUMENT,
) -> EntityCorpus:
    """Read the documents of a file with the types `BIORED_TYPES`, or their sentences.

    Ids and errors are as in `read_cdr`.
    """
    return _read(path, BIORED_TYPES, name=name, split=split, entity_types=entity_types, nested=nested, unit=unit)
