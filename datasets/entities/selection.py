"""Parts of a corpus of texts with entities: a test set of whole documents, a smaller training set."""

from __future__ import annotations

from datasets.documents.selection import drawn, part
from datasets.entities.records import EntityCorpus
from datasets.relations.selection import sides_of_documents
from datasets.seeds import generator


def set_documents_apart(corpus: EntityCorpus, share: float, *, seed: int) -> tuple[EntityCorpus, EntityCorpus]:
    """Set documents apart, and return (rest, apart).

    It draws round(share * documents), at least one, by the seed.

    Raises:
      DataError: an impossible share, or fewer than two documents.
    """
    sides, note = sides_of_documents(corpus, share, generator(seed, "documents apart", corpus.name), "texts")
    return part(corpus, sides[0], note), part(corpus, sides[1])


def subset(corpus: EntityCorpus, size: int, *, seed: int) -> EntityCorpus:
    """Draw `size` texts by the seed, in the corpus's order, or return all if there are fewer.

    Raises:
      DataError: a size that is not a whole number of at least 1.
    """
    return drawn(corpus, size, seed=seed, samples="texts")
