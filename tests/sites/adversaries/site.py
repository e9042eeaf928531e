"""A site that lies to the coordinator: about its sums, in the set-up of a run, and about masked sums."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from tests.sites.adversaries.federations import SITES, Begun
from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.wire import repacked
from tests.sites.sites_for_tests import key_of
from tff_re.sites import protocol
from tff_re.sites.fields import MAX_CLASSES
from tff_re.sites.keys import public_text
from tff_re.sites.messages import unpack
from tff_re.sites.program import leaves
from tff_re.sites.sums import _RANGES, MAX_SUM, PLATFORMS, Bounds

Arrays = list[np.ndarray]


class AboutSums:
    """What it sends in place of its sums of a stage; each is refused by the coordinator in a line that names it.

    Attributes:
      arrays: honest.
      names: of their entries, by which the coordinator knows what they are.
      bounds: of the site in this call.
      clients: numbers of clients of other sites.
    """

    def __init__(
        self, begun: Begun, program, stage: int, arrays: Sequence[np.ndarray], bounds: Bounds, others: set[int]
    ):
        self.begun, self.stage, self.bounds, self.others = begun, program.stages[stage], bounds, others
        self.arrays = [np.asarray(array) for array in arrays]
        self.names = [name for aggregation in self.stage.sums for name, _ in leaves(aggregation.type)]
        assert len(self.names) == len(self.arrays)

    def filled(self, number: int, value) -> Arrays:
        """The honest arrays with one filled with a value."""
        other = np.full_like(self.arrays[number], value)
        return [*self.arrays[:number], other, *self.arrays[number + 1 :]]

    def floats(self) -> list[int]:
        return [number for number, array in enumerate(self.arrays) if array.dtype.kind == "f" and array.size]

    @trick("stage", holds="its sums hold NaN", every=True)
    def not_a_number(self):
        """It sends NaN in an array (mend issue F)."""
        for number in self.floats():
            yield self.filled(number, np.nan)

    @trick("stage", holds="beyond the bound", every=True)
    def infinite_and_too_large(self):
        """It sends sums that are infinite or overflow where they are merged (mend issue F)."""
        for number in self.floats():
            wide = self.arrays[number].dtype.itemsize > 4
            for value in (np.inf, MAX_SUM**2 * 4 if wide else 3e38):
                yield self.filled(number, value)

    @trick("stage", holds="possible", every=True)
    def counts_and_weights_that_cannot_be(self):
        """It sends counts, weights and scores below zero, or above what its clients and their examples allow."""
        for number, name in enumerate(self.names):
            if name not in _RANGES or not self.arrays[number].size:
                continue
            lowest, highest = _RANGES[name](self.bounds)
            yield self.filled(number, min(lowest, -1) * 2 - 1000)
            if highest < 1e9:
                yield self.filled(number, highest * 2 + 1000)

    @trick("stage", holds="of a weight of 0", every=True)
    def updates_without_a_weight(self):
        """It sends an update of a weight of zero, which would count as any."""
        begin = 0
        for aggregation in self.stage.sums:
            names = [name for name, _ in leaves(aggregation.type)]
            if "weight" in names and "sums" in names:
                yield self.filled(begin + names.index("weight"), 0)
            begin += len(names)

    @trick("stage", holds="its sums are not of their type", every=True)
    def sums_of_other_types(self):
        """It sends sums of other types, shapes and numbers than the stage has."""
        yield [*self.arrays, np.zeros(1, np.float32)]
        yield [*self.arrays, np.zeros([0], np.float32)]
        yield self.arrays[:-1]
        yield []
        for number, array in enumerate(self.arrays):
            for other in (
                np.zeros(array.shape, np.float16),
                array[None],
                array[..., None],
                np.zeros([*array.shape, 0], array.dtype),
            ):
                yield [*self.arrays[:number], other, *self.arrays[number + 1 :]]

    @trick("stage", holds="that is not one of its clients", every=True)
    def the_best_of_another_site(self):
        """It says that another site's client, or none that there is, holds the best sentence."""
        for number, name in enumerate(self.names):
            if name == PLATFORMS:
                for client in (*self.others, -1, 1000):
                    yield self.filled(number, client)


class AboutTheSetUp:
    """What it sends in place of its answers in the set-up; the coordinator ends with a line that names it.

    Attributes:
      answers: kind -> its honest answer's (table, arrays).
    """

    def __init__(self, begun: Begun, site: str):
        self.answers = {
            kind: unpack(answer)
            for message, answer in begun.asked[site]
            if (kind := unpack(message)[0]["kind"]) not in ("stage",)
        }

    def changed(self, kind: str, **values) -> bytes:
        table, arrays = self.answers[kind]
        return repacked({**table, **values}, arrays)

    def with_arrays(self, kind: str, change) -> bytes:
        table, arrays = self.answers[kind]
        arrays = [array.copy() for array in arrays]
        change(arrays)
        return repacked(table, arrays)

    @trick("hello", holds="'label_names' must")
    def classes_that_are_none(self):
        """It names classes that are no texts, that act on a terminal or a browser, or too many (mend issue F)."""
        for names, line in (
            ([None, "b"], "be a text"),
            ([1, 2], "be a text"),
            (["a", "\x1b[31mb"], "be one line of printable characters"),
            (["a", "b\nc"], "be one line of printable characters"),
            (["a", "b\u202ec"], "be one line of printable characters"),
            (["a", "\ud800"], "be one line of printable characters"),
            (["a", "<script>alert(1)</script>"], "have no HTML"),
            (["a", "<img src=x>"], "have no HTML"),
            (["a", "x" * 10_000], "be 1 to 200 characters"),
            (["a", " "], "be 1 to 200 characters"),
            (["a", "a"], "not hold the same twice"),
            ("ab", "be a list"),
            ([], "have a length of 1"),
            ([f"class {n}" for n in range(MAX_CLASSES + 1)], "have a length of 1"),
        ):
            yield self.changed("hello", label_names=names), f"malformed answer to 'hello': 'label_names' must {line}"
        names = [f"class {n}" for n in range(MAX_CLASSES)]
        yield self.changed("hello", label_names=names), f"and {MAX_CLASSES} are possible"  # with those of the others

    @trick("hello", holds="'clients' must")
    def clients_that_are_none(self):
        """It names clients with sizes that are no counts, or that are another site's (mend issue F)."""
        for clients, line in (
            ([["bonn", 1.5, 2, None]], "be a whole number"),
            ([["bonn", True, 2, None]], "be a whole number"),
            ([["bonn", 10**30, 2, None]], "be a number of at most 64 bits"),
            ([["bonn", 2**40, 2, None]], "have from 0 to"),
            ([["bonn", -1, 2, None]], "have from 0 to"),
            ([["bonn", 5, 2]], "be lists of 4"),
            ([["bonn", 5, 2, None]] * 2, "not hold the same twice"),
            ([["bonn/1", 5, 2, 1], ["bonn/2", 5, 2, None]], "all keep dev examples, or none"),
            ([["aachen", 5, 2, None]], "be called as their site"),
            ([["aachen/bonn", 5, 2, None]], "be called as their site"),
            ([["bonn/<img src=x>", 5, 2, None]], "have no HTML"),
            ({}, "be a list"),
            ([], "have a length of 1"),
        ):
            yield self.changed("hello", clients=clients), f"malformed answer to 'hello': 'clients' must {line}"

    @trick("hello", holds="malformed answer to 'hello'")
    def facts_about_itself_that_cannot_be(self):
        """It says things that do not fit together, or has another recipe or version (mend issue F)."""
        for values, line in (
            ({"positive_labels": ["no class"]}, "'positive_labels' must be among label_names"),
            ({"recipe": "A" * 64}, "'recipe' must be 64 hexadecimal digits"),
            ({"vocabulary": "none"}, "'vocabulary' must be 'local' or 'keyed'"),
            ({"document_form": [1, 2, 3, 4, 5]}, "'document_form' must come with relations"),
            ({"share": [0, 3]}, "'share' must be from 1"),
            ({"comparison": "everything"}, "'comparison'"),
            ({"version": None}, "'version' must be a text"),
            ({"recipe": "0" * 64}, "the sites differ in their recipes"),
            ({"vocabulary": "local"}, "the sites differ in their ways to count words"),
            ({"label": "another"}, "the sites differ in their label choices"),
            ({"share": [1, 2]}, "the sites' shares (clients.share) are"),
        ):
            yield self.changed("hello", **values), line

    @trick("words", holds="malformed answer to 'words'")
    def lists_of_words_that_are_none(self):
        """It counts words below one or beyond any count, or sends lists that do not fit together (mend issue E)."""
        digests, counts, holders = range(3)
        for change, line in (
            (lambda a: a[counts].__setitem__(0, 0), "'counts' must be from 1"),
            (lambda a: a[counts].__setitem__(0, 1 << 60), "'counts' must be from 1"),
            (lambda a: a[holders].__setitem__(0, -3), "'holders' must be from 1"),
            (lambda a: a.__setitem__(holders, a[counts] + 1), "'holders' must not be more than 'counts'"),
            (lambda a: a.__setitem__(counts, a[counts].astype(np.float64)), "'counts' must be int64 [n]"),
            (lambda a: a.__setitem__(digests, a[digests][:, :8]), "'digests' must be uint8 [n, 16]"),
            (lambda a: a.__setitem__(counts, a[counts][1:]), "'counts' and 'holders' must have the length of the list"),
            (
                lambda a: a.__setitem__(digests, a[digests][[0] * len(a[digests])]),
                "'digests' must not hold the same twice",
            ),
            (lambda a: a.pop(), "'signatures' must be the number of its array"),
        ):
            yield self.with_arrays("words", change), f"malformed answer to 'words': {line}"
        for values, line in (
            ({"others": None}, "the answer must be a list of words, of digests, or nothing"),
            ({"key": public_text(key_of("x"))}, "lists another key of the site bonn in [sites]"),
            ({"check": "0" * 64}, "the sites' secrets for the vocabulary differ"),
        ):
            yield self.changed("words", **values), line
        yield repacked({"site": "bonn"}, []), "site bonn counts no words, and others do"

    @trick("reveal", holds="site bonn")
    def words_that_are_none(self):
        """It shows other words than were asked for, more or fewer, or such as stand for no word."""
        words = self.answers["reveal"][0]["words"]
        for other, line in (
            (words[1:], f"what it shows are not {len(words)} words"),
            ([*words, "more"], f"what it shows are not {len(words)} words"),
            (["[UNK]", *words[1:]], f"what it shows are not {len(words)} words"),
            ([None, *words[1:]], "'words' must be a text"),
            ([words[0], *words[:-1]], "'words' must not hold the same twice"),
            (["a\nb", *words[1:]], "'words' must be one line"),
            (["", *words[1:]], "'words' must be 1 to"),
            ([*words[1:], words[0]], "another word than the site before it"),
        ):
            yield self.changed("reveal", words=other), line

    @trick("agree", holds="malformed answer to 'agree'")
    def no_agreement(self):
        """It neither agrees nor refuses."""
        for agreed in (False, 1, "yes", [True]):
            yield self.changed("agree", agreed=agreed), "'agreed' must be True"

    @trick("hello", "words", "reveal", "agree", holds="malformed answer")
    def an_answer_to_another_question(self):
        """It sends the answer to another question again."""
        for kind in self.answers:
            for other in self.answers:
                if self.answers[other][0].keys() != self.answers[kind][0].keys():
                    yield repacked(*self.answers[other]), f"malformed answer to '{kind}'", kind

    @trick("hello", "words", "reveal", "agree", holds="site bonn")
    def refusals_that_act_on_a_terminal(self):
        """It refuses with control characters, or with a text of a million lines."""
        for kind in self.answers:
            yield repacked({"site": "bonn", "refused": "site bonn: no\n\x1b[2J\r" * 99_999}, []), "no [2J", kind


class AboutFacts(AboutTheSetUp):
    """The same of a run with bags."""

    @trick("facts", holds="malformed answer to 'facts'")
    def facts_that_are_none(self):
        """It sends digests of facts of another length, the same twice, or under another secret."""
        for change, line in (
            (lambda a: a.__setitem__(0, a[0][:, :8]), "'digests' must be uint8 [n, 16]"),
            (lambda a: a.__setitem__(0, np.concatenate([a[0], a[0]])), "'digests' must not hold the same twice"),
            (lambda a: a.__setitem__(0, a[0].astype(np.int64)), "'digests' must be uint8 [n, 16]"),
            (lambda a: a.clear(), "'digests' must be the number of its array"),
        ):
            yield self.with_arrays("facts", change), f"malformed answer to 'facts': {line}"
        yield self.changed("facts", check="0" * 64), "the sites' secrets for the vocabulary differ"


def evolved(answer: protocol.Answer, **values) -> bytes:
    """Return the bytes of an answer with other values."""
    return protocol.to_bytes(attrs.evolve(answer, **values))


class AboutMaskedSums:
    """What it sends in place of its answers about masked sums: (kind, change of the answer, line).

    A site that lies can spoil a total, and not read the others' sums.

    Attributes:
      old: its honest answer of an attempt before.
    """

    def __init__(self, old: protocol.MaskedAnswer):
        self.old = old

    @trick("masked", holds="its masked sums are not of their type")
    def masked_sums_of_other_types(self):
        """It sends masked sums of other types, shapes and numbers, or sums that are not masked."""
        for change in (
            lambda answer: [a.astype(np.float32) for a in answer.arrays],
            lambda answer: [a[:1] if a.ndim else a[None] for a in answer.arrays],
            lambda answer: [*answer.arrays, answer.arrays[0]],
            lambda answer: answer.arrays[:-1],
            lambda answer: [],
        ):
            yield "masked", lambda a, change=change: evolved(a, arrays=tuple(change(a)))

    @trick("masked", holds="cannot be")
    def masked_sums_of_another_attempt(self):
        """It sends noise, or its masked sums of an attempt before: masks do not cancel."""
        generator = np.random.default_rng(0)

        def noise(answer):
            return evolved(
                answer, arrays=tuple(generator.integers(0, 1 << 60, a.shape).astype(a.dtype) for a in answer.arrays)
            )

        yield "masked", noise
        yield "masked", lambda answer: protocol.to_bytes(self.old)

    @trick("roster", holds="the signature of bonn does not hold for this total")
    def a_signature_that_is_none(self):
        """It signs nothing, so that the others do not open the total."""
        yield "roster", lambda answer: evolved(answer, signature=np.zeros(64, np.uint8))
        yield "roster", lambda answer: evolved(answer, signature=answer.signature ^ np.uint8(1))

    @trick("open", holds="cannot be")
    def a_wrong_key(self):
        """It tells another key than that of its mask."""
        yield "open", lambda answer: evolved(answer, own_key=answer.own_key ^ np.uint8(1))

    @trick("open", holds="it opens other masks than it was asked for")
    def more_keys_than_asked_for(self):
        """It tells keys of masks that it shares with sites of the total, which would open another site's sums."""
        yield "open", lambda answer: evolved(answer, shared_keys=np.zeros([1, 32], np.uint8))

    @trick("finish", "ping", holds="malformed answer to")
    def more_than_was_asked(self):
        """It answers short messages with more than its name."""
        for kind in ("finish", "ping"):
            for more in ({"agreed": True}, {"arrays": []}):
                yield kind, lambda answer, more=more: repacked({"site": "bonn", **more}, [])


OTHER_SITE = SITES[0]
