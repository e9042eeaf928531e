"""Data that lie at sites: what all parties of a federation agreed upon, and a run's data where others hold them.

Coordinator and sites build the same `Prepared`, so that they compile the same computations. A client's examples are
there where they are held; elsewhere a `Held` stands for them, which knows their number and nothing else.
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
from datasets.federated import ClientExamples, Examples, FederatedExamples
from tff_re import tasks
from tff_re.errors import UserError
from tff_re.settings import Choice
from tff_re.tasks.base import Prepared
from tff_re.tasks.data_paths import DataPaths

TASKS = ("sentence_relations", "symptom_classification")
"""The tasks whose examples are at clients alone, and that can be trained across sites."""


@dataclass(frozen=True)
class Client:
    """A client of the federation: its id, the site that holds it, how many examples it has."""

    client_id: str
    site: str
    train: int
    test: int


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
    """

    run: str
    clients: tuple[Client, ...]
    label_names: tuple[str, ...]
    words: tuple[str, ...] | None = field(repr=False)
    positive_labels: tuple[int, ...] | None
    encoding: str

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


def agreement_from_json(text: str | bytes) -> Agreement:
    """Raises ValueError where the text is no agreement."""
    try:
        table = json.loads(text)
        clients = tuple(
            Client(str(c["client_id"]), str(c["site"]), int(c["train"]), int(c["test"])) for c in table["clients"]
        )
        lists = {key: None if table[key] is None else tuple(table[key]) for key in ("words", "positive_labels")}
        names = tuple(map(str, table["label_names"]))
        return Agreement(str(table["run"]), clients, names, encoding=str(table["encoding"]), **lists)
    except (KeyError, TypeError) as error:
        raise ValueError(f"is no agreement of sites ({error})") from None


def read_agreement(path: Path) -> Agreement:
    """What the sites of a run agreed upon. Raises UserError where its file is damaged."""
    try:
        return agreement_from_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is damaged ({error}); put it back") from None


class Held(dict):
    """Stands for examples that lie elsewhere: arrays of zeros without memory, of the right number and form.

    Nothing can be computed with it: a model arranges it to a `Reference`.

    Attributes:
      client_id, split: whose examples, `train` or `test`.
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
      sites: the names of the sites, of those that this party knows.
    """

    sites: tuple[str, ...] = ()

    def local_model(self, model: Choice) -> LocalModel:
        return _Model(**vars_of(super().local_model(model)))

    def with_groups(self) -> Prepared:
        raise UserError("privacy.unit = 'group' is not for runs across sites; set it to 'example' or 'client'")

    def precomputed(self, model: Choice, seed: int) -> Prepared:
        """As `Prepared.precomputed`, of the examples that are here."""
        module = self._module(model)
        found = module.precompute(model.options, self.inputs, seed) if hasattr(module, "precompute") else None
        if found is None:
            return self
        inputs, run = found
        if run is None:
            return dataclasses.replace(self, inputs=inputs)

        def examples(own):
            if isinstance(own, Held):
                return Held(own.client_id, own.split, len(own[LABEL]), _specs(inputs))
            return run(own)

        clients = (ClientExamples(c.client_id, examples(c.train), examples(c.test)) for c in self.examples.clients)
        held = FederatedExamples(tuple(clients), self.label_names)
        return dataclasses.replace(self, examples=held, inputs=inputs)


def vars_of(value) -> dict:
    """The fields of a dataclass by name, as they are."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def _specs(inputs) -> dict[str, tf.TensorSpec]:
    return {**inputs.specs, LABEL: tf.TensorSpec([None], tf.int32)}


def require_task(task: Choice) -> None:
    """Raises UserError for a task that cannot be trained across sites, or with what a coordinator does not have."""
    if task.name not in TASKS:
        raise UserError(f"the task '{task.name}' cannot be trained across sites; these can: {', '.join(TASKS)}")
    if getattr(task.options, "server_share", 0.0):
        raise UserError("task.server_share: the coordinator of sites holds no examples; set it to 0")
    if getattr(task.options, "vectors", "learned") != "learned" or getattr(task.options, "vectors_path", None):
        raise UserError("word vectors from a file are not for runs across sites; let the model learn them")


def encoding_of(task: Choice, data_paths: DataPaths, words: tuple[str, ...] | None):
    """(what turns texts into arrays, the model's inputs, its digest) of an agreed vocabulary or of a tokenizer."""
    encoding, inputs = tasks.module(task.name).agreed(task.options, dataclasses.replace(data_paths, words=words))
    tokenizer = getattr(encoding, "tokenizer", None)
    content = encoding.to_json() if tokenizer is None else tokenizer.backend_tokenizer.to_str()
    specs = sorted((name, str(spec)) for name, spec in inputs.specs.items())
    return encoding, inputs, hashlib.sha256(repr((content, specs)).encode("utf-8", "surrogatepass")).hexdigest()


def prepared(task: Choice, data_paths: DataPaths, agreement: Agreement, own: Mapping[str, tuple[Examples, Examples]]):
    """The data of a run across sites.

    Args:
      task, data_paths: of this party.
      agreement: of all.
      own: client id -> (training examples, test examples) of the clients that this party holds.

    Raises:
      UserError: this party's encoding is not the one agreed upon.
    """
    require_task(task)
    encoding, inputs, digest = encoding_of(task, data_paths, agreement.words)
    if agreement.encoding and digest != agreement.encoding:
        raise UserError("texts would be encoded otherwise here than agreed upon; use the same tokenizer and dictionary")
    specs = _specs(inputs)
    clients = tuple(
        ClientExamples(
            client.client_id,
            *own.get(
                client.client_id,
                (Held(client.client_id, s, getattr(client, s), specs) for s in ("train", "test")),
            ),
        )
        for client in agreement.clients
    )
    return SitesPrepared(
        examples=FederatedExamples(clients, agreement.label_names),
        inputs=inputs,
        counts=None,
        encoding=encoding,
        positive_labels=agreement.positive_labels,
        notes=(f"{len(agreement.clients)} clients at sites; {encoding.describe()}",),
        sites=tuple(site for site in agreement.sites if site),
    )
