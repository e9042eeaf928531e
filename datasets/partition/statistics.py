"""The distribution of labels over clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datasets.dialogues.records import TextCorpus
from datasets.partition.base import Partition


@dataclass(frozen=True)
class LabelCounts:
    """Numbers of samples of K clients and C classes, with `train` and `test` as int64 [K, C]."""

    clients: tuple[str, ...] = field(repr=False)
    label_names: tuple[str, ...]
    train: np.ndarray = field(repr=False)
    test: np.ndarray = field(repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per client: `client`, `train`, `test` (samples), `classes` (trained on), `largest_share`."""
        return [
            {
                "client": client,
                "train": int(train.sum()),
                "test": int(test.sum()),
                "classes": int((train > 0).sum()),
                "largest_share": float(train.max() / train.sum()) if train.any() else 0.0,
            }
            for client, train, test in zip(self.clients, self.train, self.test, strict=True)
        ]

    def summary(self) -> dict[str, float]:
        """Summarise the whole in a row.

        `clients`; `train` and `test` samples; `smallest`, `median` and `largest` training size; `classes` that a client
        has on average; `label_skew`, the total variation distance (0 to 1) between a client's training labels and all
        of them, averaged with the clients' sizes.
        """
        sizes = self.train.sum(axis=1)
        trained = sizes > 0
        skew = 0.0
        if trained.any():
            overall = self.train.sum(axis=0) / sizes.sum()
            shares = self.train[trained] / sizes[trained, None]
            skew = float(np.average(np.abs(shares - overall).sum(axis=1) / 2, weights=sizes[trained]))
        return {
            "clients": len(self.clients),
            "train": int(sizes.sum()),
            "test": int(self.test.sum()),
            "smallest": int(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": int(sizes.max()),
            "classes": float((self.train > 0).sum(axis=1).mean()),
            "label_skew": skew,
        }


def label_counts(partition: Partition, *corpora: TextCorpus) -> LabelCounts:
    """Count the labels of each client.

    Raises DataError if the partition does not belong to these corpora.
    """
    partition.check_against(*corpora)
    label_of = {sample.sample_id: sample.label for corpus in corpora for sample in corpus.samples}
    shape = (len(partition.clients), len(corpora[0].label_names))
    train, test = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for k, samples in enumerate(partition.clients.values()):
        for counts, ids in ((train, samples.train), (test, samples.test)):
            np.add.at(counts[k], [label_of[i] for i in ids], 1)
    return LabelCounts(tuple(partition.clients), corpora[0].label_names, train, test)
