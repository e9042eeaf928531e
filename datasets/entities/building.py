"""What the readers of texts with entities share: the choice of types, overlaps, sentences, the corpus and its notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from datasets.entities.nesting import flat
from datasets.entities.records import EntityCorpus, EntitySample, EntitySpan, label_of
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import notes_of
from datasets.relations.sentences import sentences_of_document, split_sentences

DOCUMENT, SENTENCE = UNITS = ("document", "sentence")
"""What a sample is: a whole text, or a sentence of it."""

REFUSE, LEAVE_OUT = OTHER_TYPES = ("refuse", "leave_out")
"""What is done with an entity whose type is not among the types that were asked for."""


class EntityBuilder:
    """Makes a corpus of the texts that a reader adds.

    `counts` become its notes (see `notes_of`).

    Args:
      path: The file, for messages.
      name: The corpus's name.
      known: The types that the corpus has, in the order of their tags; None: any, in alphabetical order.
      entity_types: The types to read, in the order of their tags; None: all.
      nested: One of `NESTED`, see `flat`.
      unit: One of `UNITS`. Sentences are found by a rule (`split_sentences`), and no boundary cuts an entity.
      other_types: One of `OTHER_TYPES`, for entities of types that are not in `entity_types`.

    Raises:
      DataError: an unknown choice, no type or one twice, or a type that is not in `known`.
    """

    def __init__(
        self,
        path: PathLike,
        name: str,
        *,
        known: Sequence[str] | None = None,
        entity_types: Sequence[str] | None = None,
        nested: str,
        unit: str = DOCUMENT,
        other_types: str = LEAVE_OUT,
    ):
        self._path, self._name, self._nested, self._unit, self._other_types = path, name, nested, unit, other_types
        for key, value, choices in (("unit", unit, UNITS), ("other_types", other_types, OTHER_TYPES)):
            if value not in choices:
                raise DataError(f"{key} is not a known choice", path=path, remedy=f"use one of {', '.join(choices)}")
        self._types = _chosen(path, known, entity_types)
        self.counts: Counter[str] = Counter()
        self._samples: list[tuple[str, str, str, tuple[EntitySpan, ...], Mapping[str, str]]] = []
        self._ids: set[str] = set()
        self._texts: set[str] = set()

    def checked_type(self, kind: str, fail: Fail) -> str:
        """Return the type itself.

        Raises `fail`'s error if it is not a name, or is refused (see `other_types`).
        """
        if not kind or not kind.isprintable() or " ".join(kind.split()) != kind:
            raise fail(
                "an entity's type is not a name on one line", remedy="name it without blanks at its ends, e.g. Disease"
            )
        if self._other_types == REFUSE and self._types is not None and kind not in self._types:
            raise fail(
                "an entity's type is not in entity_types",
                remedy=f"use one of {', '.join(self._types)}, add it to entity_types, or set other_types = 'leave_out'",
            )
        return kind

    def add(
        self,
        sample_id: str,
        document_id: str,
        text: str,
        spans: Iterable[EntitySpan],
        fail: Fail,
        *,
        title_length: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Add a text, or its sentences as ``<sample_id>/<n>``.

        Args:
          sample_id, document_id, text, more: As of `EntitySample`.
          spans: In any order; a duplicate is left out and counted.
          fail: Builds errors that name the place.
          title_length: Where the title of the text ends, which is a sentence's end.

        Raises `fail`'s error for an id that is there twice, an empty text, and overlaps that are refused.
        """
        if not text.strip():
            raise fail("has an empty text", remedy="leave it out")
        if sample_id in self._ids:
            raise fail("duplicate id", record=named("text", sample_id), remedy="give every text an id of its own")
        self._ids.add(sample_id)
        spans = list(spans)
        unique = list(dict.fromkeys(spans))
        self.counts["duplicate entities are read once"] += len(spans) - len(unique)
        wanted = [span for span in unique if self._types is None or span.type in self._types]
        self.counts["entities of other types left out"] += len(unique) - len(wanted)
        if self._unit == DOCUMENT:
            self._append(sample_id, document_id, text, wanted, fail, more)
            return
        crossing = len(wanted)
        for number, (start, end) in enumerate(_sentences(text, wanted, title_length), 1):
            inside = [
                EntitySpan(span.start - start, span.end - start, span.type)
                for span in wanted
                if start <= span.start and span.end <= end
            ]
            crossing -= len(inside)
            self._append(f"{sample_id}/{number}", document_id, text[start:end], inside, fail, more)
        self.counts["entities that are not within a sentence left out"] += crossing

    def _append(self, sample_id, document_id, text, spans, fail: Fail, more: Mapping[str, str] | None) -> None:
        kept_spans, left_out = flat(spans, self._nested, fail)
        self.counts["entities that overlap a longer one left out"] += left_out
        self.counts["texts repeat an earlier one"] += text in self._texts
        self._texts.add(text)
        self._samples.append((sample_id, document_id, text, kept_spans, more or {}))

    def build(self, *notes: str) -> EntityCorpus:
        """Return the corpus, with these notes before those of the counts.

        Raises DataError without texts and without types.
        """
        if not self._samples:
            raise DataError("has no texts", path=self._path, remedy="give it at least one")
        types = self._types or tuple(sorted({span.type for _, _, _, spans, _ in self._samples for span in spans}))
        if not types:
            raise DataError("has no entity, so its types are unknown", path=self._path, remedy="name entity_types")
        samples = tuple(
            EntitySample(sample_id, document_id, text, spans, label_of(spans, types), more)
            for sample_id, document_id, text, spans, more in self._samples
        )
        return EntityCorpus(self._name, samples, types, notes + notes_of(self.counts))


def _chosen(path: PathLike, known: Sequence[str] | None, entity_types: Sequence[str] | None) -> tuple[str, ...] | None:
    if entity_types is None:
        return None if known is None else tuple(known)
    types = tuple(entity_types)
    if isinstance(entity_types, str) or not types or len(set(types)) != len(types):
        raise DataError(
            "entity_types is not a list of names, or has a duplicate", path=path, remedy="name every type once"
        )
    for number, kind in enumerate(types, 1):
        if known is not None and kind not in known:
            reason = f"entity_types has a type that the corpus does not have ({named('type', kind, number)})"
            raise DataError(reason, path=path, remedy=f"use some of {', '.join(known)}")
    return types


def _sentences(text: str, spans: Sequence[EntitySpan], title_length: int | None) -> list[tuple[int, int]]:
    mentions = [(span.start, span.end) for span in spans]
    if title_length is None:
        return split_sentences(text, mentions)
    return sentences_of_document(text, title_length, mentions)
