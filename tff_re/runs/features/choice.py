"""Which round's weights a run ends with: chosen on dev examples, of the clients or of the server, never on test."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from computations.local_model import LABEL
from datasets.federated import ClientExamples, FederatedExamples, PackedClients
from datasets.partition.split import test_count
from datasets.seeds import generator
from tff_re.errors import UserError, nearest
from tff_re.recipes.options import DEFAULT_METRIC, DEV_SHARE, ChoiceOptions
from tff_re.recipes.reading import Recipe
from tff_re.runs.evaluation import Evaluator
from tff_re.runs.features.base import Feature
from tff_re.runs.features.own_models import chosen_round, model_state_of
from tff_re.tasks.base import Prepared
from tff_re.tasks.duplicates import notes_of_dev
from tff_re.tasks.held_out import DEV


@dataclass(frozen=True)
class Choice:
    """The rule of a run.

    Attributes:
      criterion: the metric, e.g. `dev/loss`; of losses the lowest is best, of others the highest; the first of equals.
      every: rounds between evaluations; a round in between is not looked at.
      patience: rounds without a better value after which training ends; None: it does not.
      where: whose examples these are, in words.
    """

    criterion: str
    every: int
    patience: int | None
    where: str

    def start(self, weights: Any) -> OrderedDict:
        """Before the first round: nothing is chosen. Part of the checkpoints, where `value` is minus the loss."""
        return OrderedDict(round=np.int64(0), value=np.float64(-np.inf), weights=weights)

    def take(
        self, best: OrderedDict, round_num: int, metrics: Mapping[str, float], of_each: Sequence, weights: Any
    ) -> OrderedDict:
        """The choice after a round that was evaluated.

        Args:
          best: before.
          round_num: the round.
          metrics: of the round.
          of_each: the metrics of each training client's own dev examples, which this rule does not read.
          weights: the round's.
        """
        del of_each
        return self._better(best, round_num, metrics.get(self.criterion, np.nan), weights)

    def _better(self, best: OrderedDict, round_num: int, value: float, weights: Any) -> OrderedDict:
        score = -value if self.criterion.endswith("loss") else value
        if not score > best["value"]:
            return best
        return OrderedDict(round=np.int64(round_num), value=np.float64(score), weights=weights)

    def ends(self, best: OrderedDict, round_num: int) -> bool:
        """Whether patience ends with a round.

        It depends only on the stored choice, so that a resumed run ends in the same round.
        """
        return (
            self.patience is not None
            and round_num % self.every == 0
            and round_num - int(best["round"]) >= self.patience
        )

    def reason(self, chosen: OrderedDict, round_num: int) -> str:
        """Why training ended with a round: one line."""
        best = f"has not improved since round {int(chosen['round'])}" if chosen["round"] else "was never finite"
        return f"stopped after round {round_num}: {self.criterion} {best} for {self.patience} rounds (choice.patience)"

    @property
    def statement(self) -> str:
        """What the round was chosen on: one line for the outputs of a run."""
        best = "lowest" if self.criterion.endswith("loss") else "highest"
        return f"the round with the {best} {self.criterion} on {self.where}; test examples are not used for the choice"


class ChoiceOfEach(Choice):
    """The rule for clients that train by themselves: each selects its own round on its own dev examples.

    Each client stops when its own patience ends, and training ends when the patience of all has ended. The choice is a
    list with one entry for each client.
    """

    def start(self, weights: Mapping[str, Any]) -> list[OrderedDict]:
        """See `Choice`, with the `weights` of `own_models.model_state_of`."""
        return [Choice.start(self, of_client) for of_client in weights["memory"]]

    def take(self, best, round_num, metrics, of_each, weights) -> list[OrderedDict]:
        """See `Choice`, but without reading the metrics of all clients together."""
        before, name = (round_num - 1) // self.every * self.every, self.criterion.removeprefix(f"{DEV}/")
        return [
            chosen
            if before and Choice.ends(self, chosen, before)
            else self._better(chosen, round_num, values.get(name, np.nan), model)
            for chosen, values, model in zip(best, of_each, weights["memory"], strict=True)
        ]

    def ends(self, best: list[OrderedDict], round_num: int) -> bool:
        """See `Choice`."""
        return all(Choice.ends(self, chosen, round_num) for chosen in best)

    def reason(self, best: list[OrderedDict], round_num: int) -> str:
        """See `Choice`."""
        return f"stopped after round {round_num}: no client's {self.criterion} improved for {self.patience} rounds"

    @property
    def statement(self) -> str:
        """See `Choice`."""
        return f"each client by itself: {super().statement}"


class RoundChoice(Feature):
    """Chooses the round and ends training by patience: with [choice], and wherever the server holds a dev split.

    Attributes:
      rule: the run's; None: its last round counts.
    """

    table = "choice"
    rule: Choice | None = None

    @classmethod
    def is_in(cls, recipe: Recipe) -> bool:
        """See `Feature`."""
        return True

    @property
    def data_key(self):
        """See `Feature`."""
        return self.options

    def change_data(self, prepared):
        """The data with dev examples at the clients, see `with_dev`."""
        if choice_of(self.recipe, prepared) is None or prepared.held_out is not None:
            return prepared
        with self.naming():
            return with_dev(prepared, self.options, self.recipe.seed)

    def prepare(self, setting):
        """See `Feature`."""
        self.rule = choice_of(self.recipe, setting.prepared)

    def warnings(self, experiment):
        """See `Feature`."""
        options, rounds = self.options, self.recipe.training.rounds
        if options is None or options.patience is None or options.patience < rounds:
            return ()
        return (
            f"choice.patience is {options.patience} and training.rounds is {rounds}, so training never stops early",
        )

    def checkpointed(self, experiment, state):
        """See `Feature`."""
        return {} if self.rule is None else {"chosen": self.rule.start(model_state_of(experiment, state))}

    def start(self, training):
        """See `Feature`."""
        each = isinstance(self.rule, ChoiceOfEach)
        self._dev, self._of_each = Evaluator(training.experiment, DEV, by_client=each), {}

    def evaluate(self, training, weights):
        """See `Feature`."""
        if self._dev.empty:
            return {}
        evaluation = training.of_sites(self._dev(weights))
        self._of_each = evaluation.by_client
        return evaluation.recorded(DEV)

    def after_round(self, training, metrics):
        """Keeps an evaluated round if it is better than those before.

        A round that was not evaluated is not kept.
        """
        if self.rule is not None:
            clients = training.ids if isinstance(self.rule, ChoiceOfEach) else ()
            of_each = [self._of_each.get(client, {}) for client in clients]
            before, model_state = training.state["chosen"], training.model_state
            training.state["chosen"] = self.rule.take(before, training.round, metrics, of_each, model_state)
        self._of_each = {}

    def stop(self, training):
        """See `Feature`."""
        if self.rule is None or not self.rule.ends(training.state["chosen"], training.round):
            return None
        return self.rule.reason(training.state["chosen"], training.round)

    def finish(self, training, result):
        """See `Feature`."""
        if (number := chosen_round(training.state)) is None:
            return result
        return dataclasses.replace(result, chosen=(number, self.rule.criterion), chosen_on=self.rule.statement)

    def summary(self, result):
        """See `Feature`."""
        if result.chosen is None:
            return {}
        number, criterion = result.chosen
        chosen = {"round": number, "by": criterion, "on": result.chosen_on}
        if result.server_evaluation is not None:
            chosen |= result.server_evaluation.metrics
        if result.test is not None:
            chosen |= {f"test/{name}": value for name, value in result.test.metrics.items()}
        return {"chosen": chosen}


def choice_of(recipe: Recipe, prepared: Prepared) -> Choice | None:
    """The rule of a run, or None if it selects no round.

    It is on the server's dev split if the server holds one, and with [choice] on the clients'.

    Raises:
      UserError: a key of [choice] does not fit the task; names it.
    """
    options, held_out = recipe.choice or ChoiceOptions(), prepared.held_out
    every = recipe.evaluation.every
    if held_out is None:
        if recipe.choice is None:
            return None
        names, default = prepared.measures.names, DEFAULT_METRIC
        share = DEV_SHARE if options.dev_share is None else options.dev_share
        where = f"dev examples that clients keep out of their training ({100 * share:g} % each)"
    else:
        if recipe.choice is not None and DEV not in held_out.splits:
            raise UserError(
                f"{recipe.source}: [choice] needs a dev split, but this task's server has none; leave it out"
            )
        if DEV not in held_out.splits:
            return None
        if options.dev_share is not None:
            raise UserError(
                f"{recipe.source}: 'choice.dev_share' is only for tasks with test examples at the clients, but here "
                "the server has a dev split; leave it out"
            )
        names = [name.removeprefix(f"{DEV}/") for name in held_out.metric_names if name.startswith(f"{DEV}/")]
        default, where = held_out.criterion, "the server's dev examples"
    metric = options.metric or default
    if metric not in names:
        raise UserError(f"{recipe.source}: 'choice.metric': there is no metric '{metric}'; {nearest(metric, names)}")
    alone = recipe.baseline is not None and recipe.baseline.kind == "local"
    return (ChoiceOfEach if alone else Choice)(f"{DEV}/{metric}", every, options.patience, where)


def with_dev(prepared: Prepared, options: ChoiceOptions, seed: int) -> Prepared:
    """These data with a part of each client's training examples as its dev examples, drawn by the run's seed.

    Of n units max(1, round(share n)) are kept out, at most n - 1; the draw depends on the seed, the client and its
    units alone. A client with one example has no dev examples.

    Clients at sites have kept theirs out already.

    Raises:
      UserError: no client has two training examples, or dev_share is not one of any client's.
    """
    _require_possible_share(prepared.examples, options)
    if prepared.examples.has_dev:
        _require_dev(prepared.examples)
        return prepared
    document_of = {s.sample_id: s.document_id for corpus in prepared.corpora for s in corpus.samples}
    clients = PackedClients.from_clients(
        _split(prepared, client, document_of, options, seed) for client in prepared.examples.clients
    )
    examples = FederatedExamples(clients, prepared.examples.label_names, prepared.examples.server)
    _require_dev(examples)
    apart, left = examples.size("dev"), examples.size("train")
    held = int((examples.sizes("dev") > 0).sum())
    note = f"dev: {apart} of {apart + left} training examples are kept out of training at {held} clients"
    dev: set[str] = set()
    of_texts = prepared.partition is not None and bool(document_of)
    for client_id, samples in prepared.partition.clients.items() if of_texts else ():
        mask = dev_mask(samples.train, document_of, options, seed, client_id)
        dev.update(np.array(samples.train)[mask])
    notes = (*prepared.notes, *notes_of_dev(prepared, dev), note)
    return dataclasses.replace(prepared, examples=examples, notes=notes)


def _require_possible_share(examples: FederatedExamples, options: ChoiceOptions) -> None:
    largest = int((examples.sizes("train") + examples.sizes("dev")).max())
    if options.dev_share is not None and round(options.dev_share * largest) == 0 and largest > 1:
        raise UserError(
            f"'choice.dev_share' is {options.dev_share:g}, which is less than one of the largest client's {largest} "
            f"examples; raise it to at least {1 / largest:.2g}"
        )


def _require_dev(examples: FederatedExamples) -> None:
    if not examples.size("dev"):
        raise UserError(
            "[choice] needs at least one client with two training examples; leave it out, or change [partition]"
        )


def dev_mask(
    ids: Sequence[str] | np.ndarray, document_of: Mapping[str, str], options: ChoiceOptions, seed: int, client: str
) -> np.ndarray:
    """bool [n]: which of a client's training examples are its dev examples, see `with_dev`.

    Args:
      ids: of the n examples.
      document_of: of each the document; empty where they are of none.
      options: of [choice].
      seed: the run's.
      client: its id.
    """
    units, share = np.array(ids), DEV_SHARE if options.dev_share is None else options.dev_share
    if options.dev_unit == "document" and document_of:
        documents = np.array([document_of[sample] for sample in ids])
        # Of documents that are examples themselves, as of single ones, the ids of samples are as good.
        units = documents if len(set(documents)) > 1 else units
    names = np.unique(units)
    if len(names) < 2:
        return np.zeros(len(units), bool)
    order = generator(seed, "dev examples", client).permutation(len(names))
    return np.isin(units, names[order[: test_count(share, len(names))]])


def _split(
    prepared: Prepared, client: ClientExamples, document_of: Mapping[str, str], options: ChoiceOptions, seed: int
) -> ClientExamples:
    known = prepared.partition is not None and document_of
    ids = prepared.partition.clients[client.client_id].train if known else np.arange(len(client.train[LABEL]))
    mask = dev_mask(ids, document_of if known else {}, options, seed, client.client_id)
    train, dev = ({name: array[rows] for name, array in client.train.items()} for rows in (~mask, mask))
    return ClientExamples(client.client_id, train, client.test, dev)
