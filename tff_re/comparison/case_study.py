"""Which sentences of a fact each method trains on: the case study of FedDS (Appendix, Table 6).

The paper marks them by hand; here they come from finished runs, whose models score the sentences of all platforms as if
all took part in a round.
"""

from __future__ import annotations

import csv
import io
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
from datasets.files import write_atomically
from tff_re.errors import UserError
from tff_re.runs.evaluation import arranged
from tff_re.runs.finished import FinishedRun, open_run
from tff_re.tasks.data_paths import DataPaths


@dataclass(frozen=True)
class CaseSentence:
    """A sentence of a fact.

    Attributes:
      sentence_id, document_id: where it stands.
      platform: the client that holds it.
      text: patients' text; shown on request alone.
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
    shares: dict[str, float]


@dataclass(frozen=True)
class Case:
    """A fact and its training sentences, platform by platform."""

    pair: Pair
    relation: str
    sentences: tuple[CaseSentence, ...] = field(repr=False)

    def most_trained(self, count: int) -> list[CaseSentence]:
        """So many sentences that the methods train on most, in the order of the platforms."""

        def weight(place: int) -> tuple[float, float, int]:
            values = self.sentences[place].shares.values()
            return -sum(value == 1 for value in values), -sum(values), place

        places = sorted(range(len(self.sentences)), key=weight)[:count]
        return [self.sentences[place] for place in sorted(places)]


def study(
    paths: Sequence[Path], data_paths: DataPaths, runtime: str, *, facts: int = 3, pair: Pair | None = None
) -> list[Case]:
    """Opens runs on the same bags and seed, and looks at the facts with the most sentences, or at those of a pair.

    Args:
      paths: folders of finished runs.
      where: where the data are.
      runtime: a runtime's name.
      facts: how many facts; those with most sentences first, on two platforms at least.
      pair: identifiers of head and tail in place of these.

    Raises:
      UserError: a run of another task, runs that differ in data, partition or seed, or an unknown pair.
    """
    first, chosen = None, []
    names = _names(paths)
    for path in paths:
        with open_run(path, data_paths, runtime) as (run, _):
            bags = run.experiment.prepared.bags
            if bags is None:
                raise UserError(f"{path}: is a run of {run.experiment.recipe.task.name}, and cases are made of bags")
            of_run = (run.experiment.recipe.task, run.experiment.prepared.partition.clients)
            if first is None:
                first, chosen = of_run, _facts(run, facts, pair)
            elif of_run != first:
                raise UserError(f"{path}: its data or its partition are not those of {paths[0]}; use runs of one seed")
            shares = _shares(run)
            for case in chosen:
                for row in case.rows:
                    row.shares[names[path]] = float(shares[row.platform][row.row])
    return [case.finished() for case in chosen]


def case_csv(path: Path, cases: Sequence[Case]) -> None:
    """Writes a row for every sentence of every fact, without texts. Raises DataError if it cannot."""
    file = io.StringIO(newline="")
    runs = list(cases[0].sentences[0].shares) if cases else []
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["head", "relation", "tail", "sentence", "document", "platform", "states", *runs])
    for case in cases:
        for one in case.sentences:
            states = "" if one.states is None else int(one.states)
            shares = [repr(one.shares[run]) for run in runs]
            ids = [case.pair[0], case.relation, case.pair[1], one.sentence_id, one.document_id, one.platform]
            writer.writerow([*ids, states, *shares])
    write_atomically(path, file.getvalue().encode("utf-8"))


@dataclass
class _Row:
    client: int
    row: int
    sentence: object
    platform: str
    states: bool | None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass
class _Chosen:
    pair: Pair
    relation: str
    rows: list[_Row]

    def finished(self) -> Case:
        return Case(
            self.pair,
            self.relation,
            tuple(
                CaseSentence(
                    one.sentence.sentence_id,
                    one.sentence.document_id,
                    one.platform,
                    one.sentence.text,
                    one.sentence.head,
                    one.sentence.tail,
                    one.states,
                    one.shares,
                )
                for one in self.rows
            ),
        )


def _facts(run: FinishedRun, count: int, pair: Pair | None) -> list[_Chosen]:
    """The facts to look at, with their rows at the clients."""
    prepared = run.experiment.prepared
    corpus: BagCorpus = prepared.bags
    sentence_of = {sentence.sentence_id: sentence for sentence in corpus.sentences}
    found: dict[tuple[Pair, str], list[_Row]] = {}
    if getattr(run.experiment.recipe.task.options, "train_on", "all") != "all":
        raise UserError(
            f"{run.folder.path}: trained on a part of its rows (task.train_on); give a run with all of them"
        )
    for client, (name, samples) in enumerate(prepared.partition.clients.items()):
        rows = [(sentence_of[i], relation) for i in samples.train for relation in sentence_of[i].relations]
        for row, (sentence, relation) in enumerate(rows):
            if relation != corpus.negative:
                known = None if prepared.truth is None else bool(prepared.truth[client][row] == 1)
                found.setdefault((sentence.pair, relation), []).append(_Row(client, row, sentence, name, known))
    if pair is not None:
        facts = [key for key in found if key[0] == pair]
        if not facts:
            raise UserError(f"no training sentence states a fact of {pair[0]} and {pair[1]}; give another --pair")
    else:
        spread = [key for key, rows in found.items() if len({row.client for row in rows}) > 1]
        facts = sorted(spread, key=lambda key: (-len(found[key]), key))[:count]
        if not facts:
            raise UserError("no fact has sentences on two platforms")
    return [_Chosen(*key, found[key]) for key in facts]


def _shares(run: FinishedRun) -> dict[str, np.ndarray]:
    """Client id -> [n], the part of each of its rows; clients that train."""
    ids, examples = arranged(run.experiment, run.experiment.prepared.examples, "train")
    return dict(zip(ids, _shares_of(run, examples), strict=True))


def _shares_of(run: FinishedRun, examples: list) -> list[np.ndarray]:
    experiment = run.experiment
    name, model = experiment.recipe.algorithm.name, experiment.model
    if name in ("lazy_mil", "lazy_mil_alias"):
        return build_selection(model, experiment.prepared.num_triples)(run.weights, examples)
    if name in _OBJECTIVES:
        return build_local_shares(model, _OBJECTIVES[name]())(run.weights, examples)
    return [np.ones(len(client["y"])) for client in examples]  # all sentences train


_OBJECTIVES: dict[str, Callable[[], BagObjective]] = {
    "mil_one": AtLeastOne,
    "mil_ave": BagAverage,
    "mil_att": SelectiveAttention,
    "mil_att_ra": RelationAwareAttention,
}


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Run -> its name in the table: the folder's, or the whole path where two have one."""
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}
