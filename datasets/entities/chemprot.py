"""ChemProt's release as texts with entities: chemicals and genes or proteins in abstracts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from datasets.catalogue import data_set
from datasets.entities.building import DOCUMENT, EntityBuilder
from datasets.entities.records import EntityCorpus, EntitySpan
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.chemprot import CITATION
from datasets.relations.chemprot_release import read_documents, release_file

TYPES = ("chemical", "gene")
"""As in the data set ``chemprot_release``; the release has three types of genes."""

_PARTS = {"train": "training_entities", "dev": "development_entities", "test": "test_entities_gs"}


@data_set(
    "chemprot_entities",
    title="ChemProt, entities",
    kind="entities",
    task="chemicals and genes or proteins in an abstract, or in its sentences",
    labels=("types",),
    files={split: f"chemprot_release/chemprot_{part}.tsv" for split, part in _PARTS.items()},
    restricted=True,
    licence="for the task's participants, after registration",
    citation=CITATION,
    available_from="BioCreative VI, track 5; *_abstracts (test: *_gs) has to be next to each file of entities",
)
def read(
    path: PathLike,
    *,
    name: str = "chemprot_entities",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "outermost",
    unit: str = DOCUMENT,
) -> EntityCorpus:
    """Read the abstracts of a file of entities (or of relations) with `TYPES`, or their sentences.

    A text is the title, a tab, and the abstract. The ids are ``<name>-<split>-<PMID>``, those of sentences with
    ``/<n>``; the documents are the PMIDs.

    Raises:
      DataError: as `read_documents`, `release_file` and `EntityBuilder`.
    """
    builder = EntityBuilder(path, name, known=TYPES, entity_types=entity_types, nested=nested, unit=unit)
    fail = functools.partial(DataError, path=path)
    documents = read_documents(release_file(path, "abstracts"), release_file(path, "entities"))
    for document in documents.values():
        spans = [EntitySpan(start, end, kind) for kind, (start, end) in document.mentions.values()]
        builder.add(
            f"{name}-{split}-{document.document_id}",
            *(document.document_id, document.text, spans),
            functools.partial(fail, record=f"document {document.document_id}"),
            title_length=document.title_length,
        )
    return builder.build()
