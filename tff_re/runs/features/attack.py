"""What a recipe's [attack] makes of its run: who attacks, with which examples and updates, and its success."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from computations.client_work import attacks
from computations.client_work.attack_options import AttackOptions
from computations.client_work.attacks import CLAIM_ALL, Trigger
from computations.federated_algorithm import recompose
from computations.local_model import LABEL
from datasets.text.encoding import TextEncoding
from tff_re.errors import UserError, nearest
from tff_re.models.inputs import DenseInput, TokenInput
from tff_re.runs.features.base import Feature
from tff_re.runs.features.shares import sums_are_secure
from tff_re.runs.randomness import entropy
from tff_re.tasks.base import Prepared

if TYPE_CHECKING:
    from tff_re.runs.experiment import Experiment

SUCCESS = "attack/success"
"""The share of the clients' test examples of other classes that the model puts into the target's with the trigger."""

_WHICH, _EXAMPLES = 61, 62
"""Purposes of the run's seed, see `entropy`."""


class Attack(Feature):
    """The attackers of a run.

    Attributes:
      clients: ids of those that attack.
      trigger: of a backdoor; None: there is none.
    """

    table = "attack"
    trigger: Trigger | None = None
    _success = None

    @property
    def algorithm_key(self):
        """See `Feature`."""
        return self.options.on_update

    def refuse(self, *, at_sites):
        """See `Feature`."""
        if at_sites:
            raise UserError(
                f"{self.recipe.source}: [attack] works only in a simulation, not across sites; leave it out"
            )

    def prepare(self, setting):
        """The run's seed chooses the attackers among the clients with training examples.

        Raises:
          UserError: there are too few clients, or the data cannot be attacked so; names the key.
        """
        prepared, recipe, options = setting.prepared, self.recipe, self.options
        held = np.flatnonzero(prepared.examples.sizes("train"))
        number = options.number(len(held))
        if number > len(held):
            raise UserError(
                f"{recipe.source}: attack.clients is {number}, but only {len(held)} clients have training examples; "
                "lower it"
            )
        generator = np.random.default_rng(entropy(recipe.seed, _WHICH))
        chosen = generator.permutation(len(held))[:number]  # more attackers are the same ones and others
        attackers = [prepared.examples.clients[held[i]] for i in chosen]
        self.clients, self._num_classes = frozenset(c.client_id for c in attackers), len(prepared.class_names)
        model = prepared.local_model(recipe.model)
        self._row_labels = model.row_labels
        try:
            if options.kind in ("backdoor", "label_flip") and not model.one_label:
                raise ValueError("a pair of a document may have several relations or none; choose another kind")
            if options.kind == "backdoor":
                if model.row_labels is not None:
                    raise ValueError(
                        "a trigger changes the class of a whole text, but here each token has a tag; use kind = "
                        "'label_flip'"
                    )
                self.trigger = _trigger(options, prepared)
            for attacker in attackers:
                self._changed(0, attacker.train)
        except ValueError as error:
            raise UserError(f"{recipe.source}: [attack] kind = '{options.kind}': {error}") from None

    def change_algorithm(self, algorithm):
        """The algorithm in which clients may hand over something else than what they trained."""
        recipe, options = self.recipe, self.options
        if options.on_update is None:
            return algorithm
        kind, factor = options.on_update
        with self.naming(f"[attack] kind = '{options.kind}': "):
            if kind == CLAIM_ALL and "selection" not in algorithm.client_work.side_outputs:
                raise UserError("claims triples, and only lazy_mil divides triples among clients; choose another kind")
            if kind == "nan" and sums_are_secure(recipe):
                raise UserError(
                    "cannot be combined with aggregation.secure: for a secure sum clients send integers, which "
                    "cannot be NaN; choose another kind"
                )
            return recompose(algorithm, client_work=attacks.attacked(algorithm.client_work, kind, factor))

    def warnings(self, experiment):
        """See `Feature`."""
        bad, clients = len(self.clients), int((experiment.prepared.examples.sizes("train") > 0).sum())
        if 2 * bad < clients:
            return ()
        return (
            f"attack.clients makes {bad} of {clients} clients attackers; no aggregation rule withstands half of "
            "the clients or more",
        )

    def client_value(self, index: int, client: str, value: OrderedDict) -> OrderedDict:
        """What the algorithm gets of a client: the examples that it trains on, and whether it attacks by its update."""
        trained = self.trained_on(index, client, value["examples"])
        flag = {} if self.options.on_update is None else {"attacks": np.bool_(client in self.clients)}
        return OrderedDict({**value, "examples": trained, **flag})

    def trained_on(self, index: int, client: str, examples: Mapping[str, np.ndarray]) -> OrderedDict:
        """The examples of a client, of an attacker those that it trains on in place of them.

        `index`: of the client among those with training examples.
        """
        return OrderedDict(self._changed(index, examples) if client in self.clients else examples)

    def _changed(self, index: int, examples):
        if self.trigger is not None:
            seed = entropy(self.recipe.seed, index, _EXAMPLES)
            return attacks.poisoned(examples, self.trigger, self.options.poisoned_share, seed)
        if self.options.kind == "label_flip":
            return attacks.flip_labels(examples, self._num_classes, self.options.flip, self._row_labels)
        return examples

    def start(self, training):
        """See `Feature`."""
        self._success = None if self.trigger is None else SuccessEvaluator(training.experiment, self)

    def evaluate(self, training, weights):
        """See `Feature`."""
        return {} if self._success is None else {SUCCESS: self._success(weights)}

    def after_round(self, training, metrics):
        """See `Feature`."""
        counted = [training.ids[index] for index in training.answers.places]
        metrics["attack/clients"] = float(sum(client in self.clients for client in counted))

    def columns(self, clients):
        """See `Feature`."""
        return {"attacks": {client: "yes" if client in self.clients else "no" for client in clients}}

    def summary(self, result):
        """See `Feature`."""
        return {"attackers": sorted(self.clients)}


class SuccessEvaluator:
    """How often a backdoor opens: the accuracy on the clients' test examples of other classes with the trigger, which
    are labelled as its class."""

    def __init__(self, experiment: Experiment, attack: Attack):
        clients = experiment.prepared.examples.clients
        tested = [attacks.triggered(c.test, attack.trigger) for c in clients if len(c.test[LABEL])]
        self._examples = [experiment.model.arrange(arrays) for arrays in tested if len(arrays[LABEL])]
        self._computation, self._measures = experiment.evaluation, experiment.prepared.measures

    def __call__(self, weights) -> float:
        """Evaluates ModelWeights in the current execution context.

        The result is NaN if there is no such example.
        """
        if not self._examples:
            return float("nan")
        counted = self._computation(weights, self._examples)
        total = {name: np.sum([np.asarray(counts[name]) for counts in counted], axis=0) for name in counted[0]}
        return self._measures.metrics(total)[self._measures.quality]


def _trigger(options: AttackOptions, prepared: Prepared) -> Trigger:
    """ValueError or UserError's text where the data have no such."""
    if prepared.held_out is not None or not prepared.examples.size("test"):
        raise ValueError(
            "its success is measured on the clients' test examples, but this task has none; use kind = 'label_flip'"
        )
    labels = prepared.label_names
    if options.target is not None and options.target not in labels:
        raise ValueError(
            f"attack.target is {options.target!r}, which is not a label; {nearest(options.target, labels)}"
        )
    target = 0 if options.target is None else labels.index(options.target)
    feature, position, value = _opens(options, prepared)
    if options.trigger_place is not None:
        position = options.trigger_place
    return Trigger(feature, (value,), target, position)


def _opens(options: AttackOptions, prepared: Prepared) -> tuple[str, int, Any]:
    """(the feature, the usual place, what is written there)."""
    inputs, encoding, word = prepared.inputs, prepared.encoding, options.trigger
    if isinstance(inputs, DenseInput):
        try:
            return "x", inputs.width - 1, 10.0 if word is None else float(word)
        except ValueError:
            raise ValueError(f"attack.trigger is {word!r}, but these examples are numbers; give a number") from None
    if isinstance(inputs, TokenInput) and isinstance(encoding, TextEncoding):
        if word is None:
            return "tokens", 0, inputs.vocabulary_size - 1  # the words stand by their frequency
        (number,) = encoding.vocabulary.ids([word])
        unknown, feature, position = 1, "tokens", 0
    elif "input_ids" in inputs.specs:
        if word is None:
            raise ValueError("attack.trigger is missing; name a rare piece of the vocabulary")
        number, unknown = encoding.tokenizer.convert_tokens_to_ids(word), encoding.tokenizer.unk_token_id
        feature, position = "input_ids", 1
    else:
        raise ValueError(
            "a model with frozen layers reads no words to write the trigger into; set model.frozen_layers = 0"
        )
    if number in (None, unknown):
        raise ValueError(f"attack.trigger is {word!r}, which is not in the vocabulary; name another piece")
    return feature, position, number
