"""ADE: drugs and their adverse effects in sentences of case reports (Gurulingappa et al., J. Biomed. Inform. 45, 2012).

``DRUG-AE.rel`` has a line for each related pair, ``PMID|sentence|effect|start|end|drug|start|end``, with offsets into a
document that is not in the release. ``ADE-NEG.txt`` has the sentences without an adverse effect, ``PMID NEG sentence``.

The task is the relation of a drug and an effect. The positives are the pairs given. The only negatives whose mentions
are known are pairs of a drug and an effect that the same sentence names in different pairs: a drug is then named, an
effect is named, and the annotators did not join them. They are few (141 beside 5,547 in four fifths of the release),
and every mention comes from some related pair. The sentences of ``ADE-NEG.txt`` have no annotated mentions; with
`negative_sentences` they are recognised by the names that ``DRUG-AE.rel`` annotates, drugs and effects: a pair that
both are named in a sentence without an adverse effect is a negative. What the names miss is missing there.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike, beside
from datasets.json_values import Fail
from datasets.relations.reading import (
    Numbering,
    columns,
    notes_of,
    occurrences,
    read_lines,
    require_some,
    trimmed,
    whole_number,
)
from datasets.relations.records import NO_RELATION, RelationCorpus, RelationMention, Span

RELATIONS = (NO_RELATION, "adverse_effect")

_NEGATIVE = re.compile(r"([0-9]+) NEG (.*\S.*)")
_WORD = re.compile(r"\w+|[^\w\s]")
_SHORTEST_NAME = 4
"""Characters of a name that is looked for; shorter ones are mostly abbreviations that mean other things, too."""
_WITHOUT = "use another label choice of the data set"


@dataclass(frozen=True)
class _Pair:
    line: int
    document: str
    sentence: str = field(repr=False)
    starts: tuple[int, ...]  # where in the document the sentence may start, by this line alone
    drug: Span  # in the document
    effect: Span


def read_pairs(
    path: PathLike, *, negatives: bool = True, negative_sentences: PathLike | None = None, name: str = "ade"
) -> RelationCorpus:
    """The drug–effect pairs of ``DRUG-AE.rel``, compressed or not; head is the drug, tail the effect.

    The offsets count in the document, so the sentence's start is found first: both mentions have to stand in the
    sentence at the distance that the offsets say. Where a mention occurs several times and several starts are possible,
    the one that fits most lines of the sentence is taken; on a tie the one with the mentions' first occurrences. Blanks
    at the ends of a mention (two lines of the release) are not part of it. A drug that lies inside of an effect
    ("codeine intoxication") is kept. All three are counted in the notes.

    Args:
      path: The file.
      negatives: Whether the unlisted pairs of a sentence are samples of the relation ``no_relation``.
      negative_sentences: ``ADE-NEG.txt``, whose pairs of a named drug and a named effect are such samples, too.
      name: The corpus's name; the ids are ``<name>-<PMID>/<n>``, the documents the PMIDs.

    Raises:
      DataError: a line with another number of columns, offsets that are no numbers or do not fit the mention's length,
        mentions that do not stand in the sentence at their distance, or a duplicate pair; a malformed line
        among the negative sentences, or no pair in them.
    """
    groups: dict[tuple[str, str], list[_Pair]] = {}
    counts = Counter()
    for line, text in read_lines(path):
        pair = _pair(line, text, functools.partial(DataError, path=path, line=line), counts)
        groups.setdefault((pair.document, pair.sentence), []).append(pair)
    names, negative = (RELATIONS, NO_RELATION) if negatives else (RELATIONS[1:], None)
    ids, mentions = Numbering(), []
    for (document, sentence), pairs in groups.items():
        for start, listed in _placed(pairs, counts, path).items():
            for drug, effect, relation in _candidates(listed, negatives):
                head, tail = ((a - start, b - start) for a, b in (drug, effect))
                mention_id, label = ids.next(f"{name}-{document}"), names.index(relation)
                mention = RelationMention(
                    mention_id, document, sentence, head, tail, "drug", "adverse effect", relation, label
                )
                counts["pairs of overlapping mentions"] += mention.overlapping
                counts["pairs that their sentence does not list are negatives"] += relation == NO_RELATION
                mentions.append(mention)
    require_some(mentions, path)
    if negative_sentences is not None:
        mentions += _named_pairs(negative_sentences, mentions, ids, counts, name)
    return RelationCorpus(name, tuple(mentions), names, negative, notes_of(counts))


def _named_pairs(path: PathLike, annotated: list[RelationMention], ids: Numbering, counts: Counter, name: str):
    """Pairs of a drug and an effect in sentences without an adverse effect, each name at its first place."""
    kinds: dict[tuple[str, ...], set[str]] = {}
    for mention in annotated:
        for kind, text in (("drug", mention.head_text), ("effect", mention.tail_text)):
            if len(text) >= _SHORTEST_NAME:
                kinds.setdefault(tuple(_words(text)), set()).add(kind)
    names = {words: kind for words, (kind, *more) in kinds.items() if not more}  # what may be both is neither
    found, seen = [], set()
    for document, sentence in _negative_sentences(path):
        if (document, sentence) in seen:
            continue
        seen.add((document, sentence))
        places = _names_in(sentence, names)
        for head in places["drug"]:
            for tail in places["effect"]:
                mention_id = ids.next(f"{name}-{document}")
                types = ("drug", "adverse effect")
                found.append(RelationMention(mention_id, document, sentence, head, tail, *types, NO_RELATION, 0))
    if not found:
        raise DataError("has no sentence with an annotated drug and an annotated effect", path=path, remedy=_WITHOUT)
    counts["pairs of annotated names in sentences without an adverse effect are negatives"] += len(found)
    return found


def _names_in(sentence: str, names: dict[tuple[str, ...], str]) -> dict[str, list[Span]]:
    """Kind -> first place of each of its names in a sentence, the longest name first where they overlap."""
    words = [(match[0].casefold(), match.span()) for match in _WORD.finditer(sentence)]
    longest = max(map(len, names), default=0)
    places: dict[tuple[str, ...], Span] = {}
    at = 0
    while at < len(words):
        for count in range(min(longest, len(words) - at), 0, -1):
            key = tuple(word for word, _ in words[at : at + count])
            if key in names:
                places.setdefault(key, (words[at][1][0], words[at + count - 1][1][1]))
                at += count
                break
        else:
            at += 1
    by_kind: dict[str, list[Span]] = {"drug": [], "effect": []}
    for key, span in places.items():
        by_kind[names[key]].append(span)
    return by_kind


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _negative_sentences(path: PathLike) -> Iterable[tuple[str, str]]:
    """(PMID, sentence) of every line of ``ADE-NEG.txt``."""
    for line, text in read_lines(path):
        match = _NEGATIVE.fullmatch(text)
        if match is None:
            raise DataError("is not PMID NEG sentence", path=path, line=line, remedy="repair the line")
        yield match[1], match[2].strip()


def _pair(line: int, text: str, fail: Fail, counts: Counter) -> _Pair:
    document, sentence, effect, *effect_at, drug, drug_start, drug_end = columns(text, 8, fail, "|")
    if not document.isdecimal():
        raise fail("has no PMID", remedy="start the line with the document's number")
    spans = []
    for what, mention, at in (("effect", effect, effect_at), ("drug", drug, (drug_start, drug_end))):
        first, last = (whole_number(value, f"the {what}'s {end}", fail)
                       for value, end in zip(at, ("start", "end"), strict=True))  # fmt: skip
        if not mention.strip() or last - first != len(mention):
            raise fail(f"the {what}'s offsets do not fit its length", remedy="repair the offsets")
        spans.append((first, last))
    (effect_start, _), (drug_start, _) = spans
    drug_starts = {drug_start - at for at in occurrences(drug, sentence)}
    starts = {effect_start - at for at in occurrences(effect, sentence)} & drug_starts
    if not starts:
        raise fail("the mentions are not in the sentence at the distance of their offsets", remedy="repair the offsets")
    kept = []
    for mention, (first, _) in ((effect, spans[0]), (drug, spans[1])):
        start, end = trimmed(mention, (0, len(mention)))
        counts["mentions with blanks at their ends, which are left out of them"] += end - start < len(mention)
        kept.append((first + start, first + end))
    return _Pair(line, document, sentence, tuple(sorted(starts)), kept[1], kept[0])


def _placed(pairs: list[_Pair], counts: Counter, path: PathLike) -> dict[int, dict[tuple[Span, Span], int]]:
    """Start of the sentence in the document to its pairs (drug, effect) and their lines."""
    fits = Counter(start for pair in pairs for start in pair.starts)
    placed: dict[int, dict[tuple[Span, Span], int]] = {}
    for pair in pairs:
        best = max(fits[start] for start in pair.starts)
        possible = [start for start in pair.starts if fits[start] == best]
        counts["pairs fit several places of their sentence; the first is taken"] += len(possible) > 1
        lines = placed.setdefault(possible[-1], {})  # the latest start is the first place in the sentence
        key = (pair.drug, pair.effect)
        if key in lines:
            raise DataError(
                f"is the same pair as line {lines[key]}", path=path, line=pair.line, remedy="remove one of them"
            )
        lines[key] = pair.line
    return placed


def _candidates(listed: Iterable[tuple[Span, Span]], negatives: bool) -> list[tuple[Span, Span, str]]:
    listed = list(listed)
    pairs = listed
    if negatives:
        drugs = dict.fromkeys(drug for drug, _ in listed)
        effects = dict.fromkeys(effect for _, effect in listed)
        pairs = [(drug, effect) for drug in drugs for effect in effects]
    return [(*pair, RELATIONS[pair in listed]) for pair in pairs]


@data_set(
    "ade",
    title="ADE, drug and effect",
    kind="relations",
    task="drugs and adverse effects in a sentence: a pair that the corpus lists or one that it does not",
    labels=("with_negatives", "positives", "with_negative_sentences"),
    files={"train": "ade/DRUG-AE.rel"},
    licence="none stated",
    citation="Gurulingappa et al., Development of a benchmark corpus … adverse effects, J. Biomed. Inform. 45, 2012",
    available_from="the authors' ADE-Corpus-V2; copied in several repositories on GitHub; "
    "ADE-NEG.txt belongs beside it",
)
def read(path: PathLike, *, name: str, label: str, split: str) -> RelationCorpus:
    """The pairs of ``DRUG-AE.rel``, and of ``ADE-NEG.txt`` beside it if the label asks for it, see `read_pairs`."""
    if Path(path).name.startswith("DRUG-DOSE"):
        raise DataError("has drugs and doses, no adverse effects", path=path, remedy="give DRUG-AE.rel")
    sentences = beside(path, "ADE-NEG.txt") if label == "with_negative_sentences" else None
    return read_pairs(path, negatives=label != "positives", negative_sentences=sentences, name=name)
