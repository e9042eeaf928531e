"""A planted corpus as the clients' arrays, without a text: for measurements at the size of NYT10 and beyond."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from datasets.bags.planted_plan import WIDTH, Plan, PlantedOptions, draw_plan
from datasets.errors import DataError
from datasets.federated import ClientExamples, Examples, FederatedExamples
from datasets.partition import Iid
from datasets.seeds import generator
from datasets.text.relation_layout import MARKERS
from datasets.text.vocabulary import FIRST_WORD_ID

LONGEST = WIDTH + len(MARKERS) + 2
"""Words of the longest row: the sentence, the markers, [CLS] and [SEP]."""


@dataclass(frozen=True)
class PlantedArrays:
    """What `encode_bag_clients` gives of a planted corpus, and the truth.

    Attributes:
      examples: The clients' instances.
      num_triples: T; `triple` lies in [0, T).
      vocabulary_size: Ids of words, padding, unknown and special ones included.
      truth: For each client bool [n], whether the row's sentence states the row's relation.
    """

    examples: FederatedExamples = field(repr=False)
    num_triples: int
    vocabulary_size: int
    truth: tuple[np.ndarray, ...] = field(repr=False)


def planted_arrays(options: PlantedOptions, num_clients: int, *, max_length: int = LONGEST) -> PlantedArrays:
    """The arrays of ``planted(…).corpus`` dealt to K clients by `Iid` with the options' seed.

    They are those that a `RelationEncoding` over `word_tokenizer` gives, with the ids of a vocabulary of the plan's
    words in their order (`Vocabulary((*words, *SPECIAL))`).

    Args:
      options: What the corpus is drawn from.
      num_clients: K.
      max_length: Of a row, at least `LONGEST`: no sentence is cut.

    Raises:
      DataError: more clients than sentences, or a length that is too small.
    """
    if max_length < LONGEST:
        raise DataError(f"max_length is smaller than {LONGEST}", remedy=f"use at least {LONGEST}")
    plan = draw_plan(options)
    rule = Iid(num_clients)
    sentences = range(len(plan.bag))
    rule.draw(sentences, None)
    dealt = rule.apply(None, sentences, generator(options.seed, "partition", rule.name))
    first_triple, labels = _triples(plan)
    sizes = np.array([len(of_pair) for of_pair in plan.labels])
    clients, truth = [], []
    for platform, (client, indices) in enumerate(dealt.items()):
        bags = plan.bag[indices]
        rows = np.repeat(np.arange(len(indices)), sizes[bags])
        within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes[bags]) - sizes[bags], sizes[bags])
        triple = (first_triple[bags][rows] + within).astype(np.int32)
        examples = {name: array[rows] for name, array in _encoded(plan, np.array(indices), max_length).items()}
        examples |= {"y": labels[triple], "triple": triple, "platform": np.full(len(triple), platform, np.int32)}
        clients.append(ClientExamples(client, examples, {name: array[:0] for name, array in examples.items()}))
        truth.append(plan.expressed[indices][rows] == examples["y"])
    federated = FederatedExamples(tuple(clients), options.relation_names)
    return PlantedArrays(federated, len(labels), _special(plan, 0) + 2 + len(MARKERS), tuple(truth))


def _triples(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The first triple of each bag, numbered by the bags' first occurrence, and the label of each triple."""
    bags, first = np.unique(plan.bag, return_index=True)
    order = bags[np.argsort(first)]
    sizes = np.array([len(plan.labels[bag]) for bag in order])
    first_triple = np.zeros(len(plan.labels), np.int64)
    first_triple[order] = np.cumsum(sizes) - sizes
    return first_triple, np.array([label for bag in order for label in plan.labels[bag]], np.int32)


def _special(plan: Plan, number: int) -> int:
    """The id of a special word: [CLS], [SEP], the four markers."""
    return FIRST_WORD_ID + len(plan.words) + number


def _encoded(plan: Plan, indices: np.ndarray, max_length: int) -> Examples:
    """The arrays of `RelationEncoding.encode` of these sentences."""
    count = len(indices)
    head, tail = plan.head_slot[indices], plan.tail_slot[indices]
    # Two places for markers around every slot, then everything moves to the left.
    wide = np.full((count, 3 * WIDTH + 2), -1, np.int32)
    wide[:, 0] = _special(plan, 0)
    slots = plan.slots[indices]
    wide[:, 2:-1:3] = np.where(slots < 0, -1, slots + FIRST_WORD_ID)
    rows = np.arange(count)
    for which, slot in enumerate((head, tail)):
        wide[rows, 3 * slot + 1] = _special(plan, 2 + 2 * which)
        wide[rows, 3 * slot + 3] = _special(plan, 3 + 2 * which)
    wide[:, -1] = _special(plan, 1)
    present = wide >= 0
    place = np.cumsum(present, axis=1) - 1
    names = ("input_ids", "attention_mask", "head_mask", "tail_mask")
    arrays = {name: np.zeros((count, max_length), np.int32) for name in names}
    row, column = np.nonzero(present)
    arrays["input_ids"][row, place[row, column]] = wide[row, column]
    arrays["attention_mask"][row, place[row, column]] = 1
    for which, slot in (("head", head), ("tail", tail)):
        arrays[f"{which}_mask"][rows, place[rows, 3 * slot + 2]] = 1
        arrays[f"{which}_start"] = place[rows, 3 * slot + 1].astype(np.int32)
    return arrays
