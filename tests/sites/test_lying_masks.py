"""What a coordinator that lies about masked sums gets from sites: never one site's sums.

The rows are those of docs/sites-reference.md.
"""

from __future__ import annotations

import shutil
import threading

import attrs
import numpy as np
import pytest

from tests.sites.sites_for_tests import NAMES, Federation, key_of, recipe_of, write_sites
from tests.upper_floors import command, refusal
from tff_re.sites import protocol
from tff_re.sites.attempts import Attempt
from tff_re.sites.keys import mask_key, public_text
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import read_site
from tff_re.sites.run import train_at_sites
from tff_re.sites.site import SiteService
from tff_re.sites.starting import start_lines
from tff_re.sites.transport import InMemory

KEYS = ("aggregation.secure=masks", "evaluation.train_split=false")


class _Stop(Exception):
    pass


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder of sites that have agreed to a masked run, and the first question for masked sums to each."""
    folder, asked, all_asked = tmp_path_factory.mktemp("lying masks"), {}, threading.Event()
    federation = Federation(write_sites(folder))
    honest = federation.engine.call

    def call(site):
        def answer(message):
            if isinstance(protocol.question_of(message), protocol.Masked):
                asked[site] = protocol.question_of(message)
                if len(asked) == len(NAMES):
                    all_asked.set()
                all_asked.wait(60)
                raise _Stop
            return honest(site, message, 60)

        return answer

    federation.engine = InMemory({name: call(name) for name in NAMES})
    with pytest.raises(_Stop):
        train_at_sites(recipe_of("fedavgs", *KEYS), folder / "run", federation.engine, details=False)
    federation.close()
    assert all_asked.is_set()
    return folder, asked


class Sites:
    """Sites as processes that were started again, with nothing but their disks."""

    def __init__(self, folder, asked):
        self.folder, self.asked = folder, asked
        self.services = {name: SiteService(read_site(folder / name / "site.toml")) for name in NAMES}
        self.attempt, self.run = asked["bonn"].attempt, asked["bonn"].run

    def answer(self, site, question):
        return protocol.answer_of(type(question), self.services[site].answer(protocol.to_bytes(question)))

    def masked(self, site, **changes):
        return self.answer(site, attrs.evolve(self.asked[site], **changes))

    def roster(self, site, sites=NAMES, attempt=None):
        return self.answer(site, protocol.Roster(run=self.run, attempt=attempt or self.attempt, sites=sites))

    def open(self, site, signatures, sites=NAMES, attempt=None):
        ways = {"run": self.run, "attempt": attempt or self.attempt, "sites": sites}
        return self.answer(site, protocol.Open(**ways, signatures=np.stack(signatures)))

    def signed(self, sites=NAMES, attempt=None):
        """All of these send their sums and sign."""
        return [self.roster(site, sites, attempt).signature for site in sites]

    def all_masked(self, of_sites=NAMES, **changes):
        for site in of_sites:
            assert isinstance(self.masked(site, **changes), protocol.MaskedAnswer)

    def restarted(self, site, **allow):
        text = (self.folder / site / "site.toml").read_text("utf-8")
        for key, value in allow.items():
            text = text.replace("[allow]\n", f"[allow]\n{key} = {value}\n")
        (self.folder / site / "site.toml").write_text(text, "utf-8")
        self.services[site].close()
        self.services[site] = SiteService(read_site(self.folder / site / "site.toml"))

    def close(self):
        for service in self.services.values():
            service.close()


@pytest.fixture
def sites(begun, tmp_path):
    for name in NAMES:
        shutil.copytree(begun[0] / name, tmp_path / name, ignore=shutil.ignore_patterns("*.sock"))
    opened = Sites(tmp_path, begun[1])
    yield opened
    opened.close()


def refused(answer, line):
    assert isinstance(answer, protocol.No) and line in answer.reason and "\n" not in answer.reason, answer


def test_sums_are_not_sent_in_the_clear(sites):
    values = attrs.asdict(sites.asked["bonn"], recurse=False)
    plain = protocol.Stage(**{f.name: values[f.name] for f in attrs.fields(protocol.Stage)})
    refused(sites.answer("bonn", plain), "leave masked, and not otherwise")


def test_an_attempt_is_answered_once(sites):
    """Else two answers with the same masks would tell the difference of what is under them."""
    first = sites.masked("bonn")
    again = sites.masked("bonn")
    assert [a.tobytes() for a in first.arrays] == [a.tobytes() for a in again.arrays]
    refused(sites.masked("bonn", sites=("aachen", "bonn")), "an attempt is answered once")
    weights = tuple(a + np.float32(1) if a.dtype.kind == "f" else a for a in sites.asked["bonn"].arrays)
    refused(sites.masked("bonn", arrays=weights), "an attempt is answered once")
    refused(sites.masked("bonn", attempt=sites.attempt - 1), "a newer attempt was answered already")
    later = sites.masked("bonn", attempt=sites.attempt + 1)
    assert all((a != b).mean() > 0.5 for a, b in zip(first.arrays, later.arrays, strict=True)), "other masks"
    refused(sites.roster("bonn"), "a newer attempt was answered already")
    refused(sites.roster("bonn", attempt=sites.attempt + 9), "has sent no sums of this attempt")


def test_who_may_be_asked_together(sites):
    refused(sites.masked("bonn", sites=("aachen", "celle")), "it is not among the sites")
    refused(sites.masked("bonn", sites=("bonn", "mallory")), "it has no keys of mallory")
    sites.restarted("bonn", least_sites=3)
    refused(sites.masked("bonn", sites=("aachen", "bonn")), "totals over at least 3 sites")
    sites.all_masked()
    refused(sites.roster("bonn", ("bonn", "celle")), "totals over at least 3 sites")


def test_a_roster_is_of_sites_that_were_asked_and_signed_once(sites):
    sites.all_masked()
    refused(sites.roster("bonn", ("aachen", "celle")), "with this site among them")
    refused(sites.roster("bonn", ("bonn", "mallory")), "with this site among them")
    refused(sites.roster("bonn", ("bonn", "aachen")), "not over sites that were asked")
    assert isinstance(sites.roster("bonn"), protocol.RosterAnswer)
    refused(sites.roster("bonn", ("aachen", "bonn")), "it signs once")


def test_no_total_is_opened_unless_all_of_it_have_signed_it(sites):
    """So a coordinator cannot tell bonn that all are there, and the others that bonn is lost."""
    sites.all_masked()
    signature = sites.roster("bonn").signature  # of the roster with bonn
    others = ("aachen", "celle")
    without = [sites.roster(site, others).signature for site in others]
    refused(sites.open("bonn", [without[0], signature, without[1]]), "the signature of aachen does not hold")
    refused(sites.open("bonn", [signature] * 3), "the signature of aachen does not hold")
    refused(sites.open("bonn", without, others), "it has not signed for these sites")
    opened = sites.open("aachen", without, others)
    assert isinstance(opened, protocol.OpenAnswer) and len(opened.shared_keys) == 1  # of what it shares with bonn
    refused(sites.open("aachen", [without[0], signature, without[1]]), "it has not signed for these sites")
    refused(sites.open("celle", [signature, without[1]], others), "the signature of aachen does not hold")


def test_a_signature_serves_one_attempt_and_one_question(sites):
    sites.all_masked()
    old = sites.signed()
    sites.all_masked(attempt=sites.attempt + 1)
    new = sites.signed(attempt=sites.attempt + 1)
    refused(
        sites.open("bonn", [old[0], new[1], old[2]], attempt=sites.attempt + 1), "signature of aachen does not hold"
    )
    refused(sites.open("bonn", old), "a newer attempt was answered already")
    assert isinstance(sites.open("bonn", new, attempt=sites.attempt + 1), protocol.OpenAnswer)


def test_sites_that_were_asked_for_different_things_open_nothing(sites):
    """Their masks do not cancel either: keys are made of the question."""
    later = {"attempt": sites.attempt + 1}
    weights = tuple(a + np.float32(1) if a.dtype.kind == "f" else a for a in sites.asked["bonn"].arrays)
    sites.all_masked(("aachen", "celle"), **later)
    assert isinstance(sites.masked("bonn", arrays=weights, **later), protocol.MaskedAnswer)
    signed = sites.signed(attempt=sites.attempt + 1)
    for site in NAMES:
        refused(sites.open(site, signed, attempt=sites.attempt + 1), "was asked for something else")


def test_two_totals_never_tell_a_site_apart(sites):
    """Also after a restart, and in a later attempt of the same round."""
    sites.all_masked()
    signed = sites.signed()
    assert isinstance(sites.open("aachen", signed), protocol.OpenAnswer)
    sites.restarted("aachen")
    others, later = ("aachen", "celle"), sites.attempt + 1
    sites.all_masked(others, attempt=later, sites=others)
    line = "a total over aachen, bonn, celle was opened before, and one over aachen, celle would tell the sums of fewer"
    refused(sites.roster("aachen", others, later), line)
    assert isinstance(sites.roster("celle", others, later), protocol.RosterAnswer)  # it has opened nothing
    sites.all_masked(attempt=later + 1)
    signed = sites.signed(attempt=later + 1)
    assert isinstance(sites.open("aachen", signed, attempt=later + 1), protocol.OpenAnswer)


def test_keys_of_other_sites_are_needed(sites):
    path = sites.folder / "bonn" / "site.toml"
    text = path.read_text("utf-8")
    path.write_text(
        text.replace(public_text(mask_key(key_of("celle"))), public_text(mask_key(key_of("mallory")))), "utf-8"
    )
    sites.restarted("bonn")
    sites.all_masked()  # masks between bonn and celle do not cancel: the coordinator gets a total that is noise
    path.write_text(text.replace(f'celle = "{public_text(key_of("celle"))}"\n', ""), "utf-8")
    sites.restarted("bonn")
    refused(sites.masked("bonn", attempt=sites.attempt + 1), "it has no keys of celle")


@pytest.mark.parametrize(
    ("kind", "changes", "line"),
    [
        ("masked", {"attempt": 0}, "'attempt' must be from 1"),
        ("masked", {"attempt": 2**63}, "'attempt' must be a number of at most 64 bits"),
        ("masked", {"attempt": True}, "'attempt' must be a whole number"),
        ("masked", {"sites": ["bonn"]}, "'sites' must have a length of 2"),
        ("masked", {"sites": ["bonn", "bonn"]}, "'sites' must not hold the same twice"),
        ("masked", {"sites": ["bonn", "../x"]}, "'sites' must be the name of a site"),
        ("masked", {"sites": "bonn"}, "'sites' must be a list"),
        ("masked", {"more": 1}, "unknown key 'more'"),
        ("roster", {"sites": ["bonn"] * 2}, "'sites' must not hold the same twice"),
        ("roster", {"attempt": "1"}, "'attempt' must be a whole number"),
        ("roster", {"run": "../../x"}, "'run' must be 32 hexadecimal digits"),
        ("open", {"sites": ["aachen", "bonn"]}, "'signatures' must have one for each of the sites"),
        ("open", {"signatures": 1}, "'signatures' must be the number of its array"),
        ("open", {"signatures": None}, "'signatures'"),
    ],
)
def test_malformed_questions(sites, kind, changes, line):
    question = sites.asked["bonn"]
    ways = {"run": sites.run, "attempt": sites.attempt, "sites": NAMES}
    if kind != "masked":
        more = {"signatures": np.zeros([3, 64], np.uint8)} if kind == "open" else {}
        question = protocol.QUESTIONS[kind](**ways, **more)
    table, arrays = unpack(protocol.to_bytes(question))
    message = pack({**table, **changes}, arrays)
    refused(protocol.answer_of(type(question), sites.services["bonn"].answer(message)), line)
    for cut in (0, 7, len(message) // 2, len(message) - 1):
        refused(protocol.answer_of(type(question), sites.services["bonn"].answer(message[:cut])), "message")


def test_a_site_that_asks_for_masks_refuses_recipes_without_them(tmp_path):
    files = write_sites(tmp_path / "sites", allow={"least_sites": 2})
    federation = Federation(files)
    with pytest.raises(
        Exception, match=r"has no aggregation.secure = 'masks', and this site asks for it \(allow.least"
    ):
        train_at_sites(recipe_of("fedavgs"), tmp_path / "run", federation.engine)
    federation.close()
    federation = Federation(write_sites(tmp_path / "no keys", mask_keys=dict.fromkeys(()), sites={}))
    federation.close()


def test_the_log_says_whose_totals_are_signed_and_opened(sites, caplog):
    caplog.set_level("INFO", "tff_re.sites")
    sites.all_masked()
    sites.open("bonn", sites.signed())
    lines = [line for line in caplog.messages if line.startswith("run ")]
    for kind in ("masked train round 1 stage 0, 1 clients", "roster", "open"):
        said = [line for line in lines if f" {kind}, attempt {sites.attempt} of aachen, bonn, celle: " in line]
        assert said and all(line.endswith("answered") for line in said), kind


def test_a_site_says_at_its_start_with_whom_it_masks(sites):
    line = "masked sums: with aachen, celle, opened over at least"
    path = sites.folder / "bonn" / "site.toml"
    assert f"{line} 2 sites" in start_lines(read_site(path), path)
    sites.restarted("bonn", least_sites=3)
    assert f"{line} 3 sites, and never in the clear" in start_lines(read_site(path), path)


def test_site_toml_says_which_key_is_wrong(tmp_path, capsys):
    files = write_sites(tmp_path / "sites")
    typed = command(capsys, "site", files["bonn"], "--mask-key")
    assert typed.code == 0 and typed.out == f'bonn = "{public_text(mask_key(key_of("bonn")))}"\n'
    text = files["bonn"].read_text("utf-8")
    for wrong, line in (
        (public_text(key_of("celle")), "'mask_keys' has no public key of celle"),
        (public_text(mask_key(key_of("aachen"))), "'mask_keys' has one key under two names"),
    ):
        files["bonn"].write_text(text.replace(public_text(mask_key(key_of("celle"))), wrong), "utf-8")
        refusal(command(capsys, "site", files["bonn"]), line)


# Every kind of message has its tricks here or in another file


TRICKS = {
    "hello": "tests/sites/test_lying_coordinator.py",
    "words": "tests/sites/test_lying_words.py",
    "reveal": "tests/sites/test_lying_words.py",
    "facts": "tests/sites/test_lying_site.py",
    "agree": "tests/sites/test_lying_coordinator.py",
    "stage": "tests/sites/test_lying_coordinator.py",
    "finish": None,  # forgets what was kept, which the budget of the ledger outlives
    "ping": None,  # tells nothing
    "masked": "tests/sites/test_lying_masks.py",
    "roster": "tests/sites/test_lying_masks.py",
    "open": "tests/sites/test_lying_masks.py",
    "survey": "tests/sites/test_survey.py",
}


def test_every_kind_of_message_has_its_tricks():
    assert TRICKS.keys() == protocol.QUESTIONS.keys(), "list what a liar could do with the new kind, and test it"


def test_the_same_sums_are_known_whoever_takes_part(begun):
    attempts = [Attempt.from_question(question) for question in begun[1].values()]
    assert len({attempt.sums for attempt in attempts}) == len({attempt.context for attempt in attempts}) == 1
    assert len({attempt.request for attempt in attempts}) == 3
