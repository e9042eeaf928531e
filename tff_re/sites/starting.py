"""What a site checks before it answers: its files, its data, and the recipes that it allows.

No line contains text from the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datasets.catalogue import find_data_set, load
from datasets.errors import DataError
from tff_re.errors import UserError
from tff_re.recipes.reading import load as load_recipe
from tff_re.sites.comparisons import DISCLOSED, announced_at_site
from tff_re.sites.data import SiteData, SiteRule
from tff_re.sites.decisions import MIN_SITES, Decisions
from tff_re.sites.policy import DIGEST, Site, for_sites, recipe_digest, recipe_table

MAX_NAMES = 12
"""Classes that are named; of more, their number is told."""


def start_lines(site: Site, file: Path) -> list[str]:
    """Return lines about a site for its operator: data, classes, clients by number, examples, recipes, words.

    Args:
      site: of `file`.
      file: site.toml, for messages.

    Raises:
      UserError: no run could be answered: no recipe is allowed, or data, key or secret are missing or do not fit.
    """
    if not site.options.allow.recipes:
        raise UserError(
            f"{file}: allow.recipes is empty, so that no run is answered; list files of recipes, or digests that `site "
            "--digest RECIPE` prints"
        )
    words = _words(site)
    try:
        data = [line for name in _files(site) for line in _for_recipe(site, name)] or list(_data(site))
    except (DataError, UserError) as error:
        raise UserError(f"{file}: {error}") from None
    return [
        *data,
        *_masks(site),
        _surveys(site),
        *_comparisons(site),
        *(f"recipe {line}" for line in _recipes(site)),
        words,
    ]


def _words(site: Site) -> str:
    least = site.options.vocabulary.least_clients
    if site.secret() is None:
        return f"words: those that task.min_clients ({least} or more) of this site's own clients hold"
    others = site.others() if site.options.sites else {}
    if not others:
        return "words: none; [sites] lists no other site's key, so that runs which count words are refused"
    return f"words: those that task.min_clients ({least} or more) clients hold, with {', '.join(others)}"


def _surveys(site: Site) -> str:
    allow = site.options.allow
    options = allow.survey_options(masked=True)
    if options is None:
        return "surveys: none is answered"
    only = "" if allow.survey_options(masked=False) is not None and allow.least_sites is None else ", masked only"
    if options.epsilon is not None:
        return (
            f"surveys: counts with noise{only}, of ε = {options.epsilon:g} for all surveys of a file of training data"
        )
    what = f"counts of 0 and of at least {options.least_count}{only}"
    return f"surveys: {what}; {options.surveys} of a file of training data"


def _comparisons(site: Site) -> Iterator[str]:
    if any(name == "any" or DIGEST.fullmatch(name) for name in site.options.allow.recipes):
        discloses = DISCLOSED[site.options.allow.comparison]
        yield (
            "comparisons: under a recipe with [baseline] or [personalise] this site also trains models of its own, "
            f"which stay here; the coordinator is told {discloses} (allow.comparison), with masked sums at most the "
            "verdict, with [privacy] nothing"
        )


def _masks(site: Site) -> Iterator[str]:
    if site.options.mask_keys:
        least = site.options.allow.least_sites or MIN_SITES
        clear = ", and never in the clear" if site.options.allow.least_sites else ""
        yield f"masked sums: with {', '.join(site.mask_keys())}, opened over at least {least} sites{clear}"


def _files(site: Site) -> list[str]:
    """Describe the recipes that are allowed by file."""
    return [name for name in site.options.allow.recipes if name != "any" and not DIGEST.fullmatch(name)]


def _recipes(site: Site) -> Iterator[str]:
    for name in site.options.allow.recipes:
        if name == "any":
            yield "any: every recipe that a coordinator sends is computed"
        elif DIGEST.fullmatch(name):
            yield name
        else:
            yield f"{recipe_digest(load_recipe(str(site.path(name))))} ({name})"


def _for_recipe(site: Site, name: str) -> Iterator[str]:
    """Describe the data as a run of an allowed recipe has them."""
    recipe = site.local_recipe(recipe_table(for_sites(load_recipe(str(site.path(name))))))
    decisions = Decisions(site)
    decisions.require_privacy(recipe)
    decisions.require_masks(recipe)
    data = SiteData(site, recipe)
    sizes = np.array([(train, test, dev or 0) for _, train, test, dev in data.sizes]).reshape(-1, 3)
    everyone = [len(held.train) for held in (data.clients if data.share else data.partition.clients).values()]
    yield from _lines(site, data.label_names, everyone, f" for {name}")
    train, test, dev = sizes.sum(0)
    yield f"examples for {name}: {train} for training, {test} for testing{f', {dev} to choose on' if dev else ''}"
    for line in announced_at_site(recipe, decisions.comparison(recipe)):
        yield f"comparison for {name}: {line}"


def _data(site: Site) -> Iterator[str]:
    """Describe the data from the data set's reader, if recipes are known only by digest."""
    data, clients = site.options.data, site.options.clients
    data_set = find_data_set(data.dataset)
    if data_set.read is None:
        raise UserError(f"data.dataset: {data_set.name} is generated, and no site has it; take one of files")
    set_here = {key.removeprefix("task."): str(site.path(value)) for key, value in site.options.set.items()}
    options = {key: value for key, value in set_here.items() if key in data_set.options}
    options |= {"label": None} if "label" in data_set.options else {}
    folder = None if data.folder is None else site.path(data.folder)

    def read(path: str | None, split: str):
        file = None if path is None else site.path(path)
        return load(data_set.kind, data_set.name, folder, path=file, split=split, **options)

    corpus = read(data.path, data.split)
    if clients.rule == "share":  # of clients that the recipe's partition makes
        yield f"data: {data.dataset}, {data.path or data.split}, {len(corpus.samples)} examples, share {clients.share}"
    else:
        grouped = SiteRule(site.options.name, clients).apply(None, corpus.samples, np.random.default_rng(0))
        yield from _lines(site, corpus.label_names, [len(indices) for indices in grouped.values()])
    if data.test_path is not None:
        yield f"test: {data.test_path}, {len(read(data.test_path, data.test_split).samples)} examples"


def _lines(site: Site, label_names, examples: list[int], suffix: str = "") -> Iterator[str]:
    least, data = site.options.clients.least_examples, site.options.data
    enough = [count for count in examples if count >= least]
    if not enough:
        raise UserError(
            f"clients.least_examples: none of {len(examples)} clients has {least} training examples{suffix}; lower it"
        )
    classes = f"{len(label_names)} classes{': ' + ', '.join(label_names) if len(label_names) <= MAX_NAMES else ''}"
    yield f"data{suffix}: {data.dataset}, {data.path or data.split}, {sum(examples)} examples, {classes}"
    left_out = len(examples) - len(enough)
    small = f"; {left_out} smaller ones take no part" if left_out else ""
    sizes = " to ".join(map(str, sorted({min(enough), max(enough)})))
    yield f"clients{suffix}: {len(enough)}, with {sizes} examples each{small}"
