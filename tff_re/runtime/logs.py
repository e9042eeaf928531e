"""The lines of a log: events with typed fields, written as text or as JSON lines, and read back.

A line is made from the fixed words of its event. Errors, notes and paths are fields of the kind `TEXT` or `FILE`: only
the text form of a log has them whole. The events are in `events.py`.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from tff_re.runtime.errors import RuntimeProblem

VARIABLE = "TFF_RE_LOG"
"""The environment variable that chooses the form of logs."""

FORMS = ("text", "json")
HIDDEN = "…"
"""What stands for a field of the kind `TEXT` where it is left out."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"


@dataclass(frozen=True)
class Kind:
    """The values that a field may have.

    Attributes:
      pattern: of a value in a line of text.
      value: the value as JSON has it; it raises ValueError or TypeError for another one.
      as_text: the value as a line of text has it.
    """

    pattern: str
    value: Callable[[Any], Any]
    as_text: Callable[[Any], Any] = str


def _name(value: Any) -> str:
    if not re.fullmatch(_NAME, str(value)):
        raise ValueError(value)
    return str(value)


def _site_names(value: Any) -> list[str]:
    names = re.sub("^sites? ", "", value).split(", ") if isinstance(value, str) else value
    return [_name(name) for name in names]


def _sites(names: Iterable[str]) -> str:
    names = list(names)
    return f"site{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _finite(value: Any) -> float:
    if not math.isfinite(float(value)):
        raise ValueError(value)
    return float(value)


WHOLE = Kind(r"-?\d+", int, int)
NUMBER = Kind(r"-?\d+(?:\.\d+)?", _finite, float)
NAME = Kind(_NAME, _name)
SITES = Kind(rf"sites? {_NAME}(?:, {_NAME})*", _site_names, _sites)
FILE = Kind(r".*?", lambda value: _name(PurePath(value).name))
TEXT = Kind(r".*", str)
"""Free text, which is neither in JSON lines nor on a live page."""


@dataclass(frozen=True)
class Field:
    """A field of events: the kind of its values, and what it says."""

    kind: Kind
    meaning: str


@dataclass(frozen=True)
class Event:
    """An event that a log may have.

    Attributes:
      name: in JSON lines; it never changes its meaning.
      text: the line, with the fields in braces.
      meaning: what has happened, for the documentation.
      fields: those of `text` and those that only JSON lines have, by name.
      level: of `logging`.
    """

    name: str
    text: str
    meaning: str
    fields: Mapping[str, Field]
    level: int = logging.INFO

    @cached_property
    def public(self) -> dict[str, Field]:
        """The fields of JSON lines."""
        return {name: field for name, field in self.fields.items() if field.kind is not TEXT}

    @property
    def is_fixed(self) -> bool:
        """Whether the line has words of its own, by which it is recognised."""
        return any(words.strip(" :;") for words, *_ in string.Formatter().parse(self.text))

    def line(self, **fields: Any) -> str:
        """The line as text."""
        return self.text.format(**{name: self.fields[name].kind.as_text(value) for name, value in fields.items()})

    def log(self, logger: logging.Logger, *, exc_info: bool = False, **fields: Any) -> str:
        """Writes the event to a log, and returns its line."""
        line = self.line(**fields)
        logger.log(self.level, line, extra={"event": self, "fields": fields}, exc_info=exc_info)
        return line

    def values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields as JSON lines have them, with None for a value that its kind does not allow."""
        values: dict[str, Any] = {}
        for name in self.public:
            if fields.get(name) is None:
                continue
            try:
                values[name] = self.fields[name].kind.value(fields[name])
            except (TypeError, ValueError):
                values[name] = None
        return values

    def read(self, line: str) -> dict[str, str] | None:
        """The fields in a line of text, or None if it is another event's."""
        match = self._pattern.fullmatch(line) if self.is_fixed else None
        return None if match is None else match.groupdict()

    def as_text(self, values: Mapping[str, Any]) -> str:
        """The line without its free text."""
        parts = []
        for words, name, spec, _ in string.Formatter().parse(self.text):
            parts.append(words)
            if name is not None:
                value = values.get(name)
                kind = self.fields[name].kind
                parts.append(HIDDEN if kind is TEXT or value is None else format(kind.as_text(value), spec or ""))
        return "".join(parts)

    @cached_property
    def _pattern(self) -> re.Pattern:
        parts = []
        for words, name, _, _ in string.Formatter().parse(self.text):
            parts.append(re.escape(words))
            if name is not None:
                parts.append(f"(?P<{name}>{self.fields[name].kind.pattern})")
        return re.compile("".join(parts))


@dataclass(frozen=True)
class LogLine:
    """A line of a log that was read: its time, its level, its event and the fields that JSON lines have."""

    time: str
    level: str
    event: Event
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.time} {self.level} {self.event.as_text(self.values)}"


def log_form() -> str:
    """`text` or `json`, as the environment variable says.

    Raises:
      RuntimeProblem: it says something else.
    """
    log_format = os.environ.get(VARIABLE) or FORMS[0]
    if log_format not in FORMS:
        raise RuntimeProblem(f"{VARIABLE}={log_format}: the form of logs is {' or '.join(FORMS)}")
    return log_format


class _JsonLines(logging.Formatter):
    """A line of JSON for each record: time, level, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        event: Event | None = getattr(record, "event", None)
        time = datetime.datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "event": "other" if event is None else event.name}
        if event is not None:
            line |= event.values(record.fields)  # type: ignore[attr-defined]
        return json.dumps(line)


def formatter(log_format: str) -> logging.Formatter:
    """What writes the lines of a log in this format."""
    return _JsonLines() if log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")


_TEXT_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? ([A-Z]+) (.*)")


def read_line(line: str, events: Mapping[str, Event]) -> LogLine | None:
    """A line of a log in either form, or None if it is not one of these events with its fixed words."""
    if line.startswith("{"):
        return _of_json(line, events)
    match = _TEXT_LINE.fullmatch(line)
    if match is None:
        return None
    time, level, text = match.groups()
    for event in events.values():
        if (fields := event.read(text)) is not None:
            return LogLine(time, level, event, event.values(fields))
    return None


def _of_json(line: str, events: Mapping[str, Event]) -> LogLine | None:
    try:
        table = json.loads(line)
        event, level = events[table["event"]], _name(table["level"])
        time = datetime.datetime.fromisoformat(table["time"]).astimezone()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return LogLine(time.strftime("%Y-%m-%d %H:%M:%S"), level, event, event.values(table))
