"""The messages between a coordinator and a site, with a class for each question and each answer.

What is not in these classes does not travel. Bytes are read strictly in both directions: exact types (no true for 1, no
1.0 for 1), bounded lengths, arrays of the declared type and shape, no unknown and no missing keys. How a table and
arrays become bytes is `tff_re.sites.messages`.

    hello    the recipe                      -> sizes of the clients, classes
    words    -                               -> counts of words
    reveal   digests of words                -> these words
    facts    -                               -> digests of the facts of bags
    agree    what all agreed upon            -> -
    stage    broadcast values                -> sums over the clients
    masked   the same, and the sites         -> the sums, masked
    roster   the sites that answered         -> a signature of these
    open     their signatures                -> keys of masks
    alone    -                               -> rounds that the site has trained alone
    compare  the federated weights           -> what the site's policy lets it tell
    finish   -                               -> -
    ping     -                               -> -
    survey   the recipe                      -> protected counts of the data (`tff_re.sites.survey_messages`)
    masked_survey    the recipe, and the sites   -> the same, masked; opened by roster and open
    masked_distance  the opened counts of labels -> how far the site's are from them, masked

Any question may be answered with a `No`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs
import numpy as np
from attrs.validators import and_, optional

from tff_re.sites.comparison_messages import Alone, Compare
from tff_re.sites.fields import (
    ATTEMPT,
    DIGEST_BYTES,
    HEX,
    KEY,
    KEYS,
    MAX_CLIENTS,
    MAX_EVIDENCE,
    MAX_EXAMPLES,
    MAX_OCCURRENCES,
    MAX_ROUND,
    MAX_SIZE,
    MAX_TEXT,
    NAME,
    NAMES,
    ROSTER,
    SITE,
    UNIQUE,
    WORDS,
    array,
    arrays,
    each,
    length,
    number,
)
from tff_re.sites.keys import SIGNATURE_BYTES
from tff_re.sites.masks import KEY_BYTES, MAX_SITES
from tff_re.sites.messages import Malformed, pack, unpack
from tff_re.sites.questions import Answer, No, Question
from tff_re.sites.structuring import structured, unstructured
from tff_re.sites.survey_messages import MaskedDistance, MaskedSurvey, Survey


@attrs.frozen(kw_only=True, eq=False)
class HelloAnswer(Answer):
    """A site's clients and classes, if it accepts the recipe.

    Attributes:
      version: of tff-re.
      recipe: digest of the recipe as the site reads it.
      clients: (id, training, test and dev examples) of each; the id is the site's name, or begins with it and a slash,
        unless the site has a share of the recipe's own clients.
      label: which of the data set's labels are the classes.
      label_names: the classes.
      positive_labels: those that are relations; None where the task has no others.
      vocabulary: `keyed`: words are counted by digests under the sites' secret; `local`: the site has no secret.
      relations: that a pair in a document may have; None where the samples are no documents.
      document_form: sizes of the largest document, see `Task.largest`; None as for `relations`.
      share: (number, parts), see `ClientsOptions.share`; None: the clients are the site's own.
      evaluation: see `AllowOptions.evaluation`.
      comparison: what it will tell of its own models and the federated one; None: the recipe asks for no comparison.
    """

    version: str = attrs.field(validator=NAME)
    recipe: str = attrs.field(validator=HEX)
    clients: tuple[tuple[str, int, int, int | None], ...] = attrs.field(validator=length(1, MAX_CLIENTS))
    label: str = attrs.field(validator=NAME)
    label_names: tuple[str, ...] = attrs.field(validator=NAMES)
    positive_labels: tuple[str, ...] | None
    vocabulary: Literal["local", "keyed"]
    relations: tuple[str, ...] | None = attrs.field(validator=optional(NAMES))
    document_form: tuple[int, int, int, int, int] | None = attrs.field(validator=optional(each(number(0, MAX_SIZE))))
    share: tuple[int, int] | None = attrs.field(default=None, validator=optional(each(number(1, MAX_CLIENTS))))
    evaluation: Literal["sums", "own", "none"]
    comparison: Literal["interval", "direction", "nothing"] | None = None

    @clients.validator
    def _check_clients(self, attribute, clients):
        for client, *sizes in clients:
            NAME(self, attribute, client)
            if self.share is None and client != self.site and not client.startswith(f"{self.site}/"):
                raise ValueError("'clients' must be called as their site, or SITE/NAME")
            if not all(size is None or 0 <= size <= MAX_EXAMPLES for size in sizes):
                raise ValueError(f"'clients' must have from 0 to {MAX_EXAMPLES} examples")
        if len({client for client, *_ in clients}) < len(clients):
            raise ValueError("'clients' must not hold the same twice")
        if len({dev is None for *_, dev in clients}) > 1:
            raise ValueError("'clients' must all keep dev examples, or none")

    def __attrs_post_init__(self):
        if not set(self.positive_labels or ()) <= set(self.label_names):
            raise ValueError("'positive_labels' must be among label_names")
        if (self.relations is None) != (self.document_form is None):
            raise ValueError("'document_form' must come with relations")
        if self.relations is not None and self.document_form[-1] != len(self.relations):
            raise ValueError("'document_form' must end with the number of relations")


@attrs.frozen(kw_only=True, eq=False)
class Hello(Question):
    """A run begins, with `recipe` as the file that `policy.for_sites` makes."""

    kind: ClassVar[str] = "hello"
    answer: ClassVar[type] = HelloAnswer
    recipe: str = attrs.field(validator=length(0, MAX_TEXT), repr=False)


@attrs.frozen(kw_only=True, eq=False)
class WordsAnswer(Answer):
    """Word counts of a site's clients (see `tff_re.sites.words`), with no field set if a tokenizer is given.

    Attributes:
      check: by which the coordinator sees whether the sites' secrets are the same.
      key: the public key of the site's signatures.
      others: site -> public key, of the sites whose signatures it accepts.
      words: without a secret, those that enough of this site's own clients hold.
      digests: with a secret: uint8 [n, 16], of the words.
      counts: int64 [n], how often each occurs.
      holders: int64 [n], how many clients hold it.
      signatures: with a secret: uint8 [n, 64].
    """

    check: str | None = attrs.field(default=None, validator=optional(HEX))
    key: str | None = attrs.field(default=None, validator=optional(KEY))
    others: dict[str, str] | None = attrs.field(default=None, validator=optional(KEYS))
    words: tuple[str, ...] | None = attrs.field(default=None, validator=optional(WORDS), repr=False)
    digests: np.ndarray | None = attrs.field(**array("u1", None, DIGEST_BYTES, optional=True))
    counts: np.ndarray | None = attrs.field(**array("i8", None, optional=True, highest=MAX_OCCURRENCES))
    holders: np.ndarray | None = attrs.field(**array("i8", None, optional=True, highest=MAX_CLIENTS))
    signatures: np.ndarray | None = attrs.field(**array("u1", None, SIGNATURE_BYTES, optional=True))

    def __attrs_post_init__(self):
        parts = {field.name for field in attrs.fields(type(self)) if getattr(self, field.name) is not None} - {"site"}
        if parts not in (set(), {"words", "counts", "holders"}, _KEYED):
            raise ValueError("the answer must be a list of words, of digests, or nothing")
        rows = (self.words, self.digests, self.counts, self.holders, self.signatures)
        if len({len(part) for part in rows if part is not None}) > 1:
            raise ValueError("'counts' and 'holders' must have the length of the list")
        if self.counts is not None and (self.counts < self.holders).any():
            raise ValueError("'holders' must not be more than 'counts'")
        if self.digests is not None:
            require_unique("digests", self.digests)


_KEYED = {"check", "key", "others", "digests", "counts", "holders", "signatures"}


@attrs.frozen(kw_only=True, eq=False)
class Words(Question):
    """How often does each word occur at the site?"""

    kind: ClassVar[str] = "words"
    answer: ClassVar[type] = WordsAnswer


@attrs.frozen(kw_only=True, eq=False)
class RevealAnswer(Answer):
    """The words of the requested digests, in their order."""

    words: tuple[str, ...] = attrs.field(validator=WORDS, repr=False)


@attrs.frozen(kw_only=True, eq=False)
class Reveal(Question):
    """Which words have these digests?

    Attributes:
      signers: names of sites.
      digests: uint8 [m, 16], of words of this site.
      rows: int32 [k], evidence: of which of the digests.
      by: int32 [k], signed by which of the signers.
      signatures: uint8 [k, 64].
    """

    kind: ClassVar[str] = "reveal"
    answer: ClassVar[type] = RevealAnswer
    signers: tuple[str, ...] = attrs.field(validator=[length(0, MAX_CLIENTS), each(SITE)])
    digests: np.ndarray = attrs.field(**array("u1", None, DIGEST_BYTES))
    rows: np.ndarray = attrs.field(**array("i4", None, rows=MAX_EVIDENCE))
    by: np.ndarray = attrs.field(**array("i4", None, rows=MAX_EVIDENCE))
    signatures: np.ndarray = attrs.field(**array("u1", None, SIGNATURE_BYTES, rows=MAX_EVIDENCE))

    def __attrs_post_init__(self):
        if len({len(self.rows), len(self.by), len(self.signatures)}) > 1:
            raise ValueError("'rows', 'by' and 'signatures' must have one length")
        for name, numbers, count in (("rows", self.rows, len(self.digests)), ("by", self.by, len(self.signers))):
            if not ((numbers >= 0) & (numbers < count)).all():
                raise ValueError(f"'{name}' must be numbers of what the message has")


@attrs.frozen(kw_only=True, eq=False)
class FactsAnswer(Answer):
    """Digests of the facts of a site's bags, uint8 [n, 16], and `check` as in `WordsAnswer`."""

    check: str = attrs.field(validator=HEX)
    digests: np.ndarray = attrs.field(**array("u1", None, DIGEST_BYTES))

    def __attrs_post_init__(self):
        require_unique("digests", self.digests)


@attrs.frozen(kw_only=True, eq=False)
class Facts(Question):
    """Which facts do the site's bags have?"""

    kind: ClassVar[str] = "facts"
    answer: ClassVar[type] = FactsAnswer


@attrs.frozen(kw_only=True, eq=False)
class AgreeAnswer(Answer):
    """The site would compute the same."""

    agreed: Literal[True]


@attrs.frozen(kw_only=True, eq=False)
class Agree(Question):
    """Would the site compute this?

    Attributes:
      agreement: JSON of an `Agreement`.
      programs: purpose -> digest of the computation.
      numbers: int32 [n], the numbers of the site's facts among all; None where there are no bags.
    """

    kind: ClassVar[str] = "agree"
    answer: ClassVar[type] = AgreeAnswer
    agreement: str = attrs.field(repr=False)
    programs: dict[Literal["train", "evaluate"], str] = attrs.field()
    numbers: np.ndarray | None = attrs.field(**array("i4", None, optional=True))

    @programs.validator
    def _check_programs(self, attribute, value):
        each(HEX)(self, attribute, tuple(value.values()))


@attrs.frozen(kw_only=True, eq=False)
class StageAnswer(Answer):
    """The sums over the clients, whose form depends on the computation (see `tff_re.sites.sums`)."""

    arrays: tuple[np.ndarray, ...] = attrs.field(**arrays())


@attrs.frozen(kw_only=True, eq=False)
class Stage(Question):
    """A stage of a computation over a site's clients, see `tff_re.sites.program`.

    Attributes:
      round: its number.
      purpose: which computation.
      program: its digest.
      stage: the place of the stage among all.
      split: of the clients' examples.
      clients: the ids of those whose sums are asked for. What a client is given is the site's own: its examples of the
        split, a seed, and its state.
      versions: of each client's state: the round that left it, -1 for the first; empty without states.
      arrays: the broadcast values.
    """

    kind: ClassVar[str] = "stage"
    answer: ClassVar[type] = StageAnswer
    round: int = attrs.field(validator=number(0, MAX_ROUND))
    purpose: Literal["train", "evaluate"]
    program: str = attrs.field(validator=HEX)
    stage: int = attrs.field(validator=number(0, 1000))
    split: Literal["train", "test", "dev"]
    clients: tuple[str, ...] = attrs.field(validator=and_(length(1, MAX_CLIENTS), each(NAME), UNIQUE))
    versions: tuple[int, ...] = attrs.field(validator=and_(length(0, MAX_CLIENTS), each(number(-1, MAX_ROUND))))
    arrays: tuple[np.ndarray, ...] = attrs.field(**arrays())


@attrs.frozen(kw_only=True, eq=False)
class MaskedAnswer(StageAnswer):
    """The sums over the clients as numbers modulo powers of two, masked (`tff_re.sites.masks`)."""


@attrs.frozen(kw_only=True, eq=False)
class Masked(Stage):
    """A stage whose sums leave the site masked.

    Attributes:
      attempt: a number that only grows within the run; masks of an attempt serve no other one.
      sites: all that are asked, this one among them.
    """

    kind: ClassVar[str] = "masked"
    answer: ClassVar[type] = MaskedAnswer
    attempt: int = attrs.field(validator=ATTEMPT)
    sites: tuple[str, ...] = attrs.field(validator=ROSTER)


@attrs.frozen(kw_only=True, eq=False)
class RosterAnswer(Answer):
    """The site's signature of the attempt and the sites over which the total may be opened."""

    signature: np.ndarray = attrs.field(**array("u1", SIGNATURE_BYTES))


@attrs.frozen(kw_only=True, eq=False)
class Roster(Question):
    """Which sites sent masked sums of an attempt, for which a site signs only one roster?"""

    kind: ClassVar[str] = "roster"
    answer: ClassVar[type] = RosterAnswer
    attempt: int = attrs.field(validator=ATTEMPT)
    sites: tuple[str, ...] = attrs.field(validator=ROSTER)


@attrs.frozen(kw_only=True, eq=False)
class OpenAnswer(Answer):
    """Keys with which the total is opened.

    Attributes:
      own_key: uint8 [32], of the site's own mask.
      shared_keys: uint8 [n, 32], shared with each site that was asked and is not in the roster, in the sites' order.
    """

    own_key: np.ndarray = attrs.field(**array("u1", KEY_BYTES))
    shared_keys: np.ndarray = attrs.field(**array("u1", None, KEY_BYTES, rows=MAX_SITES))


@attrs.frozen(kw_only=True, eq=False)
class Open(Roster):
    """All sites of a roster have signed it, and `signatures` (uint8 [n, 64]) has one from each."""

    kind: ClassVar[str] = "open"
    answer: ClassVar[type] = OpenAnswer
    signatures: np.ndarray = attrs.field(**array("u1", None, SIGNATURE_BYTES, rows=MAX_SITES))

    def __attrs_post_init__(self):
        if len(self.signatures) != len(self.sites):
            raise ValueError("'signatures' must have one for each of the sites")


@attrs.frozen(kw_only=True, eq=False)
class FinishAnswer(Answer):
    """The site has deleted what it stored for the run."""


@attrs.frozen(kw_only=True, eq=False)
class Finish(Question):
    """The run is over."""

    kind: ClassVar[str] = "finish"
    answer: ClassVar[type] = FinishAnswer


@attrs.frozen(kw_only=True, eq=False)
class PingAnswer(Answer):
    """The site answers."""


@attrs.frozen(kw_only=True, eq=False)
class Ping(Question):
    """Does a site that was lost answer again?"""

    kind: ClassVar[str] = "ping"
    answer: ClassVar[type] = PingAnswer


QUESTIONS = {
    question.kind: question
    for question in (
        Hello,
        Words,
        Reveal,
        Facts,
        Agree,
        Stage,
        Masked,
        Roster,
        Open,
        Alone,
        Compare,
        Finish,
        Ping,
        Survey,
        MaskedSurvey,
        MaskedDistance,
    )
}


def require_unique(name: str, rows: np.ndarray) -> None:
    """Raise ValueError if two rows of an array of bytes are the same."""
    if len({row.tobytes() for row in rows}) < len(rows):
        raise ValueError(f"'{name}' must not hold the same twice")


def to_bytes(message: Question | Answer) -> bytes:
    """Return a message for the other side."""
    table, arrays = unstructured(message)
    return pack({"kind": message.kind, **table} if isinstance(message, Question) else table, arrays)


def payload(message: Question | Answer) -> int:
    """Return the bytes of a message's arrays."""
    return sum(array.nbytes for array in unstructured(message)[1])


def question_of(message: bytes | memoryview) -> Question:
    """Read a coordinator's question, or raise Malformed with a line that names the field."""
    table, arrays = unpack(message)
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in QUESTIONS:
        raise Malformed("unknown kind of message; use the same version of tff-re everywhere")
    return structured(QUESTIONS[kind], table, arrays)


def answer_of(question: type[Question], message: bytes | memoryview) -> Answer:
    """Read a site's answer to a question of this class, or raise Malformed with a line that names the field."""
    table, arrays = unpack(message)
    refuses = table.keys() & {"refused", "failed", "lost"}
    return structured(No if refuses else question.answer, table, arrays)
