"""Partition by complexity, in which clients get documents of different complexity (FedLCC, Sections 3.5 and 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from datasets.errors import DataError, named
from datasets.partition.base import CLIENTS, Partitioner, Sample, client_names
from datasets.ranges import one_of, require

FORMS = ("paper", "released_code")

GRAPHS = ("released_code", "edge_oriented")
"""Graphs of a document that `datasets.documents.graph` makes."""

RELEASED_CUTS = {
    "cdr": (6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0),
    "chr": (3.5, 5.0, 6.5, 8.0, 9.5, 11.0, 12.5, 14.0, 15.5),
    "gda": (4.8, 7.6, 10.4, 13.2, 16.0, 18.8, 21.6, 24.4, 27.2),
}
"""Where the released code cuts, by corpus; ten clients, each with the upper bound of its part."""


def structural_entropy(degrees: Sequence[int], form: str = "paper") -> float:
    """Return the structural entropy of a graph from the degrees of its N nodes.

    - ``paper`` (Eq. 15): -sum p ln p over the degrees that occur, p the share of the nodes that have a degree.
    - ``released_code``: -sum p log2 p over the nodes, p a node's degree divided by N, which does not sum to one; a node
      without edges adds nothing. Of the graph of the same name it ranges over CDR's training documents from
      4.317657676193542 to 24.289256154892264, the figures in the authors' program.

    Raises:
      DataError: an unknown form, or a graph without nodes.
    """
    require(one_of(FORMS), form=form)
    if not len(degrees):
        raise DataError("a graph has no nodes", remedy="give every document a sentence")
    log, counts = np.log2, np.asarray(degrees, np.float64)
    if form == "paper":
        log, counts = np.log, np.unique(degrees, return_counts=True)[1]
    shares = counts[counts > 0] / len(degrees)
    return float(-(shares * log(shares)).sum()) + 0.0


def entropies(samples: Sequence[Sample], form: str = "paper", graph: str = "released_code") -> np.ndarray:
    """Return the structural entropy of each sample's graph, float64 [n], from the samples' `degrees`.

    Raises:
      DataError: an unknown form or graph, or a sample without a graph.
    """
    require(one_of(GRAPHS), graph=graph)
    values = []
    for position, sample in enumerate(samples, 1):
        degrees = getattr(sample, "degrees", None)
        if degrees is None:
            raise DataError(
                "has no document graph",
                record=named("sample", sample.sample_id, position),
                remedy="use structural_entropy with document-level relations, or another partitioner",
            )
        values.append(structural_entropy(degrees[graph], form))
    return np.array(values, np.float64)


@attrs.frozen
class StructuralEntropy(Partitioner):
    """The range of the structural entropy is cut into K parts, and a document goes to the client of its part.

    The range is that of the training samples; what lies beyond it (of a dev corpus) goes to the first or last client.
    A part that no document falls into is a client without samples, which the partition leaves out.

    Attributes:
      num_clients: K.
      form: ``paper``, Eq. 15 and K parts of equal width; or ``released_code``, the authors' program (see
        `structural_entropy`), with fixed cuts.
      cuts: With form ``released_code`` the corpus whose cuts are used, ``cdr``, ``chr`` or ``gda``; K is then 10.
      graph: ``released_code``, that of the authors' program, which is the only place where it is defined; or, with form
        ``paper``, ``edge_oriented``, that of the work which the paper cites (see `datasets.documents.graph`).
    """

    num_clients: int = attrs.field(validator=CLIENTS)
    form: str = attrs.field(default="paper", validator=one_of(FORMS))
    cuts: str | None = None
    graph: str = attrs.field(default="released_code", validator=one_of(GRAPHS))
    name: ClassVar[str] = "structural_entropy"

    def __attrs_post_init__(self):
        if self.form == "paper":
            if self.cuts is None:
                return
            raise DataError("the paper's form has no fixed cuts", remedy='leave cuts out, or form = "released_code"')
        if self.graph != "released_code":
            raise DataError("the released cuts are for the released graph", remedy='leave graph out, or form = "paper"')
        if self.cuts not in RELEASED_CUTS:
            remedy = f"use cuts = one of {', '.join(RELEASED_CUTS)}"
            raise DataError("the released form needs the cuts of a corpus", remedy=remedy)
        if self.num_clients != 10:
            raise DataError("the released cuts are for 10 clients", remedy='use as many, or form = "paper"')

    def draw(self, samples: Sequence[Sample], rng: np.random.Generator) -> np.ndarray:
        """Return the boundaries of the parts, float64 [K - 1], increasing.

        Nothing is random.
        """
        if self.form == "released_code":
            return np.array(RELEASED_CUTS[self.cuts])
        values = entropies(samples, self.form, self.graph)
        return np.linspace(values.min(), values.max(), self.num_clients + 1)[1:-1]

    def apply(self, drawn: np.ndarray, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        """Return the sample indices of each client, with the clients in the order of the entropy."""
        names = client_names(self.num_clients)
        clients: dict[str, list[int]] = {client: [] for client in names}
        # The released code's parts include their upper bound; the paper says of none which part a bound is in.
        values = entropies(samples, self.form, self.graph)
        for index, part in enumerate(np.digitize(values, drawn, right=self.form == "released_code")):
            clients[names[part]].append(index)
        return clients
