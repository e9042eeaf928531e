"""What the readers of document-level data sets in PubTator's form share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from datasets.documents.corpus import DocumentCorpus
from datasets.documents.pairs import PairRule, document_corpus
from datasets.documents.pubtator import read_pubtator
from datasets.files import PathLike
from datasets.relations.reading import notes_of


def read_pairs(
    path: PathLike,
    rule: PairRule,
    *,
    name: str,
    split: str,
    tree_numbers: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
    **form: str,
) -> DocumentCorpus:
    """The documents of a file with their candidate pairs; types and relations are the rule's.

    Args:
      path: The file.
      rule, name, split, tree_numbers: As for `document_corpus`.
      notes: Behind what the reader counts.
      **form: `joined` and `separators` of `read_pubtator`.

    Raises:
      DataError: as `read_pubtator`.
    """
    tally: Counter[str] = Counter()
    kinds = tuple(dict.fromkeys((rule.head_kind, rule.tail_kind)))
    documents = read_pubtator(path, kinds=kinds, relations=rule.relation_names, tally=tally, **form)
    counts = (*notes_of(tally), *notes)
    return document_corpus(documents, rule, name=name, split=split, tree_numbers=tree_numbers, notes=counts)
