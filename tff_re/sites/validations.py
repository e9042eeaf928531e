"""All sites' results of evaluating one export: checked against a list of keys, as rows, and their total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.entities.scoring import SpanCounts
from datasets.files import csv_text
from tff_re.errors import UserError
from tff_re.recipes.reading import read_toml
from tff_re.sites.keys import is_public_key
from tff_re.sites.validation import NAME, read_result

TABLE = "sites"
"""Of a file of keys: name -> public key, as site.toml has it; a file without this table has the names at its top."""

_SAMPLES = ("examples", "texts", "documents", "bags")
"""Names of counts that say over how many samples a result is."""


@dataclass(frozen=True)
class Result:
    """A result that was checked.

    Attributes:
      path: the file.
      site: the name that the list of keys has for its key.
      content: the JSON in it.
    """

    path: Path
    site: str
    content: Mapping[str, Any]


def read_keys(path: Path) -> dict[str, str]:
    """Public key -> name of its site.

    Args:
      path: a TOML file of lines `name = "ed25519:…"`, at its top or in `[sites]`; or a folder of such files.

    Raises:
      UserError: there is none, it is malformed, or a name or a key is there twice.
    """
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    names: dict[str, str] = {}
    for file in files:
        table = read_toml(file)
        keys = table.get(TABLE, table)
        for name, key in keys.items() if isinstance(keys, dict) else ():
            if not NAME.fullmatch(name) or not isinstance(key, str) or not is_public_key(key):
                raise UserError(f'{file}: {name[:63]!r} is not the line of a site; write: aachen = "ed25519:…"')
            if key in names or name in names.values():
                raise UserError(f"{file}: {name} or its key is listed twice; list every site once")
            names[key] = name
    if not names:
        what = "has no file *.toml with a site's key" if path.is_dir() else "lists no site"
        raise UserError(f'{path}: {what}; write a line for each site: aachen = "ed25519:…"')
    return names


def read_results(folder: Path, keys: Mapping[str, str], export: str | None = None) -> list[Result]:
    """The results in a folder (`*.json`), sorted by site.

    Args:
      folder: of the files.
      keys: as `read_keys` gives them.
      export: the digest that all of them must have; None: that of the first.

    Raises:
      UserError: a result is malformed, its signature does not fit, its key is not listed, or it is of another export.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder with the sites' results")
    results: list[Result] = []
    for path in sorted(folder.glob("*.json")):
        content = read_result(path)
        site = keys.get(content["public_key"])
        if site is None:
            raise UserError(
                f"{path}: its key {content['public_key']} is not listed; ask the site's operator for the key"
            )
        if content["name"] not in (None, site):
            raise UserError(f"{path}: says that it is of {content['name']}, but the key is listed as that of {site}")
        wanted = export or (results[0].content["export"] if results else content["export"])
        if content["export"] != wanted:
            of_whom = "the export given" if export else f"{results[0].path.name}"
            raise UserError(
                f"{path}: evaluates another export ({content['export'][:12]}…) than that of {of_whom} ({wanted[:12]}…)"
            )
        results.append(Result(path, site, content))
    if not results:
        raise UserError(f"{folder}: has no file *.json; put the sites' results there")
    return sorted(results, key=lambda result: (result.site, result.content["time"], result.path.name))


def notes(results: Sequence[Result]) -> list[str]:
    """What a reader of the table should know: results that may count the same examples twice, and other versions."""
    lines = []
    for site, number in Counter(result.site for result in results).items():
        if number > 1:
            files = ", ".join(result.path.name for result in results if result.site == site)
            lines.append(f"{site} has {number} results ({files}); there is no total, which could count examples twice")
    by_file: dict[str, set[str]] = {}
    for result in results:
        by_file.setdefault(result.content["file"], set()).add(result.site)
    for sites in by_file.values():
        if len(sites) > 1:
            lines.append(f"{', '.join(sorted(sites))} evaluated the same file; there is no total")
    if len(_measured(results)) > 1:
        lines.append("the results are over different classes or relations; there is no total")
    versions = sorted({result.content["tff_re"] for result in results})
    if len(versions) > 1:
        lines.append(f"the results are of several versions of tff-re: {', '.join(versions)}")
    return lines


def _measured(results: Sequence[Result]) -> set[str]:
    """The different lists of classes that the results' metrics are over, as text."""
    return {str([result.content[key] for key in ("labels", "positive_labels")]) for result in results}


def total(results: Sequence[Result]) -> tuple[dict[str, int], dict[str, float]] | None:
    """Counts and metrics over all sites' examples, or None if examples may overlap or classes differ.

    The loss is the mean over examples. Except for accuracy, the metrics of classes need every site's confusion matrix.
    Of entities there are strict and lenient precision, recall and F1; of bags and documents only the counts.
    """
    contents = [result.content for result in results]
    if len({result.site for result in results}) < len(results) or len({c["file"] for c in contents}) < len(contents):
        return None
    if len(_measured(results)) > 1:
        return None
    names = [name for name in contents[0]["counts"] if all(name in c["counts"] for c in contents)]
    counts = {name: sum(c["counts"][name] for c in contents) for name in names}
    if counts.get("examples"):
        return counts, _of_classes(contents, counts["examples"])
    parts = SpanCounts.__dataclass_fields__
    if set(parts) <= set(counts):
        spans = SpanCounts(**{name: counts[name] for name in parts})
        measured = ("precision", "recall", "f1", "lenient_precision", "lenient_recall", "lenient_f1")
        return counts, {name: float(getattr(spans, name)) for name in measured}
    return counts, {}


def _of_classes(contents: Sequence[Mapping[str, Any]], examples: int) -> dict[str, float]:
    means = {}
    for name in ("accuracy", "loss"):
        values = [(c["metrics"].get(name), c["counts"]["examples"]) for c in contents if c["counts"]["examples"]]
        if all(value is not None for value, _ in values):
            means[name] = sum(value * count for value, count in values) / examples
    if any(c["confusion"] is None for c in contents):
        return means
    from tff_re.tasks.metrics import classification_metrics  # scikit-learn is slow to import

    confusion = np.sum([c["confusion"] for c in contents], axis=0)
    loss = means.get("loss", float("nan")) * examples
    statistics = {"examples": np.float64(examples), "loss": np.float64(loss), "confusion": confusion}
    measured = classification_metrics(statistics, contents[0]["positive_labels"])
    return {name: value for name, value in measured.items() if name in means or name != "loss"}


def samples_of(counts: Mapping[str, int]) -> int | None:
    """The number of examples, texts, documents or bags."""
    return next((counts[name] for name in _SAMPLES if name in counts), None)


def columns(results: Sequence[Result], kind: str) -> list[str]:
    """The names of all results' `counts` or `metrics`, in the order of the first that has them."""
    return list(dict.fromkeys(name for result in results for name in result.content[kind]))


def to_csv(results: Sequence[Result], whole: tuple[dict[str, int], dict[str, float]] | None) -> bytes:
    """The table with every count and metric, a row for each result and one for the total, if there is one."""
    counts, metrics = columns(results, "counts"), columns(results, "metrics")
    rows: list[list[Any]] = [["site", *counts, *metrics, "time", "tff_re", "file", "export"]]
    for result in results:
        c = result.content
        numbers = [c["counts"].get(name) for name in counts] + [c["metrics"].get(name) for name in metrics]
        rows.append([result.site, *numbers, c["time"], c["tff_re"], c["file"], c["export"]])
    if whole is not None and len(results) > 1:
        numbers = [whole[0].get(name) for name in counts] + [whole[1].get(name) for name in metrics]
        rows.append(["total", *numbers, None, None, None, results[0].content["export"]])
    return csv_text(rows).encode()
