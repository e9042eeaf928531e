"""The documents agree with the code."""

import re
import runpy
from pathlib import Path

import pytest

from computations import algorithms
from computations.algorithms import registry
from datasets.catalogue import DATA_SETS
from tff_re.recipes import keys as recipe_keys
from tff_re.recipes import reading as recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
METHODS = (ROOT / "docs" / "methods.md").read_text("utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
COMPARISONS = sorted((ROOT / "docs" / "results").glob("*/comparison.md"))


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_key_of_a_recipe_is_documented():
    assert (ROOT / "docs" / "recipes.md").read_text("utf-8") == recipe_keys.markdown(documented()), (
        "make it anew: python -m tff_re.run recipes --keys > docs/recipes.md"
    )
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", recipe_keys.markdown(), re.MULTILINE)
    assert len(rows) > 50
    assert not [key for key, meaning in rows if not meaning.endswith(".")], "a meaning is missing or cut off"


def documented() -> set[str]:
    """The algorithms of docs/methods.md. One that is not in it is its author's own: no page knows it."""
    table = METHODS[METHODS.index("## Algorithms") : METHODS.index("Around any of them")]
    return set(re.findall(r"`(\w+)`", table))


def test_readme_is_short_and_names_every_algorithm_and_claims_no_reproduction():
    assert len(README.splitlines()) <= 120
    table = README[README.index("| group | algorithms |") : README.index("</details>")]
    assert set(re.findall(r"`(\w+)`", table)) == documented()
    assert f"{len(documented())} algorithms" in README
    assert "reproduced" not in README


def test_shared_keys_are_listed_once_and_every_algorithm_has_all_its_keys():
    from tff_re.recipes.structuring import keys
    from tff_re.recipes.tables import choices

    page = recipe_keys.markdown(documented())
    assert page.count("[Shared keys](#shared-keys-of-algorithm)") == len(documented())
    assert page.count("| `local_steps` |") == 1
    for name in documented():
        section = page.split(f'### algorithm.name = "{name}"\n')[1].split("\n##")[0]
        missing = {key.name for key in keys(choices("algorithm")[name])} - set(re.findall(r"`(\w+)`", section))
        assert not missing, name


def test_the_table_of_methods_names_algorithms_and_leaves_out_none_that_a_page_names():
    assert documented() <= set(algorithms.names())
    pages = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("recipes.md", "privacy.md"))
    assert {name for name in algorithms.names() if f"`{name}`" in pages} <= documented()
    assert set(re.findall(r'algorithm.name = "(\w+)"', pages)) <= documented()


def test_the_page_on_data_has_a_row_for_every_data_set():
    page = (ROOT / "docs" / "data.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page[: page.index("## Your own relations")], re.MULTILINE)
    assert sorted(re.findall(r"\w+", " ".join(rows))) == sorted(DATA_SETS)


def test_the_recipe_of_the_readme_is_a_recipe(tmp_path):
    (example,) = blocks("toml", README)
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


def test_the_algorithm_of_the_contributors_page_is_an_algorithm():
    """tests/computations/built.py adds it to the algorithms of the conformance suite."""
    (example,) = blocks("python", CONTRIBUTING)
    example = example.replace('"fedavgm"', '"of_the_readme"')
    try:
        exec(compile(example, "CONTRIBUTING.md", "exec"), {"__name__": "readme_example"})
        chosen = algorithms.find("of_the_readme")
        assert chosen.title == "FedAvgM" and chosen.options().server_step == 1.0
        assert chosen.options().server_momentum == 0.9
        # No page and no table has to know of an algorithm in one file.
        assert "of_the_readme" in algorithms.names()
        test_every_key_of_a_recipe_is_documented()
        test_the_table_of_methods_names_algorithms_and_leaves_out_none_that_a_page_names()
    finally:
        registry.ALGORITHMS.remove("of_the_readme")


def test_commands_are_those_of_the_help():
    path = ROOT / "scripts" / "commands.py"
    module = runpy.run_path(str(path))
    assert (ROOT / "docs" / "commands.md").read_text("utf-8") == module["markdown"](), (
        "make it anew: python scripts/commands.py > docs/commands.md"
    )


FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "notebooks/README.md")]


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges and MkDocs both make them."""
    found: set[str] = set()
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", name).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", [*FRONT, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_anchors_and_pictures(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", without_code(page.read_text("utf-8"))):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.relative_to(ROOT)} links to {target}, which does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), (
                f"{page.relative_to(ROOT)} links to {target}#{anchor}, which is no heading there"
            )


def nav_pages() -> list[str]:
    """The pages that `nav` of mkdocs.yml names."""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    return re.findall(r"[\w./-]+\.md$", nav, re.MULTILINE)


def test_every_page_is_in_the_nav():
    """Comparisons are reached from the pages in docs/results; the site adds CONTRIBUTING.md and CHANGELOG.md."""
    named = nav_pages()
    assert len(named) == len(set(named)), "a page is in the nav twice"
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name != "comparison.md"}
    assert set(named) == pages | {"CONTRIBUTING.md", "CHANGELOG.md"}


@pytest.mark.parametrize("page", COMPARISONS, ids=lambda page: page.parent.name)
def test_every_comparison_is_reached_from_a_page_of_results(page):
    pages = "".join(file.read_text("utf-8") for file in (ROOT / "docs" / "results").glob("*.md"))
    assert f"]({page.parent.name}/comparison.md)" in pages


@pytest.mark.parametrize("page", COMPARISONS, ids=lambda page: page.parent.name)
def test_commands_of_results_have_placeholders_for_the_files_of_the_machine_that_ran_them(page):
    commands = re.findall(r"python -m tff_re\.run compare [^`\"]*", page.read_text("utf-8"))
    assert commands
    assert not [command for command in commands if re.search(r"=~?/", command)]


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`((?:[\w.]+/)+[\w.]*)(?:::\w+)?`", CONTRIBUTING))))
def test_what_the_ten_recipes_name_exists(file):
    assert file == "tff_re/cli/NAME.py" or (ROOT / file).exists(), f"CONTRIBUTING.md names {file}"


@pytest.mark.parametrize(("file", "name"), re.findall(r"`([\w./]+\.py)::(\w+)`", CONTRIBUTING))
def test_functions_and_tests_that_the_ten_recipes_name_exist(file, name):
    assert re.search(rf"^(?:def|class) {name}\b|^{name}\b.*=", (ROOT / file).read_text("utf-8"), re.MULTILINE)


TYPED = {
    command
    for page in (ROOT / "README.md", *PAGES)
    for command in re.findall(r"python -m tff_re\.run (\w+)", page.read_text("utf-8"))
}


@pytest.mark.parametrize("command", sorted(TYPED))
def test_every_command_of_a_page_is_a_command(command):
    from tff_re.run import cli

    assert command in cli.commands


@pytest.mark.parametrize("name", ["ner.toml", "re.toml"])
def test_recipes_of_the_tutorial_on_facts_prepare_the_data_that_its_script_writes(name, tmp_path, monkeypatch):
    from tff_re.runs.experiment import ExperimentBuilder

    page = (ROOT / "docs" / "tutorials" / "facts-from-text.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    (script,) = blocks("python", page)
    exec(compile(script, "make_notes.py", "exec"), {"__name__": "make_notes"})
    example = dict(zip(("ner.toml", "re.toml"), blocks("toml", page), strict=True))[name]
    (tmp_path / name).write_text(example, "utf-8")
    prepared = ExperimentBuilder().prepare(recipe.load(name))
    assert sorted(client.client_id for client in prepared.examples.clients) == ["east", "north", "south"]


def test_the_tutorial_on_own_data_trains_what_its_script_writes(tmp_path, monkeypatch):
    from tff_re.runs.experiment import ExperimentBuilder

    page = (ROOT / "docs" / "tutorials" / "own-data.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    (script,), (example,) = blocks("python", page), blocks("toml", page)
    exec(compile(script, "make_dialogues.py", "exec"), {"__name__": "make_dialogues"})
    (tmp_path / "ours.toml").write_text(example, "utf-8")
    prepared = ExperimentBuilder().prepare(recipe.load("ours.toml"))
    assert sorted(client.client_id for client in prepared.examples.clients) == ["呼吸科", "消化科"]
