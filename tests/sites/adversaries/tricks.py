"""What a trick is, and how one is added: a method of an adversary with `@trick` above it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Trick:
    """Attributes:
    name: of the method.
    tries: what the adversary tries, in a sentence: the method's docstring.
    kinds: of messages, as `protocol.QUESTIONS` names them.
    holds: what must hold. Of a trick that yields messages or answers, a part of the line with which each is refused,
      unless it yields (message, line). Nothing is written then, and honest messages get what they got before.
    every: whether it is played against every algorithm; else it does not depend on it, and is played against one.
    play: given the adversary, yields what it sends, or asserts by itself what holds, and yields nothing.
    """

    name: str
    tries: str
    kinds: tuple[str, ...]
    holds: str
    every: bool
    play: Callable[[object], Iterable | None]


def trick(*kinds: str, holds: str, every: bool = False):
    """Mark a method as a trick about messages of these kinds; see `Trick`."""

    def marked(method):
        method.trick = Trick(method.__name__, inspect.getdoc(method), kinds, holds, every, method)
        return method

    return marked


def tricks_of(adversary: type) -> list[Trick]:
    """Return the tricks of an adversary by name."""
    return [m.trick for _, m in sorted(inspect.getmembers(adversary)) if isinstance(getattr(m, "trick", None), Trick)]


def kinds_of(adversaries: Collection[type]) -> set[str]:
    """Return the kinds of messages that tricks of these adversaries are about."""
    return {kind for adversary in adversaries for trick in tricks_of(adversary) for kind in trick.kinds}
