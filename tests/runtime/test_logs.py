"""Logs: every line is an event with typed fields, in two forms, and docs/runs.md lists the events."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest

from tff_re.runtime.errors import RuntimeProblem
from tff_re.runtime.events import EVENTS, FIELDS
from tff_re.runtime.logs import (
    FILE,
    HIDDEN,
    NAME,
    NUMBER,
    SITES,
    TEXT,
    VARIABLE,
    WHOLE,
    formatter,
    log_form,
    read_line,
)

ROOT = Path(__file__).parents[2]
SECRET = "宝宝昨晚发热 the patient has a fever"
SAMPLES = {
    id(WHOLE): (7, 7),
    id(NUMBER): (2.5, 2.5),
    id(NAME): ("train", "train"),
    id(SITES): (["aachen", "bonn"], ["aachen", "bonn"]),
    id(FILE): ("/anywhere/run/metrics.csv", "metrics.csv"),
    id(TEXT): (SECRET, None),
}
"""Kind -> (a value, what JSON has of it)."""

EACH = pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)


def written(event, form, **fields) -> str:
    """The line of an event in this form."""
    records = []
    log = logging.Logger("test")
    log.addHandler(handler := logging.Handler())
    handler.emit = lambda record: records.append(formatter(form).format(record))
    event.log(log, **fields)
    (line,) = records
    return line


def samples(event):
    return {name: SAMPLES[id(field.kind)][0] for name, field in event.fields.items()}


@EACH
def test_a_json_line_has_the_fields_and_no_free_text(event):
    line = written(event, "json", **samples(event))
    table = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", table.pop("time"))
    assert table.pop("level") == logging.getLevelName(event.level) and table.pop("event") == event.name
    assert table == {name: SAMPLES[id(field.kind)][1] for name, field in event.public.items()}
    assert "宝" not in json.dumps(table, ensure_ascii=False) and "fever" not in line and "someone" not in line


@EACH
def test_a_line_is_read_back_in_both_forms_without_its_free_text(event):
    for form in ("text", "json"):
        line = read_line(written(event, form, **samples(event)), EVENTS)
        if form == "text" and not event.is_fixed:
            assert line is None
            continue
        assert line.event is event and line.level == logging.getLevelName(event.level)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line.time)
        assert "宝" not in str(line) and "fever" not in str(line) and "someone" not in str(line)
        assert (HIDDEN in str(line)) == any(
            field.kind is TEXT and f"{{{name}" in event.text for name, field in event.fields.items()
        )
        for name, value in line.values.items():
            # A template may round a number.
            assert value == pytest.approx(SAMPLES[id(event.fields[name].kind)][1], abs=0.5)


def test_values_of_another_kind_are_null_in_json():
    fields = {"site": "<script>", "reason": SECRET, "seconds": float("nan")}
    assert EVENTS["site.failing"].values(fields) == {"site": None, "seconds": None}
    assert EVENTS["file.damaged"].values({"file": "/tmp/宝宝"}) == {"file": None}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"time": 3, "level": "INFO", "event": "run.begun"}',
        '{"time": "2026-01-01T00:00:00+00:00", "level": "a b", "event": "run.begun"}',
        '{"time": "2026-01-01T00:00:00+00:00", "level": "INFO", "event": "none.such"}',
        "2026-01-01 00:00:00,123 INFO the patient has a fever",
        "round 3 of 4: 1.00 s",
        "[" * 100_000,
    ],
)
def test_other_lines_are_not_events(line):
    assert read_line(line, EVENTS) is None


def test_records_of_other_modules_have_no_text_in_json():
    record = logging.LogRecord("tff_re.x", logging.ERROR, "f.py", 1, SECRET, (), None)
    table = json.loads(formatter("json").format(record))
    assert table.keys() == {"time", "level", "event"} and table["event"] == "other"
    assert formatter("text").format(record).endswith(f" ERROR {SECRET}")


def test_the_form_is_that_of_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert log_form() == "text"
    monkeypatch.setenv(VARIABLE, "json")
    assert log_form() == "json"
    monkeypatch.setenv(VARIABLE, "xml")
    with pytest.raises(RuntimeProblem, match="TFF_RE_LOG=xml: the form of logs is text or json"):
        log_form()


def calls_of_logs(text: str) -> list[str]:
    """The methods of `_log` that a module calls itself."""
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        function.attr
        for function in calls
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "_log"
        if function.attr in ("debug", "info", "warning", "error", "exception", "critical", "log")
    ]


def test_every_line_that_the_code_logs_is_an_event():
    for path in (ROOT / "tff_re").rglob("*.py"):
        assert calls_of_logs(path.read_text("utf-8")) == [], path
    assert calls_of_logs("_log.info('a')") == ["info"]


def test_every_event_is_used():
    names = {
        id(event): name
        for name, event in vars(__import__("tff_re.runtime.events", fromlist=["_"])).items()
        if type(event).__name__ == "Event"
    }
    assert len(names) == len(EVENTS)
    code = "".join(
        path.read_text("utf-8") for path in (ROOT / "tff_re").rglob("*.py") if path.name not in ("events.py", "live.py")
    )
    assert [name for name in names.values() if not re.search(rf"\b{name}\b", code)] == []
    assert set(FIELDS) == {name for event in EVENTS.values() for name in event.fields}


def documented() -> dict[str, tuple[str, list[str], str]]:
    """Event -> (level, fields, meaning) in the table of docs/runs.md."""
    page = (ROOT / "docs" / "runs.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    return {name: (level, re.findall(r"`(\w+)`", fields), meaning) for name, level, fields, meaning in rows}


def test_the_documented_events_are_those_of_the_code():
    assert documented() == {
        event.name: (logging.getLevelName(event.level), list(event.public), event.meaning)
        for event in EVENTS.values()
        if event.level >= logging.INFO
    }


def test_the_documented_fields_are_those_of_the_code():
    page = (ROOT / "docs" / "runs.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", page, re.MULTILINE))
    public = {name: field.meaning for name, field in FIELDS.items() if field.kind is not TEXT}
    assert {name: rows.get(name) for name in public} == public
