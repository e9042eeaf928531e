"""2010 i2b2/VA: relations of problems, treatments and tests in clinical records (Uzuner et al., JAMIA 18, 2011).

A record has three files. ``.txt``: a sentence a line, words between blanks. ``.con``: a concept a line,
``c="words" 12:3 12:4||t="problem"``, from and to which word (``line:word``, lines from 1, words from 0, both ends
inclusive). ``.rel``: a relation a line, ``c="words" 12:3 12:4||r="TrAP"||c="words" 12:7 12:8``. The words in quotes
are in lower case. The data are licensed; this was written to the published format.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from datasets.catalogue import data_set
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import Numbering, notes_of, one_of, read_lines, require_some
from datasets.relations.records import NO_RELATION, RelationCorpus, RelationMention, Span

RELATIONS = {
    "TrIP": ("treatment", "problem"),
    "TrWP": ("treatment", "problem"),
    "TrCP": ("treatment", "problem"),
    "TrAP": ("treatment", "problem"),
    "TrNAP": ("treatment", "problem"),
    "TeRP": ("test", "problem"),
    "TeCP": ("test", "problem"),
    "PIP": ("problem", "problem"),
}
"""The eight relations and the types of their two arguments."""

TYPES = ("problem", "treatment", "test")

_PLACE = r'c="(.*)" ([0-9]{1,7}):([0-9]{1,7}) ([0-9]{1,7}):([0-9]{1,7})'
_CONCEPT = re.compile(rf'{_PLACE}\|\|t="([^"]*)"\s*')
_RELATION = re.compile(rf'{_PLACE}\|\|r="([^"]*)"\|\|{_PLACE}\s*')

_Place = tuple[int, int, int]  # line from 1, first and last word from 0


@dataclass(frozen=True)
class RecordFiles:
    """The three files of a record; the record's id is the text file's name without its ending."""

    text: Path
    concepts: Path
    relations: Path

    @property
    def record_id(self) -> str:
        """E.g. ``record-13``."""
        return self.text.name.removesuffix(".gz").removesuffix(".txt")


def find_records(texts: PathLike, concepts: PathLike, relations: PathLike) -> tuple[RecordFiles, ...]:
    """The records of three folders (``txt``, ``concept`` and ``rel`` in the release), sorted by id.

    Raises:
      DataError: a folder cannot be read, has no ``.txt`` file, or the ``.con`` or ``.rel`` file of a record is missing.
    """
    problem = None
    try:
        found = sorted(entry for entry in os.listdir(texts) if entry.endswith(".txt"))
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem is not None:
        raise DataError(f"cannot be read ({problem})", path=texts, remedy="name the folder of the .txt files")
    if not found:
        raise DataError("has no .txt file", path=texts, remedy="name the folder of the .txt files")
    result = []
    for entry in found:
        stem = entry.removesuffix(".txt")
        files = RecordFiles(Path(texts, entry), Path(concepts, f"{stem}.con"), Path(relations, f"{stem}.rel"))
        for path in (files.concepts, files.relations):
            if not path.is_file():
                raise DataError("no such file", path=path, remedy="every .txt file needs its .con and .rel file")
        result.append(files)
    return tuple(result)


def find_split(folder: PathLike) -> tuple[RecordFiles, ...]:
    """The records of a split, in a folder as the release has it.

    A folder with ``txt``, ``concept`` and ``rel``; one with such folders in it (the training data's ``beth`` and
    ``partners``); or ``reference_standard_for_test_data`` (``concepts``, ``rel``) with ``test_data``, the texts, beside
    it.

    Raises:
      DataError: as `find_records`.
    """
    folder = Path(folder)
    inner = sorted(folder.iterdir()) if folder.is_dir() else []
    hospitals = [folder] if (folder / "txt").is_dir() else [path for path in inner if (path / "txt").is_dir()]
    if hospitals:
        return tuple(r for path in hospitals for r in find_records(path / "txt", _concept_folder(path), path / "rel"))
    beside = folder.parent / "test_data"
    texts = beside if (folder / "concepts").is_dir() and beside.is_dir() else folder / "txt"
    return find_records(texts, _concept_folder(folder), folder / "rel")


def _concept_folder(folder: Path) -> Path:
    return folder / ("concepts" if (folder / "concepts").is_dir() else "concept")


def read_records(
    records: Iterable[RecordFiles], *, split: str = "train", negatives: bool = False, name: str = "i2b2_2010"
) -> RelationCorpus:
    """The related concept pairs of records, each in its line; head and tail in the order of the relation.

    Concepts that go over the end of a line, and relations with them or between two lines, are left out and noted. A
    pair with several relations is a sample for each.

    Args:
      records: From `find_records`; several folders' records may be joined if their ids differ.
      split: Part of the ids ``<name>-<split>-<record>/<n>``; the documents are the records.
      negatives: Whether the unlisted pairs of a line are samples of ``no_relation``: treatment or test with problem,
        and problem with a later problem. FedCMC and FedED classify the eight relations alone.
      name: The corpus's name.

    Raises:
      DataError: a malformed line, a place beyond the text, words that are not those of the text, an unknown type or
        relation, an argument that is no concept or has the wrong type, or a record, concept or relation twice.
    """
    names = ((NO_RELATION,) if negatives else ()) + tuple(RELATIONS)
    ids, counts, mentions, seen = Numbering(), Counter(), [], set()
    path: PathLike = "the records"
    for files in records:
        path = files.text
        if files.record_id in seen:
            raise DataError("duplicate record", path=path, record=named("record", files.record_id))
        seen.add(files.record_id)
        lines = [text for _, text in read_lines(path)]
        words = [[match.span() for match in re.finditer(r"\S+", text)] for text in lines]
        concepts = _concepts(files.concepts, lines, words, counts)
        pairs = _relations(files.relations, lines, words, concepts, counts)
        counts["pairs have several relations"] += sum(len(relations) > 1 for relations in pairs.values())
        for (one, other), relations in (pairs | (_unlisted(concepts, pairs) if negatives else {})).items():
            for relation in relations:
                mentions.append(
                    RelationMention(
                        ids.next(f"{name}-{split}-{files.record_id}"),
                        files.record_id,
                        lines[one[0] - 1],
                        _span(one, words),
                        _span(other, words),
                        concepts[one],
                        concepts[other],
                        relation,
                        names.index(relation),
                    )
                )
    require_some(mentions, path)
    return RelationCorpus(name, tuple(mentions), names, NO_RELATION if negatives else None, notes_of(counts))


def _concepts(path: Path, lines: list[str], words: list[list[Span]], counts: Counter) -> dict[_Place, str]:
    """Place to type, without the concepts that go over the end of a line."""
    result: dict[_Place, str] = {}
    for line, text in read_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        match = _CONCEPT.fullmatch(text)
        if match is None:
            raise fail("is not a concept", remedy='write c="words" line:word line:word||t="type"')
        kind = one_of(match[6], TYPES, "type", fail)
        place = _place(match.groups()[:5], lines, words, fail)
        if place is None:
            counts["concepts over the end of a line left out"] += 1
            continue
        if place in result:
            raise fail("duplicate concept", remedy="remove one of them")
        result[place] = kind
    return result


def _relations(
    path: Path, lines: list[str], words: list[list[Span]], concepts: dict[_Place, str], counts: Counter
) -> dict[tuple[_Place, _Place], list[str]]:
    result: dict[tuple[_Place, _Place], list[str]] = {}
    for line, text in read_lines(path):
        fail = functools.partial(DataError, path=path, line=line)
        match = _RELATION.fullmatch(text)
        if match is None:
            raise fail("is not a relation", remedy='write c="words" place place||r="name"||c="words" place place')
        relation = one_of(match[6], RELATIONS, "relation", fail)
        pair = (_place(match.groups()[:5], lines, words, fail), _place(match.groups()[6:], lines, words, fail))
        if None in pair or pair[0][0] != pair[1][0]:
            counts["relations that are not within a line left out"] += 1
            continue
        for number, (place, kind) in enumerate(zip(pair, RELATIONS[relation], strict=True), 1):
            if concepts.get(place) != kind:
                raise fail(f"argument {number} is no {kind} of the concepts", remedy="complete the .con file")
        listed = result.setdefault(pair, [])
        if relation in listed:
            raise fail("duplicate relation", remedy="remove one of them")
        listed.append(relation)
    return result


def _place(groups: tuple[str, ...], lines: list[str], words: list[list[Span]], fail: Fail) -> _Place | None:
    """Where a concept stands; None if it goes over the end of a line."""
    surface, (line, first, last_line, last) = groups[0], map(int, groups[1:])
    for at, word in ((line, first), (last_line, last)):
        if not 1 <= at <= len(lines) or word >= len(words[at - 1]):
            raise fail(f"the place {at}:{word} lies beyond the text", remedy="lines count from 1, words from 0")
    if (last_line, last) < (line, first):
        raise fail("a concept ends before it starts", remedy="give the first word's place, then the last's")
    if line != last_line:
        return None
    place = (line, first, last)
    start, end = _span(place, words)
    if lines[line - 1][start:end].casefold().split() != surface.casefold().split():
        raise fail("the words are not those at the place", remedy="repair the words or the place")
    return place


def _span(place: _Place, words: list[list[Span]]) -> Span:
    line, first, last = place
    return words[line - 1][first][0], words[line - 1][last][1]


def _unlisted(concepts: dict[_Place, str], pairs: Iterable[tuple[_Place, _Place]]) -> dict:
    joined = {frozenset(pair) for pair in pairs}
    result = {}
    for one, other in itertools.combinations(sorted(concepts), 2):
        if one[0] != other[0] or frozenset((one, other)) in joined:
            continue
        kinds = (concepts[one], concepts[other])
        if kinds in RELATIONS.values():
            result[one, other] = [NO_RELATION]
        elif kinds[::-1] in RELATIONS.values():
            result[other, one] = [NO_RELATION]
    return result


@data_set(
    "i2b2_2010",
    title="2010 i2b2/VA",
    kind="relations",
    task="problems, treatments and tests in a line of a clinical record: eight relations",
    labels=("positives", "with_negatives"),
    files={split: f"i2b2_2010/{split}" for split in ("train", "test")},
    licence="by agreement with n2c2; no redistribution",
    citation="Uzuner et al., 2010 i2b2/VA challenge on concepts, assertions, and relations, JAMIA 18, 2011",
    available_from="n2c2 at Harvard Medical School; a split is a folder with txt, concept and rel, "
    "or the release's own",
)
def read(path: PathLike, *, name: str, label: str, split: str) -> RelationCorpus:
    """The pairs of a folder, see `find_split` and `read_records`."""
    return read_records(find_split(path), split=split, negatives=label == "with_negatives", name=name)
