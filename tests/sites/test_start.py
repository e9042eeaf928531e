"""What a site refuses before it answers, what it tells its operator, and how a site's key is made."""

from __future__ import annotations

import pytest

from tests.sites.sites_for_tests import NAMES, Federation, corpora, key_of, recipe_of, write_site, write_sites
from tests.upper_floors import command, refusal
from tff_re.errors import UserError
from tff_re.recipes.reading import tomllib
from tff_re.sites.keys import public_text
from tff_re.sites.policy import read_site, recipe_digest
from tff_re.sites.run import train_at_sites
from tff_re.sites.starting import start_lines

DIGEST = recipe_digest(recipe_of())


@pytest.fixture(autouse=True)
def _never_served(monkeypatch):
    from tff_re.sites import transport

    def refuse(*arguments):
        raise AssertionError("the site answers")

    monkeypatch.setattr(transport, "Serving", refuse)


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"allow": {"recipes": []}}, "allow.recipes is empty, so that no run is answered; list files of recipes"),
        ({"allow": {"recipes": ["absent.toml"]}}, "absent.toml"),
        ({"allow": {"recipes": ["recipe.toml"]}, "data": {"path": "absent.json"}}, "absent.json: no such file"),
        ({"allow": {"recipes": ["recipe.toml"]}, "data": {"dataset": "shiped"}}, "did you mean 'shipped'?"),
        ({"allow": {"recipes": ["recipe.toml"], "privacy": "client"}}, "the recipe has no [privacy]"),
        ({"data": {"path": "absent.json"}}, "absent.json: no such file"),
        ({"data": {"dataset": "shiped"}}, "data set shiped: there is no such data set; did you mean 'shipped'?"),
        ({"data": {"dataset": "synthetic"}}, "synthetic"),
        ({"data": {"test_path": "absent.json"}}, "absent.json: no such file"),
        ({"data": {"dataset": "pgr"}}, "texts.json"),
        ({"data": {"path": "site.key"}}, "site.key"),
        ({"clients": {"rule": "by_field", "field": "ward"}}, "field ward: there is no such field"),
        ({"clients": {"least_examples": 1000}}, "clients.least_examples: none of 1 clients has 1000 training examples"),
        ({"vocabulary": {"secret": "absent.key"}}, "absent.key: no such file; write 32 of /dev/urandom at one site"),
        ({"key": "absent.key"}, "absent.key: no such file; make it with: site SITE.TOML --key"),
    ],
)
def test_a_site_that_could_answer_no_run_does_not_start(tmp_path, capsys, tables, line):
    tables = {"allow": {"recipes": [DIGEST]}, **tables}
    (tmp_path / "recipe.toml").write_text(recipe_of().to_toml(), "utf-8")
    path = write_site(tmp_path, "bonn", corpora()["bonn"], **tables)
    refusal(command(capsys, "site", path), line)
    assert not (tmp_path / "state").exists() and not (tmp_path / "site.sock").exists()


def test_a_site_says_what_it_has_and_no_text(tmp_path):
    (tmp_path / "recipe.toml").write_text(recipe_of().to_toml(), "utf-8")
    path = write_site(tmp_path, "bonn", corpora()["bonn"], allow={"recipes": ["recipe.toml"]})
    assert start_lines(read_site(path), path) == [
        "data for recipe.toml: shipped, texts.json, 21 examples, 2 classes: no_symptom, symptom",
        "clients for recipe.toml: 1, with 21 examples each",
        "examples for recipe.toml: 21 for training, 9 for testing",
        "masked sums: with aachen, celle, opened over at least 2 sites",
        "surveys: counts of 0 and of at least 5; 1 of a file of training data",
        f"recipe {DIGEST} (recipe.toml)",
        "words: those that task.min_clients (2 or more) clients hold, with aachen, celle",
    ]
    path = write_site(tmp_path, "bonn", corpora()["bonn"], allow={"recipes": [DIGEST]}, clients={"rule": "documents"})
    path.write_text(path.read_text("utf-8").split("[sites]")[0].replace('secret = "vocabulary.key"', ""), "utf-8")
    lines = start_lines(read_site(path), path)
    assert "clients: 5, with 6 examples each" in lines and f"recipe {DIGEST}" in lines
    (compares,) = [line for line in lines if line.startswith("comparisons: under a recipe with [baseline]")]
    assert "the coordinator is told nothing (allow.comparison)" in compares
    assert lines[-1] == "words: those that task.min_clients (2 or more) of this site's own clients hold"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ((), "both measures, the difference and the verdict"),
        (("aggregation.secure=masks",), "the verdict"),
        (("privacy={unit = 'example', noise_multiplier = 1.0}",), "nothing"),
    ],
)
def test_a_site_says_that_it_will_train_alone_and_what_it_will_tell(tmp_path, keys, told):
    recipe = recipe_of("fedavgs", "baseline={kind = 'local'}", "evaluation.train_split=false", *keys)
    (tmp_path / "recipe.toml").write_text(recipe.to_toml(), "utf-8")
    allow = {"recipes": ["recipe.toml"], "comparison": "interval"}
    path = write_site(tmp_path, "bonn", corpora()["bonn"], allow=allow)
    does = "trains alone for 2 rounds, and compares the models on its own test examples; the coordinator is told"
    line = f"comparison for recipe.toml: after the run this site {does} {told} (allow.comparison)"
    assert line in start_lines(read_site(path), path)


@pytest.mark.parametrize("allowed", ["recipe.toml", DIGEST])
def test_a_share_of_a_recipes_clients(tmp_path, allowed):
    (tmp_path / "recipe.toml").write_text(recipe_of().to_toml(), "utf-8")
    clients = {"rule": "share", "share": "1/2"}
    path = write_site(tmp_path, "bonn", corpora()["bonn"], allow={"recipes": [allowed]}, clients=clients)
    lines = start_lines(read_site(path), path)
    assert any(line.startswith("data") and "examples" in line for line in lines) and f"recipe {DIGEST}" in lines[-2]


def test_a_key_is_made_once_and_printed_as_the_others_list_it(tmp_path, capsys):
    path = write_site(tmp_path, "bonn", corpora()["bonn"])
    (tmp_path / "site.key").unlink()
    first, second = command(capsys, "site", path, "--key"), command(capsys, "site", path, "--key")
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600
    assert first.code == second.code == 0 and first.out == second.out
    assert "written: " in first.err and not second.err
    listed = tomllib.loads(first.out)
    assert listed.keys() == {"bonn"}
    (tmp_path / "other").mkdir()
    other = write_site(tmp_path / "other", "aachen", corpora()["aachen"], sites=listed)
    assert public_text(read_site(path).signing_key()) == read_site(other).options.sites["bonn"]
    refusal(command(capsys, "site", "--key"), "--key needs the site's file")
    (tmp_path / "site.key").chmod(0o644)
    refusal(command(capsys, "site", path, "--key"), "chmod 600")


def test_a_site_that_joins_later_is_told_what_is_possible(tmp_path):
    files = write_sites(tmp_path / "sites")
    keys = {name: public_text(key_of(name)) for name in (*NAMES, "dresden")}
    dialogues = {f"dresden-{key}": value for key, value in corpora()["aachen"].items()}
    for name in NAMES:
        files[name] = write_site(tmp_path / "sites" / name, name, corpora()[name], sites=keys)
    recipe, out = recipe_of("fedpap", "training.rounds=1", "evaluation.train_split=false"), tmp_path / "run"
    federation = Federation(files)
    train_at_sites(recipe, out, federation.engine, details=False)
    federation.close()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    files["dresden"] = write_site(tmp_path / "sites" / "dresden", "dresden", dialogues, sites=keys)
    joined = Federation(files)
    line = "the run is of the sites aachen, bonn, celle, and dresden cannot join it; .*--from .*run --sites aa"
    with pytest.raises(UserError, match=line):
        train_at_sites(recipe, out, joined.engine, resume=True)
    del files["dresden"], files["bonn"]
    with pytest.raises(UserError, match="continues with all of its sites, and bonn is not named; give --sites aachen,"):
        train_at_sites(recipe, out, Federation(files).engine, resume=True)
    assert not joined.sent and before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    joined.close()
