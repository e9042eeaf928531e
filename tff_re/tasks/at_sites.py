"""Data that lie at sites: what all parties of a federation agreed upon, and a run's data where others hold them.

Coordinator and sites build the same `Prepared`, so that they compile the same computations. A client's examples are
there where they are held; elsewhere a `Held` stands for them, which knows their number and nothing else. What the
server of a simulation holds, the coordinator reads from files of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

from computations.local_model import LABEL, LocalModel
from computations.registry import Choice
from datasets.federated import ClientExamples, Examples, FederatedExamples
from tff_re.errors import UserError
from tff_re.tasks import TASKS
from tff_re.tasks.base import Prepared, input_spec
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.task import SERVER, AtServer, Task

SPLITS = ("train", "test", "dev")
"""Of a client's examples, in their order everywhere."""


@dataclass(frozen=True)
class Client:
    """A client of the federation: its id, the site that holds it, how many examples it has.

    `dev`: of those that it keeps out of its training examples to choose on; None: no client keeps any.
    """

    client_id: str
    site: str
    train: int
    test: int
    dev: int | None = None


@dataclass(frozen=True)
class Agreement:
    """What all parties of a run know; made by the coordinator of what sites sent, accepted by each site.

    Attributes:
      run: the run's id, 32 hexadecimal digits.
      clients: of all sites, in their order.
      label_names: the union of the sites' classes, in their order.
      words: the vocabulary, each held by at least `min_clients` clients; None where a tokenizer is given.
      positive_labels: see `Prepared`.
      encoding: digest of what turns texts into arrays; the same at all parties.
      server: how many labelled examples the coordinator holds (FedED's D_v).
      vectors_width: of the word vectors that the coordinator read; None: the model learns its own.
      triples: how many different facts the sites' bags have, pairs without one included; None where there are no bags.
      facts: digest of what these facts are, which tells nobody without the sites' secret what they are.
      relations: that a pair in a document may have; None where the examples are no documents.
      document_form: the sizes of the largest documents, see `Task.largest`.
    """

    run: str
    clients: tuple[Client, ...]
    label_names: tuple[str, ...]
    words: tuple[str, ...] | None = field(repr=False)
    positive_labels: tuple[int, ...] | None
    encoding: str
    server: int = 0
    vectors_width: int | None = None
    triples: int | None = None
    facts: str = ""
    relations: tuple[str, ...] | None = None
    document_form: tuple[int, ...] | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in the order in which their sums are added."""
        return tuple(dict.fromkeys(client.site for client in self.clients))

    def to_json(self) -> str:
        """For `agreement_from_json`."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    def for_site(self, site: str) -> Agreement:
        """The same without the ids and sites of the clients of others; their sizes enter the privacy accounting."""
        clients = tuple(
            c if c.site == site else dataclasses.replace(c, client_id=f"other {n}", site="")
            for n, c in enumerate(self.clients)
        )
        return dataclasses.replace(self, clients=clients)

    def paths(self, data_paths: DataPaths, *, at_site: bool) -> DataPaths:
        """A party's, with what was agreed upon in place of what texts of its own would give."""
        width = self.vectors_width if at_site else None
        return dataclasses.replace(data_paths, words=self.words, vectors_width=width, document_form=self.document_form)


def agreement_from_json(text: str | bytes) -> Agreement:
    """Raises ValueError where the text is no agreement."""
    try:
        table = json.loads(text)
        if set(table) != {own.name for own in dataclasses.fields(Agreement)}:
            raise KeyError("its keys are those of another version of tff-re")
        clients = tuple(Client(**client) for client in table["clients"])
        table = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        return Agreement(**{**table, "clients": clients})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"is no agreement of sites ({' '.join(map(str, error.args))})") from None


def read_agreement(path: Path) -> Agreement:
    """What the sites of a run agreed upon. Raises UserError where its file is damaged."""
    try:
        return agreement_from_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is damaged, or of another version ({error}); put the original back") from None


class Held(dict):
    """Stands for examples that lie elsewhere: arrays of zeros without memory, of the right number and form.

    Nothing can be computed with it: a model arranges it to a `Reference`.

    Attributes:
      client_id, split: whose examples, and of `SPLITS` which.
    """

    def __init__(self, client_id: str, split: str, count: int, specs: Mapping[str, tf.TensorSpec]):
        blank = {n: np.zeros([], spec.dtype.as_numpy_dtype) for n, spec in specs.items()}
        super().__init__({n: np.broadcast_to(blank[n], [count, *specs[n].shape[1:]]) for n in specs})
        self.client_id, self.split = client_id, split


@dataclass(frozen=True)
class Reference:
    """In place of a client's examples as an argument of a computation: which they are, for who has them."""

    client_id: str
    split: str


class _Model(LocalModel):
    """A LocalModel that names what is elsewhere."""

    def arrange(self, examples):
        if isinstance(examples, Held):
            return Reference(examples.client_id, examples.split)
        return super().arrange(examples)


@dataclass(frozen=True)
class SitesPrepared(Prepared):
    """The data of a run across sites; some or all examples are `Held`.

    Attributes:
      sites: of those that this party knows.
      triples, pair_relations: see `Agreement`.
    """

    triples: int | None = None
    pair_relations: tuple[str, ...] | None = None

    num_triples = property(lambda self: self.triples)

    def local_model(self, model: Choice) -> LocalModel:
        return _Model(**vars_of(super().local_model(model)))

    def groups(self) -> list[np.ndarray]:
        raise UserError("privacy.unit = 'group' is not for runs across sites; set it to 'example' or 'client'")

    def precomputed(self, model: Choice, seed: int) -> Prepared:
        """As `Prepared.precomputed`, of the examples that are here."""
        found = self._model(model).precompute(model.options, self.inputs, seed)
        if found is None:
            return self
        inputs, run = found
        if run is None:
            return dataclasses.replace(self, inputs=inputs)

        def examples(own):
            if isinstance(own, Held):
                return Held(own.client_id, own.split, len(own[LABEL]), input_spec(inputs, self.side_arrays))
            return None if own is None else run(own)

        clients = (
            ClientExamples(c.client_id, *(examples(getattr(c, split)) for split in SPLITS))
            for c in self.examples.clients
        )
        held = FederatedExamples(tuple(clients), self.label_names, examples(self.examples.server))
        held_out = None if self.held_out is None else self.held_out.behind(run)
        return dataclasses.replace(self, examples=held, inputs=inputs, held_out=held_out)


def vars_of(value) -> dict:
    """The fields of a dataclass by name, as they are."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def require_task(task: Choice) -> None:
    """Raises UserError for a task that cannot be trained across sites."""
    chosen = TASKS[task.name]
    if not chosen.across_sites:
        others = ", ".join(name for name, other in TASKS.items() if other.across_sites)
        raise UserError(f"the task '{task.name}' cannot be trained across sites; these can: {others}")
    chosen.at_site(task.options)


def encoding_of(task: Choice, seed: int, data_paths: DataPaths):
    """(what turns texts into arrays, the model's inputs, notes, digest) of what `data_paths` says is agreed upon.

    `seed`: the run's, for the vectors of words that a file of vectors does not have.
    """
    encoding, inputs, notes = TASKS[task.name].agreed(task.options, seed, data_paths)
    tokenizer = getattr(encoding, "tokenizer", None)
    content = encoding.to_json() if tokenizer is None else tokenizer.backend_tokenizer.to_str()
    specs = sorted((name, str(spec)) for name, spec in inputs.specs.items())
    digest = hashlib.sha256(repr((content, specs)).encode("utf-8", "surrogatepass")).hexdigest()
    return encoding, inputs, notes, digest


def prepared(
    task: Task,
    agreement: Agreement,
    found,
    own: Mapping[str, tuple[Examples | None, ...]],
    at_server: AtServer | None = None,
) -> SitesPrepared:
    """The data of a run across sites.

    Args:
      task: the recipe's.
      agreement: of all.
      found: of `encoding_of`, at this party.
      own: client id -> the examples of `SPLITS`, of the clients that this party holds.
      at_server: of the coordinator.

    Raises:
      UserError: this party's encoding is not the one agreed upon.
    """
    encoding, inputs, of_encoding, digest = found
    if agreement.encoding and digest != agreement.encoding:
        raise UserError("texts would be encoded otherwise here than agreed upon; use the same tokenizer and dictionary")
    specs, at_server = input_spec(inputs, task.side_arrays), at_server or AtServer()

    def held(name: str, split: str, count: int | None) -> Held | None:
        return None if count is None else Held(name, split, count, specs)

    clients = tuple(
        ClientExamples(c.client_id, *own.get(c.client_id, (held(c.client_id, s, getattr(c, s)) for s in SPLITS)))
        for c in agreement.clients
    )
    server = at_server.server
    if server is None and agreement.server:
        server = Held(SERVER, "train", agreement.server, specs)
    of_server = (f"{agreement.server} labelled examples at the coordinator",) if agreement.server else ()
    if any(c.dev is not None for c in agreement.clients):
        kept_out, left = sum(c.dev for c in agreement.clients), sum(c.train for c in agreement.clients)
        of_server += (f"dev: {kept_out} of {kept_out + left} training examples are kept out of training",)
    return SitesPrepared(
        examples=FederatedExamples(clients, agreement.label_names, server),
        inputs=inputs,
        measures=task.measures(agreement.positive_labels),
        counts=None,
        encoding=encoding,
        notes=(f"{len(clients)} clients at sites; {encoding.describe()}", *of_encoding, *of_server, *at_server.notes),
        sites=tuple(site for site in agreement.sites if site),
        side_arrays=task.side_arrays,
        held_out=at_server.held_out,
        triples=agreement.triples,
        pair_relations=agreement.relations,
    )
