"""A coordinator that lies about masked sums: it never gets one site's sums (docs/sites-reference.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import numpy as np

from tests.sites.adversaries.federations import Begun
from tests.sites.adversaries.tricks import trick
from tests.sites.adversaries.victims import changed, shifted
from tests.sites.sites_for_tests import NAMES, key_of
from tff_re.sites import protocol
from tff_re.sites.keys import mask_key, public_text
from tff_re.sites.policy import read_site
from tff_re.sites.site import SiteService

A, B, C = NAMES
OTHERS = (A, C)
"""The sites but `B`, which is the attacked one."""


class MaskedSites:
    """Sites that have agreed to a masked run, as processes that were started again, with nothing but their disks."""

    def __init__(self, begun: Begun, folder: Path):
        self.begun, self.folder = begun, folder
        self.asked: dict[str, protocol.Masked] = {name: begun.questions("masked", name)[0] for name in NAMES}
        self.attempt, self.run = self.asked[B].attempt, self.asked[B].run
        self._services: dict[str, SiteService] = {}
        self._changed: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Put back what they had on their disks. Processes stay, but for those that were started again."""
        for name in self._changed:
            self._end(name)
        self._changed.clear()
        for name in NAMES:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(self.begun.folder / name, self.folder / name, ignore=shutil.ignore_patterns("*.sock"))

    def answer(self, site: str, question: protocol.Question | bytes) -> protocol.Answer:
        kind = protocol.Ping if isinstance(question, bytes) else type(question)
        message = question if isinstance(question, bytes) else protocol.to_bytes(question)
        return protocol.answer_of(kind, self.service(site).answer(message))

    def service(self, site: str) -> SiteService:
        """Return the site's process, started when it is first needed."""
        if site not in self._services:
            self._services[site] = SiteService(read_site(self.folder / site / "site.toml"))
        return self._services[site]

    def disk(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def require_refusal(self, site: str, question: protocol.Question | bytes, line: str) -> None:
        """Assert that a question is refused with one line that has these words, and that nothing is written."""
        before, answer = self.disk(), self.answer(site, question)
        assert isinstance(answer, protocol.No) and line in answer.reason and answer.reason.isprintable(), answer
        assert self.disk() == before, "something was written"

    def restarted(self, site: str, old: str = "", new: str = "", **allow) -> None:
        """Start a site's process again, whose file has `new` for `old`, or allows something else."""
        path = self.folder / site / "site.toml"
        text = path.read_text("utf-8")
        for key, value in allow.items():
            text = text.replace("[allow]\n", f"[allow]\n{key} = {value}\n")
        assert old in text
        path.write_text(text.replace(old, new) if old else text, "utf-8")
        self._end(site)
        self._changed.add(site)

    def _end(self, site: str) -> None:
        if site in self._services:
            self._services.pop(site).close()

    def close(self) -> None:
        for service in self._services.values():
            service.close()


class AboutMasks:
    """Tricks about masked sums. They do not depend on the algorithm, but for which of them can be masked at all.

    Attributes:
      sites: that it lies to.
    """

    def __init__(self, sites: MaskedSites):
        self.sites = sites

    # What it sends: (site, question)

    def masked(self, site: str, later: int = 0, **changes):
        return site, attrs.evolve(self.sites.asked[site], attempt=self.sites.attempt + later, **changes)

    def roster(self, site: str, sites=NAMES, later: int = 0):
        return site, protocol.Roster(run=self.sites.run, attempt=self.sites.attempt + later, sites=sites)

    def open(self, site: str, signatures, sites=NAMES, later: int = 0):
        ways = {"run": self.sites.run, "attempt": self.sites.attempt + later, "sites": sites}
        return site, protocol.Open(**ways, signatures=np.stack(signatures))

    # What it gets by following the protocol

    def get(self, site: str, question: protocol.Question) -> protocol.Answer:
        answer = self.sites.answer(site, question)
        assert not isinstance(answer, protocol.No), answer
        return answer

    def all_masked(self, of_sites=NAMES, later: int = 0, **changes) -> None:
        for site in of_sites:
            self.get(*self.masked(site, later, **changes))

    def signed(self, sites=NAMES, later: int = 0):
        return [self.get(*self.roster(site, sites, later)).signature for site in sites]

    def other_weights(self):
        return shifted(self.sites.asked[B].arrays)

    # Tricks

    @trick("masked", holds="leave masked, and not otherwise")
    def sums_in_the_clear(self):
        """It asks for the sums of a masked recipe without masks."""
        values = {field.name: getattr(self.sites.asked[B], field.name) for field in attrs.fields(protocol.Stage)}
        yield B, protocol.Stage(**values)

    @trick("masked", holds="the bytes that were sent")
    def a_replayed_attempt(self):
        """It asks for an attempt twice, for two masks on the same sums."""
        first, again = (self.get(*self.masked(B)) for _ in range(2))
        assert [a.tobytes() for a in first.arrays] == [a.tobytes() for a in again.arrays]
        self.sites.restarted(B)
        assert [a.tobytes() for a in self.get(*self.masked(B)).arrays] == [a.tobytes() for a in first.arrays]

    @trick("masked", holds="an attempt is answered once")
    def other_sums_under_the_same_masks(self):
        """It asks for an attempt with other sites or weights, to subtract two sums under the same masks."""
        self.get(*self.masked(B))
        yield self.masked(B, sites=(A, B))
        yield self.masked(B, sites=(A, B), arrays=self.other_weights())
        yield self.masked(B, arrays=self.other_weights())

    @trick("masked", "roster", "open", holds="a newer attempt was answered already")
    def numbers_of_another_attempt(self):
        """It asks with numbers of attempts before or after the newest, so that one attempt's masks serve another."""
        self.all_masked()
        old = self.signed()
        first = self.get(*self.masked(B))
        later = self.get(*self.masked(B, 1))
        assert all((a != b).mean() > 0.5 for a, b in zip(first.arrays, later.arrays, strict=True)), "other masks"
        yield self.masked(B)
        yield self.masked(B, -1)
        yield self.roster(B)
        yield self.open(B, old)
        yield self.roster(B, later=9), "it has sent no sums of this attempt"
        yield self.open(B, old, later=9), "it has sent no sums of this attempt"
        yield self.open(B, old, later=1), "it has not signed for these sites"

    @trick("masked", holds="it has no keys of mallory")
    def sites_that_are_none(self):
        """It asks with sites of its own making, or without the site itself."""
        yield self.masked(B, sites=(B, "mallory"))
        yield self.masked(B, sites=(*NAMES, "mallory"))
        yield self.masked(B, sites=OTHERS), "it is not among the sites"

    @trick("masked", "roster", holds="totals over at least 3 sites (allow.least_sites)")
    def totals_over_few_sites(self):
        """It opens a total over fewer sites than the site allows."""
        self.sites.restarted(B, least_sites=3)
        yield self.masked(B, sites=(A, B))
        self.all_masked()
        yield self.roster(B, (B, C))

    @trick("roster", holds="not over sites that were asked in this attempt, with this site among them")
    def a_roster_of_others(self):
        """It asks for a signature of sites that were not asked, in another order, or without the site itself."""
        self.all_masked()
        for sites in (OTHERS, (B, "mallory"), (B, A), (*NAMES, "mallory"), (C, B, A)):
            yield self.roster(B, sites)

    @trick("roster", holds="it signs once")
    def two_rosters_of_an_attempt(self):
        """It tells a site two lists in an attempt, for its own key by one and its shared keys by the other."""
        self.all_masked()
        self.signed()
        yield self.roster(B, (A, B))
        self.sites.restarted(B)
        yield self.roster(B, (B, C))

    @trick("roster", "open", holds="the signature of aachen does not hold for this total")
    def a_site_that_is_there_and_lost(self):
        """It tells bonn that it is in the total, and the others that it is lost: its own and its shared keys."""
        self.all_masked()
        signature = self.get(*self.roster(B)).signature
        without = [self.get(*self.roster(site, OTHERS)).signature for site in OTHERS]
        yield self.open(B, [without[0], signature, without[1]])
        opened = self.get(*self.open(A, without, OTHERS))
        assert len(opened.shared_keys) == 1  # of what it shares with bonn
        yield self.open(A, [without[0], signature, without[1]]), "it has not signed for these sites"
        yield self.open(B, without, OTHERS), "it has not signed for these sites"
        yield self.open(B, [without[0], signature, without[1]])

    @trick("open", holds="the signature of aachen does not hold for this total")
    def forged_signatures(self):
        """It opens a total with signatures of nobody, of another site, of an attempt before, or that it made itself."""
        self.all_masked()
        old = self.signed()
        self.all_masked(later=1)
        new = self.signed(later=1)
        own = np.frombuffer(key_of("mallory").sign(b"x"), np.uint8)
        for first in (np.zeros(64, np.uint8), new[1], new[2], old[0], own, new[0] ^ np.uint8(1)):
            yield self.open(B, [first, new[1], new[2]], later=1)
        yield self.open(B, [new[0], new[1], old[2]], later=1), "the signature of celle does not hold"
        self.get(*self.open(B, new, later=1))

    @trick("masked", "open", holds="was asked for something else")
    def different_questions_to_sites(self):
        """It asks sites of an attempt for different things, so that one site's part of the total is known."""
        self.all_masked(OTHERS, 1)
        self.get(*self.masked(B, 1, arrays=self.other_weights()))
        signed = self.signed(later=1)
        for site in NAMES:
            yield self.open(site, signed, later=1)

    @trick("roster", "open", holds="a total over aachen, bonn, celle was opened before, and one over aachen, celle")
    def two_totals_that_differ_by_a_site(self):
        """It opens a round's total with a site and, in a later attempt, without it."""
        self.all_masked()
        self.get(*self.open(A, self.signed()))
        self.sites.restarted(A)
        self.all_masked(OTHERS, 1, sites=OTHERS)
        yield self.roster(A, OTHERS, 1)
        self.get(*self.roster(C, OTHERS, 1))  # it has opened nothing
        self.all_masked(later=2)
        self.get(*self.open(A, self.signed(later=2), later=2))

    @trick("masked", holds="it has no keys of celle")
    def a_key_that_came_through_it(self):
        """It puts a key of its own in place of a site's: masks do not cancel; without a key nothing is answered."""
        celle, mallory = (public_text(mask_key(key_of(name))) for name in (C, "mallory"))
        self.sites.restarted(B, celle, mallory)
        self.all_masked()  # the coordinator gets a total that is noise
        self.sites.restarted(B, f'{C} = "{public_text(key_of(C))}"\n')
        yield self.masked(B, 1)

    @trick("masked", "roster", "open", holds="must be")
    def attempts_and_rosters_that_are_none(self):
        """It sends numbers of attempts that are none, and lists of sites that are none or not signed by each."""
        ways = {"run": self.sites.run, "attempt": self.sites.attempt, "sites": NAMES}
        opening = protocol.Open(**ways, signatures=np.zeros([3, 64], np.uint8))
        attempts = [(0, "be from 1"), (2**63, "be a number of at most 64 bits"), (True, "be a whole number")]
        for question in (self.sites.asked[B], protocol.Roster(**ways), opening):
            for attempt, line in [*attempts, ("1", "be a whole number")]:
                yield (B, changed(question, attempt=attempt)), f"'attempt' must {line}"
            for sites, line in (
                ([B], "have a length of 2"),
                ([B, B], "not hold the same twice"),
                ([B, "../x"], "be the name of a site"),
                (B, "be a list"),
                ([f"s{n}" for n in range(1000)], "have a length of 2"),
            ):
                yield (B, changed(question, sites=sites)), f"'sites' must {line}"
        yield (B, changed(opening, sites=[A, B])), "'signatures' must have one for each of the sites"
        yield (B, changed(opening, signatures=1)), "'signatures' must be the number of its array"

    @trick("roster", holds="a total with other clients of this site was opened before in this round")
    def two_totals_that_differ_by_a_sites_clients(self):
        """It opens a round's total twice, with fewer clients of one site, and subtracts: that site's own sums."""
        self.all_masked()
        signed = self.signed()
        for site in NAMES:
            self.get(*self.open(site, signed))
        self.sites.restarted(B)
        fewer = self.sites.asked[B].clients[:2]
        self.all_masked(OTHERS, 1)
        self.get(*self.masked(B, 1, clients=fewer))
        for site in OTHERS:
            self.get(*self.roster(site, NAMES, 1))
        yield self.roster(B, NAMES, 1)
