"""A coordinator that lies about who holds a word: of c lying sites, it gets words of no more than c fewer holders."""

from __future__ import annotations

import numpy as np

from tests.sites.adversaries.tricks import trick
from tests.sites.sites_for_tests import NAMES, SHARED_SECRET, Federation, key_of, recipe_of, write_sites
from tff_re.sites import protocol, words
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import for_sites

RARE, COMMON, OTHER = "甲", "烧", "咳"
"""A word that aachen holds and nobody else, and two that all hold."""

RUN, OTHER_RUN = "5" * 32, "6" * 32


def digest(word: str, run: str = RUN) -> np.ndarray:
    return words.digests(SHARED_SECRET, run, "word", [word])[0]


def signature(site: str, word: str, run: str = RUN, name: str | None = None) -> np.ndarray:
    """By the key of `site`, in the name of `name`."""
    content = words.signed_content(run, name or site, digest(word, run).tobytes())
    return np.frombuffer(key_of(site).sign(content), np.uint8)


def reveal(word: str, evidence, run: str = RUN) -> protocol.Reveal:
    """A request for a word; `evidence`: (signer, signature) of each."""
    signers = sorted({name for name, _ in evidence})
    return protocol.Reveal(
        run=run,
        signers=tuple(signers),
        digests=digest(word, run)[None],
        rows=np.zeros(len(evidence), np.int32),
        by=np.array([signers.index(name) for name, _ in evidence], np.int32),
        signatures=np.array([s for _, s in evidence], np.uint8).reshape(-1, 64),
    )


class AskedForWords:
    """Sites that know a run, and can be asked for words."""

    def __init__(self, folder, min_clients: int = 3, **tables):
        self.federation = Federation(write_sites(folder, **tables))
        self.folder = folder
        recipe = for_sites(recipe_of(min_clients=min_clients))
        for site in NAMES:
            assert isinstance(self.answer(site, protocol.Hello(run=RUN, recipe=recipe)), protocol.HelloAnswer)

    def answer(self, site: str, question: protocol.Question | bytes) -> protocol.Answer:
        kind = protocol.Reveal if isinstance(question, bytes) else type(question)
        message = question if isinstance(question, bytes) else protocol.to_bytes(question)
        return protocol.answer_of(kind, self.federation.services[site].answer(message))

    def show(self, word: str, evidence, site: str = "aachen") -> protocol.Answer:
        return self.answer(site, reveal(word, evidence))

    def require_refusal(self, site: str, question: protocol.Question | bytes, line: str) -> None:
        before = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        answer = self.answer(site, question)
        assert isinstance(answer, protocol.No) and line in answer.refused and answer.refused.isprintable(), answer
        assert RARE not in answer.refused
        assert {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()} == before


class AboutWords:
    """Tricks to get a word that one client holds, under task.min_clients = 3. They do not depend on the algorithm."""

    def __init__(self, sites: AskedForWords):
        self.sites = sites

    @trick("reveal", holds="clients hold by what other sites signed, and task.min_clients is 3")
    def too_little_evidence(self):
        """It asks for a word with no evidence, or with a site's evidence several times (mend issue E)."""
        bonn = ("bonn", signature("bonn", RARE))
        for evidence in ([], [bonn], [bonn] * 3, [bonn, ("aachen", signature("aachen", RARE))]):
            yield "aachen", reveal(RARE, evidence), ""
        yield "aachen", reveal(RARE, [bonn])

    @trick("reveal", holds="the evidence for a word is not signed by the site")
    def forged_evidence(self):
        """It signs by itself, swaps names, or takes signatures of another word or run."""
        bonn, celle = (signature(name, RARE) for name in ("bonn", "celle"))
        for first, second in (
            (np.zeros(64, np.uint8), celle),
            (bonn, bonn),
            (bonn, signature("bonn", RARE, name="celle")),
            (signature("bonn", COMMON), signature("celle", COMMON)),
            (signature("bonn", RARE, OTHER_RUN), signature("celle", RARE, OTHER_RUN)),
            (bonn ^ np.uint8(1), celle),
        ):
            yield "aachen", reveal(RARE, [("bonn", first), ("celle", second)])

    @trick("reveal", holds="which its [sites] does not list")
    def evidence_of_nobody(self):
        """It shows evidence of a site that the attacked one does not know."""
        evidence = [("bonn", signature("bonn", RARE)), ("dresden", signature("dresden", RARE))]
        yield "aachen", reveal(RARE, evidence)

    @trick("reveal", holds="words are shown once")
    def words_a_second_time(self):
        """It asks for other words after the first ones, each a little evidence more."""
        first, second = ([(n, signature(n, word)) for n in ("aachen", "celle")] for word in (COMMON, OTHER))
        assert self.sites.show(COMMON, first, "bonn").words == (COMMON,)
        assert self.sites.show(COMMON, first, "bonn").words == (COMMON,)
        yield "bonn", reveal(OTHER, second)

    @trick("reveal", holds="does not hold")
    def a_word_that_the_site_does_not_hold(self):
        """It asks whether the site holds a word that it guessed."""
        yield "bonn", reveal(RARE, [])

    @trick("reveal", holds="'rows', 'by' and 'signatures' must have one length")
    def evidence_that_does_not_fit(self):
        """It sends evidence of words and signers that the message does not have, or lists of other lengths."""
        table, arrays = unpack(protocol.to_bytes(reveal(RARE, [(n, signature(n, RARE)) for n in ("bonn", "celle")])))
        digests, rows, by, signatures = arrays
        for other, line in (
            ([digests, rows, by, signatures[:1]], "'rows', 'by' and 'signatures' must have one length"),
            ([digests, rows + np.int32(7), by, signatures], "'rows' must be numbers of what the message has"),
            ([digests, rows, by - np.int32(1), signatures], "'by' must be numbers of what the message has"),
            ([digests[:0], rows, by, signatures], "'rows' must be numbers of what the message has"),
        ):
            yield "aachen", pack(table, other), line

    @trick("words", holds="digests that say nothing of another run's")
    def the_words_of_two_runs(self):
        """It compares the digests and signatures of two runs, to count holders over both."""
        recipe = for_sites(recipe_of(min_clients=3))
        self.sites.answer("bonn", protocol.Hello(run=OTHER_RUN, recipe=recipe))
        one, two = (self.sites.answer("bonn", protocol.Words(run=run)) for run in (RUN, OTHER_RUN))
        again = self.sites.answer("bonn", protocol.Words(run=RUN))
        assert protocol.to_bytes(again) == protocol.to_bytes(one)
        for name in ("digests", "signatures"):
            rows = [{row.tobytes() for row in getattr(answer, name)} for answer in (one, two)]
            assert len(rows[0]) == len(rows[1]) > 10 and not rows[0] & rows[1]
        assert one.words is None and RARE.encode() not in protocol.to_bytes(one)
