"""One HTML page that needs nothing beside it: sections of tables, charts and lists. What a page shows comes as plain
values; all of it is escaped (jinja2), because names of clients and classes come from data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from tff_re.comparison.verdicts import VERDICTS
from tff_re.pages.charts import embedded


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Attributes:
      heading: of each column.
      rows: cells as text, as many as there are headings.
      muted: rows (their numbers) that are no method's: controls, and what was not trained.
      caption: below it.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    muted: frozenset[int] = frozenset()
    caption: str = ""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Chart:
    """A figure of `tff_re.pages.charts`, with a title above it."""

    figure: Any
    title: str
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    facts: Mapping[str, str]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True)
class Items:
    """A list, of sentences."""

    items: Sequence[str]
    kind: str = field(default="items", init=False)


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str
    kind: str = field(default="words", init=False)


@dataclass(frozen=True)
class Code:
    """Text to copy, such as a command; `folded` under its title until the reader opens it."""

    text: str
    folded: str = ""
    kind: str = field(default="code", init=False)


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str
    kind: str = field(default="heading", init=False)


Block = Table | Chart | Facts | Items | Words | Code | Heading


@dataclass(frozen=True)
class Section:
    """A part of the page, which the contents list; those without blocks are left out."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def page(title: str, subtitle: str, sections: Sequence[Section], made_by: str) -> str:
    """The page as HTML.

    Args:
      title, subtitle: at its top.
      sections: in their order.
      made_by: the line at its end.
    """
    filled = [section for section in sections if section.blocks]
    figures = [block.figure for section in filled for block in section.blocks if isinstance(block, Chart)]
    script, places = embedded(figures)
    charts = dict(zip(map(id, figures), places, strict=True))
    return _template().render(
        title=title,
        subtitle=subtitle,
        sections=filled,
        made_by=made_by,
        script=script,
        chart=lambda block: charts[id(block.figure)],
        verdicts=VERDICTS,  # marked, not only coloured: a page may be printed in black
    )


@functools.cache
def _template():
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(resources.files("tff_re.pages").joinpath("page.html").read_text("utf-8"))
