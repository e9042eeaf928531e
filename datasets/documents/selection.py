"""Parts of a corpus of documents."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from datasets.documents.corpus import DocumentCorpus
from datasets.errors import DataError
from datasets.partition.split import check_test_share, test_count
from datasets.ranges import require, whole_number
from datasets.seeds import generator

Corpus = TypeVar("Corpus")
"""A corpus with `name`, `samples` and `notes`, a frozen data class."""


def set_documents_apart(corpus: DocumentCorpus, share: float, *, seed: int) -> tuple[DocumentCorpus, DocumentCorpus]:
    """Set documents apart, and return (rest, apart).

    It draws round(share * documents), at least one, by the seed.

    Raises:
      DataError: an impossible share, or fewer than two documents.
    """
    check_test_share(share)
    total = len(corpus.samples)
    if total < 2 or not share:
        raise DataError(
            "setting documents apart needs at least two documents and a share above 0",
            record=f"corpus {corpus.name}",
            remedy="use a split of its own",
        )
    order = generator(seed, "documents apart", corpus.name).permutation(total)
    apart = set(order[: test_count(share, total)].tolist())
    note = f"{len(apart)} of {total} documents are set apart"
    return part(corpus, [i for i in range(total) if i not in apart], note), part(corpus, sorted(apart))


def subset(corpus: DocumentCorpus, size: int, *, seed: int) -> DocumentCorpus:
    """Draw `size` documents by the seed, in the corpus's order, or return all if there are fewer.

    Raises:
      DataError: a size that is not a whole number of at least 1.
    """
    return drawn(corpus, size, seed=seed, samples="documents")


def drawn(corpus: Corpus, size: int, *, seed: int, samples: str) -> Corpus:
    """Draw samples of a corpus with `name`, `samples` and `notes`, like `subset` does for documents.

    `samples` is what they are called: in the note, and for the seed.
    """
    require(whole_number(1), size=size)
    total = len(corpus.samples)
    if size >= total:
        return corpus
    order = generator(seed, f"subset of {samples}", corpus.name).permutation(total)
    return part(corpus, sorted(order[:size].tolist()), f"{size} of {total} {samples}, drawn")


def without(corpus: DocumentCorpus, others: DocumentCorpus) -> DocumentCorpus:
    """Return the documents that are not among the others.

    Raises DataError if none is left.
    """
    ids, samples = {sample.sample_id for sample in others.samples}, corpus.samples
    rows = [row for row, sample in enumerate(samples) if sample.sample_id not in ids]
    if not rows:
        raise DataError("no document is left to train on", record=f"corpus {corpus.name}", remedy="hold out fewer")
    return part(corpus, rows, f"{len(samples) - len(rows)} of {len(samples)} documents are held out")


def part(corpus: Corpus, rows: list[int], note: str | None = None) -> Corpus:
    """Return the samples at these indices, with a further note."""
    samples = tuple(corpus.samples[row] for row in rows)
    return dataclasses.replace(corpus, samples=samples, notes=corpus.notes + ((note,) if note else ()))
