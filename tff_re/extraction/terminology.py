"""Mentions to the ids of a terminology: by name, by folded name, by similarity of folded names."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets.errors import DataError
from datasets.relations.reading import columns, lines_to_check
from tff_re.extraction.records import EXACT, FOLDED, SIMILAR, UNLINKED

SIMILARITY = 0.9
"""The least similarity at which a name is linked, by default."""

UNLINKED_PREFIX = "unlinked:"

_HEADER = ["name", "id"]
_MOST_REMEMBERED = 50_000
_TIES = 16


@dataclass(frozen=True)
class Link:
    """How a mention was linked: `entity_id`, how (`EXACT`, …), and for `SIMILAR` the similarity, from 0 to 1."""

    entity_id: str
    linked: str
    similarity: float | None = None


def folded(name: str) -> str:
    """A name in NFKC without case, punctuation and blanks.

    It may be empty.
    """
    return "".join(c for c in unicodedata.normalize("NFKC", name).casefold() if c.isalnum())


class Terminology:
    """Names with ids, from a TSV ``name<TAB>id`` or ``name<TAB>id<TAB>type``.

    A header line is left out.

    A name with a type is for mentions of this type only (in any case), and goes before names without. A name that has
    several ids links nothing: it does not tell which is meant. Similar names have to have the same digits in the same
    order: interleukin 1 is not interleukin 2.

    Similarity is rapidfuzz's `ratio` of the folded names: 1 - insertions and deletions / length of both.
    """

    def __init__(self, names: Mapping[tuple[str, str], str | None], similarity: float = SIMILARITY):
        """`names`: (type without case, or "", and name) -> id, None where there are several."""
        self._similarity = similarity
        self._exact, self._folded = names, {}
        for (kind, name), entity_id in names.items():
            if key := folded(name):
                _add(self._folded, (kind, key), entity_id)
        self._by_digits: dict[tuple[str, str], list[str]] = defaultdict(list)
        for kind, key in self._folded:
            self._by_digits[kind, _digits(key)].append(key)
        self._most_similar = functools.lru_cache(_MOST_REMEMBERED)(self._search)

    @classmethod
    def read(cls, path: Path, similarity: float = SIMILARITY) -> Terminology:
        """The terminology of a file, compressed or not.

        Raises:
          DataError: a line has other columns, or an empty name or id; or the file has no name.
        """
        names: dict[tuple[str, str], str | None] = {}
        for number, (fail, line) in enumerate(lines_to_check(path), 1):
            if not line.strip():
                continue
            row = [cell.strip() for cell in columns(line, (2, 3), fail)]
            if number == 1 and [cell.casefold() for cell in row[:2]] == _HEADER:
                continue
            name, entity_id, *kinds = row
            if not name or not entity_id:
                raise fail("the name or the id is empty", remedy="write name<TAB>id")
            _add(names, ((kinds or [""])[0].casefold(), name), entity_id)
        if not names:
            raise DataError("has no name", path=path, remedy="write name<TAB>id on each line")
        return cls(names, similarity)

    @property
    def ambiguous(self) -> int:
        """How many names have several ids, and link nothing."""
        return sum(entity_id is None for entity_id in self._exact.values())

    def find(self, name: str, kind: str) -> Link | None:
        """The link of a mention with this text and type, or None if there is none or it is ambiguous."""
        kinds, key = (kind.casefold(), ""), folded(name)
        for names, wanted, how in ((self._exact, name, EXACT), (self._folded, key, FOLDED)):
            for its_kind in kinds:
                if (its_kind, wanted) in names:
                    entity_id = names[its_kind, wanted]
                    return None if entity_id is None else Link(entity_id, how)
        return self._most_similar(key, kinds) if key and self._similarity < 1 else None

    def _search(self, key: str, kinds: tuple[str, ...]) -> Link | None:
        from rapidfuzz import fuzz, process

        for kind in kinds:
            names = self._by_digits.get((kind, _digits(key)))
            ways = {"scorer": fuzz.ratio, "score_cutoff": 100 * self._similarity, "limit": _TIES}
            matches = process.extract(key, names, **ways) if names else []
            if matches:
                best = matches[0][1]
                ids = {self._folded[kind, name] for name, score, _ in matches if score == best}
                entity_id = ids.pop()
                return None if ids or entity_id is None else Link(entity_id, SIMILAR, best / 100)
        return None


def _add(names: dict[tuple[str, str], str | None], key: tuple[str, str], entity_id: str | None) -> None:
    names[key] = entity_id if names.get(key, entity_id) == entity_id else None


def _digits(key: str) -> str:
    return " ".join(re.findall(r"\d+", key))


class Linker:
    """Links mentions to ids and gives unlinked mentions a number of their own.

    The number is an HMAC of type and folded text, so that equal mentions of a run share it and nobody without the key
    can try names.
    """

    def __init__(self, terminology: Terminology | None, key: bytes):
        self._terminology, self._key = terminology, key

    def __call__(self, text: str, kind: str) -> Link:
        """The link of a mention with this text and type."""
        link = None if self._terminology is None else self._terminology.find(text, kind)
        if link is not None:
            return link
        message = f"{kind}\0{folded(text) or text}".encode("utf-8", "surrogatepass")
        number = hmac.new(self._key, message, hashlib.sha256).hexdigest()[:16]
        return Link(UNLINKED_PREFIX + number, UNLINKED)
