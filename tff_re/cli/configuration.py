"""The configuration of a run or of a comparison as a tree, printed when it starts.

A line for each table of the recipe: the choice and the keys whose values are not the defaults.
"""

from __future__ import annotations

import json

from rich.segment import Segments
from rich.text import Text
from rich.tree import Tree

from computations.registry import Choice
from tff_re.cli.display import console
from tff_re.recipes.reading import Recipe
from tff_re.recipes.structuring import keys, to_table
from tff_re.recipes.tables import TABLES

LONGEST_VALUE = 60
"""Characters of a value that are shown."""

_UNWRAPPED = 100_000


def show_run(experiment) -> None:
    """Print what is trained on what, the bytes of a round, and the recipe's configuration."""
    recipe, examples = experiment.recipe, experiment.prepared.examples
    held_out, traffic = experiment.prepared.held_out, experiment.traffic
    tested = f" and {examples.size('test')} test examples"
    if held_out is not None:
        tested = f" examples, {' and '.join(held_out.splits)} at the server"
    tree = _tree(
        f"{recipe.name}: {recipe.algorithm.name} on {recipe.task.name}, {len(examples.clients)} clients, "
        f"{examples.size('train')} training{tested}; a client gets {traffic.down:,} bytes and sends "
        f"{traffic.up:,} a round"
    )
    tree.add(Text(f"seed: {recipe.seed}"))
    for line in _sections(recipe).values():
        tree.add(line)
    for note in recipe.notes:
        tree.add(Text(note, "bold"))
    _show(tree)


def show_suite(suite) -> None:
    """Print the entries and seeds of a comparison.

    Configuration that all entries share is printed once, and the rest by entry.
    """
    tree = _tree(f"{suite.title}: {len(suite.entries)} entries, {len(suite.entries) * len(suite.seeds)} runs")
    if suite.tuning is not None:
        sweep, tried = suite.tuning, len(next(iter(suite.tuning.settings.values())))
        seeds = ", ".join(map(str, sweep.seeds))
        tree.add(
            Text(f"sweep: {tried} settings of each on seeds {seeds}, chosen by {sweep.choose_by}: {sweep.runs} runs")
        )
    tree.add(Text(f"seeds: {', '.join(map(str, suite.seeds))}"))
    by_entry = {entry.name: _sections(entry.recipe_for(suite.seeds[0])) for entry in suite.entries}
    for section in TABLES:
        lines = {name: sections.get(section) for name, sections in by_entry.items()}
        if len(set(map(str, lines.values()))) == 1:
            if (line := next(iter(lines.values()))) is not None:
                tree.add(line)
            continue
        branch = tree.add(Text(section))
        for name, line in lines.items():
            branch.add(Text.assemble(f"{name}: ", "none" if line is None else line[len(section) + 2 :]))
    _show(tree)


def _sections(recipe: Recipe) -> dict[str, Text]:
    """Return the line of each table that the recipe has, by name."""
    return {name: _line(name, value) for name in TABLES if (value := getattr(recipe, name)) is not None}


def _line(section: str, value) -> Text:
    name, options = (value.name, value.options) if isinstance(value, Choice) else ("", value)
    fields, set_to = keys(type(options)), to_table(options)
    changed = [field.name for field in fields if getattr(options, field.name) != field.default]
    parts = [Text(name)] if name else []
    parts += [Text.assemble((key, "bold"), f" = {_shortened(set_to.get(key))}") for key in changed]
    if defaults := len(fields) - len(changed):
        parts.append(Text(f"{defaults} at default", "dim"))
    return Text(f"{section}: ") + Text(", ").join(parts)


def _shortened(value) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _tree(title: str) -> Tree:
    return Tree(Text(title), guide_style="dim")


def _show(tree: Tree) -> None:
    """Print the tree.

    Lines are wrapped in a terminal, but not elsewhere, because a log is searched by line.
    """
    options = console.options if console.is_terminal else console.options.update(width=_UNWRAPPED)
    console.print(Segments(list(console.render(tree, options))), soft_wrap=True, end="")
