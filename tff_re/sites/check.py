"""Whether a site's data fit a recipe, as the site itself finds out before a run. Numbers and labels, no text."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import attrs
import numpy as np

from datasets.errors import DataError, counted
from datasets.text.vocabulary import OUT_OF_VOCABULARY_ID
from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe
from tff_re.sites.data import SiteData
from tff_re.sites.policy import Site, for_sites, recipe_digest, recipe_table
from tff_re.tasks import TASKS
from tff_re.tasks.data_paths import DataPaths
from tff_re.tasks.duplicates import example_key

MANY_CUT = 0.05
"""A larger share of cut texts is a warning."""

MANY_UNKNOWN = 0.1
"""A larger share of unknown tokens is a warning."""

LONGEST_LABEL, MOST_LABELS = 40, 200
"""Labels that a recipe does not list are named up to this number of characters, and up to this number of labels."""

FEW_EXAMPLES = 5
"""A label with fewer training examples is a warning."""


@dataclass(frozen=True)
class SplitCheck:
    """A split of the site's data.

    Attributes:
      examples: what is trained or tested on; a sentence of a bag is one for each relation of its pair.
      texts: samples in the file.
      labels: label -> how often it occurs; of entities and documents, over all mentions and pairs of a text.
      median, percentile_95, longest: tokens of a text before it is cut, special ones included.
      cut: texts with more tokens than `DataCheck.max_length`.
      duplicates: texts that occur earlier in the split, see `example_key`.
      known: share of the texts' tokens that the vocabulary has, special ones not counted; None: there is no vocabulary
        yet.
    """

    examples: int
    texts: int
    labels: dict[str, int]
    median: float
    percentile_95: int
    longest: int
    cut: int
    duplicates: int
    known: float | None


@dataclass(frozen=True)
class Overlap:
    """How many texts of the split `later` are in `earlier`, too."""

    earlier: str
    later: str
    texts: int


@dataclass(frozen=True)
class OwnWords:
    """The words that a vocabulary of the sites would be made of.

    Attributes:
      distinct: different words or characters of the site's training texts.
      frequent: those of them that occur `task.min_count` times here.
      without_others: those that enter the vocabulary even if no other site has them: `task.min_clients` clients of this
        site hold them.
      known_without_others: share of the training texts' words that these are.
    """

    distinct: int
    frequent: int
    without_others: int
    known_without_others: float


@dataclass(frozen=True)
class DataCheck:
    """What a site finds out about its data under a recipe.

    Attributes:
      site, recipe, digest, dataset: names, and the recipe's digest.
      clients: numbers of training texts of the clients that take part.
      max_length: tokens of a text that are kept; None: all.
      splits: train, dev and test, as far as they are here.
      overlaps: of every two splits.
      own_words: None with a tokenizer.
      dropped: what the recipe leaves out or cuts, and why.
      problems: why a run would be refused.
      warnings: what a person should look at.
    """

    site: str
    recipe: str
    digest: str
    dataset: str
    clients: tuple[int, ...]
    max_length: int | None
    splits: dict[str, SplitCheck]
    overlaps: tuple[Overlap, ...]
    own_words: OwnWords | None
    unknown_labels: dict[str, int]
    missing_labels: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = ()


def check_data(site: Site, recipe: Recipe) -> DataCheck:
    """The check of a site's data under a coordinator's recipe; nothing is written and nobody is asked.

    Raises:
      UserError, DataError: the recipe or a file cannot be read here.
    """
    recipe = site.local_recipe(recipe_table(for_sites(recipe)))
    read = read_data(site, recipe)
    data, problems, encoding, max_length = read.data, list(read.problems), read.encoding, read.max_length
    task, samples = TASKS[recipe.task.name], data.split_samples
    keys = {split: [example_key(sample) for sample in of_split] for split, of_split in samples.items()}
    splits = {split: _split(task, read, of_split, keys[split]) for split, of_split in samples.items()}
    pairs = ((first, second, set(keys[first])) for first, second in combinations(keys, 2))
    overlaps = tuple(Overlap(first, second, sum(k in known for k in keys[second])) for first, second, known in pairs)
    dropped = list(_left_out(data))
    try:
        _, notes = task.encoded(task.at_site(data.recipe.task.options), data.corpora, data.partition, encoding)
        dropped += notes
    except (UserError, DataError) as error:
        problems.append(str(error))
    train = splits["train"].labels if "train" in splits else {}
    check = DataCheck(
        site=site.options.name,
        recipe=recipe.name,
        digest=recipe_digest(recipe),
        dataset=site.options.data.dataset,
        clients=tuple(len(held.train) for held in data.clients.values()),
        max_length=max_length,
        splits=splits,
        overlaps=overlaps,
        own_words=read.own_words,
        unknown_labels=shown_labels(read.unknown_labels),
        missing_labels=tuple(name for name in read.listed or train if not train.get(name)),
        dropped=tuple(dict.fromkeys(dropped)),
        problems=tuple(problems),
    )
    return dataclasses.replace(check, warnings=tuple(_warnings(check, site, recipe)))


@dataclass(frozen=True)
class ReadData:
    """A site's data as a recipe reads and encodes them.

    Attributes:
      data: the samples by client.
      listed: the labels that the recipe lists; empty where it has no list.
      unknown_labels: labels of the files that the list lacks, and their counts.
      problems: why a run would be refused.
      own_words: what the site's words are; None with a tokenizer.
      has_words: whether there are words or pieces to encode with.
      encoding: with the words that a vocabulary has if other sites hold them, too.
      max_length: tokens of a text that are encoded; None: all.
      cuts: whether longer texts are cut and not refused.
    """

    data: SiteData
    listed: tuple[str, ...]
    unknown_labels: dict[str, int]
    problems: list[str]
    own_words: OwnWords | None
    has_words: bool
    encoding: Any
    max_length: int | None
    cuts: bool


def read_data(site: Site, recipe: Recipe) -> ReadData:
    """Read the data of a site for a recipe with the site's own files.

    Raises:
      UserError, DataError: a file cannot be read, or no client has enough training examples.
    """
    data, unknown_labels, problems = _data(site, recipe)
    if not data.clients:
        least = site.options.clients.least_examples
        raise UserError(
            f"clients.least_examples: none of {len(data.partition.clients)} clients has {least} training examples; "
            "lower it"
        )
    task, options = TASKS[recipe.task.name], data.recipe.task.options
    own_words, words = _own_words(data, options)
    # The sizes of documents are agreed upon later, and no text's tokens depend on them.
    paths = dataclasses.replace(data.data_paths, words=words, vectors_width=1, document_form=(1,) * 5)
    encoding, _, _ = task.agreed(task.at_site(options), recipe.seed, paths)
    listed = (recipe.task.get(task.label_keys[0]) if task.label_keys else None) or ()
    max_length, cuts = _max_length(encoding)
    return ReadData(data, tuple(listed), unknown_labels, problems, own_words, words != (), encoding, max_length, cuts)


def _data(site: Site, recipe: Recipe) -> tuple[SiteData, dict[str, int], list[str]]:
    """(the data, labels that the recipe does not list with their counts, problems).

    Where the recipe refuses a file because of such labels, the data are those of a recipe that lists them, too.
    """
    task = TASKS[recipe.task.name]
    folder = site.options.data.folder
    unknown = _unlisted(recipe, DataPaths(data=None if folder is None else site.path(folder)))
    try:
        return SiteData(site, recipe), unknown, []
    except DataError:
        if not unknown:
            raise
    key = task.label_keys[0]
    listed = (*recipe.task.get(key), *unknown)
    options = attrs.evolve(recipe.task.options, **{key: listed})
    wider = dataclasses.replace(recipe, task=dataclasses.replace(recipe.task, options=options))
    problem = (
        f"task.{key} lacks labels of the site's files, so that the site would refuse the recipe: "
        f"{with_counts(shown_labels(unknown))}"
    )
    return SiteData(site, wider), unknown, [problem]


def shown_labels(counts: dict[str, int], listed: Collection[str] = ()) -> dict[str, int]:
    """Return the counts of labels without the names of long and of too many labels that the recipe does not list.

    Where the recipe names a wrong column, the labels are the patients' text.
    """
    unlisted = [name for name in counts if name not in listed]
    short = [name for name in unlisted if len(name) <= LONGEST_LABEL]
    hidden = set(unlisted) - set(short if len(short) <= MOST_LABELS else ())
    named = {name: count for name, count in counts.items() if name not in hidden}
    rest = sum(counts[name] for name in hidden)
    return named | ({f"{len(hidden)} labels not shown; is it the column of labels?": rest} if rest else {})


def with_counts(counts: Mapping[str, int]) -> str:
    """Return the labels with their counts, on one line."""
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _unlisted(recipe: Recipe, data_paths: DataPaths) -> dict[str, int]:
    """Labels of the site's files that the recipe's list lacks, and their counts; empty where it has no list."""
    task, options = TASKS[recipe.task.name], recipe.task.options
    listed = recipe.task.get(task.label_keys[0]) if task.label_keys else None
    if listed is None:
        return {}
    opened = attrs.evolve(options, **dict.fromkeys(task.label_keys))
    files = [opened]
    if recipe.task.get("test") == "official":
        dataset = recipe.task.get("test_dataset") or options.dataset
        test = {"path": getattr(options, task.test_file), "split": options.test_split, "dataset": dataset}
        files.append(attrs.evolve(opened, **test))
    counts: dict[str, int] = {}
    for file in files:
        try:
            corpus = task.training_corpus(file, data_paths)
        except DataError:  # as the recipe reads it, the file is refused with a better line, or read
            continue
        for name, count in task.label_counts(corpus, corpus.samples).items():
            if name not in listed:
                counts[name] = counts.get(name, 0) + count
    return counts


def _own_words(data: SiteData, options: Any) -> tuple[OwnWords | None, tuple[str, ...] | None]:
    """(what the site's words are, those that a vocabulary has if other sites hold them, too); None with a tokenizer."""
    counted_words = data.word_counts()
    if counted_words is None:
        return None, None
    counts, holders = counted_words.counts, counted_words.holders
    order = [i for i in np.argsort(-counts, kind="stable") if counts[i] >= options.min_count]
    order = order[: options.max_words]
    sure = [i for i in order if holders[i] >= options.min_clients]
    known = float(counts[sure].sum() / max(1, counts.sum()))
    words = tuple(counted_words.words[i] for i in order)
    return OwnWords(len(counts), int((counts >= options.min_count).sum()), len(sure), known), words


def _max_length(encoding: Any) -> tuple[int | None, bool]:
    """(the most tokens of a text, whether longer texts are cut and not refused)."""
    if hasattr(encoding, "longest"):
        return encoding.longest, False
    return getattr(encoding, "text_encoding", encoding).max_length, True


def token_numbers(encoding: Any, samples: Sequence) -> Iterator[tuple[int, int, int]]:
    """(length of the text with special tokens, its tokens without these, the unknown ones of them) of each sample."""
    tokenizer = getattr(encoding, "tokenizer", None)
    unknown_id, special = OUT_OF_VOCABULARY_ID, set()
    if tokenizer is not None:
        unknown_id = tokenizer.unk_token_id
        markers = getattr(encoding, "markers", ()) or filter(None, (getattr(encoding, "marker", None),))
        special = {*tokenizer.all_special_ids, *map(tokenizer.convert_tokens_to_ids, markers)} - {unknown_id}
    for ids in encoding.token_ids(samples):
        yield len(ids), sum(i not in special for i in ids), ids.count(unknown_id)


def _split(task, read: ReadData, samples: Sequence, keys: Sequence[int]) -> SplitCheck:
    sizes, tokens, unknown = np.array(list(token_numbers(read.encoding, samples))).T
    return SplitCheck(
        examples=task.rows(samples),
        texts=len(samples),
        labels=shown_labels(task.label_counts(read.data.corpora[0], samples), read.listed),
        median=float(np.median(sizes)),
        percentile_95=int(np.percentile(sizes, 95, method="inverted_cdf")),
        longest=int(sizes.max()),
        cut=int((sizes > read.max_length).sum()) if read.cuts else 0,
        duplicates=len(keys) - len(set(keys)),
        known=float(1 - unknown.sum() / max(1, tokens.sum())) if read.has_words else None,
    )


def _left_out(data: SiteData) -> Iterator[str]:
    """What is left out before texts are encoded."""
    for corpus in data.corpora:
        yield from corpus.notes
    yield from data.partition.notes
    if data.share is None:
        small = [held for client, held in data.partition.clients.items() if client not in data.clients]
        if small:
            texts = sum(len(held.train) + len(held.test) for held in small)
            yield (
                f"{counted(len(small), 'client')} with {counted(texts, 'text')}: fewer training examples than "
                "clients.least_examples"
            )
    for key in ("subset", "balanced_subset", "test_subset"):
        if (size := data.recipe.task.get(key)) is not None:
            yield f"task.{key} = {size}: at most so many texts are drawn{' of each label' * (key[0] == 'b')}"


def _warnings(check: DataCheck, site: Site, recipe: Recipe) -> Iterator[str]:
    if site.digests is not None and check.digest not in site.digests:
        yield "allow.recipes does not have this recipe, so that the site would refuse it"
    allowed = site.options.allow.least_clients
    if len(check.clients) < allowed:
        yield f"{counted(len(check.clients), 'client')}, fewer than allow.least_clients = {allowed}"
    batch = recipe.algorithm.get("batch_size")
    if batch is not None and (small := sum(size < batch for size in check.clients)):
        have = "has" if small == 1 else "have"
        yield (
            f"{small} of {counted(len(check.clients), 'client')} {have} fewer training texts than a batch "
            f"(algorithm.batch_size = {batch})"
        )
    train = check.splits["train"].labels if "train" in check.splits else {}
    if check.missing_labels:
        yield f"labels without a training example: {', '.join(check.missing_labels)}"
    rare = {name: count for name, count in train.items() if 0 < count < FEW_EXAMPLES}
    if rare:
        yield f"labels with fewer than {FEW_EXAMPLES} training examples: {with_counts(rare)}"
    if "test" not in check.splits and not TASKS[recipe.task.name].server_tests:
        yield "no test examples"
    yield from _warnings_of_splits(check)


def _warnings_of_splits(check: DataCheck) -> Iterator[str]:
    for name, split in check.splits.items():
        if check.max_length is not None and split.cut > MANY_CUT * split.texts:
            yield f"{name}: {split.cut / split.texts:.0%} of the texts are cut at {check.max_length} tokens"
        if split.known is not None and 1 - split.known > MANY_UNKNOWN:
            yield f"{name}: {1 - split.known:.0%} of the tokens are unknown"
        if split.duplicates:
            yield f"{name}: {split.duplicates} of {split.texts} texts occur earlier in the split"
    for overlap in check.overlaps:
        if overlap.texts:
            later = check.splits[overlap.later].texts
            yield f"{overlap.texts} of {later} {overlap.later} texts are in {overlap.earlier}, too"
