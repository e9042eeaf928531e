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
    assert (ROOT / "docs" / "recipes.md").read_text("utf-8") == recipe_keys.markdown(documented()), (
        "make it anew: python -m tff_re.run recipes --keys > docs/recipes.md"
    )
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", recipe_keys.markdown(), re.MULTILINE)
    assert len(rows) > 50
    assert not [key for key, meaning in rows if not meaning.strip()]


def documented() -> set[str]:
    """The algorithms of README's table of methods. One that is not in it is its author's own: no page knows it."""
    table = README[README.index("## Methods") : README.index("| what is measured here")]
    return set(re.findall(r"`(\w+)`", table))


def test_the_table_of_methods_names_algorithms_and_leaves_out_none_that_a_page_names():
    assert documented() <= set(algorithms.names())
    pages = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("recipes.md", "privacy.md"))
    assert {name for name in algorithms.names() if f"`{name}`" in pages} <= documented()
    assert set(re.findall(r'algorithm.name = "(\w+)"', pages)) <= documented()


def test_the_recipe_of_the_readme_is_a_recipe(tmp_path):
    (example,) = blocks("toml")
    path = tmp_path / "recipe.toml"
    path.write_text(example, "utf-8")
    assert recipe.load(str(path)).task.options.path == "our_dialogues.json"


def test_the_file_and_the_recipe_of_the_page_on_entities(tmp_path, monkeypatch):
    from tff_re.runs.experiment import ExperimentBuilder

    page = (ROOT / "docs" / "entities.md").read_text("utf-8")
    for name, language in (("ours.jsonl", "json"), ("ours.toml", "toml")):
        (example,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(example, "utf-8")
    monkeypatch.chdir(tmp_path)
    (override,) = re.findall(r"--set '(task\.annotated=.+?)'", page)
    for more in ((), (override,)):
        prepared = ExperimentBuilder().prepare(
            recipe.load("ours.toml", (*more, "task.test=hold_out", "task.min_clients=1"))
        )
        assert prepared.measured_names == ("disease", "drug")
        assert [client.client_id for client in prepared.examples.clients] == ["north", "south"]
    assert prepared.annotated == {"north": ("drug",), "south": ("disease",)}


def test_the_algorithm_of_the_readme_is_an_algorithm():
    """tests/computations/built.py adds it to the algorithms of the conformance suite."""
    (example,) = blocks("python")
    example = example.replace('"fedavgm"', '"of_the_readme"')
    try:
        exec(compile(example, "README.md", "exec"), {"__name__": "readme_example"})
        chosen = algorithms.find("of_the_readme")
        assert chosen.title == "FedAvgM" and chosen.options().server_step == 1.0
        assert chosen.options().server_momentum == 0.9
        # No page and no table has to know of an algorithm in one file.
        assert "of_the_readme" in algorithms.names()
        test_every_key_of_a_recipe_is_documented()
        test_the_table_of_methods_names_algorithms_and_leaves_out_none_that_a_page_names()
    finally:
        registry.ALGORITHMS.remove("of_the_readme")


def test_every_link_leads_to_a_file():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} names {target}"


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m tff_re\.run (\w+)", README))))
def test_every_command_of_the_readme_is_a_command(command):
    from tff_re.run import cli

    assert command in cli.commands
