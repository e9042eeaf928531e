"""Which sentences of a fact each method trains on: the case study of FedDS (Appendix, Table 6).

The paper's authors marked them by hand; here the models of finished runs score the sentences, as if all platforms took
part in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from computations.client_work.objectives import (
    AtLeastOne,
    BagAverage,
    BagObjective,
    RelationAwareAttention,
    SelectiveAttention,
)
from computations.client_work.selection import build_local_shares, build_selection
from datasets.bags.records import BagCorpus, Pair
from datasets.files import csv_text, write_atomically
from tff_re.errors import UserError
from tff_re.runs.evaluation import arranged
from tff_re.runs.finished import FinishedRun, open_run
from tff_re.tasks.bag_relations import PreparedBags
from tff_re.tasks.data_paths import DataPaths


@dataclass(frozen=True)
class CaseSentence:
    """A sentence of a fact.

    Attributes:
      sentence_id, document_id: of the sentence and of the document that it is from.
      platform: the client that holds it.
      text: patients' text; shown only on request.
      head, tail: spans of the mentions in the text.
      states: whether it states the fact; None where that is not known.
      shares: run -> its part in the training of the fact, 0 to 1: 1 or 0 where a method selects, the attention where it
        attends.
    """

    sentence_id: str
    document_id: str
    platform: str
    text: str = field(repr=False)
    head: tuple[int, int]
    tail: tuple[int, int]
    states: bool | None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A fact and its training sentences, platform by platform."""

    pair: Pair
    relation: str
    sentences: tuple[CaseSentence, ...] = field(repr=False)

    def top_trained(self, count: int) -> list[CaseSentence]:
        """The `count` sentences that the methods train on most, in the order of the platforms."""

        def weight(index: int) -> tuple[float, float, int]:
            values = self.sentences[index].shares.values()
            return -sum(value == 1 for value in values), -sum(values), index

        indices = sorted(range(len(self.sentences)), key=weight)[:count]
        return [self.sentences[index] for index in sorted(indices)]


def study(
    paths: Sequence[Path], data_paths: DataPaths, runtime: str, *, facts: int = 3, pair: Pair | None = None
) -> list[Case]:
    """Opens finished runs on the same bags and seed, and looks at the facts of a pair, or at those with the most
    sentences, on two platforms at least.

    Raises:
      UserError: a run of another task, runs that differ in data, partition or seed, or an unknown pair.
    """
    first, chosen = None, []
    # The folder's name, or the whole path where two have one.
    folders = [path.name for path in paths]
    names = {path: path.name if folders.count(path.name) == 1 else str(path) for path in paths}
    for path in paths:
        with open_run(path, data_paths, runtime) as (run, _):
            prepared, task = run.experiment.prepared, run.experiment.recipe.task
            if not isinstance(prepared, PreparedBags):
                raise UserError(f"{path}: is a run of the task {task.name}, but cases need a run on bags of sentences")
            of_run = (task, prepared.partition.clients)
            if first is None:
                first, chosen = of_run, _facts(run, facts, pair)
            elif of_run != first:
                raise UserError(f"{path}: its data or partition differ from {paths[0]}; use runs with the same seed")
            shares = _shares(run)
            for case, rows in chosen:
                for sentence, row in zip(case.sentences, rows, strict=True):
                    sentence.shares[names[path]] = float(shares[sentence.platform][row])
    return [case for case, _ in chosen]


def case_csv(path: Path, cases: Sequence[Case]) -> None:
    """Writes a row for every sentence of every fact, without texts. Raises DataError if it cannot."""
    runs = list(cases[0].sentences[0].shares) if cases else []
    rows = [["head", "relation", "tail", "sentence", "document", "platform", "states", *runs]]
    for case in cases:
        for sentence in case.sentences:
            ids = [
                case.pair[0],
                case.relation,
                case.pair[1],
                sentence.sentence_id,
                sentence.document_id,
                sentence.platform,
            ]
            rows.append([*ids, None if sentence.states is None else int(sentence.states), *sentence.shares.values()])
    write_atomically(path, csv_text(rows).encode("utf-8"))


def _facts(run: FinishedRun, count: int, pair: Pair | None) -> list[tuple[Case, list[int]]]:
    """The facts to look at, without shares, and the row of each of their sentences at its platform."""
    prepared = run.experiment.prepared
    corpus: BagCorpus = prepared.corpora[0]
    sentence_of = {sentence.sentence_id: sentence for sentence in corpus.sentences}
    sentences_of: dict[tuple[Pair, str], list[tuple[CaseSentence, int]]] = {}
    if getattr(run.experiment.recipe.task.options, "train_on", "all") != "all":
        part = "trained on a part of its rows (task.train_on)"
        raise UserError(f"{run.folder.path}: {part}; give a run that was trained on all of them")
    for client, (platform, samples) in enumerate(prepared.partition.clients.items()):
        rows = [(sentence_of[i], relation) for i in samples.train for relation in sentence_of[i].relations]
        for row, (sentence, relation) in enumerate(rows):
            if relation != corpus.negative:
                item = CaseSentence(
                    sentence_id=sentence.sentence_id,
                    document_id=sentence.document_id,
                    platform=platform,
                    text=sentence.text,
                    head=sentence.head,
                    tail=sentence.tail,
                    states=None if prepared.truth is None else bool(prepared.truth[client][row] == 1),
                )
                sentences_of.setdefault((sentence.pair, relation), []).append((item, row))
    if pair is not None:
        facts = [key for key in sentences_of if key[0] == pair]
        if not facts:
            raise UserError(f"no training sentence states a fact about {pair[0]} and {pair[1]}; give another --pair")
    else:
        spread = [key for key, rows in sentences_of.items() if len({item.platform for item, _ in rows}) > 1]
        facts = sorted(spread, key=lambda key: (-len(sentences_of[key]), key))[:count]
        if not facts:
            raise UserError("no fact has sentences on more than one platform")
    return [
        (Case(*key, tuple(item for item, _ in sentences_of[key])), [row for _, row in sentences_of[key]])
        for key in facts
    ]


def _shares(run: FinishedRun) -> dict[str, np.ndarray]:
    """Client id -> [n], the part of each of its rows.

    Only clients that train.
    """
    experiment = run.experiment
    ids, arrays = arranged(experiment, "train")
    examples = arrays[:]
    name, model = experiment.recipe.algorithm.name, experiment.model
    if name in ("lazy_mil", "lazy_mil_alias"):
        shares = build_selection(model, experiment.prepared.num_triples)(run.weights, examples)
    elif name in _OBJECTIVES:
        shares = build_local_shares(model, _OBJECTIVES[name]())(run.weights, examples)
    else:  # all sentences train
        shares = [np.ones(len(client["y"])) for client in examples]
    return dict(zip(ids, shares, strict=True))


_OBJECTIVES: dict[str, Callable[[], BagObjective]] = {
    "mil_one": AtLeastOne,
    "mil_ave": BagAverage,
    "mil_att": SelectiveAttention,
    "mil_att_ra": RelationAwareAttention,
}
