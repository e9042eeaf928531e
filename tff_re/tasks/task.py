"""What a task is: one file of this folder, with a subclass of `Task` and `TASK = ` an instance of it.

The file's name is the task's in recipes. `synthetic.py` is a short one. A file of a task imports TensorFlow only inside
of functions, so that wrong keys of [task] are refused before that.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from datasets.federated import Examples, FederatedExamples
from datasets.partition import ClientSamples, Partition
from tff_re.errors import UserError
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.held_out import HeldOut

if TYPE_CHECKING:
    from tff_re.tasks.base import Prepared
    from tff_re.tasks.metrics import ClassMeasures, PairMeasures
    from tff_re.tasks.span_metrics import SpanMeasures

SERVER = "the server"
"""In place of a client's id, for the coordinator's own labelled examples."""


@dataclass(frozen=True)
class AtServer:
    """What the coordinator of sites holds: labelled examples, or examples for dev and test, with notes on them."""

    server: Examples | None = None
    held_out: HeldOut | None = None
    notes: tuple[str, ...] = ()


class Task:
    """A task that recipes choose by name: a data set, its encoding, the model's inputs, and what is measured.

    Attributes:
      Options: a frozen attrs class; its fields are the keys of [task], its docstring explains them.
      side_arrays: names of the int32 arrays that examples have in addition to the model's inputs and the label, for
        algorithms; the same numbers at all clients.
      across_sites: whether sites can train it; then it has the methods of the second part.
      server_tests: whether the server holds the dev and test examples, and clients none.
      numbers_facts: whether examples name facts of a knowledge base by their numbers, which sites have to agree on.
      test_file: the key of [task] that names the file to test on.
      label_keys: keys of [task] that limit which labels a file may have, the list of labels first; none: the reader
        knows the labels.
      many_labels: whether a text may have any number of labels, and not one.
      quality: the metric on test that a comparison of its recipes shows, see `SpanMeasures.quality`.
    """

    Options: type
    side_arrays: tuple[str, ...] = ()
    across_sites: bool = False
    server_tests: bool = False
    numbers_facts: bool = False
    test_file: str = "test_path"
    label_keys: tuple[str, ...] = ()
    many_labels: bool = False
    quality: str = "accuracy"

    def prepare(self, options: Any, partitioner: Any, seed: int, data_paths: DataPaths) -> Prepared:
        """The data of a run: read or generated, given to clients, and encoded.

        Args:
          options: an instance of `Options`.
          partitioner: of the recipe.
          seed: of the run.
          data_paths: where the data are.

        Raises:
          UserError: the options do not fit the data. DataError: these are missing or malformed.
        """
        raise NotImplementedError

    def measures(
        self, positive_labels: Sequence[int] | None = None, inputs: Any = None
    ) -> ClassMeasures | PairMeasures | SpanMeasures:
        """What is measured on the clients' examples.

        Args:
          positive_labels: the classes that are relations; None: the task does not classify relations.
          inputs: the model's, which may say what is measured (types of entities).
        """
        from tff_re.tasks.metrics import ClassMeasures

        return ClassMeasures(positive_labels)

    def label_counts(self, corpus: Any, samples: Iterable[Any]) -> dict[str, int]:
        """How often each label of the corpus occurs in these samples; 0 for labels that none has."""
        counts = collections.Counter(sample.label for sample in samples)
        return {name: counts[label] for label, name in enumerate(corpus.label_names)}

    # Across sites: every party encodes its own data as all agreed

    def at_site(self, options: Any) -> Any:
        """The options as a site reads them. Raises UserError where no site can have such data."""
        return options

    def held(
        self, options: Any, partitioner: Any, seed: int, data_paths: DataPaths
    ) -> tuple[tuple[Any, ...], Partition]:
        """(the corpora of which clients hold samples, who holds which sample).

        Nothing is encoded.
        """
        raise NotImplementedError

    def rows(self, samples: Sequence[Any]) -> int:
        """How many examples these samples make."""
        return len(samples)

    def training_corpus(self, options: Any, data_paths: DataPaths) -> Any:
        """The training samples, as the file or the catalogue has them."""
        raise NotImplementedError

    def words(
        self, options: Any, corpora: tuple[Any, ...], partition: Partition, data_paths: DataPaths
    ) -> Mapping[str, Iterable[Sequence[str]]]:
        """Client id -> the words of each text that it trains on, from which the vocabulary is counted.

        Empty if the task has no vocabulary.
        """
        return {}

    def facts(self, corpus: Any, samples: Iterable[Any]) -> list[tuple[int, tuple[str, ...]]]:
        """(number in the corpus, fact) for each fact of these samples.

        See `numbers_facts`.
        """
        raise NotImplementedError

    def pair_relations(self, corpus: Any) -> tuple[str, ...] | None:
        """The relations that a pair of entities may have, or None if an example has one class."""
        return None

    def largest(
        self, options: Any, corpora: tuple[Any, ...], partition: Partition, clients: Collection[str]
    ) -> tuple[int, ...] | None:
        """Sizes of the largest examples of these clients, which the inputs of all parties have to fit.

        None: the options give the sizes.
        """
        return None

    def largest_at_server(self, options: Any, data_paths: DataPaths) -> tuple[int, ...]:
        """The same of the coordinator's examples."""
        raise NotImplementedError

    def agreed(self, options: Any, seed: int, data_paths: DataPaths) -> tuple[Any, Any, tuple[str, ...]]:
        """(encoding, the model's inputs, notes) as agreed in `data_paths`.

        No text is read.

        Args:
          seed: of the run; draws the vectors of words that a file of vectors does not have.
        """
        raise NotImplementedError

    def encoded(
        self, options: Any, corpora: tuple[Any, ...], partition: Partition, encoding: Any
    ) -> tuple[FederatedExamples, tuple[str, ...]]:
        """(the clients' examples, notes on their texts)."""
        raise NotImplementedError

    def arranged(
        self, examples: Examples, encoding: Any, inputs: Any, *, client: int, numbers: np.ndarray | None
    ) -> Examples:
        """A client's encoded examples in the form that all parties agreed on.

        Args:
          examples: of `encoded`, with the labels of all.
          encoding, inputs: of `agreed`.
          client: its number among all clients.
          numbers: a fact's number in the site's corpus -> its number among all; None unless `numbers_facts`.
        """
        return examples

    def server_corpus(self, options: Any, data_paths: DataPaths) -> Any | None:
        """The coordinator's labelled samples, or None if the recipe gives it none."""
        return None

    def at_server(
        self, options: Any, names: Sequence[str], encoding: Any, inputs: Any, data_paths: DataPaths
    ) -> AtServer:
        """What the coordinator holds, encoded as agreed.

        Args:
          names: of the model's outputs, as agreed: the classes, or the relations of `pair_relations`.
          encoding, inputs: of `agreed`.

        Raises:
          UserError, DataError: its files do not fit.
        """
        return AtServer()


class LabelledServerTask(Task):
    """A task whose server may hold labelled training samples (`task.server_share`, FedED's D_v).

    Its options have `server_share` and `path`.
    """

    def at_site(self, options: Any) -> Any:
        return attrs.evolve(options, server_share=0.0)  # the coordinator has a file of its own

    def server_corpus(self, options: Any, data_paths: DataPaths) -> Any | None:
        """All samples of the coordinator's file. Raises UserError where the recipe names none."""
        if not options.server_share:
            return None
        if options.path is None:
            raise UserError(
                "task.server_share: in a run across sites the coordinator has the server's examples; name its file "
                "with task.path (--set task.path=FILE), or set task.server_share to 0"
            )
        return self.training_corpus(options, data_paths)

    def at_server(
        self, options: Any, names: Sequence[str], encoding: Any, inputs: Any, data_paths: DataPaths
    ) -> AtServer:
        corpus = self.server_corpus(options, data_paths)
        if corpus is None:
            return AtServer()
        partition = Partition("all", {}, 0, {SERVER: ClientSamples(tuple(s.sample_id for s in corpus.samples), ())})
        examples = self.encoded(options, (corpus,), partition, encoding)[0].clients[0].train
        return AtServer(relabelled(examples, corpus.label_names, names), notes=corpus.notes)


def relabelled(examples: Examples, label_names: Sequence[str], agreed: Sequence[str]) -> Examples:
    """Examples of these classes with the labels that all parties have."""
    label_of = {name: label for label, name in enumerate(agreed)}
    return {**examples, "y": np.array([label_of[name] for name in label_names], np.int32)[examples["y"]]}
