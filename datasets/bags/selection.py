"""Parts of a corpus of bags, which never cut a bag."""

from __future__ import annotations

import dataclasses

from datasets.bags.records import BagCorpus, Pair
from datasets.errors import DataError
from datasets.partition.split import check_test_share, test_count
from datasets.seeds import generator


def without_pairs(corpus: BagCorpus, other: BagCorpus) -> BagCorpus:
    """Return the bags whose pair has no bag in the other corpus, for held-out evaluation after training on the other.

    Raises:
      DataError: no bag is left.
    """
    shared = {pair for pair in corpus.bags if pair in other.bags}
    note = f"{len(shared)} of {len(corpus.pairs)} bags left out because {other.name} has their pairs"
    return _part(corpus, set(corpus.bags) - shared, note if shared else None)


def set_bags_apart(corpus: BagCorpus, share: float, *, seed: int) -> tuple[BagCorpus, BagCorpus]:
    """Set bags apart with all their sentences, and return (rest, apart).

    It draws round(share * bags), at least one, by the seed.

    Related and unrelated pairs are drawn apart from each other, so that both parts have them in like proportions; of
    a single bag of either sort none is set apart.

    Raises:
      DataError: an impossible share, or fewer than two bags of either sort.
    """
    check_test_share(share)
    apart: set[Pair] = set()
    for related in (False, True):
        pairs = [pair for pair, rows in corpus.bags.items() if (corpus.sentences[rows[0]].label > 0) == related]
        if share and len(pairs) >= 2:
            order = generator(seed, "bags apart", corpus.name, str(related)).permutation(len(pairs))
            apart.update(pairs[index] for index in order[: test_count(share, len(pairs))])
    if not apart:
        raise DataError(
            "setting bags apart needs at least two bags and a share above 0",
            record=f"corpus {corpus.name}",
            remedy="use a split of its own",
        )
    note = f"{len(apart)} of {len(corpus.pairs)} bags are set apart"
    return _part(corpus, set(corpus.bags) - apart, note), _part(corpus, apart)


def _part(corpus: BagCorpus, pairs: set[Pair], note: str | None = None) -> BagCorpus:
    sentences = tuple(sentence for sentence in corpus.sentences if sentence.pair in pairs)
    if not sentences:
        raise DataError("no bag is left", record=f"corpus {corpus.name}", remedy="use corpora with different pairs")
    return dataclasses.replace(corpus, sentences=sentences, notes=corpus.notes + ((note,) if note else ()))
