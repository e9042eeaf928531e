"""Precision, recall and F1 of entities, strict and lenient, and the dictionary look-up baseline."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from datasets.entities.records import EntitySample, EntitySpan
from datasets.errors import DataError


@dataclass(frozen=True)
class SpanCounts:
    """Counts of entities, which add up over texts and types, and their ratios, 0 where the denominator is 0.

    Attributes:
      true_positives: Predicted entities with the start, end and type of a gold one.
      predicted, actual: Predicted and gold entities.
      overlapping_predicted: Predicted entities that share a character with a gold one of their type.
      overlapping_actual: Gold entities that share a character with a predicted one of their type.
    """

    true_positives: int = 0
    predicted: int = 0
    actual: int = 0
    overlapping_predicted: int = 0
    overlapping_actual: int = 0

    def __add__(self, other: SpanCounts) -> SpanCounts:
        return SpanCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def precision(self) -> float:
        """Return true_positives / predicted."""
        return _ratio(self.true_positives, self.predicted)

    @property
    def recall(self) -> float:
        """Return true_positives / actual."""
        return _ratio(self.true_positives, self.actual)

    @property
    def f1(self) -> float:
        """Return 2 true_positives / (predicted + actual)."""
        return _ratio(2 * self.true_positives, self.predicted + self.actual)

    @property
    def lenient_precision(self) -> float:
        """Return overlapping_predicted / predicted."""
        return _ratio(self.overlapping_predicted, self.predicted)

    @property
    def lenient_recall(self) -> float:
        """Return overlapping_actual / actual."""
        return _ratio(self.overlapping_actual, self.actual)

    @property
    def lenient_f1(self) -> float:
        """Return the harmonic mean of the lenient precision and recall."""
        precision, recall = self.lenient_precision, self.lenient_recall
        return _ratio(2 * precision * recall, precision + recall)


@dataclass(frozen=True)
class SpanScores:
    """Counts of each type.

    Attributes:
      by_type: Type to its counts, in the order of the types.
    """

    by_type: Mapping[str, SpanCounts]

    @property
    def micro(self) -> SpanCounts:
        """Return the counts of all types together."""
        return sum(self.by_type.values(), SpanCounts())

    @property
    def macro_f1(self) -> float:
        """Return the mean strict F1 over types with a gold or predicted entity, like seqeval.

        It is 0 without any.
        """
        return self._macro("f1")

    @property
    def macro_lenient_f1(self) -> float:
        """Return the same mean of the lenient F1."""
        return self._macro("lenient_f1")

    def _macro(self, measure: str) -> float:
        values = [getattr(counts, measure) for counts in self.by_type.values() if counts.predicted or counts.actual]
        return _ratio(sum(values), len(values))


def score_spans(
    gold: Sequence[Iterable[EntitySpan]], predicted: Sequence[Iterable[EntitySpan]], entity_types: Sequence[str]
) -> SpanScores:
    """Compare predicted entities with the gold ones of the same texts.

    Strict: the same start, end and type, as seqeval counts. Lenient: a common character and the same type, the "type"
    match of SemEval-2013 task 9; each entity counts once for precision or recall, however many it overlaps. An entity
    that is stated twice counts once; those of other types do not count.

    Args:
      gold, predicted: The entities of each text.
      entity_types: The types that count.

    Raises:
      DataError: not as many texts with gold as with predicted entities.
    """
    if len(gold) != len(predicted):
        reason = f"there are gold entities of {len(gold)} texts and predicted ones of {len(predicted)}"
        raise DataError(reason, remedy="give both for every text")
    counts = {name: SpanCounts() for name in entity_types}
    for gold_spans, predicted_spans in zip(gold, predicted, strict=True):
        gold_set, predicted_set = set(gold_spans), set(predicted_spans)
        for name in {span.type for span in gold_set | predicted_set} & counts.keys():
            actual, answered = ({span for span in spans if span.type == name} for spans in (gold_set, predicted_set))
            counts[name] += SpanCounts(
                len(actual & answered),
                len(answered),
                len(actual),
                _overlapping(answered, actual),
                _overlapping(actual, answered),
            )
    return SpanScores(counts)


def dictionary(samples: Iterable[EntitySample]) -> dict[str, str]:
    """Return the most frequent type of each entity's text in training samples.

    On a tie it is the first one.
    """
    counts: dict[str, Counter[str]] = {}
    for sample in samples:
        for span in sample.spans:
            counts.setdefault(sample.text[span.start : span.end], Counter())[span.type] += 1
    return {mention: types.most_common(1)[0][0] for mention, types in counts.items()}


def tag_with_dictionary(texts: Iterable[str], mentions: Mapping[str, str]) -> list[tuple[EntitySpan, ...]]:
    """Return the entities of each text that a `dictionary` knows, by exact search, as the trivial baseline.

    From left to right, the longest mention that begins at a character is an entity, and the search goes on after it. In
    scripts that put blanks between words, a mention neither begins nor ends inside of a word or number.
    """
    lengths: dict[str, list[int]] = {}
    for mention in mentions:
        lengths.setdefault(mention[0], []).append(len(mention))
    longest_first = {first: sorted(set(values), reverse=True) for first, values in lengths.items()}
    return [tuple(_search(text, mentions, longest_first)) for text in texts]


def _search(text: str, mentions: Mapping[str, str], lengths: Mapping[str, Sequence[int]]) -> Iterable[EntitySpan]:
    position = 0
    while position < len(text):
        end = position + 1
        if not _inside_word(text, position):
            for length in lengths.get(text[position], ()):
                mention = text[position : position + length]  # shorter at the end of the text
                if mention in mentions and not _inside_word(text, position + len(mention)):
                    end = position + len(mention)
                    yield EntitySpan(position, end, mentions[mention])
                    break
        position = end


_WITHOUT_BLANKS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0xA4CF),  # Chinese characters and Japanese syllables, Yi
    (0xF900, 0xFAFF),  # Chinese characters, for compatibility
    (0xFF66, 0xFF9F),  # Japanese syllables of half the width
    (0x1B000, 0x1B16F),  # Japanese syllables, further ones
    (0x20000, 0x3FFFF),  # Chinese characters, further ones
)
"""Code points of scripts that put no blanks between words, both ends included."""


def _inside_word(text: str, position: int) -> bool:
    """Return whether the characters before and after a position belong to one word of a script with blanks."""
    return 0 < position < len(text) and _of_word(text[position - 1]) and _of_word(text[position])


def _of_word(character: str) -> bool:
    if any(first <= ord(character) <= last for first, last in _WITHOUT_BLANKS):
        return False
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _overlapping(spans: Iterable[EntitySpan], others: Iterable[EntitySpan]) -> int:
    """Return how many of the spans share a character with one of the others."""
    return sum(any(span.start < other.end and other.start < span.end for other in others) for span in spans)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
