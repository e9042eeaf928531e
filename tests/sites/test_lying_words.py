"""What a coordinator and sites that lie get to know of rare words: of c lying sites, no more than c fewer holders."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sites.sites_for_tests import (
    NAMES,
    SHARED_SECRET,
    Federation,
    corpora,
    key_of,
    recipe_of,
    write_private,
    write_site,
    write_sites,
)
from tff_re.errors import UserError
from tff_re.sites import words
from tff_re.sites.data import SiteData
from tff_re.sites.keys import public_text
from tff_re.sites.messages import pack, unpack
from tff_re.sites.policy import for_sites, read_site
from tff_re.sites.run import train_at_sites
from tff_re.sites.transport import InMemory

RARE, COMMON = "甲", "烧"
"""A word that aachen holds and nobody else, and one that all hold."""

RUN = "5" * 32


def digest(word, run=RUN):
    return words.digests(SHARED_SECRET, run, "word", [word])[0]


def signature(site, word, run=RUN, name=None):
    """By the key of `site`, in the name of `name`."""
    content = words.signed_content(run, name or site, digest(word, run).tobytes())
    return np.frombuffer(key_of(site).sign(content), np.uint8)


class Asked:
    """Sites that know a run, and can be asked for words."""

    def __init__(self, folder, min_clients=3, **tables):
        self.federation = Federation(write_sites(folder, **tables))
        self.recipe = for_sites(recipe_of(min_clients=min_clients))
        self.hello(RUN)

    def hello(self, run):
        for site in NAMES:
            assert "clients" in self.tell(site, kind="hello", run=run, recipe=self.recipe)

    def tell(self, site, arrays=(), **table):
        if table["kind"] == "reveal":
            table |= {name: number for number, name in enumerate(("digests", "rows", "by", "signatures"))}
        return unpack(self.federation.services[site].answer(pack(table, arrays)))[0]

    def list_of(self, site, run=RUN):
        answer = self.federation.services[site].answer(pack({"kind": "words", "run": run}))
        return unpack(answer)[1]

    def show(self, word, evidence, site="aachen", run=RUN):
        """A site's answer to a request for a word; `evidence`: (signer, signature)."""
        signers = sorted({name for name, _ in evidence})
        arrays = [
            digest(word, run)[None],
            np.zeros(len(evidence), np.int32),
            np.array([signers.index(name) for name, _ in evidence], np.int32),
            np.array([s for _, s in evidence], np.uint8).reshape(-1, 64),
        ]
        return self.tell(site, arrays, kind="reveal", run=run, signers=signers)


@pytest.fixture
def asked(tmp_path):
    made = []

    def start(**options):
        made.append(Asked(tmp_path / str(len(made)), **options))
        return made[-1]

    yield start
    for session in made:
        session.federation.close()


def test_a_word_is_shown_for_the_signatures_of_enough_other_sites(asked):
    sites = asked()
    evidence = [(name, signature(name, COMMON)) for name in ("bonn", "celle")]
    assert sites.show(COMMON, evidence) == {"site": "aachen", "words": [COMMON]}
    rows, _, _, signatures = sites.list_of("bonn")
    signature_of = {row.tobytes(): signed for row, signed in zip(rows, signatures, strict=True)}
    np.testing.assert_array_equal(signature_of[digest(COMMON).tobytes()], signature("bonn", COMMON))
    assert digest(RARE).tobytes() not in signature_of


FORGED = {
    "no evidence": lambda: [],
    "one other site": lambda: [("bonn", signature("bonn", RARE))],
    "a site counts once": lambda: [("bonn", signature("bonn", RARE))] * 3,
    "the site itself": lambda: [("bonn", signature("bonn", RARE)), ("aachen", signature("aachen", RARE))],
    "signed by nobody": lambda: [(name, np.zeros(64, np.uint8)) for name in ("bonn", "celle")],
    "a name swapped": lambda: [("bonn", signature("bonn", RARE)), ("celle", signature("bonn", RARE))],
    "in another's name": lambda: [
        ("bonn", signature("bonn", RARE)),
        ("celle", signature("bonn", RARE, name="celle")),
    ],
    "of another word": lambda: [(name, signature(name, COMMON)) for name in ("bonn", "celle")],
    "of another run": lambda: [(name, signature(name, RARE, "6" * 32)) for name in ("bonn", "celle")],
    "altered": lambda: [(name, signature(name, RARE) ^ np.uint8(1)) for name in ("bonn", "celle")],
    "a site that nobody knows": lambda: [
        ("bonn", signature("bonn", RARE)),
        ("dresden", signature("dresden", RARE)),
    ],
}


def test_a_coordinator_that_forges_evidence_gets_no_rare_word(asked, tmp_path):
    sites = asked()
    for name, evidence in FORGED.items():
        answer = sites.show(RARE, evidence())
        assert set(answer) == {"site", "refused"} and RARE not in answer["refused"], name
    assert not list((tmp_path / "0" / "aachen" / "state").rglob("revealed"))


def test_lying_sites_lower_the_threshold_by_their_number(asked):
    """The assumption that is left, in numbers: with min_clients = 3, two of three sites have to lie."""
    liars = [(name, signature(name, RARE)) for name in ("bonn", "celle")]
    assert "refused" in asked(min_clients=4).show(RARE, liars)
    assert "refused" in asked().show(RARE, liars[:1])
    assert asked().show(RARE, liars)["words"] == [RARE]


def test_a_word_that_a_site_does_not_hold_and_a_second_request_are_refused(asked):
    sites = asked()
    others = {s: [(n, signature(n, COMMON)) for n in NAMES if n != s] for s in NAMES}
    assert "does not hold" in sites.show(RARE, [], "bonn")["refused"]
    assert sites.show(COMMON, others["bonn"], "bonn") == sites.show(COMMON, others["bonn"], "bonn")
    other = "咳"
    evidence = [(name, signature(name, other)) for name in NAMES if name != "bonn"]
    assert "words are shown once" in sites.show(other, evidence, "bonn")["refused"]


@pytest.mark.parametrize(
    "change",
    [
        lambda table, arrays: arrays.pop(),
        lambda table, arrays: arrays.__setitem__(0, arrays[0][:, :4]),
        lambda table, arrays: arrays.__setitem__(1, arrays[1] + 7),
        lambda table, arrays: arrays.__setitem__(2, arrays[2] - 1),
        lambda table, arrays: arrays.__setitem__(3, arrays[3][:1]),
        lambda table, arrays: arrays.__setitem__(1, np.array(0, np.int32)),
        lambda table, arrays: table.pop("signers"),
    ],
    ids=range(7),
)
def test_a_malformed_request_is_refused(asked, change):
    sites = asked()
    arrays = [digest(COMMON)[None], np.zeros(2, np.int32), np.arange(2, dtype=np.int32)]
    arrays.append(np.array([signature(name, COMMON) for name in ("bonn", "celle")]))
    table = {"kind": "reveal", "run": RUN, "signers": ["bonn", "celle"]}
    change(table, arrays)
    assert set(sites.tell("aachen", arrays, **table)) == {"site", "refused"}


class Lying(Federation):
    """`lie(table, arrays)` gives another answer of bonn to the coordinator's `words`."""

    def __init__(self, files, lie, kind="words"):
        super().__init__(files)
        honest = self.engine

        def call(site):
            def answered(message):
                answer = honest.call(site, message, 5)
                table = unpack(message)[0]
                if site != "bonn" or table["kind"] != kind:
                    return answer
                answer_table, arrays = unpack(answer)
                return pack(*lie(table["run"], answer_table, list(arrays)))

            return answered

        self.engine = InMemory({name: call(name) for name in NAMES})


def agreed(federation, tmp_path, **task):
    """The words that aachen has shown; the run ends where training would begin."""
    recipe = recipe_of("fedpap", **task)

    class Enough(Exception):
        pass

    def begun(experiment):
        raise Enough

    try:
        with pytest.raises(Enough):
            train_at_sites(recipe, tmp_path / "run", federation.engine, on_start=begun, details=False)
    finally:
        federation.close()
    answers = [unpack(a)[0] for s, m, a in federation.sent if s == "aachen" and unpack(m)[0]["kind"] == "reveal"]
    return [word for answer in answers for word in answer["words"]]


def test_a_site_that_helps_by_lying_about_counts(tmp_path, monkeypatch):
    """What bonn claims for its own clients, and signs, counts as one client at aachen."""
    honest = SiteData.word_counts

    def claimed(self):
        counts = honest(self)
        if "bonn" not in self.clients:
            return counts
        more = np.append(counts.counts, 500), np.append(counts.holders, 9)
        return words.WordCounts([*counts.words, RARE], *more)

    monkeypatch.setattr(SiteData, "word_counts", claimed)
    vocabulary = agreed(Federation(write_sites(tmp_path / "sites")), tmp_path, min_clients=3)
    assert COMMON in vocabulary and RARE not in vocabulary


@pytest.mark.parametrize(
    ("lie", "line"),
    [
        (lambda run, table, arrays: (table, arrays[:3]), "malformed answer to 'words': 'signatures' must be"),
        (lambda run, table, arrays: (table, [a.astype(np.float32) for a in arrays]), "'digests' must be uint8"),
        (lambda run, table, arrays: ({**table, "others": None}, arrays), "a list of words, of digests, or nothing"),
        (lambda run, table, arrays: (table, [np.concatenate([a, a]) for a in arrays]), "must not hold the same twice"),
        (lambda run, table, arrays: (table, [arrays[0], arrays[1], -arrays[2], arrays[3]]), "'holders' must be from 1"),
        (lambda run, table, arrays: ({**table, "key": public_text(key_of("x"))}, arrays), "lists another key of the"),
        (lambda run, table, arrays: ({"site": "bonn"}, []), "site bonn counts no words, and others do"),
    ],
    ids=range(7),
)
def test_a_list_that_is_none(tmp_path, lie, line):
    federation = Lying(write_sites(tmp_path / "sites"), lie)
    with pytest.raises(UserError, match=line) as refused:
        train_at_sites(recipe_of("fedpap"), tmp_path / "run", federation.engine)
    federation.close()
    assert "bonn" in str(refused.value) and "\n" not in str(refused.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (lambda words: words[1:], "are not [0-9]+ words"),
        (lambda words: [None, *words[1:]], "'words' must be a text"),
        (lambda words: ["[UNK]", *words[1:]], "are not [0-9]+ words"),
        (lambda words: [*words[1:], words[0]], "another word than the site before it"),
    ],
    ids=range(4),
)
def test_words_that_are_none(tmp_path, changed, line):
    lie = lambda run, table, arrays: ({**table, "words": changed(table["words"])}, arrays)  # noqa: E731
    federation = Lying(write_sites(tmp_path / "sites"), lie, "reveal")
    with pytest.raises(UserError, match=f"site bonn.*{line}"):
        train_at_sites(recipe_of("fedpap"), tmp_path / "run", federation.engine)
    federation.close()


def test_a_coordinator_asks_a_site_for_no_word_that_it_may_not_show_and_gives_no_more_evidence(tmp_path):
    federation = Federation(write_sites(tmp_path / "sites"))
    vocabulary = agreed(federation, tmp_path)
    (request,) = [unpack(m) for s, m, _ in federation.sent if s == "aachen" and unpack(m)[0]["kind"] == "reveal"]
    wanted, rows, _, _ = request[1]
    # One other of two clients is enough.
    assert len(wanted) == len(vocabulary) and sorted(rows) == list(range(len(vocabulary)))
    assert digest(RARE, request[0]["run"]).tobytes() not in {row.tobytes() for row in wanted}


def test_several_clients_of_another_site_count_as_one(tmp_path):
    """A word that two clients of aachen and two of bonn hold is not shown under min_clients = 4."""
    site_corpora = corpora()
    for name in ("aachen", "bonn"):
        for dialogue in list(site_corpora[name].values())[:2]:
            dialogue["dialogue"][0]["sentence"] += "丁"
    federation = Federation(write_sites(tmp_path / "sites", site_corpora, clients={"rule": "documents"}))
    assert "丁" not in agreed(federation, tmp_path, min_clients=4)
    three = Federation(write_sites(tmp_path / "three", site_corpora, clients={"rule": "documents"}))
    assert "丁" in agreed(three, tmp_path / "second", min_clients=3)


def test_a_recipe_that_shows_every_word_is_refused_unless_the_site_allows_it(tmp_path):
    federation = Federation(write_sites(tmp_path / "sites"))
    with pytest.raises(UserError, match=r"at least 2 clients hold \(vocabulary.least_clients\), and task.min_clients"):
        train_at_sites(recipe_of("fedpap", min_clients=1), tmp_path / "run", federation.engine)
    federation.close()
    allowing = Federation(write_sites(tmp_path / "allowing", vocabulary={"least_clients": 1}))
    assert RARE in agreed(allowing, tmp_path, min_clients=1)


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        ({}, "site bonn: it has a secret for words .* no key of another site .* lists"),
        ({"aachen": public_text(key_of("aachen"))}, r"site bonn: its site.toml lists no key of the site celle"),
        (
            {"aachen": public_text(key_of("aachen")), "celle": public_text(key_of("old"))},
            r"site bonn: its site.toml lists another key of the site celle",
        ),
    ],
)
def test_a_site_without_the_others_keys(tmp_path, sites, line):
    files = write_sites(tmp_path / "sites")
    text = files["bonn"].read_text("utf-8").split("[sites]")[0]
    files["bonn"].write_text(text + "[sites]\n" + "".join(f'{n} = "{k}"\n' for n, k in sites.items()), "utf-8")
    federation = Federation(files)
    with pytest.raises(UserError, match=line):
        train_at_sites(recipe_of("fedpap"), tmp_path / "run", federation.engine)
    federation.close()


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        (
            {"celle": "ed25519:xyz"},
            r"site.toml: 'sites' has no public key of celle as .site SITE.TOML --key. prints",
        ),
        ({"celle": public_text(key_of("aachen"))}, r"site.toml: 'sites' has one key under two names"),
    ],
)
def test_keys_that_are_none_are_refused_when_the_file_is_read(tmp_path, sites, line):
    with pytest.raises(UserError, match=line):
        read_site(write_site(tmp_path, "bonn", {}, sites=sites))


def test_a_sites_own_key_stands_under_its_own_name(tmp_path):
    write_site(tmp_path, "bonn", {})
    assert read_site(tmp_path / "site.toml").others().keys() == {"aachen", "celle"}
    write_site(tmp_path, "bonn", {}, sites={"bonn": public_text(key_of("old"))})
    with pytest.raises(UserError, match=r"\[sites\] has another key of this site than its own"):
        read_site(tmp_path / "site.toml").others()
    write_site(tmp_path, "dresden", {}, sites={"celle": public_text(key_of("dresden"))})
    with pytest.raises(UserError, match=r"has this site's own key as that of celle"):
        read_site(tmp_path / "site.toml").others()


@pytest.mark.parametrize(("file", "read"), [("vocabulary.key", "secret"), ("site.key", "signing_key")])
def test_files_that_others_may_read_are_refused(tmp_path, file, read):
    site = read_site(write_site(tmp_path, "bonn", {}))
    (tmp_path / file).chmod(0o640)
    with pytest.raises(UserError, match=f"{file}: other users .* chmod 600"):
        getattr(site, read)()
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=f"{file}: no such file; "):
        getattr(site, read)()
    write_private(tmp_path / file, b"short")
    with pytest.raises(UserError, match=r"(holds 5 bytes|is not an Ed25519 key)"):
        getattr(site, read)()
