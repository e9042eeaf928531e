"""Sentences of made-up words with planted noise: which of a bag states its relation is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from datasets.bags.planted_plan import Plan, PlantedOptions, draw_plan
from datasets.bags.records import BagCorpus, BagSentence


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
    """Draws a corpus; the options are those of `PlantedOptions`. Raises DataError for an impossible one.

    The relations are ``relation 1``, ``relation 2``, …; ids, ``<name>-<n>``, and order tell nothing of the truth.
    """
    chosen = PlantedOptions(num_bags, noise_rate, **options)
    plan = draw_plan(chosen)
    names = chosen.relation_names
    shared = {labels: tuple(names[label] for label in labels) for labels in set(plan.labels)}
    sentences, expressed, truth = [], {}, {}
    rows = zip(_rendered(plan), plan.bag.tolist(), plan.expressed.tolist(), strict=True)
    for number, ((text, head, tail), bag, stated) in enumerate(rows, 1):
        sentence_id, labels = f"{name}-{number}", plan.labels[bag]
        ids = [plan.words[word] for word in plan.entities[bag]]
        sentences.append(
            BagSentence(sentence_id, sentence_id, text, head, tail, "head", "tail", *ids, shared[labels], labels[0])
        )
        expressed[sentence_id], truth[sentence_id] = names[stated], stated in labels
    corpus = BagCorpus(name, tuple(sentences), names)
    return PlantedCorpus(corpus, MappingProxyType(expressed), MappingProxyType(truth), plan.words)


def _rendered(plan: Plan) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """The text of each sentence and the spans of head and tail."""
    for slots, *arguments in zip(plan.slots.tolist(), plan.head_slot.tolist(), plan.tail_slot.tolist(), strict=True):
        parts, spans, end = [], {}, -1
        for slot, word in enumerate(slots):
            if word >= 0:
                parts.append(plan.words[word])
                spans[slot] = (end + 1, end + 1 + len(parts[-1]))
                end = spans[slot][1]
        yield " ".join(parts), spans[arguments[0]], spans[arguments[1]]
