"""From documents to word pieces with a marker around every mention, as arrays (ATLOP: Zhou et al., AAAI 2021)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from datasets.documents.corpus import DocumentCorpus, DocumentSample
from datasets.errors import DataError, named
from datasets.federated import Examples
from datasets.ranges import require, whole_number
from datasets.text.relation_encoding import Tokenizer, check_tokenizer, tokenized

MARKER = "*"

_Row = tuple[list[int], list[tuple[int, int]]]
"""The ids of a document, and for each mention (marker's place, entity)."""


@dataclass(frozen=True)
class PairId:
    """A candidate pair for the evaluation.

    It has the identifiers of a document and two entities, whether it is intra, and the relations that it does not count
    (`DocumentPair.uncounted`).
    """

    document_id: str
    head_id: str
    tail_id: str
    intra: bool
    uncounted: tuple[int, ...] = ()


def identified_pairs(samples: Sequence[DocumentSample]) -> tuple[tuple[PairId, ...], ...]:
    """Return each document's candidate pairs, in the order of its rows of scores."""
    return tuple(tuple(PairId(*s.pair_ids(pair), pair.intra, pair.uncounted) for pair in s.pairs) for s in samples)


@dataclass(frozen=True)
class Widths:
    """The fixed widths L, M, P and E of the arrays of some documents: their maxima, each at least 1."""

    pieces: int
    mentions: int
    pairs: int
    entities: int = 1


@dataclass(frozen=True)
class EncodedDocuments:
    """Arrays of D documents (see `DocumentEncoding.encode`), and their pairs.

    Attributes:
      arrays: With the leading dimension D.
      pairs: For each document the ids of its pairs, in the order of the arrays' pair axis.
    """

    arrays: Examples = field(repr=False)
    pairs: tuple[tuple[PairId, ...], ...] = field(repr=False)

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of pieces of each document, int64 [D]."""
        return self.arrays["attention_mask"].sum(axis=1, dtype=np.int64)

    def notes(self) -> tuple[str, ...]:
        """Return what a report must say about the documents' lengths."""
        lengths, longer = self.lengths, int((self.lengths > 512).sum())
        return (
            f"documents of {int(np.median(lengths))} pieces in the median, {int(lengths.max())} at most, "
            f"{longer} of {len(lengths)} longer than 512",
        )


@dataclass(frozen=True)
class DocumentEncoding:
    """Word pieces of a whole document, with one ``*`` before and one after every mention of its entities.

    A document is one sequence of any length; the model cuts it into windows. Mentions that belong to no entity are not
    marked. Where several mentions begin (or end) at the same place, they share the marker, as in ATLOP; where one ends
    and the next begins, the end's marker comes first. The stretches between markers are tokenized one by one, so a
    marker may cut a word. A special piece that a text itself spells out (``[SEP]``) is read as plain text.

    Attributes:
      tokenizer: Of the encoder; ``*`` has to be one of its pieces, as it is in BERT's vocabularies.
      longest: Documents of more pieces are refused; None: no limit.
      marker: The marker, a piece of the vocabulary.
      types: The entities' types in the order of their numbers; empty: the arrays do not tell types.

    Raises:
      DataError: the tokenizer lacks a special piece or the marker, or `longest` is no number.
    """

    tokenizer: Tokenizer = field(repr=False)
    longest: int | None = None
    marker: str = MARKER
    types: tuple[str, ...] = ()

    def __post_init__(self):
        remedy = "use an encoder that has it in its vocabulary, like BERT"
        check_tokenizer(self.tokenizer, {self.marker: f'marker of mentions, "{self.marker}"'}, remedy)
        if self.longest is not None:
            require(whole_number(3), longest=self.longest)

    def describe(self) -> str:
        """Describe the encoding in a few words."""
        return f"word pieces of whole documents, {self.marker} around every mention"

    def encode(
        self, corpus: DocumentCorpus, samples: Sequence[DocumentSample] | None = None, *, widths: Widths | None = None
    ) -> EncodedDocuments:
        """Return the arrays of D documents, int32 by default.

        Padding is -1 in index arrays.

        - ``input_ids`` [D, L]: [CLS], pieces and markers, [SEP], padding; ``attention_mask`` [D, L];
        - ``mention_place`` [D, M]: where the marker before a mention stands; ``mention_entity`` [D, M]: its entity,
          from 0 in a document; a composite mention stands once for each of its entities, entity by entity;
        - ``pair_head``, ``pair_tail`` [D, P]: entities; ``pair_labels`` float32 [D, P, R]: 1 for each relation that
          holds, 0 for padding;
        - ``entity_type`` [D, E], with `types` only: the number of each entity's type; -1 for a type without one;
        - ``y`` [D]: the document's label, 1 if it has a positive pair.

        `samples` are the corpus's by default, `widths` the documents' own maxima.

        Raises:
          DataError: a document longer than `longest`.
        """
        samples = corpus.samples if samples is None else samples
        return self._arrays(corpus, samples, self._rows(samples), widths)

    def encode_together(self, corpora: Sequence[DocumentCorpus]) -> tuple[EncodedDocuments, ...]:
        """Encode several corpora with the same widths, the maxima over all.

        Raises DataError.
        """
        made = [(corpus, corpus.samples, self._rows(corpus.samples)) for corpus in corpora]
        widths = Widths(*map(max, zip(*(astuple(_widths(samples, rows)) for _, samples, rows in made), strict=True)))
        return tuple(self._arrays(*parts, widths) for parts in made)

    def token_ids(self, samples: Sequence[DocumentSample]) -> list[list[int]]:
        """The ids of each document, of whatever length, [CLS], markers and [SEP] included."""
        return [ids for ids, _ in replace(self, longest=None)._rows(samples)]

    def _rows(self, samples: Sequence[DocumentSample]) -> list[_Row]:
        cuts = [_boundaries(sample) for sample in samples]
        texts = [
            sample.document.text[a:b]
            for sample, places in zip(samples, cuts, strict=True)
            for a, b in itertools.pairwise(places)
        ]
        ids = tokenized(self.tokenizer, texts)
        return [
            self._document(number, sample, places, list(itertools.islice(ids, len(places) - 1)))
            for number, (sample, places) in enumerate(zip(samples, cuts, strict=True), 1)
        ]

    def _document(
        self, number: int, sample: DocumentSample, cuts: Sequence[int], stretches: Sequence[Sequence[int]]
    ) -> _Row:
        """Encode a document whose text is cut at these positions, from the pieces of the stretches between them.

        `number`: its place among those that are encoded, from 1.
        """
        marker = self.tokenizer.convert_tokens_to_ids(self.marker)
        mentions = [(entity, m) for entity, e in enumerate(sample.entities) for m in e.mentions]
        starts, ends = {m.start for _, m in mentions}, {m.end for _, m in mentions}
        ids, marked = [self.tokenizer.cls_token_id], {}
        for cut, stretch in zip(cuts, [*stretches, ()], strict=True):
            if cut in ends:
                ids.append(marker)
            if cut in starts:
                marked[cut] = len(ids)
                ids.append(marker)
            ids.extend(stretch)
        ids.append(self.tokenizer.sep_token_id)
        if self.longest is not None and len(ids) > self.longest:
            raise DataError(
                f"has {len(ids)} pieces, more than the {self.longest} allowed",
                record=named("document", sample.document_id, number),
                remedy="leave it out or raise task.longest",
            )
        return ids, [(marked[m.start], entity) for entity, m in mentions]

    def _arrays(self, corpus: DocumentCorpus, samples, rows: Sequence[_Row], widths: Widths | None) -> EncodedDocuments:
        widths, size = _widths(samples, rows) if widths is None else widths, len(rows)
        arrays = {
            "input_ids": np.full((size, widths.pieces), self.tokenizer.pad_token_id, np.int32),
            "attention_mask": np.zeros((size, widths.pieces), np.int32),
            **{name: np.full((size, widths.mentions), -1, np.int32) for name in ("mention_place", "mention_entity")},
            **{name: np.full((size, widths.pairs), -1, np.int32) for name in ("pair_head", "pair_tail")},
            "pair_labels": np.zeros((size, widths.pairs, len(corpus.relation_names)), np.float32),
            "y": np.array([sample.label for sample in samples], np.int32),
        }
        number_of = {kind: number for number, kind in enumerate(self.types)}
        if self.types:
            arrays["entity_type"] = np.full((size, widths.entities), -1, np.int32)
        for row, (sample, (ids, mentions)) in enumerate(zip(samples, rows, strict=True)):
            arrays["input_ids"][row, : len(ids)] = ids
            arrays["attention_mask"][row, : len(ids)] = 1
            for column, name in enumerate(("mention_place", "mention_entity")):
                arrays[name][row, : len(mentions)] = [mention[column] for mention in mentions]
            for position, pair in enumerate(sample.pairs):
                arrays["pair_head"][row, position] = pair.head
                arrays["pair_tail"][row, position] = pair.tail
                arrays["pair_labels"][row, position, list(pair.labels)] = 1.0
            if self.types:
                kinds = [number_of.get(entity.kind, -1) for entity in sample.entities]
                arrays["entity_type"][row, : len(kinds)] = kinds
        return EncodedDocuments(arrays, identified_pairs(samples))


def _boundaries(sample: DocumentSample) -> list[int]:
    """Return where the text is cut: at its ends and those of the entities' mentions, increasing, each once."""
    inner = {offset for entity in sample.entities for m in entity.mentions for offset in (m.start, m.end)}
    return sorted({0, len(sample.document.text), *inner})


def _widths(samples: Sequence[DocumentSample], rows: Sequence[_Row]) -> Widths:
    pieces, mentions = (max(map(len, column)) for column in zip(*rows, strict=True))
    pairs, entities = (max(1, *(len(getattr(s, part)) for s in samples)) for part in ("pairs", "entities"))
    return Widths(pieces, max(1, mentions), pairs, entities)
