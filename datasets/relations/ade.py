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

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets.catalogue import data_set
from datasets.errors import DataError
from datasets.files import PathLike, sibling_file
from datasets.json_values import Fail
from datasets.relations.reading import CorpusBuilder, columns, lines_to_check, occurrences, trimmed, whole_number
from datasets.relations.records import NO_RELATION, RelationCorpus, Span

RELATIONS = (NO_RELATION, "adverse_effect")
TYPES = ("drug", "adverse effect")

_NEGATIVE = re.compile(r"([0-9]+) NEG (.*\S.*)")
_WORD = re.compile(r"\w+|[^\w\s]")
_SHORTEST_NAME = 4
"""Characters of a name that is looked for; shorter ones are mostly abbreviations that mean other things, too."""


@dataclass(frozen=True)
class _Pair:
    fail: Fail  # of its line
    starts: tuple[int, ...]  # where in the document the sentence may start, by this line alone
    drug: Span  # in the document
    effect: Span


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
    "ADE-NEG.txt belongs next to it",
)
def read(path: PathLike, *, name: str = "ade", label: str = "with_negatives", split: str = "train") -> RelationCorpus:
    """Read the drug–effect pairs of ``DRUG-AE.rel``, compressed or not.

    The head is the drug, and the tail the effect.

    The offsets count in the document, so the sentence's start is found first: both mentions have to stand in the
    sentence at the distance that the offsets say. Where a mention occurs several times and several starts are possible,
    the one that fits most lines of the sentence is taken; on a tie the one with the mentions' first occurrences. Blanks
    at the ends of a mention (two lines of the release) are not part of it. A drug that lies inside of an effect
    ("codeine intoxication") is kept. All three are counted in the notes. The ids are ``<name>-<PMID>/<n>``, the
    documents the PMIDs. The label choice says whether there are negatives (``with_negatives``, ``positives``), and
    whether of the sentences of ``ADE-NEG.txt``, beside the file, too (``with_negative_sentences``).

    Raises:
      DataError: a line with another number of columns, offsets that are no numbers or do not fit the mention's length,
        mentions that do not stand in the sentence at their distance, or a duplicate pair; a malformed line
        among the negative sentences, or no pair in them.
    """
    negatives = label != "positives"
    builder = CorpusBuilder(path, name, RELATIONS if negatives else RELATIONS[1:])
    for document, sentence, listed in related_pairs(path, builder.counts):
        candidates = listed
        if negatives:
            drugs, effects = (dict.fromkeys(spans) for spans in zip(*listed, strict=True))
            candidates = [(drug, effect) for drug in drugs for effect in effects]
        for pair in candidates:
            relation = RELATIONS[pair in listed]
            builder.add(builder.next_id(f"{name}-{document}"), document, sentence, *pair, *TYPES, relation)
            builder.counts["pairs that their sentence does not list are negatives"] += relation == NO_RELATION
    if label == "with_negative_sentences" and builder.mentions:
        _add_named_pairs(builder, sibling_file(path, "ADE-NEG.txt"), name)
    return builder.build()


def related_pairs(path: PathLike, counts: Counter) -> Iterator[tuple[str, str, list[tuple[Span, Span]]]]:
    """Yield (PMID, sentence, the spans of each drug and its effect) for every position of a sentence in its document.

    The spans count in the sentence. `counts` gets what a corpus's notes say. Raises DataError as `read`.
    """
    if Path(path).name.startswith("DRUG-DOSE"):
        raise DataError("has drugs and doses, no adverse effects", path=path, remedy="give DRUG-AE.rel")
    groups: dict[tuple[str, str], list[_Pair]] = {}
    for fail, line in lines_to_check(path):
        text, pair = _pair(line, fail, counts)
        groups.setdefault(text, []).append(pair)
    for (document, sentence), pairs in groups.items():
        for start, listed in _placed(pairs, counts).items():
            yield document, sentence, [tuple((a - start, b - start) for a, b in pair) for pair in listed]


def _add_named_pairs(builder: CorpusBuilder, path: PathLike, name: str) -> None:
    """Add pairs of a drug and an effect in sentences without an adverse effect, each name at its first position."""
    kinds: dict[tuple[str, ...], set[str]] = {}
    for mention in builder.mentions:
        for kind, text in zip(TYPES, (mention.head_text, mention.tail_text), strict=True):
            if len(text) >= _SHORTEST_NAME:
                kinds.setdefault(tuple(word.casefold() for word in _WORD.findall(text)), set()).add(kind)
    names = {words: kind for words, (kind, *more) in kinds.items() if not more}  # what may be both is neither
    before = len(builder.mentions)
    for document, sentence in dict.fromkeys(sentences_without_effect(path)):
        drugs, effects = _names_in(sentence, names)
        for head in drugs:
            for tail in effects:
                builder.add(builder.next_id(f"{name}-{document}"), document, sentence, head, tail, *TYPES, NO_RELATION)
    added = len(builder.mentions) - before
    if not added:
        raise DataError(
            "has no sentence with an annotated drug and an annotated effect",
            path=path,
            remedy="use another label choice of the data set",
        )
    builder.counts["pairs of annotated names in sentences without an adverse effect are negatives"] = added


def _names_in(sentence: str, names: dict[tuple[str, ...], str]) -> list[list[Span]]:
    """Return the first position of each drug's and effect's name in a sentence, the longest name if names overlap."""
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
    return [[span for key, span in places.items() if names[key] == kind] for kind in TYPES]


def sentences_without_effect(path: PathLike) -> Iterator[tuple[str, str]]:
    """Yield (PMID, sentence) of every line of ``ADE-NEG.txt``."""
    for fail, line in lines_to_check(path):
        match = _NEGATIVE.fullmatch(line)
        if match is None:
            raise fail("is not PMID NEG sentence", remedy="repair the line")
        yield match[1], match[2].strip()


def _pair(line: str, fail: Fail, counts: Counter) -> tuple[tuple[str, str], _Pair]:
    """Return document and sentence of a line, and its pair."""
    document, sentence, effect, *effect_at, drug, drug_start, drug_end = columns(line, 8, fail, "|")
    if not document.isdecimal():
        raise fail("has no PMID", remedy="start the line with the document's number")
    starts, spans = [], []
    for what, mention, at in (("drug", drug, (drug_start, drug_end)), ("effect", effect, effect_at)):
        first, last = (whole_number(value, f"the {what}'s {end}", fail)
                       for value, end in zip(at, ("start", "end"), strict=True))  # fmt: skip
        if not mention.strip() or last - first != len(mention):
            raise fail(f"the {what}'s offsets do not fit its length", remedy="repair the offsets")
        starts.append({first - occurrence for occurrence in occurrences(mention, sentence)})
        start, end = trimmed(mention, (0, len(mention)))
        counts["mentions with blanks at their ends, which are left out of them"] += end - start < len(mention)
        spans.append((first + start, first + end))
    both = tuple(sorted(set.intersection(*starts)))
    if not both:
        raise fail(
            "the mentions do not occur in the sentence at the distance that their offsets have",
            remedy="repair the offsets",
        )
    return (document, sentence), _Pair(fail, both, *spans)


def _placed(pairs: list[_Pair], counts: Counter) -> dict[int, dict[tuple[Span, Span], int]]:
    """Return the pairs (drug, effect) and their lines for each start of the sentence in the document."""
    fits = Counter(start for pair in pairs for start in pair.starts)
    placed: dict[int, dict[tuple[Span, Span], int]] = {}
    for pair in pairs:
        best = max(fits[start] for start in pair.starts)
        possible = [start for start in pair.starts if fits[start] == best]
        counts["pairs fit several places of their sentence; the first is used"] += len(possible) > 1
        lines = placed.setdefault(possible[-1], {})  # the latest start is the first place in the sentence
        line = pair.fail.keywords["line"]
        first = lines.setdefault((pair.drug, pair.effect), line)
        if first != line:
            raise pair.fail(f"is the same pair as line {first}", remedy="remove one of them")
    return placed
