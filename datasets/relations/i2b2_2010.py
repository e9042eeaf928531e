"""2010 i2b2/VA: relations of problems, treatments and tests in clinical records (Uzuner et al., JAMIA 18, 2011).

A record has three files. ``.txt``: a sentence a line, words between blanks. ``.con``: a concept a line,
``c="words" 12:3 12:4||t="problem"``, from and to which word (``line:word``, lines from 1, words from 0, both ends
inclusive). ``.rel``: a relation a line, ``c="words" 12:3 12:4||r="TrAP"||c="words" 12:7 12:8``. The words in quotes
are in lower case. The data are licensed; this was written to the published format.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from datasets.catalogue import data_set
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import CorpusBuilder, lines_to_check, one_of, read_lines
from datasets.relations.records import NO_RELATION, RelationCorpus, Span

RELATIONS = {
    **dict.fromkeys(("TrIP", "TrWP", "TrCP", "TrAP", "TrNAP"), ("treatment", "problem")),
    **dict.fromkeys(("TeRP", "TeCP"), ("test", "problem")),
    "PIP": ("problem", "problem"),
}
"""The eight relations and the types of their two arguments."""

TYPES = ("problem", "treatment", "test")

_PLACE = r'c="(.*)" ([0-9]{1,7}):([0-9]{1,7}) ([0-9]{1,7}):([0-9]{1,7})'
_CONCEPT = re.compile(rf'{_PLACE}\|\|t="([^"]*)"\s*')
_RELATION = re.compile(rf'{_PLACE}\|\|r="([^"]*)"\|\|{_PLACE}\s*')

Position = tuple[int, int, int]
"""Line from 1, first and last word from 0."""


@data_set(
    "i2b2_2010",
    title="2010 i2b2/VA",
    kind="relations",
    task="problems, treatments and tests in a line of a clinical record: eight relations",
    labels=("positives", "with_negatives"),
    files={split: f"i2b2_2010/{split}" for split in ("train", "test")},
    restricted=True,
    licence="by agreement with n2c2; no redistribution",
    citation="Uzuner et al., 2010 i2b2/VA challenge on concepts, assertions, and relations, JAMIA 18, 2011",
    available_from="n2c2 at Harvard Medical School; a split is a folder with txt, concept and rel, "
    "or the release's own",
)
def read(path: PathLike, *, name: str = "i2b2_2010", label: str = "positives", split: str = "train") -> RelationCorpus:
    """Read the related concept pairs of a split's records, each in its line.

    Head and tail are in the order of the relation.

    Concepts that go over the end of a line, and relations with them or between two lines, are left out and noted. A
    pair with several relations is a sample for each. With the label choice ``with_negatives`` the unlisted pairs of a
    line are samples of ``no_relation``: treatment or test with problem, and problem with a later problem; FedCMC and
    FedED classify the eight relations alone. The ids are ``<name>-<split>-<record>/<n>``; the documents are the
    records, named as the text files without their ending.

    `path` is a folder as the release has it: one with ``txt``, ``concept`` and ``rel``; one with such folders in it
    (the training data's ``beth`` and ``partners``); or ``reference_standard_for_test_data`` (``concepts``, ``rel``)
    with ``test_data``, the texts, beside it.

    Raises:
      DataError: a folder without texts, a missing file, a malformed line, a place beyond the text, words that are not
        those of the text, an unknown type or relation, an argument that is no concept or has the wrong type, or a
        record, concept or relation twice.
    """
    negatives = label == "with_negatives"
    builder = CorpusBuilder(path, name, ((NO_RELATION,) if negatives else ()) + tuple(RELATIONS))
    seen = set()
    for file, folder in record_texts(Path(path)):
        record = file.stem
        if record in seen:
            raise DataError("duplicate record", path=file, record=named("record", record))
        seen.add(record)
        lines, words = lines_and_words(file)
        concepts = read_concepts(folder, record, lines, words, builder.counts)
        pairs = _relations(folder / "rel" / f"{record}.rel", lines, words, concepts, builder.counts)
        builder.counts["pairs have several relations"] += sum(len(relations) > 1 for relations in pairs.values())
        for pair, relations in (pairs | (_unlisted(concepts, pairs) if negatives else {})).items():
            spans, types = (
                [concept_span(position, words) for position in pair],
                [concepts[position] for position in pair],
            )
            for relation in relations:
                mention_id = builder.next_id(f"{name}-{split}-{record}")
                builder.add(mention_id, record, lines[pair[0][0] - 1], *spans, *types, relation)
    return builder.build()


def record_texts(folder: Path) -> Iterable[tuple[Path, Path]]:
    """Return the texts of a split, and for each the folder of its concepts and relations."""
    inner = sorted(folder.iterdir()) if folder.is_dir() else []
    hospitals = [folder] if (folder / "txt").is_dir() else [path for path in inner if (path / "txt").is_dir()]
    folders = [(path / "txt", path) for path in hospitals]
    if not folders:
        test_texts = folder.parent / "test_data"
        folders = [(test_texts if (folder / "concepts").is_dir() and test_texts.is_dir() else folder / "txt", folder)]
    for texts, others in folders:
        files = sorted(texts.glob("*.txt"))
        if not files:
            raise DataError("has no .txt file", path=texts, remedy="name the folder of txt, concept and rel")
        yield from ((file, others) for file in files)


def lines_and_words(path: Path) -> tuple[list[str], list[list[Span]]]:
    """Return the lines of a record's text, and the words of each as spans."""
    lines = [line for _, line in read_lines(path)]
    return lines, [[match.span() for match in re.finditer(r"\S+", line)] for line in lines]


def read_concepts(
    folder: Path, record: str, lines: list[str], words: list[list[Span]], counts: Counter
) -> dict[Position, str]:
    """Return the type of each concept's position in a record, without (counted) concepts over a line's end."""
    result: dict[Position, str] = {}
    concepts = folder / ("concepts" if (folder / "concepts").is_dir() else "concept")
    for fail, text in lines_to_check(concepts / f"{record}.con"):
        match = _CONCEPT.fullmatch(text)
        if match is None:
            raise fail("is not a concept", remedy='write c="words" line:word line:word||t="type"')
        kind = one_of(match[6], TYPES, "type", fail)
        position = _position(match.groups()[:5], lines, words, fail)
        if position is None:
            counts["concepts over the end of a line left out"] += 1
            continue
        if position in result:
            raise fail("duplicate concept", remedy="remove one of them")
        result[position] = kind
    return result


def _relations(
    path: Path, lines: list[str], words: list[list[Span]], concepts: dict[Position, str], counts: Counter
) -> dict[tuple[Position, Position], list[str]]:
    result: dict[tuple[Position, Position], list[str]] = {}
    for fail, text in lines_to_check(path):
        match = _RELATION.fullmatch(text)
        if match is None:
            raise fail("is not a relation", remedy='write c="words" place place||r="name"||c="words" place place')
        relation = one_of(match[6], RELATIONS, "relation", fail)
        pair = (_position(match.groups()[:5], lines, words, fail), _position(match.groups()[6:], lines, words, fail))
        if None in pair or pair[0][0] != pair[1][0]:
            counts["relations that are not within a line left out"] += 1
            continue
        for number, (position, kind) in enumerate(zip(pair, RELATIONS[relation], strict=True), 1):
            if concepts.get(position) != kind:
                raise fail(f"argument {number} is not a {kind} of the concepts", remedy="complete the .con file")
        listed = result.setdefault(pair, [])
        if relation in listed:
            raise fail("duplicate relation", remedy="remove one of them")
        listed.append(relation)
    return result


def _position(groups: tuple[str, ...], lines: list[str], words: list[list[Span]], fail: Fail) -> Position | None:
    """Return the position of a concept, or None if it extends over the end of a line."""
    surface, (line, first, last_line, last) = groups[0], map(int, groups[1:])
    for at, word in ((line, first), (last_line, last)):
        if not 1 <= at <= len(lines) or word >= len(words[at - 1]):
            raise fail(f"the place {at}:{word} lies beyond the text", remedy="lines count from 1, words from 0")
    if (last_line, last) < (line, first):
        raise fail("a concept ends before it starts", remedy="give the first word's place, then the last's")
    if line != last_line:
        return None
    position = (line, first, last)
    start, end = concept_span(position, words)
    if lines[line - 1][start:end].casefold().split() != surface.casefold().split():
        raise fail("the words are not those at the place", remedy="repair the words or the place")
    return position


def concept_span(position: Position, words: list[list[Span]]) -> Span:
    """Return the characters of a concept in its line."""
    line, first, last = position
    return words[line - 1][first][0], words[line - 1][last][1]


def _unlisted(concepts: dict[Position, str], pairs: Iterable[tuple[Position, Position]]) -> dict:
    joined = {frozenset(pair) for pair in pairs}
    result = {}
    for first, other in itertools.combinations(sorted(concepts), 2):
        if first[0] != other[0] or frozenset((first, other)) in joined:
            continue
        kinds = (concepts[first], concepts[other])
        if kinds in RELATIONS.values():
            result[first, other] = [NO_RELATION]
        elif kinds[::-1] in RELATIONS.values():
            result[other, first] = [NO_RELATION]
    return result
