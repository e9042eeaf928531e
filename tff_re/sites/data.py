"""A site's own data: who its clients are, what they hold, and which words they count."""

from __future__ import annotations

import collections
import dataclasses
import hmac
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import attrs
import numpy as np

from computations.local_model import LABEL
from datasets.federated import Examples
from datasets.partition.base import Partitioner, Sample
from datasets.partition.by_field import field_values, grouped
from datasets.text.vocabulary import RESERVED
from tff_re import tasks
from tff_re.recipes.reading import Recipe
from tff_re.sites.policy import ClientsOptions, Site
from tff_re.tasks.at_sites import Agreement, require_task
from tff_re.tasks.data_paths import DataPaths

DIGEST_BYTES = 16


@attrs.define
class SiteRule(Partitioner):
    """The site's clients: itself, its documents, or the values of a field; named after the site.

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
        return {self._client(value): places for value, places in grouped(values).items()}

    def _client(self, value: str) -> str:
        number = self.numbers.setdefault(value, len(self.numbers))
        return f"{self.site}/{value if self.options.names else number}"


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """Words of the clients' training texts: how often each occurs, and how many clients hold it."""

    words: list[str]
    counts: np.ndarray
    holders: np.ndarray

    def digests(self, secret: bytes, run: str) -> np.ndarray:
        """uint8 [n, 16], the words keyed by the sites' secret (HMAC-SHA-256); other ones in each run."""
        made = [word_digest(secret, run, word) for word in self.words]
        return np.frombuffer(b"".join(made), np.uint8).reshape(len(made), DIGEST_BYTES)


def word_digest(secret: bytes, run: str, word: str) -> bytes:
    """A word as sites show it to a coordinator who must not know it."""
    return hmac.digest(secret, f"{run} {word}".encode("utf-8", "surrogatepass"), "sha256")[:DIGEST_BYTES]


class SiteData:
    """The data of one site for one recipe."""

    def __init__(self, site: Site, recipe: Recipe):
        """Raises UserError, DataError: the task is not for sites, or the data are missing or malformed."""
        require_task(recipe.task)
        self.recipe, self._options = recipe, site.options
        self._module = tasks.module(recipe.task.name)
        folder = site.options.data.folder
        self.data_paths = DataPaths(data=None if folder is None else Path(site.path(folder)))
        self.rule = SiteRule(site.options.name, site.options.clients)
        self._corpora, self._partition = self._module.held(recipe.task.options, self.rule, recipe.seed, self.data_paths)
        least = site.options.clients.least_examples
        self._clients = {c: held for c, held in self._partition.clients.items() if len(held.train) >= least}

    @property
    def sizes(self) -> list[tuple[str, int, int]]:
        """(client, training examples, test examples) of the clients that take part."""
        return [(client, len(held.train), len(held.test)) for client, held in self._clients.items()]

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes of the site's data."""
        return tuple(self._corpora[0].label_names)

    @property
    def positive_labels(self) -> list[str] | None:
        """Names of the classes that are relations; None where the task has no others."""
        found = getattr(self._corpora[0], "positive_labels", None)
        return None if found is None else [self.label_names[label] for label in found]

    def word_counts(self) -> WordCounts | None:
        """Over the site's clients; None where a tokenizer is given. Words in an order that tells nothing."""
        texts = self._module.words(self.recipe.task.options, self._corpora, self._partition, self.data_paths)
        if not texts:
            return None
        counts, holders = collections.Counter(), collections.Counter()
        for client, of_client in texts.items():
            if client in self._clients:
                own = collections.Counter(word for words in of_client for word in words)
                counts.update(own)
                holders.update(own.keys())
        words = sorted(word for word in counts if word not in RESERVED)
        return WordCounts(words, *(np.array([of[word] for word in words], np.int64) for of in (counts, holders)))

    def examples(self, agreement: Agreement) -> dict[str, tuple[Examples, Examples]]:
        """Client -> (training examples, test examples), encoded and labelled as agreed upon."""
        own = dataclasses.replace(self.data_paths, words=agreement.words)
        found = self._module.prepare(self.recipe.task.options, self.rule, self.recipe.seed, own)
        label_of = {name: place for place, name in enumerate(agreement.label_names)}
        labels = np.array([label_of[name] for name in found.label_names], np.int32)
        return {
            client.client_id: tuple({**part, LABEL: labels[part[LABEL]]} for part in (client.train, client.test))
            for client in found.examples.clients
            if client.client_id in self._clients
        }


def passing(counts: Iterable[tuple[bytes, int, int]], *, min_count: int, min_clients: int) -> dict[bytes, int]:
    """Key -> occurrences over all sites, of those words that occur and are held often enough.

    Args:
      counts: (key, occurrences, holders) of every site and word.
      min_count, min_clients: see `Vocabulary.build`.
    """
    total, holders = collections.Counter(), collections.Counter()
    for key, count, held in counts:
        total[key] += count
        holders[key] += held
    return {key: count for key, count in total.items() if count >= min_count and holders[key] >= min_clients}
