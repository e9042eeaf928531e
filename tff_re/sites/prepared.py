"""The data of a run across sites, as each party prepares them from its own data and the agreement.

Coordinator and sites build the same `Prepared`, so that they compile the same computations. A client's examples are
there where they are held; elsewhere a `Held` stands for them, which knows their number and nothing else. What the
server of a simulation holds, the coordinator reads from files of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from computations.local_model import LABEL, LocalModel
from computations.registry import Choice
from datasets.federated import ClientExamples, Examples, FederatedExamples
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.sites.agreement import SPLITS, Agreement, Client
from tff_re.tasks import TASKS
from tff_re.tasks.base import Prepared, example_spec
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.task import SERVER, AtServer, Task


class Held(dict):
    """A placeholder for examples that lie elsewhere.

    It has arrays of zeros without memory, of the right number and form.

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
    """A reference to a client's examples in the argument of a computation.

    It tells the site that holds them which they are.
    """

    client_id: str
    split: str


class _Model(LocalModel):
    """A LocalModel that names the data held elsewhere."""

    def arrange(self, examples):
        if isinstance(examples, Held):
            return Reference(examples.client_id, examples.split)
        return super().arrange(examples)


@dataclass(frozen=True)
class SitesPrepared(Prepared):
    """The data of a run across sites.

    Some or all examples are `Held`.

    Attributes:
      sites: of those that this party knows.
      num_triples, pair_relations: see `Agreement.triples` and `Agreement.relations`.
    """

    num_triples: int | None = None
    pair_relations: tuple[str, ...] | None = None

    def local_model(self, model: Choice) -> LocalModel:
        model = super().local_model(model)
        return _Model(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})

    def groups(self) -> list[np.ndarray]:
        raise UserError("privacy.unit = 'group' is not for runs across sites; set it to 'example' or 'client'")

    def precomputed(self, model: Choice, seed: int) -> Prepared:
        """Like `Prepared.precomputed`, for the examples that are here."""
        precomputed = self._model(model).precompute(model.options, self.inputs, seed)
        if precomputed is None:
            return self
        inputs, run = precomputed
        if run is None:
            return dataclasses.replace(self, inputs=inputs)

        def examples(part):
            if isinstance(part, Held):
                return Held(part.client_id, part.split, len(part[LABEL]), example_spec(inputs, self.side_arrays))
            return None if part is None else run(part)

        clients = (
            ClientExamples(c.client_id, *(examples(getattr(c, split)) for split in SPLITS))
            for c in self.examples.clients
        )
        held = FederatedExamples(tuple(clients), self.label_names, examples(self.examples.server))
        held_out = None if self.held_out is None else self.held_out.precomputed(run)
        return dataclasses.replace(self, examples=held, inputs=inputs, held_out=held_out)


def require_task(task: Choice) -> None:
    """Raise UserError for a task that cannot be trained across sites."""
    chosen = TASKS[task.name]
    if not chosen.across_sites:
        others = ", ".join(name for name, other in TASKS.items() if other.across_sites)
        raise UserError(f"the task '{task.name}' cannot be trained across sites; these can: {others}")
    chosen.at_site(task.options)


@dataclass(frozen=True)
class AgreedEncoding:
    """How a party turns texts into arrays, as agreed.

    Attributes:
      encoding, inputs, notes: see `Task.agreed`.
      digest: of the encoding's content and the inputs' form, which have to be the same at all parties.
    """

    encoding: Any
    inputs: Any
    notes: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, task: Choice, seed: int, data_paths: DataPaths) -> AgreedEncoding:
        """Make the encoding of a recipe's task from what `Agreement.paths` says was agreed.

        `seed`: the run's, for the vectors of words that a file of vectors does not have.
        """
        encoding, inputs, notes = TASKS[task.name].agreed(task.options, seed, data_paths)
        tokenizer, texts = getattr(encoding, "tokenizer", None), getattr(encoding, "text_encoding", encoding)
        # Before any text is encoded: a tokenizer's content says how the last one was cut.
        content = texts.to_json() if tokenizer is None else tokenizer.backend_tokenizer.to_str()
        specs = sorted((name, str(spec)) for name, spec in inputs.specs.items())
        text_to_arrays = repr((content, specs, *getattr(inputs, "tag_names", ())))
        digest = hashlib.sha256(text_to_arrays.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(encoding, inputs, notes, digest)

    @property
    def vectors_width(self) -> int | None:
        """Return the width of the word vectors that were read, or None if the model learns its own."""
        vectors = getattr(self.inputs, "vectors", None)
        return None if vectors is None else vectors.shape[1]


def prepared(
    task: Task,
    agreement: Agreement,
    agreed: AgreedEncoding,
    held_here: Mapping[str, tuple[Examples | None, ...]],
    at_server: AtServer | None = None,
) -> SitesPrepared:
    """Return the data of a run across sites.

    Args:
      task: the recipe's.
      agreement: of all.
      agreed: at this party.
      held_here: client id -> the examples of `SPLITS`, of the clients that this party holds.
      at_server: of the coordinator.

    Raises:
      UserError: this party's encoding is not the one agreed upon.
    """
    if agreed.digest != agreement.encoding:
        raise UserError("texts would be encoded otherwise here than agreed upon; use the same tokenizer and dictionary")
    at_server = at_server or AtServer()
    specs, clients = example_spec(agreed.inputs, task.side_arrays), agreement.clients

    def held(name: str, split: str, count: int | None) -> Held | None:
        return None if count is None else Held(name, split, count, specs)

    def parts_of(client: Client) -> Iterable[Examples | None]:
        elsewhere = (held(client.client_id, split, getattr(client, split)) for split in SPLITS)
        return held_here.get(client.client_id, elsewhere)

    server = at_server.server
    if server is None and agreement.server:
        server = Held(SERVER, "train", agreement.server, specs)
    notes = [f"{len(clients)} clients at sites; {agreed.encoding.describe()}", *agreed.notes]
    if agreement.server:
        notes.append(f"{agreement.server} labelled examples at the coordinator")
    if any(client.dev is not None for client in clients):
        dev, train = sum(client.dev for client in clients), sum(client.train for client in clients)
        notes.append(f"dev: {dev} of {dev + train} training examples are kept out of training")
    examples = tuple(ClientExamples(client.client_id, *parts_of(client)) for client in clients)
    return SitesPrepared(
        examples=FederatedExamples(examples, agreement.label_names, server),
        inputs=agreed.inputs,
        measures=task.measures(agreement.positive_labels, agreed.inputs),
        counts=None,
        encoding=agreed.encoding,
        notes=(*notes, *at_server.notes),
        sites=tuple(site for site in agreement.sites if site),
        side_arrays=task.side_arrays,
        held_out=at_server.held_out,
        num_triples=agreement.triples,
        pair_relations=agreement.relations,
    )


def coordinated(recipe: Recipe, data_paths: DataPaths, agreement: Agreement) -> SitesPrepared:
    """Return the data as the coordinator has them.

    The clients' examples are replaced by their numbers.

    Raises:
      UserError, DataError: its own do not fit, are missing or malformed.
    """
    paths, task = agreement.paths(data_paths, at_site=False), TASKS[recipe.task.name]
    agreed = AgreedEncoding.of(recipe.task, recipe.seed, paths)
    names = agreement.output_names
    at_server = task.at_server(recipe.task.options, names, agreed.encoding, agreed.inputs, paths)
    return prepared(task, agreement, agreed, {}, at_server)
