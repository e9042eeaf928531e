"""Distant supervision of your own documents with your own knowledge base (Mintz et al., ACL 2009).

Every sentence that mentions both entities of a pair is taken to state what the knowledge base says of the pair; it may
not, and that is the noise which multiple instance learning has to deal with.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from datasets.bags.records import NEGATIVE, BagCorpus, BagSentence, Pair
from datasets.documents.records import Document, Fact
from datasets.errors import DataError
from datasets.files import PathLike
from datasets.relations.reading import columns, lines_to_check, notes_of, trimmed
from datasets.relations.records import Span
from datasets.relations.sentences import sentences_of_document
from datasets.seeds import generator

Mentions = dict[str, list[Span]]
"""An entity's identifier to its spans."""


def read_facts(path: PathLike) -> tuple[Fact, ...]:
    """Read the facts of a table, compressed or not.

    A line has the head's id, the relation and the tail's id between tabs. There is no header.

    Blanks around a column are not part of it.

    Raises:
      DataError: a line with another number of columns, an empty column, a duplicate fact, or no fact.
    """
    facts: dict[Fact, int] = {}
    for fail, line in lines_to_check(path):
        row = [column.strip() for column in columns(line, 3, fail)]
        for value, what in zip(row, ("head", "relation", "tail"), strict=True):
            if not value:
                raise fail(f"its {what} is empty", remedy="give head, relation and tail between tabs")
        number = fail.keywords["line"]
        first = facts.setdefault(Fact(*row), number)
        if first != number:
            raise fail(f"is the same fact as line {first}", remedy="remove one of them")
    if not facts:
        raise DataError("has no facts", path=path, remedy="give it at least one line")
    return tuple(facts)


def stated_facts(documents: Iterable[Document]) -> tuple[Fact, ...]:
    """Return the facts that the documents' annotators state, each once, in the order of the documents."""
    return tuple(dict.fromkeys(fact for document in documents for fact in document.facts))


def align(
    documents: Sequence[Document],
    facts: Iterable[Fact] | None,
    *,
    head_kind: str,
    tail_kind: str,
    relation_names: Sequence[str] | None = None,
    na_rate: float = 1.0,
    seed: int = 0,
    split: str = "train",
    name: str = "aligned",
) -> BagCorpus:
    """Return the sentences that mention an entity of the head's kind and one of the tail's, with their facts.

    Title and abstract are cut into sentences apart. A sentence gives one `BagSentence` for each pair that it mentions;
    where it mentions an entity several times, the two mentions nearest to each other stand for the pair (on a tie the
    leftmost). A composite mention counts for each entity that it names. The two mentions may overlap, but not be the
    same span. Of an entity with itself there is no pair.

    Args:
      documents: With mentions; their own facts are not looked at (`stated_facts` gives them).
      facts: The knowledge base; None: there is none, and all pairs stand as negative.
      head_kind, tail_kind: The mentions' kinds, e.g. ``Chemical`` and ``Disease``; as types they are in lower case.
      relation_names: The relations in the order of the labels, without the negative: those of the facts in alphabetical
        order by default. Corpora that are used together need the same.
      na_rate: The share of the pairs without a fact that is kept, in (0, 1]: round(rate * pairs), at least one, drawn
        by the seed, each with all its sentences.
      seed: Of that draw.
      split: Part of the ids ``<name>-<split>-<document>/<n>``.
      name: The corpus's name.

    Raises:
      DataError: an impossible rate, a sentence's id twice, a fact whose relation is not named, or documents in which no
        sentence mentions a fact's pair.
    """
    if isinstance(na_rate, bool) or not isinstance(na_rate, int | float) or not 0 < na_rate <= 1:
        raise DataError("na_rate is not a number above 0 and at most 1", remedy="use e.g. 0.5")
    stated = tuple(dict.fromkeys(facts or ()))
    names = (NEGATIVE, *(sorted({fact.relation for fact in stated}) if relation_names is None else relation_names))
    known = _relations_of(stated, names)
    counts, sentences = Counter(), []
    for document in documents:
        number = itertools.count(1)
        for (first, last), heads, tails in _sentences(document, head_kind, tail_kind, counts):
            for pair in itertools.product(heads, tails):
                if pair[0] == pair[1] and head_kind == tail_kind:
                    continue
                spans = _nearest(heads[pair[0]], tails[pair[1]])
                if spans is None:
                    counts["times a sentence mentions both entities of a pair with the same span; left out"] += 1
                    continue
                head, tail = ((start - first, end - first) for start, end in spans)
                sentence_id = f"{name}-{split}-{document.document_id}/{next(number)}"
                location = document.document_id, document.text[first:last], head, tail
                relations, types = known.get(pair, (NEGATIVE,)), (head_kind.lower(), tail_kind.lower())
                label = names.index(relations[0])
                sentences.append(BagSentence(sentence_id, *location, *types, *pair, relations, label))
    unrelated = list(dict.fromkeys(sentence.pair for sentence in sentences if sentence.label == 0))
    num_kept = max(1, round(na_rate * len(unrelated)))
    order = generator(seed, "unrelated pairs", name).permutation(len(unrelated))
    dropped = {unrelated[index] for index in order[num_kept:]}
    sentences = [sentence for sentence in sentences if sentence.pair not in dropped]
    mentioned = {sentence.pair for sentence in sentences}
    num_mentioned = sum((fact.head_id, fact.tail_id) in mentioned for fact in stated)
    if facts is not None and not num_mentioned:
        raise DataError(
            f"no sentence mentions the pair of any of the {len(stated)} facts",
            record=f"corpus {name}",
            remedy=f"check the ids, and that facts lead from {head_kind} to {tail_kind}",
        )
    notes = (
        f"{len(documents)} documents give {len(sentences)} sentences of {len(mentioned)} pairs",
        f"{num_mentioned} of {len(stated)} facts have a sentence, {len(stated) - num_mentioned} have none",
        f"{len(unrelated) - len(dropped)} of {len(unrelated)} pairs without a fact are kept as {NEGATIVE}",
        *notes_of(counts),
    )
    return BagCorpus(name, tuple(sentences), names, notes=notes)


def _relations_of(facts: Iterable[Fact], names: Sequence[str]) -> dict[Pair, tuple[str, ...]]:
    relations_of: dict[Pair, list[str]] = {}
    for position, fact in enumerate(facts, 1):
        if fact.relation not in names[1:]:
            what = "the negative" if fact.relation in names else "not one of the corpus's"
            raise DataError(
                f"its relation is {what}",
                record=f"fact number {position}",
                remedy="name it in relation_names, or leave the fact out",
            )
        relations_of.setdefault((fact.head_id, fact.tail_id), []).append(fact.relation)
    return {pair: tuple(sorted(relations, key=names.index)) for pair, relations in relations_of.items()}


def _sentences(
    document: Document, head_kind: str, tail_kind: str, counts: Counter
) -> Iterator[tuple[Span, Mentions, Mentions]]:
    """Return the spans of the document's sentences, with the entities of the two kinds that each mentions."""
    spans = [(trimmed(document.text, (mention.start, mention.end)), mention) for mention in document.mentions]
    spans = [(span, mention) for span, mention in spans if span[0] < span[1]]
    placed = 0
    for first, last in sentences_of_document(document.text, document.title_length, [span for span, _ in spans]):
        heads, tails = {}, {}
        for span, mention in spans:
            if first <= span[0] and span[1] <= last:
                placed += 1
                for kind, spans_of in ((head_kind, heads), (tail_kind, tails)):
                    if mention.kind == kind:
                        for entity_id in mention.entity_ids:
                            spans_of.setdefault(entity_id, []).append(span)
        yield (first, last), heads, tails
    counts["mentions are not inside one sentence, or are blank"] += len(document.mentions) - placed


def _nearest(heads: Sequence[Span], tails: Sequence[Span]) -> tuple[Span, Span] | None:
    """Return the two different spans with the fewest characters between them, or the leftmost on a tie."""

    def rank(pair):
        (_, first_end), (second_start, _) = ordered = sorted(pair)
        return max(0, second_start - first_end), ordered, pair

    return min((pair for pair in itertools.product(heads, tails) if pair[0] != pair[1]), key=rank, default=None)
