"""Which types the two mentions of a pair may have: from the model of relations, or as the user asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from datasets.errors import DataError, nearest
from tff_re.extraction.records import Mention

TypePair = tuple[str, str]
"""Type of the head, type of the tail."""


@dataclass(frozen=True)
class PairTypes:
    """The allowed pairs of types.

    Attributes:
      pairs: (head type, tail type), as the recogniser names them.
      relation_types: A type of the recogniser -> what the model of relations calls it.
    """

    pairs: frozenset[TypePair]
    relation_types: Mapping[str, str]

    @property
    def types(self) -> set[str]:
        """The types that some pair has."""
        return {name for pair in self.pairs for name in pair}

    def same_role(self, first: str, second: str) -> bool:
        """Whether the model of relations has one name for both types, so that types do not tell head from tail."""
        return self.relation_types[first] == self.relation_types[second]

    def allowed(self, head: str, tail: str) -> bool:
        """Whether a pair may have these types, in this order.

        If both have the same role, any order is allowed.
        """
        return (head, tail) in self.pairs or (self.same_role(head, tail) and (tail, head) in self.pairs)

    def oriented(self, first: Mention, second: Mention) -> Iterator[tuple[Mention, Mention]]:
        """(head, tail) of two mentions in the order of the text.

        If their types do not decide, the first is the head.
        """
        if self.allowed(first.type, second.type):
            yield first, second
        if not self.same_role(first.type, second.type) and self.allowed(second.type, first.type):
            yield second, first


@dataclass(frozen=True)
class Named:
    """What a model is called in messages, and the types that it knows (None or empty if it does not say which)."""

    name: str
    types: Sequence[str] | Sequence[TypePair] | None


def pair_types(
    recogniser: Named, relations: Named, asked: Sequence[TypePair] = (), renamed: Mapping[str, str] | None = None
) -> PairTypes:
    """The pairs of types that are classified.

    A type of the recogniser is the type of that name, in any case, of the model of relations, unless renamed.

    Args:
      recogniser: Its types.
      relations: The pairs of types that it was trained on.
      asked: Only these pairs, in the recogniser's types.
      renamed: A type of the recogniser -> its name in the model of relations.

    Raises:
      DataError: A type is unknown, no pair of types is in common, or nobody says what types pairs have.
    """
    for name in [*(renamed or {}), *(name for pair in asked for name in pair)]:
        if name not in recogniser.types:
            raise DataError(
                f"{recogniser.name} does not recognise the type '{name}'", remedy=nearest(name, recogniser.types)
            )
    known = {tuple(pair) for pair in relations.types} if relations.types else None
    theirs = sorted({name for pair in known or () for name in pair})
    by_case = {name.casefold(): name for name in theirs} | {name: name for name in theirs}
    names = {name: by_case.get(name, by_case.get(name.casefold(), name)) for name in recogniser.types}
    names |= dict(renamed or {})
    if known is None:
        if not asked:
            raise DataError(
                f"{relations.name} does not say which types its pairs have",
                remedy=f"give them with --pairs HEAD:TAIL (types of {recogniser.name}: {', '.join(recogniser.types)})",
            )
        return PairTypes(frozenset(asked), names)
    common = {(a, b) for a in names for b in names if (names[a], names[b]) in known}
    if not common:
        raise DataError(
            f"{recogniser.name} recognises {', '.join(recogniser.types)}, but {relations.name} relates "
            f"{_as_text(known)}: they have no pair of types in common",
            remedy="choose exports that fit together, or map type names with --rename TYPE=NAME",
        )
    chosen = PairTypes(frozenset(asked or common), names)
    for head, tail in asked:
        if not PairTypes(frozenset(common), names).allowed(head, tail):
            raise DataError(
                f"{relations.name} does not relate {head}:{tail} of {recogniser.name}", remedy=f"use {_as_text(common)}"
            )
    return chosen


def _as_text(pairs: set[TypePair]) -> str:
    return ", ".join(sorted(":".join(pair) for pair in pairs))
