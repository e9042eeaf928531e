"""From a corpus and a partitioner to a partition."""

from __future__ import annotations

import attrs

from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError
from datasets.partition.base import ClientSamples, Partition, Partitioner
from datasets.partition.split import check_test_share, draw_server_samples, hold_out
from datasets.seeds import generator


def build_partition(
    corpus: TextCorpus,
    partitioner: Partitioner,
    *,
    seed: int = 0,
    test_share: float | None = None,
    test_unit: str = "sample",
    dev_corpus: TextCorpus | None = None,
    server_share: float = 0.0,
    server_stratified: bool = False,
) -> Partition:
    """Assign a corpus's samples to clients, and split each client's into training and test samples.

    Args:
      corpus: The samples.
      partitioner: The rule.
      seed: Of all that is random.
      test_share: Held out inside of each client (`hold_out`); 0.1 unless there is a `dev_corpus`.
      test_unit: What is held out, ``sample`` or ``document``.
      dev_corpus: The official split: its samples are the test sets, given out by the same rule with the same shares,
        and `corpus` is for training alone. Clients that only one of the two has are kept.
      server_share, server_stratified: What the server holds of the corpus, see `draw_server_samples`; it is drawn
        first, and clients share the rest.

    Raises:
      DataError: an impossible option, or a dev corpus that does not fit the training corpus.
    """
    if dev_corpus is not None and test_share is not None:
        raise DataError("both a test share and a dev corpus are given", remedy="give one of them")
    server = draw_server_samples(
        corpus.samples, server_share, seed=seed, stratified=server_stratified, label_names=corpus.label_names
    )
    at_server = set(server)
    shared = [sample for sample in corpus.samples if sample.sample_id not in at_server]
    assign_rng = generator(seed, "partition", partitioner.name)
    drawn = partitioner.draw(shared, assign_rng)
    assigned = partitioner.apply(drawn, shared, assign_rng)
    clients: dict[str, ClientSamples] = {}
    if dev_corpus is None:
        test_share = 0.1 if test_share is None else test_share
        check_test_share(test_share)
        split = {"split": "hold_out", "test_share": test_share, "test_unit": test_unit}
        for client, indices in assigned.items():
            samples = [shared[i] for i in indices]
            clients[client] = ClientSamples(*hold_out(client, samples, test_share, seed=seed, unit=test_unit))
    else:
        split = {"split": "official"}
        _require_same_task(corpus, dev_corpus)
        dev_rng = generator(seed, "partition of the dev corpus", partitioner.name)
        dev_assigned = partitioner.apply(drawn, dev_corpus.samples, dev_rng)
        for client in dict.fromkeys([*assigned, *dev_assigned]):
            clients[client] = ClientSamples(
                tuple(shared[i].sample_id for i in assigned.get(client, ())),
                tuple(dev_corpus.samples[i].sample_id for i in dev_assigned.get(client, ())),
            )
    nonempty = {client: samples for client, samples in clients.items() if samples.train or samples.test}
    notes = []
    if len(nonempty) < len(clients):
        notes.append(f"{len(clients) - len(nonempty)} of {len(clients)} clients got no sample and are left out")
    untrained = sum(not samples.train for samples in nonempty.values())
    if untrained:
        notes.append(f"{untrained} clients have only test samples")
    untested = sum(not samples.test for samples in nonempty.values())
    if untested and test_share != 0:  # with a share of 0 none was asked for
        notes.append(f"{untested} clients have no test samples")
    options = {**attrs.asdict(partitioner), **split}
    if server:
        options |= {"server_share": server_share, "server_stratified": server_stratified}
        notes.append(f"the server holds {len(server)} of {len(corpus.samples)} training samples, which no client has")
    return Partition(partitioner.name, options, int(seed), nonempty, tuple(notes), server)


def _require_same_task(corpus: TextCorpus, dev_corpus: TextCorpus) -> None:
    """Raise DataError unless the corpora have the same classes in the same order, and no sample id in common."""
    unknown = [name for name in dev_corpus.label_names if name not in corpus.label_names]
    common = {s.sample_id for s in corpus.samples} & {s.sample_id for s in dev_corpus.samples}
    problem, remedy = None, "read it with the training corpus's label_names"
    if unknown:
        problem = f"{len(unknown)} of its classes never occur in the training corpus"
    elif corpus.label_names != dev_corpus.label_names:
        problem = "its classes are in another order than the training corpus's"
    elif common:
        problem, remedy = f"{len(common)} samples are in the training corpus as well", "use disjoint splits"
    if problem:
        raise DataError(problem, record=f"dev corpus {dev_corpus.name}", remedy=remedy)
