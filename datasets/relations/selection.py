"""Parts of a relation corpus: a test set of whole documents, a smaller or a balanced training set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from datasets.apportion import by_largest_remainder
from datasets.errors import DataError
from datasets.partition.split import check_test_share, test_count
from datasets.relations.records import RelationCorpus
from datasets.seeds import generator


def set_documents_apart(
    corpus: RelationCorpus, test_share: float, *, seed: int
) -> tuple[RelationCorpus, RelationCorpus]:
    """Set documents apart, and return (training, test).

    It draws round(test_share · documents), at least one, by the seed.

    Copies of a sentence, and pairs of one sentence, stay on one side.

    Raises:
      DataError: an impossible share, or fewer than two documents.
    """
    sides, note = sides_of_documents(corpus, test_share, generator(seed, "test documents", corpus.name), "samples")
    return _part(corpus, sides[0], note), _part(corpus, sides[1])


def sides_of_documents(
    corpus: Any, test_share: float, rng: np.random.Generator, samples: str
) -> tuple[tuple[list[int], list[int]], str]:
    """Return the indices of training samples and of test samples, and a note.

    The samples of a document are on one side.

    Args:
      corpus: Any with `name` and `samples`.
      test_share: As of `set_documents_apart`, whose errors it raises.
      rng: Draws the documents.
      samples: What messages call the samples.
    """
    check_test_share(test_share)
    documents = sorted({sample.document_id for sample in corpus.samples})
    if len(documents) < 2 or not test_share:
        raise DataError(
            "a test set of whole documents needs two documents and a share above 0",
            record=f"corpus {corpus.name}",
            remedy=f"hold {samples} out at the clients, or use the official split",
        )
    apart = {documents[i] for i in rng.permutation(len(documents))[: test_count(test_share, len(documents))]}
    train, test = (
        [i for i, s in enumerate(corpus.samples) if (s.document_id in apart) == wanted] for wanted in (False, True)
    )
    return (train, test), f"test set: {len(test)} {samples} of {len(apart)} of the {len(documents)} documents"


def subset(corpus: RelationCorpus, size: int, *, seed: int) -> RelationCorpus:
    """Return `size` samples with the classes in their proportions, or all if there are fewer.

    The proportions are rounded so that the sum is right.

    Raises:
      DataError: a size that is not a whole number of at least 1.
    """
    _require(size)
    if size >= len(corpus.mentions):
        return corpus
    groups = _by_label(corpus)
    counts = by_largest_remainder(size, [len(group) for group in groups])
    chosen = _draw(corpus, groups, counts, seed)
    return _part(corpus, chosen, f"a subset of {len(chosen)} of {len(corpus.mentions)} samples, classes in proportion")


def balanced_subset(corpus: RelationCorpus, per_class: int, *, seed: int) -> RelationCorpus:
    """Return `per_class` samples of each class that occurs, or all of a class that has fewer (FedCMC, Table 3).

    Raises:
      DataError: a number that is not a whole one of at least 1.
    """
    _require(per_class)
    groups = _by_label(corpus)
    chosen = _draw(corpus, groups, [min(per_class, len(group)) for group in groups], seed)
    return _part(
        corpus, chosen, f"a subset of {len(chosen)} of {len(corpus.mentions)} samples, {per_class} a class at most"
    )


def _by_label(corpus: RelationCorpus) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in corpus.relation_names]
    for index, mention in enumerate(corpus.mentions):
        groups[mention.label].append(index)
    return groups


def _draw(corpus: RelationCorpus, groups: list[list[int]], counts: Iterable[int], seed: int) -> list[int]:
    rng = generator(seed, "subset", corpus.name)
    return sorted(
        group[i] for group, count in zip(groups, counts, strict=True) for i in rng.permutation(len(group))[:count]
    )


def _part(corpus: RelationCorpus, indices: list[int], *notes: str) -> RelationCorpus:
    mentions = tuple(corpus.mentions[i] for i in indices)
    return dataclasses.replace(corpus, mentions=mentions, notes=(*corpus.notes, *notes))


def _require(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise DataError("a subset's size is not a whole number of at least 1", remedy="use e.g. 1000")
