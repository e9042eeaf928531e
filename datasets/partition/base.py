"""What a partition is, and what a partitioner has to provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from datasets.errors import DataError, named
from datasets.ranges import in_range, whole_number

CLIENTS = whole_number(1)
ALPHA = in_range(0.001, 1_000_000)
"""Where NumPy can draw from the distribution (it hangs at 1e-300)."""


class Sample(Protocol):
    """What a partitioner looks at.

    LabelledText is one, and records of other tasks may be.
    """

    sample_id: str
    document_id: str
    label: int
    fields: Mapping[str, str]


class Partitioner:
    """A way to assign samples to clients, as a frozen attrs class of options.

    Attributes:
      name: The partitioner's name in recipes and partition files.
    """

    name: ClassVar[str]

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> Any:
        """Draw what is random about the clients themselves, such as their shares.

        It is drawn once, from the training samples.
        """

    def apply(self, drawn: Any, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the increasing sample indices of each client.

        Every sample goes to one client, and a client may get none.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ClientSamples:
    """The ids of a client's samples, of which one split may be empty, but not both."""

    train: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class Partition:
    """Which client holds which samples.

    Attributes:
      partitioner: The partitioner's name.
      options: Its options and those of the split.
      seed: What it was drawn with.
      clients: Client id to its samples.
      notes: What a report has to say, such as clients left out because they got no sample.
      server: The ids of the samples that the server holds (FedED's D_v).

    Raises:
      DataError: there are no clients, a client has no samples, or a sample is given twice.
    """

    partitioner: str
    options: Mapping[str, Any]
    seed: int
    clients: Mapping[str, ClientSamples] = field(repr=False)
    notes: tuple[str, ...] = ()
    server: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self):
        if not self.clients:
            raise DataError("the partition has no clients", remedy="give it at least one")
        holder: dict[str, int] = dict.fromkeys(self.server, 0)
        if len(holder) < len(self.server):
            raise DataError("the server holds a sample twice", remedy="name every sample once")
        for number, samples in enumerate(self.clients.values(), 1):
            if not samples.train and not samples.test:
                raise DataError("has no samples", record=f"client number {number}", remedy="leave the client out")
            for sample_id in samples.train + samples.test:
                if sample_id in holder:
                    held = "by the server and a client" if not holder[sample_id] else "by two clients"
                    raise DataError(
                        "is held twice by one client" if holder[sample_id] == number else f"is held {held}",
                        record=named("sample", sample_id),
                        remedy="give every sample to one client, for training or for testing",
                    )
                holder[sample_id] = number

    def check_against(self, *corpora) -> None:
        """Raise DataError, which names a sample, unless the partition assigns exactly the samples of these corpora."""
        known = dict.fromkeys(sample.sample_id for corpus in corpora for sample in corpus.samples)
        at_clients = (i for client in self.clients.values() for i in client.train + client.test)
        assigned = dict.fromkeys((*self.server, *at_clients))
        for wrong, reason in (
            ([i for i in assigned if i not in known], "is not in the corpus"),
            ([i for i in known if i not in assigned], "is not held by any client"),
        ):
            if wrong:
                raise DataError(
                    reason + (f", nor are {len(wrong) - 1} others" if len(wrong) > 1 else ""),
                    record=named("sample", wrong[0]),
                    remedy="use the corpus and the label choice that the partition was made for",
                )


def dirichlet_shares(num_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Return one draw of p ~ Dir_K(alpha), float64 [K]."""
    return rng.dirichlet(np.full(num_clients, float(alpha)))


def client_names(num_clients: int) -> list[str]:
    """Return ``client-00``, ``client-01``, …, with as many digits as the last one needs."""
    width = len(str(num_clients - 1))
    return [f"client-{k:0{width}d}" for k in range(num_clients)]
