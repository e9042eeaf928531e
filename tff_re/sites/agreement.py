"""What all parties of a run across sites know before its first round."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

import attrs
from attrs.validators import optional

from tff_re.errors import UserError
from tff_re.sites.fields import MAX_EXAMPLES, number
from tff_re.sites.messages import Malformed
from tff_re.sites.structuring import structured
from tff_re.tasks.data_paths import DataPaths

SPLITS = ("train", "test", "dev")
"""Of a client's examples, in their order everywhere."""


@attrs.frozen
class Client:
    """A client of the federation, with its id, its site and its numbers of examples.

    `dev`: of those that it keeps out of its training examples to choose on; None: no client keeps any.
    """

    client_id: str
    site: str
    train: int = attrs.field(validator=number(0, MAX_EXAMPLES))
    test: int = attrs.field(validator=number(0, MAX_EXAMPLES))
    dev: int | None = attrs.field(validator=optional(number(0, MAX_EXAMPLES)))


@attrs.frozen(kw_only=True)
class Agreement:
    """What all parties of a run know.

    The coordinator makes it from what the sites sent, and each site accepts it.

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
      evaluation: site -> its allow.evaluation, of the sites where it is not `sums`.
    """

    run: str
    clients: tuple[Client, ...]
    label_names: tuple[str, ...]
    words: tuple[str, ...] | None = attrs.field(repr=False)
    positive_labels: tuple[int, ...] | None
    encoding: str
    server: int
    vectors_width: int | None
    triples: int | None
    facts: str
    relations: tuple[str, ...] | None
    document_form: tuple[int, ...] | None
    evaluation: dict[str, Literal["own", "none"]]

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the sites' names, in the order in which their sums are added."""
        return tuple(dict.fromkeys(client.site for client in self.clients))

    @property
    def output_names(self) -> tuple[str, ...]:
        """See `Prepared.output_names`."""
        return self.label_names if self.relations is None else self.relations

    def to_json(self) -> str:
        """Return the table that `agreement_from_json` reads."""
        return json.dumps(attrs.asdict(self), ensure_ascii=False)

    def for_site(self, site: str) -> Agreement:
        """Return the agreement without the ids, sites and policies of other sites.

        The clients' sizes stay, because they enter the privacy accounting.
        """
        clients = tuple(
            c if c.site == site else attrs.evolve(c, client_id=f"other {n}", site="")
            for n, c in enumerate(self.clients)
        )
        evaluation = {name: allowed for name, allowed in self.evaluation.items() if name == site}
        return attrs.evolve(self, clients=clients, evaluation=evaluation)

    def sites_that_allow(self, evaluation: str) -> tuple[str, ...]:
        """Return the sites with this allow.evaluation."""
        return tuple(site for site in self.sites if self.evaluation.get(site, "sums") == evaluation)

    def paths(self, data_paths: DataPaths, *, at_site: bool) -> DataPaths:
        """Return a party's paths, with what was agreed upon in place of what its own texts would give."""
        width = self.vectors_width if at_site else None
        return dataclasses.replace(data_paths, words=self.words, vectors_width=width, document_form=self.document_form)


def agreement_from_json(text: str | bytes) -> Agreement:
    """Read an agreement.

    Raises Malformed, with a line that names the key, if the text is not an agreement.
    """
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("the agreement is not JSON") from None
    if type(table) is not dict:
        raise Malformed("the agreement is not a table")
    return structured(Agreement, table, [])


def read_agreement(path: Path) -> Agreement:
    """Read what the sites of a run agreed upon.

    Raises UserError if its file is damaged.
    """
    try:
        return agreement_from_json(path.read_bytes())
    except Malformed as error:
        raise UserError(f"{path}: is damaged, or of another version ({error}); put the original back") from None
