"""One's own documents, labelled by one's own knowledge base (distant supervision: Mintz et al., ACL 2009).

Every sentence that mentions both entities of a pair is taken to state what the knowledge base says of the pair; it may
not, and that is the noise which multiple instance learning has to deal with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from datasets.bags.records import NEGATIVE, BagCorpus, BagSentence, Pair
from datasets.documents.records import Document, Fact
from datasets.errors import DataError, named
from datasets.relations.reading import Numbering, notes_of, trimmed
from datasets.relations.records import Span
from datasets.relations.sentences import sentences_of_document
from datasets.seeds import generator

Mentions = dict[str, list[Span]]
"""An entity's identifier to its spans."""


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
    negative: str = NEGATIVE,
) -> BagCorpus:
    """The sentences that mention an entity of the head's kind and one of the tail's, with the facts of their pair.

    Title and abstract are cut into sentences apart. A sentence gives one `BagSentence` for each pair that it mentions;
    where it mentions an entity several times, the two mentions nearest to each other stand for the pair (on a tie the
    leftmost). A composite mention counts for each entity that it names. The two mentions may overlap, but not be the
    same span. Of an entity with itself there is no pair.

    Args:
      documents: With mentions; their own facts are not looked at (`knowledge_base.stated_facts` gives them).
      facts: The knowledge base; None: there is none, and all pairs stand as negative.
      head_kind, tail_kind: The mentions' kinds, e.g. ``Chemical`` and ``Disease``; as types they are in lower case.
      relation_names: The relations in the order of the labels, without the negative: those of the facts in alphabetical
        order by default. Corpora that are used together need the same.
      na_rate: The share of the pairs without a fact that is kept, in (0, 1]: round(rate * pairs), at least one, drawn
        by the seed, each with all its sentences.
      seed: Of that draw.
      split: Part of the ids ``<name>-<split>-<document>/<n>``.
      name: The corpus's name.
      negative: The relation of pairs without a fact.

    Raises:
      DataError: an impossible rate, a document twice, a fact whose relation is not named, or documents in which no
        sentence mentions a fact's pair.
    """
    if isinstance(na_rate, bool) or not isinstance(na_rate, int | float) or not 0 < na_rate <= 1:
        raise DataError("na_rate is not a number above 0 and at most 1", remedy="use e.g. 0.5")
    known_facts, facts = facts is not None, tuple(dict.fromkeys(facts or ()))
    names = (negative, *(sorted({fact.relation for fact in facts}) if relation_names is None else relation_names))
    known = _relations_of(facts, names)
    counts, ids, sentences = Counter(), Numbering(), []
    seen: set[str] = set()
    for document in documents:
        if document.document_id in seen:
            raise DataError(
                "duplicate document",
                record=named("document", document.document_id),
                remedy="give every document an id of its own",
            )
        seen.add(document.document_id)
        for (first, last), heads, tails in _sentences(document, head_kind, tail_kind, counts):
            for pair in _pairs(heads, tails, head_kind == tail_kind):
                spans = _nearest(heads[pair[0]], tails[pair[1]])
                if spans is None:
                    counts["times a sentence mentions a pair by one and the same span; left out"] += 1
                    continue
                head, tail = ((start - first, end - first) for start, end in spans)
                relations = known.get(pair, (negative,))
                sentences.append(
                    BagSentence(
                        ids.next(f"{name}-{split}-{document.document_id}"),
                        document.document_id,
                        document.text[first:last],
                        head,
                        tail,
                        head_kind.lower(),
                        tail_kind.lower(),
                        *pair,
                        relations,
                        names.index(relations[0]),
                    )
                )
    unrelated = list(dict.fromkeys(sentence.pair for sentence in sentences if sentence.label == 0))
    dropped = _dropped(unrelated, na_rate, seed, name)
    sentences = [sentence for sentence in sentences if sentence.pair not in dropped]
    mentioned = {sentence.pair for sentence in sentences}
    found = sum((fact.head_id, fact.tail_id) in mentioned for fact in facts)
    if known_facts and not found:
        raise DataError(
            f"no sentence mentions the pair of any of the {len(facts)} facts",
            record=f"corpus {name}",
            remedy=f"check the ids, and that facts lead from {head_kind} to {tail_kind}",
        )
    notes = (
        f"{len(documents)} documents give {len(sentences)} sentences of {len(mentioned)} pairs",
        f"{found} of {len(facts)} facts have a sentence, {len(facts) - found} have none",
        f"{len(unrelated) - len(dropped)} of {len(unrelated)} pairs without a fact are kept as {negative}",
        *notes_of(counts),
    )
    return BagCorpus(name, tuple(sentences), names, negative, notes)


def _relations_of(facts: Iterable[Fact], names: Sequence[str]) -> dict[Pair, tuple[str, ...]]:
    found: dict[Pair, list[str]] = {}
    for position, fact in enumerate(facts, 1):
        if fact.relation not in names[1:]:
            what = "the negative" if fact.relation in names else "none of the corpus's"
            raise DataError(
                f"its relation is {what}",
                record=f"fact number {position}",
                remedy="name it in relation_names, or leave the fact out",
            )
        found.setdefault((fact.head_id, fact.tail_id), []).append(fact.relation)
    return {pair: tuple(sorted(relations, key=names.index)) for pair, relations in found.items()}


def _sentences(
    document: Document, head_kind: str, tail_kind: str, counts: Counter
) -> Iterator[tuple[Span, Mentions, Mentions]]:
    """The spans of the document's sentences in its text, with the entities of the two kinds that each mentions."""
    spans = [(trimmed(document.text, (mention.start, mention.end)), mention) for mention in document.mentions]
    spans = [(span, mention) for span, mention in spans if span[0] < span[1]]
    placed = 0
    for first, last in sentences_of_document(document.text, document.title_length, [span for span, _ in spans]):
        heads: Mentions = {}
        tails: Mentions = {}
        for span, mention in spans:
            if first <= span[0] and span[1] <= last:
                placed += 1
                for kind, found in ((head_kind, heads), (tail_kind, tails)):
                    if mention.kind == kind:
                        for entity_id in mention.entity_ids:
                            found.setdefault(entity_id, []).append(span)
        yield (first, last), heads, tails
    counts["mentions lie in no single sentence, or are blank"] += len(document.mentions) - placed


def _pairs(heads: Mentions, tails: Mentions, same_kind: bool) -> list[Pair]:
    return [(head, tail) for head in heads for tail in tails if head != tail or not same_kind]


def _nearest(heads: Sequence[Span], tails: Sequence[Span]) -> tuple[Span, Span] | None:
    """The two different spans with the fewest characters between them; on a tie the leftmost."""
    pairs = [(head, tail) for head in heads for tail in tails if head != tail]
    return min(pairs, key=lambda pair: (_gap(*pair), *sorted(pair), pair), default=None)


def _gap(head: Span, tail: Span) -> int:
    return max(0, max(head[0], tail[0]) - min(head[1], tail[1]))


def _dropped(unrelated: Sequence[Pair], na_rate: float, seed: int, name: str) -> set[Pair]:
    if not unrelated:
        return set()
    kept = max(1, round(na_rate * len(unrelated)))
    order = generator(seed, "unrelated pairs", name).permutation(len(unrelated))
    return {unrelated[index] for index in order[kept:]}
