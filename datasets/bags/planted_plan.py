"""What a corpus of planted noise consists of, as numbers: bags, what their sentences state, and their words.

A sentence is two entities among filler words, with a cue: two words at one of the three places that the entities leave
(before, between, behind). Every relation has some cues of its own, and so has its absence. A true sentence of a related
pair has a cue of one of the pair's relations; a noisy one has a cue of no relation or of another one. Distant
supervision labels both alike.

Cues are as easy or hard to learn as the options say: the more of them, the fewer sentences show each one; where several
cues share a word, no word tells the relation without its neighbour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import attrs
import numpy as np
from attrs.validators import optional

from datasets.apportion import by_largest_remainder
from datasets.bags.records import NEGATIVE
from datasets.errors import DataError
from datasets.ranges import NOT_NEGATIVE, SHARE, whole_number
from datasets.seeds import generator

FILLERS = 400
LONGEST_GAP = 4
"""Filler words at each of the three places, at most."""

WIDTH = 3 * (LONGEST_GAP + 2) + 2

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")

MOST_CUE_WORDS = len(_SYLLABLES) ** 3
"""Words of three syllables."""


@attrs.frozen
class PlantedOptions:
    """What a planted corpus is drawn from.

    Attributes:
      num_bags: B, pairs of entities.
      noise_rate: The probability that a sentence of a related pair states none of its relations, in [0, 1].
      num_sentences: Over all bags, at least B; three a bag by default. Sizes follow Zipf's law above the one sentence
        that every bag has.
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
        most = self.num_bags + self.related * (self.num_relations - 1)
        if not self.num_bags <= self.triples <= most:
            raise DataError(f"num_triples is not from {self.num_bags} to {most}", remedy="change it, or num_relations")
        if self.sentences < self.num_bags:
            raise DataError("num_sentences is smaller than num_bags", remedy="give every bag a sentence")
        if 2 * self.distinct_cues > MOST_CUE_WORDS:
            raise DataError(
                f"{self.distinct_cues} cues are more than there are words for", remedy="lower cues or num_relations"
            )
        if self.cue_words * (self.cue_words - 1) < self.distinct_cues:
            raise DataError(
                f"{self.distinct_cues} cues cannot be made of {self.cue_words} words", remedy="lower cues_of_word"
            )

    @property
    def relation_names(self) -> tuple[str, ...]:
        """The negative, then ``relation 1``, ``relation 2``, …"""
        return (NEGATIVE, *(f"relation {label}" for label in range(1, self.num_relations + 1)))

    @property
    def related(self) -> int:
        """The number of related pairs."""
        return self.num_bags - round(self.unrelated_share * self.num_bags)

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return 3 * self.num_bags if self.num_sentences is None else self.num_sentences

    @property
    def triples(self) -> int:
        """The number of (pair, relation)."""
        if self.num_triples is not None:
            return self.num_triples
        return self.num_bags + (self.related // 10 if self.num_relations > 1 else 0)

    @property
    def distinct_cues(self) -> int:
        """The number of cues, of all relations and of their absence."""
        return 2 * self.cues * self.num_relations

    @property
    def cue_words(self) -> int:
        """The number of words that cues are made of."""
        return -(-2 * self.distinct_cues // self.cues_of_word)


@dataclass(frozen=True)
class Plan:
    """A planted corpus as numbers: N sentences of B bags, words by their index in `words`.

    Attributes:
      bag: int32 [N].
      expressed: int32 [N], the label that the sentence's cue states, 0 for none.
      words: The words of the grammar, entities last.
      slots: int32 [N, WIDTH], the sentence's words in their order, -1 for an empty place.
      head_slot, tail_slot: int32 [N], where in `slots` the entities stand.
      labels: For each bag the labels of its pair, increasing; (0,) for an unrelated pair.
      entities: int32 [B, 2], head and tail of each bag, as indices of words.
    """

    bag: np.ndarray = field(repr=False)
    expressed: np.ndarray = field(repr=False)
    words: tuple[str, ...] = field(repr=False)
    slots: np.ndarray = field(repr=False)
    head_slot: np.ndarray = field(repr=False)
    tail_slot: np.ndarray = field(repr=False)
    labels: tuple[tuple[int, ...], ...] = field(repr=False)
    entities: np.ndarray = field(repr=False)


def draw_plan(options: PlantedOptions) -> Plan:
    """The corpus as numbers; with the same options always the same."""
    rng = generator(options.seed, "planted")
    count, num_bags = options.sentences, options.num_bags
    ranks = np.arange(1, num_bags + 1, dtype=np.float64)
    sizes = 1 + by_largest_remainder(count - num_bags, ranks**-options.zipf)
    sizes = rng.permutation(sizes)
    order_of, several = _relations(options, rng)
    expressed, bag = _expressed(options, rng, sizes, order_of, several)
    shuffled = rng.permutation(count)
    bag, expressed = bag[shuffled], expressed[shuffled]
    words, cues = _grammar(options)
    side = math.ceil(math.sqrt(2 * num_bags))
    first, second = np.divmod(rng.choice(side * side, num_bags, replace=False), side)
    entities = np.stack([first, second + side], axis=1).astype(np.int32) + len(words)
    words += [_word(4, number) for number in range(2 * side)]
    slots, head_slot, tail_slot = _layout(rng, expressed, entities[bag], cues)
    labels = tuple(
        tuple(sorted(order[:number].tolist())) if number else (0,)
        for order, number in zip(order_of, several, strict=True)
    )
    return Plan(bag, expressed, tuple(words), slots, head_slot, tail_slot, labels, entities)


def _relations(options: PlantedOptions, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All labels in an order of each bag's own, [B, R], and how many of the first are its pair's, 0 if unrelated."""
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


def _expressed(options, rng, sizes, order_of, several) -> tuple[np.ndarray, np.ndarray]:
    """The label that each sentence states, and its bag, bag by bag."""
    bag = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    place = np.arange(len(bag)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    own, total = several[bag], options.num_relations
    which = np.where(place < own, place, (rng.random(len(bag)) * own).astype(np.int64))
    true = rng.random(len(bag)) >= options.noise_rate
    if options.at_least_one:
        true |= place < own
    else:
        which = (rng.random(len(bag)) * own).astype(np.int64)
    another = own + (rng.random(len(bag)) * (total - own)).astype(np.int64)
    states_another = (rng.random(len(bag)) < options.other_share) & (own < total)
    noisy = np.where(states_another, order_of[bag, np.minimum(another, total - 1)], 0)
    expressed = np.where(true, order_of[bag, which], noisy)
    return np.where(own > 0, expressed, 0).astype(np.int32), bag


def _grammar(options: PlantedOptions) -> tuple[list[str], np.ndarray]:
    """The words without the entities, and the cues: int32 [R + 1, cues * R, 3], two words and a place.

    A relation has `cues` cues, which are repeated; its absence has as many different ones as all relations together.
    The seed has no part in it.
    """
    per_relation, most = options.cues, options.cues * options.num_relations
    distinct = [most] + [per_relation] * options.num_relations
    pairs = _cue_words(options)
    cues, taken = np.zeros((len(distinct), most, 3), np.int32), 0
    for label, number in enumerate(distinct):
        made = np.empty((number, 3), np.int32)
        made[:, :2] = FILLERS + pairs[taken : taken + number]
        made[:, 2] = (label + np.arange(number)) % 3
        cues[label] = np.tile(made, (most // number, 1))
        taken += number
    words = [_word(2, number) for number in range(FILLERS)]
    return words + [_word(3, number) for number in range(options.cue_words)], cues


def _cue_words(options: PlantedOptions) -> np.ndarray:
    """The two words of each cue, int32 [distinct_cues, 2]: no two cues have the same ones in the same order."""
    number, words = np.arange(options.distinct_cues, dtype=np.int32), options.cue_words
    if options.cues_of_word == 1:
        return np.stack([2 * number, 2 * number + 1], axis=1)
    first = number % words
    pairs = np.stack([first, (first + 1 + number // words) % words], axis=1)
    return pairs[generator(0, "planted cues").permutation(len(pairs))]


def _layout(rng, expressed, entities, cues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sentences' slots, and which hold head and tail: gap, entity, gap, entity, gap, in each gap room for a cue."""
    count = len(expressed)
    cue = cues[expressed, rng.integers(cues.shape[1], size=count)]
    slots = np.full((count, WIDTH), -1, np.int32)
    step = LONGEST_GAP + 3
    for place in range(3):
        start = place * step
        length = rng.integers(1 if place == 1 else 0, LONGEST_GAP + 1, size=count)
        filled = np.arange(LONGEST_GAP) < length[:, None]
        fillers = (FILLERS * rng.random((count, LONGEST_GAP)) ** 2).astype(
            np.int32
        )  # the first words are the commonest
        slots[:, start : start + LONGEST_GAP] = np.where(filled, fillers, -1)
        here = cue[:, 2] == place
        slots[here, start + LONGEST_GAP : start + LONGEST_GAP + 2] = cue[here, :2]
    reverse = rng.random(count) < 0.5
    early, late = LONGEST_GAP + 2, step + LONGEST_GAP + 2
    slots[:, early] = np.where(reverse, entities[:, 1], entities[:, 0])
    slots[:, late] = np.where(reverse, entities[:, 0], entities[:, 1])
    places = np.array([early, late], np.int32)
    return slots, places[reverse.astype(int)], places[1 - reverse.astype(int)]


def _word(syllables: int, number: int) -> str:
    """Different numbers give different words; words of different lengths differ anyway."""
    base = len(_SYLLABLES)
    number = (
        number * 39_916_801 + 1
    ) % base**syllables  # a prime that does not divide the base: neighbours look different
    return "".join(_SYLLABLES[number // base**place % base] for place in range(syllables))
