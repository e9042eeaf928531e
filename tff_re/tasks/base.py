"""A task's data for a run: examples at clients, the form of the inputs, what is measured."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from computations.registry import Choice
from datasets.federated import ClientExamples, FederatedExamples, PackedClients
from datasets.partition import LabelCounts, Partition, build_partition, read_partition
from tff_re import models
from tff_re.errors import UserError
from tff_re.models.inputs import (
    DenseInput,
    DocumentInput,
    HiddenInput,
    PieceInput,
    RelationInput,
    Tagged,
    TaggedPieceInput,
    TaggedTokenInput,
    TokenInput,
    pieces_of,
    unread_specs,
)
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.held_out import DEV, HeldOut
from tff_re.tasks.sizes import require_room_for_outputs, require_samples_for_clients

if TYPE_CHECKING:  # a recipe's keys are checked without these
    import tensorflow as tf

    from computations.federated_algorithm import FederatedAlgorithm
    from computations.local_model import LocalModel
    from datasets.documents.encoding import DocumentEncoding
    from datasets.documents.statistics import DocumentStatistics
    from datasets.text.encoding import TextEncoding
    from datasets.text.piece_encoding import PieceEncoding
    from datasets.text.relation_encoding import RelationEncoding
    from tff_re.models.model import Model
    from tff_re.tasks.metrics import ClassMeasures, PairMeasures


@dataclass(frozen=True)
class Prepared:
    """A task's data as one seed distributes them. What only one task has is in a subclass, in that task's file.

    Attributes:
      examples: what each client holds.
      inputs: the form of the model's inputs, see `tff_re.models.inputs`.
      measures: what is measured on the clients' examples.
      counts: label counts by client, for the partition report; None where the clients are at sites.
      partition: which sample is where; None where no samples are given to clients.
      encoding: from raw text, pairs of mentions or documents to the model's inputs; None for numbers.
      corpora: what the partition's ids are of, for an export to be checked on; none where nothing was read.
      held_out: the examples at the server for dev and test, where the clients hold no test examples.
      side_arrays: see `Task.side_arrays`.
      notes: for readers of the results: what was left out, coverage of the word vectors, …
      sites: names of the sites that hold the examples; empty: all are here.
      data_digest: SHA-256 of the examples that were read, see `with_data_digest`; None: none were, or not yet.
    """

    examples: FederatedExamples
    inputs: DenseInput | DocumentInput | HiddenInput | PieceInput | RelationInput | Tagged | TokenInput
    measures: ClassMeasures | PairMeasures
    counts: LabelCounts | None
    partition: Partition | None = None
    encoding: DocumentEncoding | PieceEncoding | RelationEncoding | TextEncoding | None = None
    corpora: tuple = field(default=(), repr=False)
    held_out: HeldOut | None = None
    side_arrays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    data_digest: str | None = None

    # What a subclass may have

    @property
    def num_triples(self) -> int | None:
        """The number of facts in the knowledge base, pairs without a fact included, or None without bags."""
        return None

    @property
    def truth(self) -> tuple[np.ndarray, ...] | None:
        """Which rows of the clients state their relation, or None if that is not known.

        See `PreparedBags`.
        """
        return None

    @property
    def pair_relations(self) -> tuple[str, ...] | None:
        """The relations that a pair in a document may have, or None if an example has one class."""
        return None

    @property
    def pair_types(self) -> tuple[tuple[str, str], ...]:
        """Types of the heads and tails of candidate pairs in documents.

        Empty if they are not known here.
        """
        return ()

    @property
    def documents(self) -> DocumentStatistics | None:
        """How whole documents spread over the clients, or None if the samples are not documents."""
        return None

    def groups(self) -> list[np.ndarray]:
        """For each client int32 [n], equal where training examples are of one document (dialogue, patient's report).

        Raises:
          UserError: the examples have no such ids.
        """
        if self.partition is None or not self.corpora:
            raise UserError(
                "privacy.unit is 'group', but this task's examples do not belong to documents or patients; set "
                "privacy.unit to 'example' or 'client'"
            )
        document_of = {
            s.sample_id: getattr(s, "group_id", s.document_id) for corpus in self.corpora for s in corpus.samples
        }
        number_of = {document: number for number, document in enumerate(dict.fromkeys(document_of.values()))}
        return [
            np.array([number_of[document_of[i]] for i in self.partition.clients[client].train], np.int32)
            for client in self.examples.ids
        ]

    def references(self) -> dict[str, dict[str, float]]:
        """Row of a comparison's table -> metric -> value, of what needs no training and the clients' texts."""
        return {}

    # What all have

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        return self.examples.label_names

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that the model tells apart, in the order of its outputs: the labels, or of tokens their tags."""
        return getattr(pieces_of(self.inputs), "tag_names", self.label_names)

    @property
    def measured_names(self) -> tuple[str, ...]:
        """What precision and recall are of, one by one: the labels, or the types of entities."""
        return getattr(self.measures, "class_names", self.label_names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the model's probabilities are of: the classes, or of documents the relations that a pair may have."""
        return self.class_names if self.pair_relations is None else self.pair_relations

    def exported_inputs(self, algorithm: FederatedAlgorithm):
        """What an exported model is fed with, where an algorithm of this task trained it."""
        return self.inputs if self.held_out is None else self.held_out.exported_inputs(self.inputs, algorithm)

    def samples(self, split: str) -> list:
        """The samples of a split of the server or of all clients, in their order.

        Empty if nothing was read.
        """
        if self.held_out is not None and split in self.held_out.corpora:
            return list(self.held_out.corpora[split].samples)
        return self._at_clients(split)

    def _at_clients(self, split: str) -> list:
        if self.partition is None or not self.corpora:
            return []
        sample_of = {sample.sample_id: sample for corpus in self.corpora for sample in corpus.samples}
        return [sample_of[i] for client in self.partition.clients.values() for i in getattr(client, split)]

    def trained_on(self) -> list:
        """The training samples of clients and server, and the server's dev samples.

        Clients' dev samples are among their training samples. Empty if nothing was read here, as of clients at sites.
        """
        if self.sites:
            return []
        dev = None if self.held_out is None else self.held_out.corpora.get(DEV)
        server = set() if self.partition is None else set(self.partition.server)
        of_server = [s for corpus in self.corpora for s in corpus.samples if s.sample_id in server]
        return [*self._at_clients("train"), *of_server, *(() if dev is None else dev.samples)]

    def test_unit_keys(self) -> dict[str, list[str]]:
        """Client id -> the unit of each of its test examples: the document, dialogue or patient's record that it is of.

        An example that is of none is a unit by itself.
        """
        clients = dict(zip(self.examples.ids, self.examples.sizes("test").tolist(), strict=True))
        if self.partition is None or not self.corpora:
            return {client: [f"{client}/{number}" for number in range(count)] for client, count in clients.items()}
        unit_of = {s.sample_id: getattr(s, "group_id", s.document_id) for c in self.corpora for s in c.samples}
        held = self.partition.clients
        return {client: [unit_of[i] for i in held[client].test] if n else [] for client, n in clients.items()}

    def with_groups(self) -> Prepared:
        """These data with the array `group` for the training examples, see `groups`.

        The value is -1 for examples that are not trained on.

        A note says how many groups lie at several clients, each of which then hides its own part of one.

        Raises:
          UserError: the examples have no such ids, or no two of them share one.
        """
        from computations.local_model import GROUP

        groups, remedy = self.groups(), "set privacy.unit to 'example' or 'client'"
        holders = collections.Counter(
            number for client_groups in groups for number in np.unique(client_groups).tolist()
        )
        if sum(holders.values()) == sum(map(len, groups)):
            raise UserError(
                f"privacy.unit is 'group', but no client has two training examples from the same document; {remedy}"
            )
        spread = sum(count > 1 for count in holders.values())
        note = f"privacy: {len(holders)} groups of training examples"
        if spread:
            note += f", {spread} of them spread over several clients, each of which protects its own part"

        def with_group(examples, numbers=None):
            return {**examples, GROUP: np.full(len(examples["y"]), -1, np.int32) if numbers is None else numbers}

        clients = PackedClients.from_clients(
            ClientExamples(client.client_id, with_group(client.train, client_groups), with_group(client.test))
            for client, client_groups in zip(self.examples.clients, groups, strict=True)
        )
        server = self.examples.server
        return dataclasses.replace(
            self,
            examples=FederatedExamples(clients, self.label_names, None if server is None else with_group(server)),
            side_arrays=(*self.side_arrays, GROUP),
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
        result = self._model(model).precompute(model.options, self.inputs, seed)
        if result is None:
            return self
        inputs, run = result
        notes, fixed = self.notes, pieces_of(inputs).fixed
        if fixed is not None:
            size = sum(math.prod(shape) for shape in fixed.shapes) * 4 / 1e6
            ran = "every layer" if run is None else "every layer above the frozen ones"
            notes += (f"adapter: {size:.0f} MB of fixed weights are read from files; {ran} is computed in every step",)
        if run is None:
            return dataclasses.replace(self, inputs=inputs, notes=notes)
        server = self.examples.server
        parts = [part for client in self.examples.clients for part in (client.train, client.test)]
        parts += [] if server is None else [server]
        require_room_for_outputs(sum(len(part["y"]) for part in parts), inputs.shape)
        together = run({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        ends = np.cumsum([len(part["y"]) for part in parts])[:-1]
        rows = zip(*(np.split(array, ends) for array in together.values()), strict=True)
        split = [dict(zip(together, arrays, strict=True)) for arrays in rows]
        clients = tuple(
            ClientExamples(client.client_id, *split[2 * i : 2 * i + 2])
            for i, client in enumerate(self.examples.clients)
        )
        examples = FederatedExamples(clients, self.label_names, None if server is None else split[-1])
        held_out = None if self.held_out is None else self.held_out.precomputed(run)
        return dataclasses.replace(self, examples=examples, inputs=inputs, held_out=held_out, notes=notes)

    def local_model(self, model: Choice) -> LocalModel:
        """The recipe's model for these inputs.

        Raises:
          UserError: a model that does not take them.
        """
        from computations.local_model import LocalModel

        chosen = self._model(model)
        if getattr(self.inputs, "vectors", None) is not None and not chosen.reads_vectors(model.options):
            raise UserError(
                f"with this recipe the model '{model.name}' does not read word vectors; leave task.vectors_path (or "
                "task.vectors) out, or choose another model"
            )
        options, inputs, num_classes = model.options, self.inputs, len(self.class_names)
        return LocalModel(
            build=lambda: chosen.build(options, inputs, num_classes),
            input_spec=input_spec(inputs, self.side_arrays),
            num_classes=num_classes,
            initialise=chosen.initialise(options, inputs),
            **chosen.local_parts(options, inputs),
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
    TaggedPieceInput: (
        ", word pieces with tags",
        "choose model.name = 'token_encoder', or 'tagger' with task.encoding = 'words' or 'characters'",
    ),
    TaggedTokenInput: (
        ", words or characters with tags",
        "choose model.name = 'tagger', or 'token_encoder' with task.encoding = 'pieces'",
    ),
}
"""Inputs that a task's key chooses: in words, and the remedy where a model does not take them."""


def input_spec(inputs, side_arrays: Iterable[str]) -> dict[str, tf.TensorSpec]:
    """Name -> TensorSpec of what an example has: the model's inputs, `side_arrays` and the label."""
    import tensorflow as tf

    return {**inputs.specs, **dict.fromkeys((*side_arrays, "y"), tf.TensorSpec([None], tf.int32))}


def example_spec(inputs, side_arrays: Iterable[str]) -> dict[str, tf.TensorSpec]:
    """Name -> TensorSpec of all that an example has: `input_spec`, and arrays that the model does not read."""
    return {**input_spec(inputs, side_arrays), **unread_specs(inputs)}


def partition_of(
    corpora: tuple,
    partitioner,
    seed: int,
    data_paths: DataPaths,
    *,
    server_share: float = 0.0,
    server_stratified: bool = False,
    **held_out,
) -> Partition:
    """The partition file of `data_paths`, or one drawn.

    Args:
      corpora: the training corpus, and the one for testing if there is one.
      partitioner, seed: of the draw.
      data_paths: names the file.
      server_share, server_stratified: as in `build_partition`.
      **held_out: how samples are held out at the clients where there is no corpus for testing, see `build_partition`.

    Raises:
      UserError: the file leaves the server without samples where the recipe wants some.
      DataError: the file is malformed or of other corpora, or the samples cannot be shared out so.
    """
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
        server_stratified=server_stratified,
        **({"dev_corpus": test[0]} if test else held_out),
    )
