"""The documents agree with the code."""

import re
from pathlib import Path

import pytest

from computations import algorithms
from computations.algorithms import registry
from tff_re.recipes import keys as recipe_keys
from tff_re.recipes import reading as recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_every_key_of_a_recipe_is_documented():
    assert (ROOT / "docs" / "recipes.md").read_text("utf-8") == recipe_keys.markdown(), (
        "make it anew: python -m tff_re.run recipes --keys > docs/recipes.md"
    )
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", recipe_keys.markdown(), re.MULTILINE)
    assert len(rows) > 50
    assert not [key for key, meaning in rows if not meaning.strip()]


def test_the_table_of_methods_names_every_algorithm():
    table = README[README.index("## Methods") : README.index("| what is measured here")]
    named = set(re.findall(r"`(\w+)`", table))
    assert named == set(algorithms.names())


def test_the_recipe_of_the_readme_is_a_recipe(tmp_path):
    (example,) = blocks("toml")
    path = tmp_path / "recipe.toml"
    path.write_text(example, "utf-8")
    assert recipe.load(str(path)).task.options.path == "our_dialogues.json"


def test_the_algorithm_of_the_readme_is_an_algorithm():
    (example,) = blocks("python")
    try:
        exec(compile(example, "README.md", "exec"), {"__name__": "readme_example"})
        chosen = algorithms.find("fedavgm")
        assert chosen.title == "FedAvgM" and chosen.options().server_step == 1.0
    finally:
        registry.ALGORITHMS.remove("fedavgm")


def test_every_link_leads_to_a_file():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} names {target}"


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m tff_re\.run (\w+)", README))))
def test_every_command_of_the_readme_is_a_command(command):
    from tff_re.run import cli

    assert command in cli.commands
