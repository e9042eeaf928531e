"""Parts of a corpus of texts with entities: a test set of whole documents, a smaller training set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from datasets.entities.records import EntityCorpus
from datasets.errors import DataError
from datasets.partition.split import check_test_share, test_count
from datasets.ranges import require, whole_number
from datasets.seeds import generator


def set_documents_apart(corpus: EntityCorpus, share: float, *, seed: int) -> tuple[EntityCorpus, EntityCorpus]:
    """(rest, apart): round(share * documents), at least one, drawn by the seed, are set apart.

    Raises:
      DataError: an impossible share, or fewer than two documents.
    """
    check_test_share(share)
    documents = sorted({sample.document_id for sample in corpus.samples})
    if len(documents) < 2 or not share:
        raise DataError(
            "a test set of whole documents needs two documents and a share above 0",
            record=f"corpus {corpus.name}",
            remedy="hold texts out at the clients, or use the official split",
        )
    order = generator(seed, "documents apart", corpus.name).permutation(len(documents))
    apart = {documents[i] for i in order[: test_count(share, len(documents))]}
    rest, test = ([s for s in corpus.samples if (s.document_id in apart) == wanted] for wanted in (False, True))
    note = f"test set: {len(test)} texts of {len(apart)} of the {len(documents)} documents"
    return _part(corpus, rest, note), _part(corpus, test)


def subset(corpus: EntityCorpus, size: int, *, seed: int) -> EntityCorpus:
    """So many texts, drawn by the seed, in the corpus's order; all if there are fewer.

    Raises:
      DataError: a size that is not a whole number of at least 1.
    """
    require(whole_number(1), size=size)
    total = len(corpus.samples)
    if size >= total:
        return corpus
    rows = sorted(generator(seed, "subset of texts", corpus.name).permutation(total)[:size].tolist())
    return _part(corpus, [corpus.samples[row] for row in rows], f"{size} of {total} texts, drawn")


def _part(corpus: EntityCorpus, samples: Sequence, note: str | None = None) -> EntityCorpus:
    return dataclasses.replace(corpus, samples=tuple(samples), notes=corpus.notes + ((note,) if note else ()))
