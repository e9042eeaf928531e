"""The NCBI disease corpus as columns: tokens of abstracts' sentences, and tags ``B``, ``I``, ``O`` without a type."""

from __future__ import annotations

from collections.abc import Sequence

from datasets.catalogue import data_set
from datasets.entities.building import EntityBuilder
from datasets.entities.columns import read_columns
from datasets.entities.records import EntityCorpus
from datasets.files import PathLike

TYPES = ("Disease",)


@data_set(
    "ncbi_disease",
    title="NCBI disease corpus",
    kind="entities",
    task="diseases in a sentence of an abstract",
    labels=("types",),
    files={split: f"ncbi_disease/{split}.tsv" for split in ("train", "dev", "test")},
    licence="public domain (NCBI)",
    citation="Doğan et al., NCBI disease corpus: a resource for disease name recognition and concept normalization, "
    "J. Biomed. Inform. 47, 2014",
    available_from="NCBI; as columns in the data of BioBERT (train.tsv or train_dev.tsv, devel.tsv, test.tsv)",
)
def read(
    path: PathLike,
    *,
    name: str = "ncbi_disease",
    split: str = "train",
    entity_types: Sequence[str] | None = None,
    nested: str = "refuse",
) -> EntityCorpus:
    """Read the sentences of a file with the type ``Disease``.

    A text is the tokens joined by one blank.

    The ids are ``<name>-<split>-<n>``. The file does not tell which sentences are of one abstract, so a sentence is a
    document by itself.

    Raises:
      DataError: as `read_columns` and `EntityBuilder`.
    """
    builder = EntityBuilder(path, name, known=TYPES, entity_types=entity_types, nested=nested)
    read_columns(path, builder, f"{name}-{split}", bare_type=TYPES[0])
    return builder.build(
        "the file does not say which abstract a sentence is from, so every sentence is its own document"
    )
