"""The coordinator's set-up of a run, which collects what all parties know before its first round."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import attrs
import numpy as np

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.runs.experiment import Experiment
from tff_re.runs.features.shares import sums_are_masked
from tff_re.runs.warm_start import WarmStart
from tff_re.runtime.events import RUN_NOTE
from tff_re.sites import protocol
from tff_re.sites.agreement import Agreement, Client
from tff_re.sites.asking import SiteLost, SiteRefused, Sites
from tff_re.sites.comparisons import announced
from tff_re.sites.experiments import CoordinatorBuilder, require_possible_at_sites
from tff_re.sites.fields import DIGEST_BYTES, MAX_CLASSES
from tff_re.sites.policy import for_sites, recipe_digest
from tff_re.sites.prepared import AgreedEncoding, coordinated, require_task
from tff_re.sites.words import agree_on_words, require_one_secret
from tff_re.tasks import TASKS
from tff_re.tasks.data_paths import DataPaths

Numbers = dict[str, np.ndarray]
"""Site -> int32 [n], the numbers of its facts among all, in the order in which it named them."""


def agree(
    sites: Sites, recipe: Recipe, data_paths: DataPaths, run: str | None = None, start: WarmStart | None = None
) -> tuple[Agreement, Numbers, Experiment]:
    """Return the agreement, the numbers of each site's facts, and the experiment.

    Args:
      sites: all that take part.
      recipe: resolved.
      data_paths: of the coordinator; no examples of clients are read.
      run: the id of the run that is continued; None: a new one.
      start: the run that this one starts from, whose vocabulary and classes are taken over; no words are asked for.

    Raises:
      UserError: what the sites hold does not fit together, or a site refuses the recipe.
    """
    require_task(recipe.task)
    require_possible_at_sites(recipe)
    run = run or secrets.token_hex(16)
    try:
        agreement, numbers = _agree(sites, recipe, data_paths, run, start)
        return agreement, numbers, CoordinatorBuilder(coordinated(recipe, data_paths, agreement)).build(recipe)
    except (SiteRefused, SiteLost) as error:
        raise UserError(str(error)) from None


def _agree(
    sites: Sites, recipe: Recipe, data_paths: DataPaths, run: str, start: WarmStart | None = None
) -> tuple[Agreement, Numbers]:
    names, task, chosen = sites.engine.sites, recipe.task, TASKS[recipe.task.name]
    at_server = chosen.server_corpus(task.options, data_paths)
    hello = protocol.Hello(run=run, recipe=for_sites(recipe))
    said: dict[str, protocol.HelloAnswer] = sites.ask_every(dict.fromkeys(names, hello))
    for key, what in (
        *(("label", "label choices"), ("recipe", "recipes"), ("vocabulary", "ways to count words")),
        ("relations", "relations of pairs"),
    ):
        if len(kinds := {str(getattr(answer, key)) for answer in said.values()}) > 1:
            raise UserError(f"the sites differ in their {what}: {', '.join(sorted(kinds))}; agree on one")
    first = next(iter(said.values()))
    if first.recipe != recipe_digest(recipe):
        raise UserError(
            "the sites read another recipe than the coordinator's; use the same version of tff-re everywhere"
        )
    for line in announced(recipe, {site: answer.comparison for site, answer in said.items()}):
        sites.say(RUN_NOTE, line=line)
    _require_whole([answer.share for answer in said.values()])
    clients = [Client(c, site, *sizes) for site, answer in said.items() for c, *sizes in answer.clients]
    if len({client.client_id for client in clients}) < len(clients):
        raise UserError("two sites name the same client; give the sites other names")
    lists = [answer.label_names for answer in said.values()]
    labels = _union(lists if at_server is None else [*lists, at_server.label_names])
    if len(labels) > MAX_CLASSES:
        raise UserError(f"the sites name {len(labels)} classes together, and {MAX_CLASSES} are possible; merge some")
    positive = {name for answer in said.values() for name in answer.positive_labels or ()}
    none_positive = all(answer.positive_labels is None for answer in said.values())
    if start is None:
        words = agree_on_words(sites.ask_every, run, names, first.vocabulary, task.options)
    else:
        labels, words = _classes_of(start, labels), start.words
        positive |= set(start.positive or ())
    numbers, facts = _facts(sites, run, names) if chosen.numbers_facts else ({}, b"")
    relations, document_form = first.relations, None
    if relations is not None:
        forms = [answer.document_form for answer in said.values()]
        document_form = tuple(map(max, *forms, chosen.largest_at_server(task.options, data_paths)))
    agreement = Agreement(
        run=run,
        clients=tuple(clients),
        label_names=labels,
        words=words,
        positive_labels=None if none_positive else tuple(n for n, name in enumerate(labels) if name in positive),
        encoding="",
        vectors_width=None,
        server=0 if at_server is None else len(at_server.samples),
        triples=len(facts) // DIGEST_BYTES if numbers else None,
        facts=hashlib.sha256(facts).hexdigest(),
        relations=relations,
        document_form=document_form,
        evaluation={site: answer.evaluation for site, answer in said.items() if answer.evaluation != "sums"},
    )
    _require_evaluation(agreement, recipe)
    agreed = AgreedEncoding.of(task, recipe.seed, agreement.paths(data_paths, at_site=False))
    return attrs.evolve(agreement, encoding=agreed.digest, vectors_width=agreed.vectors_width), numbers


def _require_evaluation(agreement: Agreement, recipe: Recipe) -> None:
    """Raise UserError if too few sites let the examples of a split be evaluated."""
    masked, silent = sums_are_masked(recipe), agreement.sites_that_allow("none")
    for split in ("test", "dev", *(("train",) if recipe.evaluation.train_split else ())):
        holding = {client.site for client in agreement.clients if getattr(client, split)}
        if holding.intersection(silent) and len(holding.difference(silent)) < (2 if masked else 1):
            few = "fewer than two of the sites with masked sums" if masked else "none of the sites"
            remedy = "set evaluation.train_split = false" if split == "train" else "hold none out"
            raise UserError(
                f"{few} that hold {split} examples take part in evaluations (allow.evaluation = 'none' at "
                f"{', '.join(silent)}); {remedy}, or ask a site to allow 'sums'"
            )


def _classes_of(start: WarmStart, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the classes of the run that a run starts from.

    Raises UserError if a site has others.
    """
    if more := [name for name in labels if name not in start.form["classes"]]:
        raise UserError(
            f"cannot start from {start.run}: the sites hold classes that it does not have ({', '.join(more[:5])}); "
            "train without --from, or leave their examples out"
        )
    return tuple(start.form["classes"])


def _require_whole(shares: Sequence[tuple[int, int] | None]) -> None:
    """Raise UserError if sites have shares of a simulation, but not all parts take part in order."""
    if any(shares) and shares != [(number + 1, len(shares)) for number in range(len(shares))]:
        named = ", ".join("none" if share is None else "{}/{}".format(*share) for share in shares)
        raise UserError(
            f"the sites' shares (clients.share) are {named}; name sites that have 1/{len(shares)} to "
            f"{len(shares)}/{len(shares)}, in this order"
        )


def _union(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the union of all sites' classes.

    They are in the order of the files if all sites have the same, else sorted by name. A first class that all sites
    share stays first, as it stands for no relation.
    """
    if len(set(lists)) == 1:
        return lists[0]
    first = lists[0][:1] if len({names[:1] for names in lists}) == 1 else ()
    return (*first, *sorted({name for names in lists for name in names} - {*first}))


def _facts(sites: Sites, run: str, names: Sequence[str]) -> tuple[Numbers, bytes]:
    """Return the numbers of each site's facts, and the digests of all facts in the order of their numbers."""
    answers: dict[str, protocol.FactsAnswer] = sites.ask_every(dict.fromkeys(names, protocol.Facts(run=run)))
    require_one_secret({site: answer.check for site, answer in answers.items()})
    rows = {site: [row.tobytes() for row in answer.digests] for site, answer in answers.items()}
    number_of = {
        digest: number for number, digest in enumerate(sorted({d for digests in rows.values() for d in digests}))
    }
    return {site: np.array([number_of[d] for d in digests], np.int32) for site, digests in rows.items()}, b"".join(
        number_of
    )
