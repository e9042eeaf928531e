"""What the updates that a site sent tell of its own words and labels, found out at the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tff_re.auditing.words import (
    RevealedLabels,
    RevealedWords,
    everywhere,
    find_word_rows,
    has_known_words,
    label_counts,
    presence,
    revealed_labels,
    revealed_words,
    words_of,
)
from tff_re.runs.experiment import Experiment

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RoundAudit:
    """What the sum of a round's updates tells.

    Attributes:
      round: its number.
      clients: how many of the site's are in the sum.
      words: what the rows of word vectors tell; None where no matrix is trained that has a row for each word.
      labels: what the classifier's bias tells; None where rows or texts have no single label, or there is no bias.
    """

    round: int
    clients: int
    words: RevealedWords | None
    labels: RevealedLabels | None


def audit_site_updates(
    experiment: Experiment,
    examples: Mapping[str, Arrays],
    updates: Mapping[int, tuple[Sequence[str], Sequence[np.ndarray]]],
) -> list[RoundAudit]:
    """Compare each round's update with what the clients in it hold.

    Args:
      experiment: of the run.
      examples: client id -> its training examples, of the site's clients.
      updates: round -> (ids of the clients in the sum, the sum of their updates).
    """
    model, inputs = experiment.model, experiment.prepared.inputs
    rows = find_word_rows(experiment)
    bias = f"{model.classifier}/bias"
    has_labels = model.rows is None and bias in model.weight_names
    audits = []
    for number, (clients, update) in updates.items():
        words = labels = None
        if not isinstance(rows, str):
            ids = [words_of(inputs, examples[client]) for client in clients]
            left_out = everywhere(np.concatenate(ids), rows.size, has_known_words(inputs))
            there = presence(np.concatenate(ids), rows.size)
            words = revealed_words(update[rows.index], there, left_out, rows.first)
        if has_labels:
            counts = sum(label_counts(examples[client], model.num_classes) for client in clients)
            labels = revealed_labels(update[model.weight_names.index(bias)], counts)
        audits.append(RoundAudit(number, len(clients), words, labels))
    return audits
