"""The page of a site's data under a recipe (`site --check`), for the terminal and as HTML. It holds no text."""

from __future__ import annotations

import numpy as np

from tff_re.pages.page import Block, Facts, Items, Section, Table, Words, page
from tff_re.sites.check import DataCheck, with_counts


def data_check_page(check: DataCheck, made_by: str) -> str:
    """The page as HTML; `made_by` is its last line."""
    subtitle = "Made at the site. It has counts and labels only, no text. Nothing was sent."
    return page(_title(check), subtitle, data_check_sections(check), made_by)


def data_check_sections(check: DataCheck) -> list[Section]:
    """What the page shows, in its order."""
    return [
        Section("data", _title(check), [Facts(_facts(check)), _numbers(check)]),
        Section("labels", "Labels", [_labels(check), *_label_lines(check)]),
        Section("dropped", "Left out by the recipe", _list(check.dropped, "nothing")),
        Section("problems", "Problems for which the site would refuse a run", _list(check.problems, "none")),
        Section("warnings", "Warnings", _list(check.warnings, "none")),
    ]


def _title(check: DataCheck) -> str:
    return f"Data of {check.site} for {check.recipe}"


def _list(lines: tuple[str, ...], if_empty: str) -> list[Block]:
    return [Items(lines) if lines else Words(if_empty)]


def _facts(check: DataCheck) -> dict[str, str]:
    sizes, words = check.clients, check.own_words
    facts = {
        "data set": check.dataset,
        "digest of the recipe": check.digest,
        "clients": f"{len(sizes)}, with {min(sizes)} to {max(sizes)} training texts (median {np.median(sizes):g})",
    }
    if words is not None:
        facts["words"] = (
            f"{words.distinct} different words in the training texts, {words.frequent} of them occur at least "
            "task.min_count times"
        )
        facts["words in the vocabulary without other sites"] = (
            f"{words.without_others}, which cover {words.known_without_others:.1%} of the words in the training "
            "texts (at least task.min_clients clients here have them)"
        )
    return facts


def _numbers(check: DataCheck) -> Table:
    parts = check.splits.values()
    limit = "no limit" if check.max_length is None else f"limit: {check.max_length} tokens"
    with_words = check.own_words is not None
    rows = [
        ["examples", *(str(split.examples) for split in parts)],
        ["texts", *(str(split.texts) for split in parts)],
        ["tokens of a text, median", *(f"{split.median:g}" for split in parts)],
        ["tokens of a text, 95 %", *(str(split.percentile_95) for split in parts)],
        ["tokens of a text, longest", *(str(split.longest) for split in parts)],
        [f"texts that are cut ({limit})", *(_share(split.cut, split.texts) for split in parts)],
        ["duplicates within the split", *(_share(split.duplicates, split.texts) for split in parts)],
    ]
    for earlier in list(check.splits)[:-1]:
        counts = {overlap.later: overlap.texts for overlap in check.overlaps if overlap.earlier == earlier}
        of_splits = (
            _share(counts[name], split.texts) if name in counts else "" for name, split in check.splits.items()
        )
        rows.append([f"texts that are also in {earlier}", *of_splits])
    known = "tokens in the vocabulary, if other sites have all frequent words" if with_words else "known tokens"
    rows.append([known, *("unknown" if split.known is None else f"{split.known:.1%}" for split in parts)])
    return Table(["", *check.splits], rows)


def _labels(check: DataCheck) -> Table:
    names = dict.fromkeys(name for split in check.splits.values() for name in split.labels)
    rows = [[name, *(str(split.labels.get(name, 0)) for split in check.splits.values())] for name in names]
    return Table(["label", *check.splits], rows)


def _label_lines(check: DataCheck) -> list[Block]:
    lines = []
    if check.unknown_labels:
        lines.append(f"not in the recipe: {with_counts(check.unknown_labels)}")
    if check.missing_labels:
        lines.append(f"in the recipe but not in the training examples: {', '.join(check.missing_labels)}")
    return [Items(lines)] if lines else []


def _share(count: int, total: int) -> str:
    return f"{count} ({count / max(1, total):.1%})"
