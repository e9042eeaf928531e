"""Every key of a recipe with its type, default and meaning, read off the classes that recipes are checked by."""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from collections import Counter
from collections.abc import Collection
from typing import Any

import attrs

from tff_re.recipes.structuring import REQUIRED, keys, range_of
from tff_re.recipes.tables import TABLES, choices

HEADER = """# Every key of a recipe

Made by `python -m tff_re.run recipes --keys`; a test checks it. A recipe is TOML with the top-level keys
`name` (the file's name by default), `description`, `seed` (0) and `[published]` (metric to value, for comparisons), and
these tables. `--set table.key=value` overrides any of them, and `--set table.key=none` removes one (or an
optional table: `--set table=none`). A table `[client_model]`, with the keys of `[model]`, gives
the clients a model of their own, which they keep from round to round; only algorithms that do not combine weights
(`feded`) take it.

A key that at least three algorithms or models have with the same default is listed once, and each of them links to it.
"""


SHARING = ("algorithm", "model")
SHARED_BY = 3
"""A row that at least this many choices of a table in `SHARING` have is written once."""


def markdown(algorithms: Collection[str] | None = None) -> str:
    """The text of docs/recipes.md, for all algorithms or for the named ones."""
    lines = [HEADER]
    for section, table in sorted(TABLES.items(), key=lambda item: not item[1].chooses):
        if section == "client_model":
            continue
        lines += [f"## [{section}]", ""]
        if table.chooses:
            lines += ["`name` chooses; the other keys are those of the choice.", ""]
        elif table.default is None and not table.required:
            lines += ["May be left out.", ""]
        chosen = choices(section)
        if section == "algorithm" and algorithms is not None:
            chosen = {name: cls for name, cls in chosen.items() if name in algorithms}
        lines += _choices(section, chosen) if table.chooses else _table(_rows(next(iter(chosen.values()))))
    return "\n".join(lines).rstrip() + "\n"


def _choices(section: str, chosen: dict[str, type]) -> list[str]:
    """A heading for each choice with its rows, after one table of the rows that several choices have."""
    rows = {name: _rows(cls) for name, cls in chosen.items()}
    users = Counter(row for of_choice in rows.values() for row in of_choice)
    common: dict[str, str] = {}  # key -> the row that most choices have
    for row, count in users.most_common():
        if count >= SHARED_BY and section in SHARING:
            common.setdefault(_key(row), row)
    shared = [row for row in users if common.get(_key(row)) == row]
    lines = [f"### Shared keys of {section}", "", *_table(shared)] if shared else []
    for name, of_choice in rows.items():
        lines += [f'### {section}.name = "{name}"', ""]
        inherited = [f"`{_key(row)}`" for row in of_choice if row in shared]
        if inherited:
            lines += [f"[Shared keys](#shared-keys-of-{section}): {', '.join(inherited)}.", ""]
        further = [row for row in of_choice if row not in shared]
        lines += _table(further) if further or not inherited else []
    return lines


def _key(row: str) -> str:
    return row.split("`")[1]


def _table(rows: list[str]) -> list[str]:
    if not rows:
        return ["No further keys.", ""]
    return ["| key | type | range | default | meaning |", "| :-- | :-- | :-- | :-- | :-- |", *rows, ""]


def _rows(cls: type, prefix: str = "") -> list[str]:
    """A row for each key.

    The keys of an inner table follow its own row, e.g. `adapter.rank`.
    """
    rows, meanings, types = [], _meanings(cls), typing.get_type_hints(cls)
    for key in keys(cls):
        default = "must be given" if key.default is REQUIRED else _toml(key.default)
        inner = next((t for t in typing.get_args(types[key.name]) if attrs.has(t)), None)
        kind = "table" if inner else _kind(str(key.type))
        range_ = "" if "Literal" in str(key.type) else range_of(key.validator)
        rows.append(f"| `{prefix}{key.name}` | {kind} | {range_} | {default} | {meanings.get(key.name, '')} |")
        rows += _rows(inner, f"{prefix}{key.name}.") if inner else []
    return rows


def _meanings(cls: type) -> dict[str, str]:
    """Field -> what the docstrings of the class and its bases say under 'Attributes:', the class's own first."""
    meanings: dict[str, str] = {}
    for owner in cls.__mro__:
        text = inspect.cleandoc(owner.__dict__.get("__doc__") or "")
        _, _, attributes = text.partition("Attributes:\n")
        attributes = textwrap.dedent(re.split(r"\n(?=Raises:|Returns:)", attributes)[0])
        for names, meaning in re.findall(r"^(\w[\w, ]*): (.+(?:\n[ \t]+.+)*)", attributes, re.MULTILINE):
            for name in names.split(", "):
                meanings.setdefault(name, " ".join(meaning.split()).replace("|", "\\|"))
    return meanings


def _kind(annotation: str) -> str:
    names = {"int": "whole number", "float": "number", "str": "string", "bool": "true or false"}
    names["dict[str, tuple[str, ...]]"] = "table of lists of strings"
    names["tuple[str, ...]"] = "list of strings"
    names["tuple[tuple[str, str], ...]"] = "list of pairs of strings"
    if annotation.startswith("bool | tuple[str, ...]"):
        return "true or false or list of strings"
    if literal := re.search(r"Literal\[(.+?)\]", annotation):
        choices = " or ".join(f"`{choice.strip()}`" for choice in literal[1].replace("'", '"').split(","))
        return f"list of {choices}" if annotation.startswith("tuple[") else choices
    base = re.split(r" \| ", annotation)[0]
    return names.get(re.sub(r"<class '(\w+)'>", r"\1", base), base)


def _toml(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
