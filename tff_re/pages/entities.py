"""Texts with highlighted entities as HTML, and a page of them. It holds the texts, which may be patients'."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Protocol

COLOURS = ("#cfe8f7", "#fde3b4", "#cdeedd", "#f6d5e6", "#e3dcf5", "#fbd6c6", "#e2eab8", "#d9dde2")
"""Light backgrounds on which black text is read well; the first type has the first one, and so on around."""

STYLE = """\
.text { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 2; margin: .3rem 0 1rem; }
mark { border-radius: .3rem; padding: .1rem .25rem; color: inherit; border: 1px solid #8c959f66; }
mark small { font-size: .7em; margin-left: .35em; color: #57606a; }
"""
"""What `highlighted` needs of a page's style."""


class Span(Protocol):
    """An entity: characters (code points) of its text, half-open, and its type."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class PageText:
    """A text of the page; `title` is shown above it."""

    title: str
    text: str = field(repr=False)
    spans: Sequence[Span] = field(repr=False)


def highlighted(text: str, spans: Iterable[Span], types: Sequence[str]) -> str:
    """A text as HTML: each span a `<mark>` with its type; all of the text is escaped.

    Args:
      text: the text.
      spans: in the order of the text; none overlap.
      types: the types of spans, in the order of their colours.
    """
    parts, done = [], 0
    for span in spans:
        colour = COLOURS[types.index(span.type) % len(COLOURS)]
        parts.append(escape(text[done : span.start]))
        parts.append(f'<mark style="background: {colour}" title="{escape(span.type)} {span.start}:{span.end}">')
        parts.append(f"{escape(text[span.start : span.end])}<small>{escape(span.type)}</small></mark>")
        done = span.end
    return "".join([*parts, escape(text[done:])])


def entities_page(title: str, subtitle: str, texts: Sequence[PageText], types: Sequence[str], made_by: str) -> str:
    """A page that needs nothing beside it.

    Args:
      title, subtitle: at its top.
      texts: in their order.
      types: the types of entities, see `highlighted`.
      made_by: the line at its end.
    """
    colours = [(name, COLOURS[index % len(COLOURS)]) for index, name in enumerate(types)]
    return _template().render(
        title=title,
        subtitle=subtitle,
        colours=colours,
        texts=[(text.title, highlighted(text.text, text.spans, types)) for text in texts],
        style=STYLE,
        made_by=made_by,
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<title>{{ title }}</title>
<style>
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem; color: #1b1f24; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.2rem 0 0; padding-top: .6rem; border-top: 1px solid #d8dee4; overflow-wrap: anywhere; }
.quiet { color: #57606a; font-size: .9rem; }
{{ style }}
@media print { @page { margin: 14mm; } h2 { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>{{ subtitle }}</p>
<p>{% for name, colour in colours %}<mark style="background: {{ colour }}">{{ name }}</mark> {% endfor %}</p>
{% for heading, text in texts %}
<h2>{{ heading }}</h2>
<div class="text">{{ text | safe }}</div>
{% endfor %}
<footer class="quiet">{{ made_by }}</footer>
</body>
</html>
"""


@functools.cache
def _template():
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_PAGE)
