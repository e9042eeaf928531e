"""What sites say of masked sums, and whom they mask with; what a lying coordinator tries is in `adversaries`."""

from __future__ import annotations

import pytest

from tests.sites.adversaries.federations import begun_masked
from tests.sites.adversaries.masks import AboutMasks, MaskedSites
from tests.sites.sites_for_tests import Federation, key_of, recipe_of, write_sites
from tests.upper_floors import command, refusal
from tff_re.sites.attempts import Attempt
from tff_re.sites.keys import mask_key, public_text
from tff_re.sites.policy import read_site
from tff_re.sites.run import train_at_sites
from tff_re.sites.starting import start_lines

pytestmark = pytest.mark.xdist_group("adversaries")


@pytest.fixture
def sites(tmp_path):
    opened = MaskedSites(begun_masked(), tmp_path)
    yield opened
    opened.close()


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
    coordinator = AboutMasks(sites)
    coordinator.all_masked()
    coordinator.get(*coordinator.open("bonn", coordinator.signed()))
    lines = [line for line in caplog.messages if line.startswith("run ")]
    for kind in ("masked train round 1 stage 0, 3 clients", "roster", "open"):
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


def test_the_same_sums_are_known_whoever_takes_part():
    begun = begun_masked()
    questions = [begun.questions("masked", site)[0] for site in begun.asked]
    attempts = [Attempt.from_question(question) for question in questions]
    assert len({attempt.sums for attempt in attempts}) == len({attempt.context for attempt in attempts}) == 1
    assert len({attempt.request for attempt in attempts}) == 3
