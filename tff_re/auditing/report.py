"""The report of an audit: Markdown for people, JSON and CSV for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.files import csv_text, replace_file
from tff_re.auditing.judgement import judgement
from tff_re.auditing.sections import CONFIDENCE, Section

REPORT_FILE, NUMBERS_FILE = "audit.md", "audit.json"

SUMMARY = ("part", "finding", "value", f"interval ({CONFIDENCE:.0%})", "by chance", "protection")


@dataclass(frozen=True)
class Audited:
    """What stands above the parts: the run, in words and for programs."""

    title: str
    about: list[str]
    numbers: Mapping[str, Any]


def summary_rows(sections: Mapping[str, Section]) -> list[list[str]]:
    """The table at the end: a row for each finding, and for a part that does not apply."""
    rows = []
    for name, section in sections.items():
        if section.not_applicable is not None:
            rows.append([name, f"not applicable: {section.not_applicable}", "–", "–", "–", "–"])
        rows += [[name, *finding.cells()] for finding in section.findings]
    return rows


def write_report(out: Path, audited: Audited, sections: Mapping[str, Section]) -> list[Path]:
    """Writes audit.md, audit.json and the parts' CSV files.

    Returns the files written, pictures included.
    """
    verdict, *sentences = judgement(sections)
    lines = [f"# {audited.title}", "", f"**{verdict}**", "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += ["## What was audited", "", *audited.about, ""]
    files = [out / REPORT_FILE, out / NUMBERS_FILE]
    for section in sections.values():
        lines += _markdown(section)
        files += [path for path, _ in section.pictures]
        for name, rows in section.files.items():
            replace_file(out / name, csv_text(rows).encode("utf-8"))
            files.append(out / name)
    lines += ["## Summary", "", *_table(SUMMARY, summary_rows(sections)), ""]
    numbers = {**audited.numbers, "confidence": CONFIDENCE, "judgement": [verdict, *sentences]}
    numbers |= {"parts": {n: _numbers(s) for n, s in sections.items()}}
    text = json.dumps(_finite(numbers), indent=2, ensure_ascii=False) + "\n"
    replace_file(out / NUMBERS_FILE, text.encode("utf-8"))
    replace_file(out / REPORT_FILE, "\n".join(lines).encode("utf-8"))
    return files


def _markdown(section: Section) -> list[str]:
    lines = [f"## {section.title}", ""]
    if section.not_applicable is not None:
        return [*lines, f"Not applicable: {section.not_applicable}.", ""]
    lines += ["### What was tried", "", *section.tried, "", "### What was found", ""]
    for sentence in section.results:
        lines += [sentence, ""]
    for title, header, rows in section.tables:
        lines += [f"**{title}**", "", *_table(header, rows), ""]
    for path, what in section.pictures:
        lines += [f"![{what}]({path.name})", ""]
    for title, sentences in (("What it means", section.means), ("What was not tried", section.not_tried)):
        lines += [f"### {title}", "", *(f"- {sentence}" for sentence in sentences), ""]
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def row(cells):
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [row(header), "| " + " | ".join(["---"] * len(header)) + " |", *map(row, rows)]


def _numbers(section: Section) -> dict[str, Any]:
    if section.not_applicable is not None:
        return {"not_applicable": section.not_applicable}
    return section.numbers


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null in their place."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value
    return number if not isinstance(number, float) or math.isfinite(number) else None
