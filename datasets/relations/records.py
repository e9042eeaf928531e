"""The records of relation extraction data: two mentions in a text and the relation between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets.errors import DataError, named

Span = tuple[int, int]
"""Start and end in characters (code points), half-open."""

NO_RELATION = "no_relation"
"""The negative relation's name, where a corpus does not have its own."""

UNKNOWN_TYPE = "entity"
"""The type of a mention in a corpus without types."""


class TwoArguments:
    """What records with a text, a head, a tail and their types share."""

    __slots__ = ()

    @property
    def head_text(self) -> str:
        """Return the first argument as written in the text."""
        return self.text[slice(*self.head)]

    @property
    def tail_text(self) -> str:
        """Return the second argument as written in the text."""
        return self.text[slice(*self.tail)]

    @property
    def overlapping(self) -> bool:
        """Return whether the two spans share a character."""
        return self.head[0] < self.tail[1] and self.tail[0] < self.head[1]

    def check_arguments(self, record: str) -> None:
        """Raise DataError for a span that is empty or exceeds the text, or an empty type.

        The error names the record.
        """
        for what, (start, end), its_type in (("head", self.head, self.head_type), ("tail", self.tail, self.tail_type)):
            problem = None
            if not 0 <= start < end <= len(self.text):
                problem = f"its {what} {start}:{end} is empty or lies beyond the text of {len(self.text)} characters"
            elif not its_type.strip():
                problem = f"its {what} has no type"
            if problem is not None:
                remedy = f'give 0 <= start < end <= length, and a type, e.g. "{UNKNOWN_TYPE}"'
                raise DataError(problem, record=record, remedy=remedy)


class LabelledCorpus:
    """What corpora of relations share and partitioners accept.

    It has `samples` with unique ids, `relation_names` and `negative`.

    `relation_names` are the classes in the order of the labels; `negative` is the one that means "none of them", which
    micro-F1 leaves out, or None; `fields["relation"]` of a sample is the relation of its label.
    """

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the classes, under the name that partitioners know."""
        return self.relation_names

    @property
    def positive_labels(self) -> tuple[int, ...]:
        """Return the labels that micro-F1 counts, which are all but the negative one."""
        return tuple(label for label, name in enumerate(self.relation_names) if name != self.negative)

    def check_samples(self, kind: str) -> None:
        """Raise DataError for violations of what the corpora's docstrings say.

        The error names the sample by its kind.
        """
        record = f"corpus {self.name}"
        if not self.samples:
            raise DataError(f"has no {kind}s", record=record, remedy="give it at least one")
        if len(set(self.relation_names)) != len(self.relation_names):
            raise DataError("has a relation twice", record=record, remedy="name every relation once")
        if self.negative is not None and self.negative not in self.relation_names:
            raise DataError("its negative is not one of its relations", record=record, remedy="name it among them")
        seen = set()
        for position, sample in enumerate(self.samples, 1):
            where = named(kind, sample.sample_id, position)
            if sample.sample_id in seen:
                raise DataError("duplicate id", record=where, remedy=f"give every {kind} an id of its own")
            seen.add(sample.sample_id)
            if self.relation_names[sample.label : sample.label + 1] != (sample.fields["relation"],):
                problem = f"its label {sample.label} is not that of its relation"
                raise DataError(problem, record=where, remedy="use the relation's index in relation_names")


@dataclass(frozen=True)
class RelationMention(TwoArguments):
    """Two mentions in a text and their relation, which are one sample of a relation classification.

    It has what a partitioner looks at (`datasets.partition.Sample`): `sample_id`, `document_id`, `label`, `fields`.
    The spans may overlap, lie one in the other or be the same.

    Attributes:
      mention_id: Unique in its corpus, over its splits.
      document_id: The document that the text comes from; samples that share a text share it.
      text: The sentence.
      head: Span of the first argument.
      tail: Span of the second argument.
      head_type: Type of the first argument in words, e.g. ``chemical``: what blinding puts in its place.
      tail_type: The same for the second argument.
      relation: The relation's name.
      label: Index of the relation in the corpus's `relation_names`.
      more: Further fields that a partitioner may group by; `group` is what one person's samples share.

    Raises:
      DataError: a span that is empty or lies beyond the text, or a type that is empty.
    """

    mention_id: str
    document_id: str
    text: str = field(repr=False)
    head: Span
    tail: Span
    head_type: str
    tail_type: str
    relation: str
    label: int
    more: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self):
        self.check_arguments(named("mention", self.mention_id))

    @property
    def sample_id(self) -> str:
        """Return the id under which a partition holds it."""
        return self.mention_id

    @property
    def group_id(self) -> str:
        """Return what group privacy hides together: `group` of `more`, or the document if there is none."""
        return self.more.get("group", self.document_id)

    @property
    def fields(self) -> Mapping[str, str]:
        """Return what a partitioner may group by: `relation`, `head_type`, `tail_type` and those of `more`."""
        return {**self.more, "relation": self.relation, "head_type": self.head_type, "tail_type": self.tail_type}


@dataclass(frozen=True)
class RelationCorpus(LabelledCorpus):
    """Samples of one relation classification.

    Partitioners and `build_partition` accept it unchanged.

    Attributes:
      name: The corpus, e.g. ``chemprot``.
      mentions: At least one, with unique ids.
      relation_names: The classes, in the order of the labels; the negative one, if there is one, first.
      negative: The class that means "none of the relations"; None if every sample has one.
      notes: What a report has to say about the corpus, such as samples left out or duplicates.

    Raises:
      DataError: no mentions, an id or a class twice, a label that is not its relation's, or an unknown negative.
    """

    name: str
    mentions: tuple[RelationMention, ...] = field(repr=False)
    relation_names: tuple[str, ...]
    negative: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        self.check_samples("mention")

    @property
    def samples(self) -> tuple[RelationMention, ...]:
        """Return the mentions, under the name that partitioners know."""
        return self.mentions
