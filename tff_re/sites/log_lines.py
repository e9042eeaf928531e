"""What a site's log says of a message, as fields of the event `message.answered`."""

from __future__ import annotations

from typing import Any

from tff_re.sites import protocol


def facts_of(question: protocol.Question | None) -> dict[str, Any]:
    """Return the run, the kind of the message and, of a stage, its round and clients."""
    if question is None:
        return {}
    facts: dict[str, Any] = {"run": question.run[:8], "kind": question.kind}
    if isinstance(question, protocol.Stage):
        facts |= {"purpose": question.purpose, "round": question.round, "stage": question.stage}
        facts["clients"] = len(question.clients)
    return facts


def outcome_of(text: str) -> dict[str, str]:
    """Return the outcome's word, and the words after it."""
    word, colon, rest = text.partition(":")
    return {"outcome": word, "detail": colon + rest}
