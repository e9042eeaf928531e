"""`audit SITE.TOML`: a site keeps the updates that it sent, and reads in them what they tell of its own data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.sites.sites_for_tests import NAMES, Federation, corpora, recipe_of, stages, write_site, write_sites
from tests.upper_floors import command, refusal
from tff_re.sites.run import train_at_sites
from tff_re.sites.store import RunStore
from tff_re.sites.updates import kept_updates


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """(folder, federation): bonn keeps the newest two of three rounds; characters have learned vectors."""
    folder = tmp_path_factory.mktemp("kept")
    files = write_sites(folder / "sites")
    files["bonn"] = write_site(folder / "sites" / "bonn", "bonn", corpora()["bonn"], keep_updates=2)
    federation = Federation(files)
    recipe = recipe_of("fedpap", "training.rounds=3", "model={name = 'lstm', units = 3, embedding_width = 4}")
    train_at_sites(recipe, folder / "run", federation.engine, details=False)
    yield folder, federation
    federation.close()


def test_the_newest_updates_are_kept_and_are_what_left(kept):
    folder, federation = kept
    (run,) = (folder / "sites" / "bonn" / "state" / "runs").iterdir()
    updates = kept_updates(RunStore(folder / "sites" / "bonn" / "state", run.name))
    assert list(updates) == [2, 3]
    sent = [answer for site, _, _, (_, answer) in stages(federation) if site == "bonn"]
    for number, (clients, update) in updates.items():
        assert clients == ["bonn"]
        left = sent[2 * number - 1]  # of the second stage, in which attention sums updates
        for array in update:
            assert any(array.shape == other.shape and np.array_equal(array, other) for other in left)
    for name in NAMES:
        if name != "bonn":
            assert not list((folder / "sites" / name / "state").rglob("updates"))


def test_the_audit_names_the_words_whose_rows_changed_and_shows_no_text(kept, capsys):
    folder, _ = kept
    out = folder / "audit.json"
    typed = command(capsys, "audit", folder / "sites" / "bonn" / "site.toml", "--out", out)
    assert typed.code == 0 and "Updates that left in run" in typed.out
    (rounds,) = json.loads(out.read_text("utf-8")).values()
    assert [row["round"] for row in rounds] == [2, 3] and all(row["clients"] == 1 for row in rounds)
    for row in rounds:
        words = row["words"]
        assert (
            0 < words["right"] == words["changed"] <= words["words"]
        )  # of a site with one client, every row is its own
        assert row["labels"]["hit"] in (True, False)
    texts = [s["sentence"] for dialogue in corpora()["bonn"].values() for s in dialogue["dialogue"]]
    assert not any(text in typed.out + out.read_text("utf-8") for text in texts)


def test_a_site_that_kept_nothing_says_what_to_set(kept, capsys):
    file = kept[0] / "sites" / "celle" / "site.toml"
    refusal(command(capsys, "audit", file), "no updates of a run are kept", "set keep_updates")
