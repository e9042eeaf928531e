"""One self-contained HTML page of sections with tables, charts and lists.

What a page shows comes as plain values; all of it is escaped (jinja2), because names of clients and classes come from
data.
"""

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
    """A table whose first column names the rows.

    Attributes:
      heading: of each column.
      rows: cells as text, as many as there are headings.
      muted: rows (their numbers) that are no method's: controls, and what was not trained.
      caption: below it.
      entities: of each row the entities of a `Network` that it is of; none: the rows are of no entities.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    muted: frozenset[int] = frozenset()
    caption: str = ""
    entities: Sequence[Sequence[int]] = ()
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
    """Text to copy, such as a command.

    `folded`: it is hidden under its title until the reader opens it.
    """

    text: str
    folded: str = ""
    kind: str = field(default="code", init=False)


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str
    kind: str = field(default="heading", init=False)


@dataclass(frozen=True)
class TextPart:
    """A piece of a text.

    Attributes:
      text: the piece.
      colour: of a mention, as CSS has it.
      entity: the number of the mention's entity; None: the piece is not a mention.
      note: what the reader sees at the mention.
    """

    text: str
    colour: str = ""
    entity: int | None = None
    note: str = ""


@dataclass(frozen=True)
class MarkedText:
    """A text with its mentions highlighted, under a title."""

    title: str
    parts: Sequence[TextPart]
    kind: str = field(default="marked", init=False)


@dataclass(frozen=True)
class NetworkNode:
    """An entity in a network: its number, where it stands, its label, a note and its colour."""

    entity: int
    x: float
    y: float
    label: str
    note: str
    colour: str


@dataclass(frozen=True)
class NetworkEdge:
    """A line from one entity (by its number) to another, between two points, with the names of its relations."""

    head: int
    tail: int
    x1: float
    y1: float
    x2: float
    y2: float
    label: str


@dataclass(frozen=True)
class Network:
    """A graph of entities.

    A click on an entity marks it, its neighbours, its mentions and its rows of tables.
    """

    nodes: Sequence[NetworkNode]
    edges: Sequence[NetworkEdge]
    width: int
    height: int
    caption: str = ""
    kind: str = field(default="network", init=False)


Block = Table | Chart | Facts | Items | Words | Code | Heading | MarkedText | Network


@dataclass(frozen=True)
class Section:
    """A part of the page, which the table of contents lists.

    Sections without blocks are left out.
    """

    anchor: str
    title: str
    blocks: Sequence[Block]


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    made_by: str,
    *,
    template: str = "page.html",
    draws: bool = True,
    **more: Any,
) -> str:
    """The page as HTML.

    Args:
      title, subtitle: at its top.
      sections: in their order.
      made_by: the line at its end.
      template: a file next to page.html.
      draws: whether the charts are in it; without them only their titles are.
      more: what the template takes besides.
    """
    filled = [section for section in sections if section.blocks]
    figures = [block.figure for section in filled for block in section.blocks if isinstance(block, Chart)]
    script, places = embedded(figures) if draws else ("", [""] * len(figures))
    charts = dict(zip(map(id, figures), places, strict=True))
    return (
        _templates()
        .get_template(template)
        .render(
            title=title,
            subtitle=subtitle,
            sections=filled,
            made_by=made_by,
            script=script,
            clickable=any(isinstance(block, MarkedText | Network) for section in filled for block in section.blocks),
            chart=lambda block: charts[id(block.figure)],
            verdicts=VERDICTS,  # marked, not only coloured: a page may be printed in black
            **more,
        )
    )


@functools.cache
def _templates():
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    loader = FunctionLoader(lambda name: resources.files("tff_re.pages").joinpath(name).read_text("utf-8"))
    ways = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=loader, **ways)
