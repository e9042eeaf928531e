"""Sentences of made-up words with planted noise, so that it is known which sentences of a bag state its relation.

A sentence is two entities among filler words, with a cue: two words at one of the three places that the entities leave
(before, between, behind). Every relation has some cues of its own, and so has its absence. A true sentence of a related
pair has a cue of one of the pair's relations; a noisy one has a cue of no relation or of another one. Distant
supervision labels both alike.

Cues are as easy or hard to learn as the options say: the more of them, the fewer sentences show each one; where several
cues share a word, no word tells the relation without its neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import attrs
import numpy as np
from attrs.validators import optional

from datasets.apportion import by_largest_remainder
from datasets.bags.records import NEGATIVE, BagCorpus, BagSentence
from datasets.errors import DataError
from datasets.ranges import NOT_NEGATIVE, SHARE, whole_number
from datasets.relations.records import Span
from datasets.seeds import generator

FILLERS = 400
LONGEST_GAP = 4
"""Filler words at each of the three places, at most."""

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")


@attrs.frozen
class PlantedOptions:
    """The options from which a planted corpus is drawn.

    Attributes:
      num_bags: B, pairs of entities.
      noise_rate: The probability that a sentence of a related pair states none of its relations, in [0, 1].
      num_sentences: Over all bags, at least B; three a bag by default. Sizes follow Zipf's law above the one sentence
        that every bag has.
      single_share: Of the bags, those with one sentence and no more, in [0, 1); then every other bag has two at least,
        and Zipf's law is of what is above these. By default no bag is held to one.
      num_relations: Without the negative.
      num_triples: (pair, relation), at least B: what is beyond B goes to related pairs with several relations. By
        default every tenth related pair has a second one.
      unrelated_share: Of the pairs, in [0, 1).
      other_share: Of the noisy sentences, those that state a relation which is not their pair's; the others state none.
      at_least_one: Whether each relation of a pair has a true sentence, as far as the bag has sentences enough; fewer
        sentences are noisy then than `noise_rate` says.
      cues: Cues of a relation, at least 1; the absence of one has as many as all relations together.
      cues_of_word: How many cues a word of a cue is part of, on average, at least 1; they are of different relations by
        chance.
      zipf: The exponent of the law, at least 0; the larger, the more unequal.
      seed: Of all that is drawn.

    Raises:
      DataError: an impossible option.
    """

    num_bags: int = attrs.field(validator=whole_number(2))
    noise_rate: float = attrs.field(validator=SHARE)
    num_sentences: int | None = attrs.field(default=None, validator=optional(whole_number(1)))
    single_share: float | None = attrs.field(default=None, validator=optional(SHARE))
    num_relations: int = attrs.field(default=5, validator=whole_number(1))
    num_triples: int | None = attrs.field(default=None, validator=optional(whole_number(1)))
    unrelated_share: float = attrs.field(default=0.5, validator=SHARE)
    other_share: float = attrs.field(default=0.5, validator=SHARE)
    at_least_one: bool = True
    cues: int = attrs.field(default=4, validator=whole_number(1))
    cues_of_word: int = attrs.field(default=1, validator=whole_number(1))
    zipf: float = attrs.field(default=1.0, validator=NOT_NEGATIVE)
    seed: int = 0

    def __attrs_post_init__(self):
        if not self.related:
            raise DataError("no pair is related", remedy="lower unrelated_share")
        max_triples = self.num_bags + self.related * (self.num_relations - 1)
        if not self.num_bags <= self.triples <= max_triples:
            raise DataError(
                f"num_triples is not from {self.num_bags} to {max_triples}", remedy="change it, or num_relations"
            )
        if self.sentences < self.num_bags:
            raise DataError("num_sentences is smaller than num_bags", remedy="give every bag a sentence")
        if self.single == self.num_bags and self.sentences > self.num_bags:
            raise DataError("no bag has more than one sentence", remedy="lower single_share or num_sentences")
        if self.single is not None and self.sentences < 2 * self.num_bags - self.single:
            longer = self.num_bags - self.single
            problem = f"{self.sentences} sentences are too few for {self.single} bags of one and {longer} of two"
            raise DataError(problem, remedy="raise single_share or num_sentences")
        if 2 * self.distinct_cues > len(_SYLLABLES) ** 3:
            problem = f"{self.distinct_cues} cues are more than there are words for"
            raise DataError(problem, remedy="lower cues or num_relations")
        if self.cue_words * (self.cue_words - 1) < self.distinct_cues:
            problem = f"{self.distinct_cues} cues cannot be made of {self.cue_words} words"
            raise DataError(problem, remedy="lower cues_of_word")

    @property
    def related(self) -> int:
        """Return the number of related pairs."""
        return self.num_bags - round(self.unrelated_share * self.num_bags)

    @property
    def sentences(self) -> int:
        """Return the number of sentences."""
        return 3 * self.num_bags if self.num_sentences is None else self.num_sentences

    @property
    def single(self) -> int | None:
        """Return the number of bags with exactly one sentence, if single_share is set."""
        return None if self.single_share is None else round(self.single_share * self.num_bags)

    @property
    def triples(self) -> int:
        """Return the number of (pair, relation)."""
        if self.num_triples is not None:
            return self.num_triples
        return self.num_bags + (self.related // 10 if self.num_relations > 1 else 0)

    @property
    def distinct_cues(self) -> int:
        """Return the number of cues, of all relations and of their absence."""
        return 2 * self.cues * self.num_relations

    @property
    def cue_words(self) -> int:
        """Return the number of words that cues are made of."""
        return -(-2 * self.distinct_cues // self.cues_of_word)


@dataclass(frozen=True)
class PlantedCorpus:
    """A corpus, and what its sentences state.

    Attributes:
      corpus: The corpus.
      expressed: Sentence id to the relation that its words state, the negative for none.
      truth: Sentence id to whether that is one of its pair's relations; for an unrelated pair always true.
      words: All words of the grammar.
    """

    corpus: BagCorpus
    expressed: Mapping[str, str] = field(repr=False)
    truth: Mapping[str, bool] = field(repr=False)
    words: tuple[str, ...] = field(repr=False)


def planted(num_bags: int, noise_rate: float, *, name: str = "planted", **options) -> PlantedCorpus:
    """Draw a corpus, with the options of `PlantedOptions`.

    Raises DataError for an impossible one.

    The relations are ``relation 1``, ``relation 2``, …; ids, ``<name>-<n>``, and order tell nothing of the truth. With
    the same options the corpus is always the same.
    """
    chosen = PlantedOptions(num_bags, noise_rate, **options)
    rng = generator(chosen.seed, "planted")
    count, names = chosen.sentences, (NEGATIVE, *(f"relation {label}" for label in range(1, chosen.num_relations + 1)))
    sizes = rng.permutation(_sizes(chosen))
    order_of, several = _relations(chosen, rng)
    stated, bag = _stated(chosen, rng, sizes, order_of, several)
    shuffled = rng.permutation(count)
    bag, stated = bag[shuffled], stated[shuffled]
    words, cues = _grammar(chosen)
    side = math.ceil(math.sqrt(2 * num_bags))
    first, second = np.divmod(rng.choice(side * side, num_bags, replace=False), side)
    entities = np.stack([first, second + side], axis=1).astype(np.int32) + len(words)
    words += [_word(4, number) for number in range(2 * side)]
    slots, places = _layout(rng, stated, entities[bag], cues)
    labels_of = [sorted(order[:number].tolist()) or [0] for order, number in zip(order_of, several, strict=True)]
    relations_of = [tuple(names[label] for label in labels) for labels in labels_of]
    sentences, expressed, truth = [], {}, {}
    rows = zip(_rendered(words, slots, places), bag.tolist(), stated.tolist(), strict=True)
    for number, (text_and_spans, pair, label) in enumerate(rows, 1):
        sentence_id, ids = f"{name}-{number}", [words[word] for word in entities[pair]]
        known = "head", "tail", *ids, relations_of[pair], labels_of[pair][0]
        sentences.append(BagSentence(sentence_id, sentence_id, *text_and_spans, *known))
        expressed[sentence_id], truth[sentence_id] = names[label], label in labels_of[pair]
    corpus = BagCorpus(name, tuple(sentences), names)
    return PlantedCorpus(corpus, MappingProxyType(expressed), MappingProxyType(truth), tuple(words))


def _sizes(options: PlantedOptions) -> np.ndarray:
    """Return the bags' numbers of sentences, the largest first, as int64 [B]."""
    if options.single is None:
        least, longer = 1, options.num_bags
    else:
        least, longer = 2, options.num_bags - options.single
    sizes = np.ones(options.num_bags, np.int64)
    if longer:
        ranks = np.arange(1, longer + 1, dtype=np.float64)
        above = options.sentences - (options.num_bags - longer) - least * longer
        sizes[:longer] = least + by_largest_remainder(above, ranks**-options.zipf)
    return sizes


def _rendered(words: list[str], slots: np.ndarray, places: np.ndarray) -> Iterator[tuple[str, Span, Span]]:
    """Return the text of each sentence and the spans of head and tail."""
    for row, arguments in zip(slots.tolist(), places.tolist(), strict=True):
        parts, spans, end = [], {}, -1
        for slot, word in enumerate(row):
            if word >= 0:
                parts.append(words[word])
                spans[slot] = (end + 1, end + 1 + len(parts[-1]))
                end = spans[slot][1]
        yield " ".join(parts), *(spans[slot] for slot in arguments)


def _relations(options: PlantedOptions, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return all labels in a random order for each bag, [B, R], and how many of the first its pair has."""
    total, related = options.num_relations, options.related
    several = np.zeros(options.num_bags, np.int64)
    several[:related] = 1
    room = np.repeat(np.arange(related), total - 1)
    np.add.at(several, rng.permutation(room)[: options.triples - options.num_bags], 1)
    mixed = rng.permutation(options.num_bags)
    start, turn = rng.integers(total, size=options.num_bags), rng.integers(max(1, total - 1), size=options.num_bags)
    others = (turn[:, None] + np.arange(total - 1)) % max(1, total - 1)
    order_of = np.concatenate([start[:, None], (start[:, None] + 1 + others) % total], axis=1) + 1
    return order_of.astype(np.int32), several[mixed]


def _stated(options, rng, sizes, order_of, several) -> tuple[np.ndarray, np.ndarray]:
    """Return the label that each sentence states, and its bag, bag by bag."""
    bag = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    position = np.arange(len(bag)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    num_stated, total = several[bag], options.num_relations
    which = np.where(position < num_stated, position, (rng.random(len(bag)) * num_stated).astype(np.int64))
    true = rng.random(len(bag)) >= options.noise_rate
    if options.at_least_one:
        true |= position < num_stated
    else:
        which = (rng.random(len(bag)) * num_stated).astype(np.int64)
    another = num_stated + (rng.random(len(bag)) * (total - num_stated)).astype(np.int64)
    states_another = (rng.random(len(bag)) < options.other_share) & (num_stated < total)
    noisy = np.where(states_another, order_of[bag, np.minimum(another, total - 1)], 0)
    expressed = np.where(true, order_of[bag, which], noisy)
    return np.where(num_stated > 0, expressed, 0).astype(np.int32), bag


def _grammar(options: PlantedOptions) -> tuple[list[str], np.ndarray]:
    """Return the words without the entities, and the cues, int32 [R + 1, cues * R, 3]: two words and a position.

    A relation has `cues` cues, which are repeated; its absence has as many different ones as all relations together.
    The seed has no part in it.
    """
    per_relation, max_cues = options.cues, options.cues * options.num_relations
    distinct = [max_cues] + [per_relation] * options.num_relations
    cues = np.zeros((len(distinct), max_cues, 3), np.int32)
    for label, pairs in enumerate(np.split(_cue_words(options), np.cumsum(distinct)[:-1])):
        made = np.column_stack([FILLERS + pairs, (label + np.arange(len(pairs))) % 3])
        cues[label] = np.tile(made, (max_cues // len(pairs), 1))
    words = [_word(2, number) for number in range(FILLERS)]
    return words + [_word(3, number) for number in range(options.cue_words)], cues


def _cue_words(options: PlantedOptions) -> np.ndarray:
    """Return the two words of each cue, int32 [distinct_cues, 2].

    No two cues have the same words in the same order.
    """
    number, words = np.arange(options.distinct_cues, dtype=np.int32), options.cue_words
    if options.cues_of_word == 1:
        return np.stack([2 * number, 2 * number + 1], axis=1)
    first = number % words
    pairs = np.stack([first, (first + 1 + number // words) % words], axis=1)
    return pairs[generator(0, "planted cues").permutation(len(pairs))]


def _layout(rng, stated, entities, cues) -> tuple[np.ndarray, np.ndarray]:
    """Return the words in the slots of each sentence, [N, 20], -1 for none, and the slots of head and tail, [N, 2].

    The slots are gap, entity, gap, entity, gap, in each gap room for a cue.
    """
    count = len(stated)
    cue = cues[stated, rng.integers(cues.shape[1], size=count)]
    step = LONGEST_GAP + 3
    slots = np.full((count, 3 * step - 1), -1, np.int32)
    for gap in range(3):
        start = gap * step
        length = rng.integers(1 if gap == 1 else 0, LONGEST_GAP + 1, size=count)
        filled = np.arange(LONGEST_GAP) < length[:, None]
        fillers = FILLERS * rng.random((count, LONGEST_GAP)) ** 2  # the first words are the commonest
        slots[:, start : start + LONGEST_GAP] = np.where(filled, fillers.astype(np.int32), -1)
        here = cue[:, 2] == gap
        slots[here, start + LONGEST_GAP : start + LONGEST_GAP + 2] = cue[here, :2]
    places = np.array([step - 1, 2 * step - 1])
    places = np.where(rng.random((count, 1)) < 0.5, places[::-1], places)
    slots[np.arange(count)[:, None], places] = entities
    return slots, places


def _word(syllables: int, number: int) -> str:
    """Return the word of a number.

    Different numbers give different words, because words of different lengths differ anyway.
    """
    base = len(_SYLLABLES)
    # The factor is a prime that does not divide the base: neighbours look different.
    number = (number * 39_916_801 + 1) % base**syllables
    return "".join(_SYLLABLES[number // base**digit % base] for digit in range(syllables))
