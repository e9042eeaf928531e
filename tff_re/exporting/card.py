"""The model card: what a user must know before using an exported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tff_re.exporting.forms import MEASURES
from tff_re.exporting.kind import Kind

_HEAD = """# {title}

A model trained by federated learning with tff-re {version}. For research; not a medical device, and not to be used for
decisions about patients.
"""


def card(description: Mapping[str, Any], labels: Sequence[str], kind: Kind) -> str:
    """The card in Markdown.

    Args:
      description: what export.json holds.
      labels: the classes.
      kind: of the inputs.
    """
    details = description["details"]
    parts = [_HEAD.format(title=_plain(details.get("recipe") or description["model"]), version=_version(description))]
    facts = [("model", description["model"])]
    facts += [(key, value) for key, value in details.items() if isinstance(value, str | int | float)]
    parts.append("\n".join(f"- {_plain(key)}: {_plain(value)}" for key, value in facts) + "\n")
    for title in ("data", "training", "privacy", "limits"):
        if lines := details.get(title):
            parts.append(_section(title.capitalize(), lines))
    precision = description.get("precision")
    parts.append(_metrics(details.get("metrics"), details.get("exported_metrics"), precision))
    parts.append(_forms(description.get("forms")))
    parts.append(_precision(precision))
    parts += kind.uses(description)
    names = "\n".join(f"{number}. {_plain(label)}" for number, label in enumerate(labels))
    parts.append(f"## Classes\n\nNumbers are places in `probabilities`.\n\n{names}")
    return "\n".join(part for part in parts if part)


def _version(description: Mapping[str, Any]) -> str:
    return description["versions"]["tff-re"]


def _section(title: str, lines: Mapping[str, Any] | Sequence[str]) -> str:
    if isinstance(lines, Mapping):
        lines = [f"{key}: {value}" for key, value in lines.items() if value is not None]
    return f"## {title}\n\n" + "\n".join(f"- {_plain(line)}" for line in lines) + "\n"


def _metrics(metrics: Any, exported: Any = None, precision: Mapping[str, Any] | None = None) -> str:
    """The run's metrics; beside them those of the exported model where that computes in another precision."""
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    own, theirs = _by_name(metrics), _by_name(exported if isinstance(exported, Mapping) else {})
    if not theirs or precision is None:
        rows = [f"| {_plain(split)} | {_plain(name)} | {_plain(value)} |" for (split, name), value in own.items()]
        return "\n".join(["## Metrics", "", "| examples | metric | value |", "| :-- | :-- | --: |", *rows, ""])
    rows = []
    for split, name in own | theirs:
        values = " | ".join("" if (split, name) not in of else _plain(of[split, name]) for of in (own, theirs))
        rows.append(f"| {_plain(split)} | {_plain(name)} | {values} |")
    head = f"| examples | metric | the run, in {_plain(precision['trained'])} | exported, in {precision['exported']} |"
    return "\n".join(["## Metrics", "", head, "| :-- | :-- | --: | --: |", *rows, ""])


def _by_name(metrics: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    found = {}
    for split, values in metrics.items():
        values = values if isinstance(values, Mapping) else {"": values}
        found.update({(split, name): value for name, value in values.items()})
    return found


def _precision(precision: Mapping[str, Any] | None) -> str:
    if not precision:
        return ""
    trained, exported = _plain(precision["trained"]), precision["exported"]
    return (
        f"## Precision\n\nThe model was trained and evaluated in {trained}. The files here hold the same weights and "
        f"compute in {exported}: on {precision['examples']} {precision['unit']} of the run a probability differs by up "
        f"to {_number(precision['difference'])}. Metrics in both precisions are above.\n"
    )


def _forms(forms: Any) -> str:
    """Size and accuracy of every form that was written, side by side."""
    if not forms:
        return ""
    measure = next((key for form in forms.values() for key in MEASURES if key in form), "accuracy")
    rows = []
    for name, form in forms.items():
        value, difference = (_number(form.get(key)) for key in (measure, "difference"))
        rows.append(f"| `{name}` | {form['bytes'] / 1e6:.2f} MB | {value} | {difference} |")
    called = MEASURES[measure]
    measured = next((f"{form['examples']} test {form['unit']}" for form in forms.values() if measure in form), "")
    note = f"The {called} is that on {measured} of the run; " if measured else ""
    head = [f"| form | size | {called} | largest difference of a probability |", "| :-- | --: | --: | --: |"]
    return "\n".join(["## Forms", "", *head, *rows, "", f"{note}differences are to the trained model in float32.", ""])


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if value >= 1e-4 or value == 0 else f"{value:.1e}"


def _plain(value: Any) -> str:
    """One line of Markdown without markup."""
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return "".join("\\" + c if c in r"\`*_[]<>#|" else c for c in " ".join(text.split()))
