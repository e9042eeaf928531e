"""Your own documents, in PubTator format or in DocRED's JSON, by the file's ending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from datasets.catalogue import data_set
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.docred import read_docred_json
from datasets.documents.pairs import document_corpus, rule_of
from datasets.documents.pubtator import ANY_NO_IDENTIFIER, read_pubtator
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import notes_of

NAME = "documents"

JOINED = ("entities", "aliases")

SEPARATORS = "|;,"


@data_set(
    NAME,
    title="own documents",
    kind="documents",
    task="pairs of entities in files of your own: PubTator, or DocRED's JSON (.json), see docs/data.md; several "
    "identifiers of a mention are several entities, or aliases of one",
    labels=JOINED,
    files={},
    language="any",
    licence="the files' own",
    citation="none",
    available_from="you: name a file by task.path or --file",
)
def read_documents(
    path: PathLike,
    *,
    name: str = NAME,
    label: str = "entities",
    split: str = "train",
    relations: Sequence[str] | None = None,
    pair_types: Sequence[Sequence[str]] | None = None,
    directed: bool | Collection[str] = True,
    separators: str = SEPARATORS,
    held_out: bool = False,
) -> DocumentCorpus:
    """Read the documents of a file.

    Anything not given about the pairs is taken from its facts (see `datasets.documents.pairs.rule_of`).

    `label` and `separators` are `joined` and `separators` of `read_pubtator`; DocRED's JSON has no use for them.
    """
    tally: Counter[str] = Counter()
    as_json = Path(path).name.removesuffix(".gz").endswith(".json")
    if as_json:
        if label != "entities" or separators != SEPARATORS:
            raise DataError("aliases and separators are only for PubTator files", path=path, remedy="leave them out")
        documents = read_docred_json(path, tally=tally)
    else:
        documents = read_pubtator(
            path,
            joined=label,
            separators=separators,
            tally=tally,
            no_identifier=ANY_NO_IDENTIFIER,
            novelty=True,
        )
    rule = rule_of(documents, path, relations=relations, pair_types=pair_types, directed=directed, held_out=held_out)
    return document_corpus(documents, rule, name=name, split=split, notes=notes_of(tally), facts_by_name=as_json)
