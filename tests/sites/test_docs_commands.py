"""docs/sites.md: its commands and its site.toml are such that exist. `.ci/three-hospitals` types them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

from tests.sites.docs_commands import (
    COORDINATOR,
    FOR_EACH,
    HOSPITAL,
    MACHINE,
    ONE,
    PAGE,
    commands,
    further_commands,
    site_toml,
)
from tff_re.recipes.reading import shipped
from tff_re.run import cli
from tff_re.sites.policy import read_site

ROOT = PAGE.parents[1]


def test_the_ten_commands_are_in_an_order_that_works():
    typed = commands()
    verbs = [(who, line.split()[2] if line.startswith("scripts/") and " " in line else "") for who, line in typed]
    assert verbs == [
        *((MACHINE, ""), (MACHINE, ""), (COORDINATOR, "link"), (HOSPITAL, ""), (ONE, "secret"), (HOSPITAL, "keys")),
        *((FOR_EACH, "register"), (HOSPITAL, "run"), (COORDINATOR, "relay"), (COORDINATOR, "train")),
    ]


LINES = [*(command.line for command in commands()), *further_commands()]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:40])
def test_every_command_and_option_exists(line):
    program, *words = shlex.split(line)
    if program == "make":
        assert f"\n{words[0]}: " in (ROOT / "Makefile").read_text("utf-8")
        return
    if program == ".venv/bin/python":
        assert words[:2] == ["-m", "tff_re.run"]
        words = words[2:]
    else:
        text = (ROOT / program).read_text("utf-8")
        assert (ROOT / program).stat().st_mode & 0o100
        if not words:
            return
        assert f"#   {program} FOLDER {words[1]}" in text
        words = words[1:]
    if words[0] in cli.commands:
        options = {name for parameter in cli.commands[words[0]].params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    assert all(word in shipped() for word in words if word.startswith("flcmc"))


def test_the_scripts_have_every_role_that_the_page_on_services_asks_of_them():
    text = (ROOT / "deploy/README.md").read_text("utf-8")
    typed = re.findall(r"^(scripts/(?:coordinator|hospital)) \S+ (\w+)", text, re.MULTILINE)
    assert typed
    for program, verb in typed:
        assert f"#   {program} FOLDER {verb}" in (ROOT / program).read_text("utf-8")


def test_the_coordinator_remembers_whose_node_has_which_id(tmp_path):
    """With a program in Flower's place that prints what it is asked for."""
    federation, programs = tmp_path / "federation", tmp_path / "bin"
    (federation / "flower").mkdir(parents=True)
    (federation / "flower/config.toml").touch()
    programs.mkdir()
    for name, answer in (
        ("python", "true"),
        ("flwr", 'echo "$@"; echo "SuperNode 3560948852867261067 $2ed successfully"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{answer}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "FLOWER": str(programs)}

    def typed(*words):
        command = [ROOT / "scripts/coordinator", federation, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        return done.returncode, done.stdout.splitlines()[:1] + done.stdout.splitlines()[2:], done.stderr

    key = tmp_path / "aachen.pub"
    registered = f"supernode register {key} hospitals --name aachen"
    assert typed("register", "aachen", "aachen.pub") == (0, [registered], "")
    assert typed("nodes") == (0, ["supernode list hospitals", "3560948852867261067 is aachen"], "")
    code, _, line = typed("register", "aachen", "aachen.pub")
    assert code == 2 and line.startswith("tff-re: aachen: has a node already; ") and "unregister aachen" in line
    assert typed("register", "../aachen", "aachen.pub")[::2] == (
        2,
        "tff-re: ../aachen: not a site name; use letters, digits, dots, underscores and hyphens\n",
    )
    environment["ANSWER_SECONDS"] = "soon"
    assert typed("relay")[::2] == (2, "tff-re: ANSWER_SECONDS=soon: must be a positive whole number\n")
    assert typed("unregister", "aachen") == (0, ["supernode unregister 3560948852867261067 hospitals"], "")
    assert typed("nodes") == (0, ["supernode list hospitals"], "")
    assert "no node was registered under this name" in typed("unregister", "aachen")[2]


@pytest.mark.parametrize("script", ["scripts/coordinator", "scripts/hospital"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "scripts/"),
        (["absent", "something"], ""),
        (["absent", "run", "localhost:1"], ""),
        (["absent", "relay"], ""),
        (["absent", "unregister", "7"], ""),
        (["absent", "train", "x"], ""),
        (["absent", "survey", "x"], ""),
    ],
)
def test_a_script_that_cannot_do_it_ends_with_a_line(tmp_path, script, arguments, line):
    done = subprocess.run([ROOT / script, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and line in done.stderr and not done.stdout
    assert done.stderr.startswith(("tff-re: ", "scripts/")) and not list(tmp_path.iterdir())


def test_a_folder_of_a_hospital_gets_keys_that_only_its_user_reads(tmp_path):
    (tmp_path / "site.toml").write_text(site_toml().replace('["recipe.toml"]', '["any"]'), "utf-8")
    for what in ("secret", "keys"):
        done = subprocess.run([ROOT / "scripts/hospital", tmp_path, what], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('aachen = "ed25519:')
    assert len((tmp_path / "vocabulary.key").read_bytes()) == 32
    for name in ("vocabulary.key", "site.key", "node"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    again = subprocess.run([ROOT / "scripts/hospital", tmp_path, "secret"], capture_output=True, text=True)
    assert again.returncode == 2 and "is there already" in again.stderr


def test_the_site_toml_of_the_page_is_one(tmp_path):
    (tmp_path / "site.toml").write_text(site_toml().replace('["recipe.toml"]', '["any"]'), "utf-8")
    assert read_site(tmp_path / "site.toml").options.sites.keys() == {"bonn", "celle"}
