"""ChemProt's release as documents, which are abstracts with relations between two mentions."""

from __future__ import annotations

from collections import Counter

from datasets.documents.records import Document, EntityMention, Fact
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.chemprot_release import read_documents, read_relations, release_file


def read_chemprot_documents(path: PathLike, *, label: str = "groups", annotated: bool = True) -> tuple[Document, ...]:
    """Read the abstracts of a split, in the file's order.

    Each mention is an entity of its own, with its id, e.g. ``T1``.

    Args:
      path: One of the split's files; the others are next to it. Abstracts are enough if not `annotated`.
      label: A label choice of ``chemprot_release``: the five evaluated groups of relations, or their 13 names.
      annotated: Whether mentions and relations are read. Relations of groups that are not evaluated are left out;
        those of mentions in two sentences are not.

    Raises:
      DataError: as `read_documents`, `read_relations` and `release_file`, or there is no abstract.
    """
    abstracts = release_file(path, "abstracts")
    documents = read_documents(abstracts, release_file(path, "entities") if annotated else None)
    if not documents:
        raise DataError("has no documents", path=abstracts, remedy="give it at least one")
    listed = {}
    if annotated:
        classes = label.removesuffix("_with_negatives")
        listed = read_relations(release_file(path, "relations", "gold_standard"), documents, classes, Counter())
    result = []
    for document in documents.values():
        mentions = [EntityMention(*span, kind, (name,)) for name, (kind, span) in document.mentions.items()]
        mentions.sort(key=lambda mention: (mention.start, mention.end))
        pairs = listed.get(document.document_id, ())
        facts = dict.fromkeys(Fact(head, relation, tail) for (head, tail), relation in pairs if relation is not None)
        result.append(
            Document(document.document_id, document.text, document.title_length, tuple(mentions), tuple(facts))
        )
    return tuple(result)
