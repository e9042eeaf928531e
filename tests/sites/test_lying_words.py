"""What a coordinator and sites that lie get to know of rare words: of c lying sites, no more than c fewer holders.

Their tricks with single messages are in `tests/sites/adversaries`.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.sites.adversaries.words import COMMON, RARE, RUN, AskedForWords, digest, signature
from tests.sites.sites_for_tests import (
    Federation,
    corpora,
    key_of,
    recipe_of,
    write_private,
    write_site,
    write_sites,
)
from tff_re.errors import UserError
from tff_re.sites import protocol, words
from tff_re.sites.data import SiteData
from tff_re.sites.keys import public_text
from tff_re.sites.messages import unpack
from tff_re.sites.policy import read_site
from tff_re.sites.run import train_at_sites


@pytest.fixture
def asked(tmp_path):
    made = []

    def start(**options):
        made.append(AskedForWords(tmp_path / str(len(made)), **options))
        return made[-1]

    yield start
    for session in made:
        session.federation.close()


def test_a_word_is_shown_for_the_signatures_of_enough_other_sites(asked):
    sites = asked()
    evidence = [(name, signature(name, COMMON)) for name in ("bonn", "celle")]
    assert sites.show(COMMON, evidence).words == (COMMON,)
    listed = sites.answer("bonn", protocol.Words(run=RUN))
    signature_of = {row.tobytes(): signed for row, signed in zip(listed.digests, listed.signatures, strict=True)}
    np.testing.assert_array_equal(signature_of[digest(COMMON).tobytes()], signature("bonn", COMMON))
    assert digest(RARE).tobytes() not in signature_of


def test_lying_sites_lower_the_threshold_by_their_number(asked):
    """The assumption that is left, in numbers: with min_clients = 3, two of three sites have to lie."""
    liars = [(name, signature(name, RARE)) for name in ("bonn", "celle")]
    assert isinstance(asked(min_clients=4).show(RARE, liars), protocol.No)
    assert isinstance(asked().show(RARE, liars[:1]), protocol.No)
    assert asked().show(RARE, liars).words == (RARE,)


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
