"""From typed spans to one tag for each token, and back.

Tag 0 is ``O``, outside of all entities. Each type has a block of tags. With the scheme BIO that of type k (from 0)
begins at 1 + 2k: ``B`` (an entity's first token), ``I`` (its others). With BIOES it begins at 1 + 4k: ``B``, ``I``,
``E`` (an entity's last token), ``S`` (its only token).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datasets.entities.records import EntitySpan
from datasets.errors import DataError
from datasets.ranges import one_of, require

SCHEMES = {"BIO": "BI", "BIOES": "BIES"}
"""The letters of a type's tags, in the order of their block."""

OUTSIDE = 0
NO_TOKEN = -1
"""In arrays of tags: there is no token."""

Token = tuple[int, int]
"""A token's characters (code points) in the text, half-open, at least one."""


def tag_names(entity_types: Sequence[str], scheme: str = "BIO") -> tuple[str, ...]:
    """Return the name of each tag: ``O``, ``B-<type>``, ``I-<type>``, ….

    For K types there are 1 + 2K with BIO and 1 + 4K with BIOES.

    Raises:
      DataError: an unknown scheme, no type, an empty one, or one twice.
    """
    require(one_of(SCHEMES), scheme=scheme)
    if not entity_types or not all(entity_types) or len(set(entity_types)) != len(entity_types):
        raise DataError("there are no entity types, or one is empty or a duplicate", remedy="name every type once")
    return ("O", *(f"{letter}-{name}" for name in entity_types for letter in SCHEMES[scheme]))


def tags_of(
    spans: Iterable[EntitySpan], tokens: Sequence[Token], entity_types: Sequence[str], scheme: str = "BIO"
) -> tuple[list[int], tuple[EntitySpan, ...]]:
    """Return the tag of each token, and the spans that the tags do not represent.

    A span is represented if a token starts where it starts and a token ends where it ends. The tokens of the others are
    outside.

    Args:
      spans: No two share a character.
      tokens: In the order of the text; no two share a character.
      entity_types, scheme: As for `tag_names`.

    Raises:
      DataError: a span of another type, or what `tag_names` refuses.
    """
    block = (len(tag_names(entity_types, scheme)) - 1) // len(entity_types)
    first_at = {start: index for index, (start, _) in enumerate(tokens)}
    last_at = {end: index for index, (_, end) in enumerate(tokens)}
    tags, unrepresented = [OUTSIDE] * len(tokens), []
    for span in spans:
        if span.type not in entity_types:
            reason = f"the entity {span.start}:{span.end} has a type that is not one of {', '.join(entity_types)}"
            raise DataError(reason, remedy="add its type to entity_types")
        first, last = first_at.get(span.start), last_at.get(span.end)
        if first is None or last is None:
            unrepresented.append(span)
            continue
        begin = 1 + block * entity_types.index(span.type)
        tags[first : last + 1] = [begin] + [begin + 1] * (last - first)
        if scheme == "BIOES":
            tags[last] = begin + (3 if first == last else 2)
    return tags, tuple(unrepresented)


def spans_of(
    tags: Sequence[int], tokens: Sequence[Token], entity_types: Sequence[str], scheme: str = "BIO"
) -> tuple[EntitySpan, ...]:
    """Return the spans that tags mean, in the order of the text.

    This is the only decoder of this project.

    Every sequence of tags can be read, also those that `tags_of` never makes, as in seqeval's default mode. An entity
    begins at B or S, and at a tag of its type after a token that is outside, of another type, or at the end (E, S) of
    an entity. It ends before a token that is outside, of another type, or B or S, and after E or S.

    Args:
      tags: One for each token.
      tokens: In the order of the text.
      entity_types, scheme: As for `tag_names`.

    Raises:
      DataError: another number of tags than of tokens, a tag that the scheme does not have, or what `tag_names`
        refuses.
    """
    names = tag_names(entity_types, scheme)
    if len(tags) != len(tokens):
        raise DataError(f"there are {len(tags)} tags of {len(tokens)} tokens", remedy="give one tag for each token")
    spans: list[EntitySpan] = []
    first, open_type = 0, ""

    def close(last: int) -> None:
        if open_type:
            spans.append(EntitySpan(tokens[first][0], tokens[last][1], open_type))

    for index, tag in enumerate(tags):
        if not 0 <= tag < len(names):
            raise DataError(f"the tag {tag} is not from 0 to {len(names) - 1}", remedy="leave out what is not a token")
        letter, _, name = names[tag].partition("-")
        if letter not in "IE" or name != open_type:
            close(index - 1)
            first, open_type = index, name
        if letter in "ES":
            close(index)
            open_type = ""
    close(len(tags) - 1)
    return tuple(spans)
