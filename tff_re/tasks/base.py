"""A task's data for a run: examples at clients, the form of the inputs, what is measured, how to export."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from computations.federated_algorithm import FederatedAlgorithm
from computations.local_model import GROUP, LABEL, TRIPLE, LocalModel
from datasets.bags.records import BagCorpus
from datasets.documents.corpus import DocumentCorpus
from datasets.documents.encoding import DocumentEncoding
from datasets.documents.statistics import DocumentStatistics
from datasets.federated import ClientExamples, FederatedExamples
from datasets.partition import LabelCounts, Partition, build_partition, read_partition
from datasets.text.encoding import TextEncoding
from datasets.text.piece_encoding import PieceEncoding
from datasets.text.relation_encoding import RelationEncoding
from tff_re import models
from tff_re.errors import UserError
from tff_re.models.inputs import (
    DenseInput,
    DocumentInput,
    HiddenInput,
    PieceInput,
    RelationInput,
    TokenInput,
    pieces_of,
)
from tff_re.models.model import Model
from tff_re.settings import Choice
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.held_out import HeldOut
from tff_re.tasks.metrics import ClassMeasures, PairMeasures
from tff_re.tasks.sizes import require_room_for_outputs, require_samples_for_clients


@dataclass(frozen=True)
class Prepared:
    """A task's data as one seed distributes them.

    Attributes:
      examples: what each client holds.
      inputs: the form of the model's inputs.
      counts: label counts by client, for the partition report.
      partition: which sample is where; None where the data are generated at the clients.
      encoding: from raw text, pairs of mentions or documents to the model's inputs; None for numbers.
      corpora: what the partition's ids are of, for an export to be checked on; none where nothing was read.
      positive_labels: the relations that micro-F1 and macro-F1 count, all labels but "no relation"; None: the task does
        not classify relations.
      notes: for readers of the results: what was left out, coverage of the word vectors, …
      held_out: the examples at the server for dev and test, where the clients hold no test examples.
      held_out_corpora: split -> the corpus that `held_out` was made of, for an export to be checked on.
      beside: name -> TensorSpec of what examples have beside the model's inputs and the label, for algorithms.
      bags: the training bags, where that is what the clients' sentences make.
      truth: for each client int8 [n], whether its rows state their relation (1), or not (0), or have none (-1); None
        where that is not known: it is known of planted bags alone.
      documents: how whole documents spread over the clients, where the samples are such.
      pair_relations: the relations that a pair in a document may have, where the examples are documents; None: the
        examples are of one class each.
      references: row of a comparison's table -> metric -> value: what the data themselves give without any training, a
        ceiling or a trivial baseline. Written into summary.json.
    """

    examples: FederatedExamples
    inputs: DenseInput | DocumentInput | HiddenInput | PieceInput | RelationInput | TokenInput
    counts: LabelCounts
    partition: Partition | None = None
    encoding: DocumentEncoding | PieceEncoding | RelationEncoding | TextEncoding | None = None
    notes: tuple[str, ...] = field(default=())
    positive_labels: tuple[int, ...] | None = None
    held_out: HeldOut | None = None
    beside: Mapping[str, tf.TensorSpec] = field(default_factory=dict)
    bags: BagCorpus | None = None
    truth: tuple[np.ndarray, ...] | None = None
    documents: DocumentStatistics | None = None
    pair_relations: tuple[str, ...] | None = None
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    corpora: tuple = field(default=(), repr=False)
    held_out_corpora: Mapping[str, BagCorpus | DocumentCorpus] = field(default_factory=dict, repr=False)

    @property
    def num_triples(self) -> int | None:
        """How many facts the knowledge base has, pairs without one included; None where there are no bags."""
        return None if self.bags is None else len(self.bags.triples)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        return self.examples.label_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the model's probabilities are of: the classes, or of documents the relations that a pair may have."""
        return self.label_names if self.pair_relations is None else self.pair_relations

    @property
    def measures(self) -> ClassMeasures | PairMeasures:
        """What is measured on the clients' examples."""
        return ClassMeasures(self.positive_labels) if self.pair_relations is None else PairMeasures()

    def exported_inputs(self, algorithm: FederatedAlgorithm):
        """What an exported model is fed with, where an algorithm of this task trained it."""
        return self.inputs if self.held_out is None else self.held_out.exported_inputs(self.inputs, algorithm)

    def samples(self, split: str) -> list:
        """The samples of a split of the server or of all clients, in their order; empty where nothing was read."""
        if split in self.held_out_corpora:
            return list(self.held_out_corpora[split].samples)
        if self.partition is None or not self.corpora:
            return []
        sample_of = {sample.sample_id: sample for corpus in self.corpora for sample in corpus.samples}
        return [sample_of[i] for client in self.partition.clients.values() for i in getattr(client, split)]

    def with_groups(self) -> Prepared:
        """These data with `group` beside the examples: equal where training examples are of one document (a dialogue,
        a patient's report), or sentences of one bag; -1 where nothing is trained on.

        A note says how many groups lie at several clients, each of which then hides its own part of one.

        Raises:
          UserError: the examples have no such ids, or no two of them share one.
        """
        remedy = "set privacy.unit to 'example' or 'client'"
        if self.pair_relations is not None:
            raise UserError(
                "privacy.unit is 'group', but an example of this task is a whole document; set it to 'example'"
            )
        if self.bags is not None:
            groups = [client.train[TRIPLE] for client in self.examples.clients]
        elif self.partition is None or not self.corpora:
            raise UserError(
                f"privacy.unit is 'group', but this task's examples are of no document or patient; {remedy}"
            )
        else:
            document_of = {
                s.sample_id: getattr(s, "group_id", s.document_id) for corpus in self.corpora for s in corpus.samples
            }
            number_of = {document: number for number, document in enumerate(dict.fromkeys(document_of.values()))}
            groups = [
                np.array([number_of[document_of[i]] for i in self.partition.clients[client.client_id].train], np.int32)
                for client in self.examples.clients
            ]
        holders = collections.Counter(number for own in groups for number in np.unique(own).tolist())
        if sum(holders.values()) == sum(map(len, groups)):
            raise UserError(
                f"privacy.unit is 'group', but no client has two training examples of one document; {remedy}"
            )
        spread = sum(count > 1 for count in holders.values())
        note = f"privacy: {len(holders)} groups of training examples"
        if spread:
            note += f", {spread} of them at several clients, each of which hides its own part"

        def beside(examples, numbers=None):
            return {**examples, GROUP: np.full(len(examples[LABEL]), -1, np.int32) if numbers is None else numbers}

        clients = tuple(
            ClientExamples(client.client_id, beside(client.train, own), beside(client.test))
            for client, own in zip(self.examples.clients, groups, strict=True)
        )
        server = self.examples.server
        return dataclasses.replace(
            self,
            examples=FederatedExamples(clients, self.label_names, None if server is None else beside(server)),
            beside={**self.beside, GROUP: tf.TensorSpec([None], tf.int32)},
            notes=(*self.notes, note),
        )

    def precomputed(self, model: Choice, seed: int) -> Prepared:
        """These data with what stays as it is in training: outputs of frozen layers, an adapter's fixed weights.

        Args:
          model: the recipe's model.
          seed: the run's, which draws the weights that a checkpoint does not have.

        Raises:
          UserError: a model that does not take them; too little memory for the outputs.
        """
        found = self._model(model).precompute(model.options, self.inputs, seed)
        if found is None:
            return self
        inputs, run = found
        notes, fixed = self.notes, pieces_of(inputs).fixed
        if fixed is not None:
            size = sum(math.prod(shape) for shape in fixed.shapes) * 4 / 1e6
            ran = "every layer" if run is None else "every layer above the frozen ones"
            notes += (f"adapter: {size:.0f} MB of fixed weights are read from files; {ran} runs in every step",)
        if run is None:
            return dataclasses.replace(self, inputs=inputs, notes=notes)
        server = self.examples.server
        parts = [part for client in self.examples.clients for part in (client.train, client.test)]
        parts += [] if server is None else [server]
        require_room_for_outputs(sum(len(part[LABEL]) for part in parts), inputs.shape)
        together = run({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        ends = np.cumsum([len(part[LABEL]) for part in parts])[:-1]
        rows = zip(*(np.split(array, ends) for array in together.values()), strict=True)
        split = [dict(zip(together, arrays, strict=True)) for arrays in rows]
        clients = tuple(
            ClientExamples(client.client_id, *split[2 * i : 2 * i + 2])
            for i, client in enumerate(self.examples.clients)
        )
        examples = FederatedExamples(clients, self.label_names, None if server is None else split[-1])
        held_out = None if self.held_out is None else self.held_out.behind(run)
        return dataclasses.replace(self, examples=examples, inputs=inputs, held_out=held_out, notes=notes)

    def local_model(self, model: Choice) -> LocalModel:
        """The recipe's model for these inputs.

        Raises:
          UserError: a model that does not take them.
        """
        chosen = self._model(model)
        if getattr(self.inputs, "vectors", None) is not None and not chosen.reads_vectors(model.options):
            raise UserError(
                f"the model '{model.name}' as the recipe sets it does not read word vectors; leave task.vectors_path "
                "(or task.vectors) out, or choose another model"
            )
        options, inputs, num_classes = model.options, self.inputs, len(self.label_names)
        return LocalModel(
            build=lambda: chosen.build(options, inputs, num_classes),
            input_spec={**inputs.specs, **self.beside, LABEL: tf.TensorSpec([None], tf.int32)},
            num_classes=num_classes,
            initialise=chosen.initialise(options, inputs),
            **chosen.local_parts(options),
        )

    def _model(self, model: Choice) -> Model:
        """The recipe's model, which has to take these inputs."""
        chosen, inputs = models.MODELS[model.name], pieces_of(self.inputs)
        if not isinstance(inputs, chosen.takes):
            what, remedy = _FORMS.get(type(inputs), ("", "choose another model.name"))
            raise UserError(f"the model '{model.name}' does not take the inputs of this task{what}; {remedy}")
        return chosen


_FORMS = {
    PieceInput: (
        ", word pieces of whole texts",
        "choose model.name = 'text_encoder', or task.encoding = 'words' or 'characters'",
    ),
    TokenInput: (", words or characters", "choose another model.name, or task.encoding = 'pieces' for an encoder"),
}
"""Inputs that a task's key chooses: in words, and the remedy where a model does not take them."""


def partition_of(options, corpora: tuple, partitioner, seed: int, data_paths: DataPaths, **held_out) -> Partition:
    """The partition file of `data_paths`, or one drawn.

    Args:
      options: a task's; its `server_share` and `server_stratified` are `build_partition`'s, if it has them.
      corpora: the training corpus, and the one for testing if there is one.
      partitioner, seed: of the draw.
      data_paths: names the file.
      **held_out: how samples are held out at the clients where there is no corpus for testing, see `build_partition`.

    Raises:
      UserError: the file leaves the server without samples where the recipe wants some.
      DataError: the file is malformed or of other corpora, or the samples cannot be shared out so.
    """
    server_share = getattr(options, "server_share", 0.0)
    if data_paths.partition is not None:
        partition = read_partition(data_paths.partition, *corpora)
        if server_share and not partition.server:
            raise UserError(
                f"{data_paths.partition}: the server holds no samples in it; set task.server_share "
                "to 0, or use another file"
            )
        return partition
    corpus, *test = corpora
    require_samples_for_clients(partitioner, len(corpus.samples))
    return build_partition(
        corpus,
        partitioner,
        seed=seed,
        server_share=server_share,
        server_stratified=getattr(options, "server_stratified", False),
        **({"dev_corpus": test[0]} if test else held_out),
    )
