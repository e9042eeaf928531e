"""A site's own data: its clients, their examples, and their word counts."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import attrs
import numpy as np

from datasets.federated import Examples
from datasets.partition.base import Partitioner, Sample
from datasets.partition.by_field import field_values, grouped
from datasets.text.vocabulary import RESERVED
from tff_re.recipes.reading import Recipe
from tff_re.runs.features.choice import dev_mask
from tff_re.sites.agreement import Agreement
from tff_re.sites.policy import ClientsOptions, Site
from tff_re.sites.prepared import require_task
from tff_re.sites.words import WordCounts, digests
from tff_re.tasks import TASKS
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.task import relabelled


@attrs.define
class SiteRule(Partitioner):
    """How a site makes its clients, which are named after it.

    The site is one client, or each of its documents or each value of a field is one.

    Attributes:
      site: its name.
      options: see `ClientsOptions`.
      numbers: value -> the client's number, in the order in which they were met.
    """

    site: str
    options: ClientsOptions
    numbers: dict[str, int] = attrs.field(factory=dict)
    name: ClassVar[str] = "site"

    def apply(self, drawn: None, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, list[int]]:
        if self.options.rule == "one":
            return {self.site: list(range(len(samples)))}
        if self.options.rule == "documents":
            values = [sample.document_id for sample in samples]
        else:
            values = field_values(samples, self.options.field)
        return {self._client(value): indices for value, indices in grouped(values).items()}

    def _client(self, value: str) -> str:
        number = self.numbers.setdefault(value, len(self.numbers))
        return f"{self.site}/{value if self.options.names else number}"


class SiteData:
    """The data of one site for one recipe."""

    def __init__(self, site: Site, recipe: Recipe):
        """Read the data.

        Raises UserError or DataError if the task cannot be trained at sites, or the data are missing or malformed.
        """
        require_task(recipe.task)
        self.recipe, self._task = recipe, TASKS[recipe.task.name]
        self._options = self._task.at_site(recipe.task.options)
        folder = site.options.data.folder
        self.data_paths = DataPaths(data=None if folder is None else Path(site.path(folder)))
        options = site.options.clients
        self.share = options.part if options.rule == "share" else None
        rule = SiteRule(site.options.name, options) if self.share is None else recipe.partition.options
        self.corpora, self.partition = self._task.held(self._options, rule, recipe.seed, self.data_paths)
        least = options.least_examples
        self.clients = {c: held for c, held in self.partition.clients.items() if len(held.train) >= least}
        self._counted = self.clients
        if self.share is not None:
            self.clients, self._counted = _part_of(self.clients, *self.share)

    def count_all_clients(self) -> None:
        """Let clients take part that have too few training examples, or none. Shares have all of theirs already."""
        if self.share is None:
            self.clients = self.partition.clients

    @property
    def sizes(self) -> list[tuple[str, int, int, int | None]]:
        """Return (client, training, test and dev examples) for each client that takes part (see `Client`)."""
        sizes = []
        for client, held in self.clients.items():
            rows, out = self._task.rows([self._sample_of[i] for i in held.train]), self._dev_rows(client)
            dev = None if out is None else int(out.sum())
            sizes.append((client, rows - (dev or 0), len(held.test), dev))
        return sizes

    @property
    def split_samples(self) -> dict[str, list]:
        """The samples of the clients that take part, by split: train, dev where clients keep some out, test."""
        splits: dict[str, list] = {"train": [], "dev": [], "test": []}
        for client, held in self.clients.items():
            out = self._dev_rows(client)
            dev = [False] * len(held.train) if out is None else out
            for i, is_dev in zip(held.train, dev, strict=True):
                splits["dev" if is_dev else "train"].append(self._sample_of[i])
            splits["test"] += [self._sample_of[i] for i in held.test]
        return {split: samples for split, samples in splits.items() if samples}

    def test_documents(self, client: str) -> list[str]:
        """Return the document of each of a client's test examples."""
        return [self._sample_of[i].document_id for i in self.clients[client].test]

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the classes of the site's data."""
        return tuple(self.corpora[0].label_names)

    @property
    def positive_labels(self) -> list[str] | None:
        """Return the names of the classes that are relations, or None if the task has no other classes."""
        labels = getattr(self.corpora[0], "positive_labels", None)
        return None if labels is None else [self.label_names[label] for label in labels]

    @property
    def relations(self) -> tuple[str, ...] | None:
        """Return the relations that a pair in a document may have, or None if the samples are not documents."""
        return self._task.pair_relations(self.corpora[0])

    @cached_property
    def document_form(self) -> tuple[int, ...] | None:
        """See `Task.largest`."""
        return self._task.largest(self._options, self.corpora, self.partition, self.clients)

    def word_counts(self) -> WordCounts | None:
        """Count the words of the site's clients, or return None if the recipe has a tokenizer.

        The order of the words reveals nothing.

        Of shares the first counts for all clients, as the simulation does, and the others count nothing.
        """
        texts = self._task.words(self._options, self.corpora, self.partition, self.data_paths)
        if not texts:
            return None
        counts, holders = collections.Counter(), collections.Counter()
        for client, of_client in texts.items():
            if client in self._counted:
                held = collections.Counter(word for words in of_client for word in words)
                counts.update(held)
                holders.update(held.keys())
        words = sorted(word for word in counts if word not in RESERVED)
        return WordCounts(
            words, *(np.array([counter[word] for word in words], np.int64) for counter in (counts, holders))
        )

    def facts(self, secret: bytes, run: str) -> tuple[np.ndarray, np.ndarray] | None:
        """(uint8 [n, 16], the digests of the facts of the clients' sentences, sorted; int64 [n], the number of each in
        the site's own corpus); None where there are no bags."""
        if not self._task.numbers_facts:
            return None
        samples = (self._sample_of[i] for client in self.clients.values() for i in client.train)
        numbers, stated = zip(*self._task.facts(self.corpora[0], samples), strict=True)
        keyed = digests(secret, run, "fact", list(map(json.dumps, stated)))
        order = np.lexsort(keyed.T)
        return keyed[order], np.array(numbers, np.int64)[order]

    def examples(self, agreement: Agreement, encoding, inputs, numbers: np.ndarray | None) -> dict[str, tuple]:
        """Return each client's examples of `SPLITS`, encoded and labelled as agreed upon.

        Args:
          agreement: of all.
          encoding, inputs: see `AgreedEncoding`.
          numbers: int32 [n], those of all facts of the site's corpus among the sites' facts; None: there are no bags.
        """
        examples, _ = self._task.encoded(self._options, self.corpora, self.partition, encoding)
        index_of, examples_of = {c.client_id: index for index, c in enumerate(agreement.clients)}, {}

        def arranged(part: Examples, client: str) -> Examples:
            part = relabelled(part, examples.label_names, agreement.label_names)
            return self._task.arranged(part, encoding, inputs, client=index_of[client], numbers=numbers)

        for client in examples.clients:
            if (name := client.client_id) in self.clients:
                train, test, dev = arranged(client.train, name), arranged(client.test, name), None
                if (out := self._dev_rows(name)) is not None:
                    train, dev = ({n: array[rows] for n, array in train.items()} for rows in (~out, out))
                examples_of[name] = train, test, dev
        return examples_of

    @cached_property
    def _sample_of(self) -> dict:
        return {sample.sample_id: sample for corpus in self.corpora for sample in corpus.samples}

    def _dev_rows(self, client: str) -> np.ndarray | None:
        """Return which of a client's training examples are dev examples (bool [n]), or None if no client has any."""
        if not self.recipe.has_choice or self._task.server_tests:
            return None  # the dev examples are the coordinator's
        ids = self.clients[client].train
        document_of = {i: self._sample_of[i].document_id for i in ids}
        return dev_mask(ids, document_of, self.recipe.choice, self.recipe.seed, client)


def _part_of(clients: dict, number: int, parts: int) -> tuple[dict, dict]:
    """Return the clients of one of `parts` equal parts, and those whose words it counts (all, in the first part)."""
    names = list(clients)
    here = names[(number - 1) * len(names) // parts : number * len(names) // parts]
    return {name: clients[name] for name in here}, clients if number == 1 else {}
