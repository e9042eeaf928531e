"""What someone who asked for a comparison may have meant, where no recipe or suite has the name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tff_re.errors import UserError, nearest
from tff_re.recipes.reading import read_toml, shipped, suites

_MOST_NAMED = 4


def require_recipes(names: Iterable[str]) -> None:
    """Raises UserError, which says what to type, for a name that is neither a recipe nor a file."""
    for name in names:
        if name in shipped() or Path(name).suffix == ".toml" or Path(name).exists():
            continue
        if name in suites():
            raise UserError(f"'{name}' is a suite, not a recipe; run: compare --suite {name}")
        raise UserError(
            f"there is no recipe '{name}'; {_of_algorithm(name) or nearest(name, {**shipped(), **suites()})}"
        )


def require_suite(name: str) -> None:
    """Raises UserError, which says what to type, for a name that is neither a suite nor a TOML file."""
    if name in suites() or Path(name).suffix == ".toml":
        return
    if name in shipped():
        raise UserError(f"'{name}' is a recipe, not a suite; run: compare {name} OTHER-RECIPE")
    raise UserError(f"there is no suite '{name}'; {_of_algorithm(name) or nearest(name, suites())}")


def _of_algorithm(name: str) -> str | None:
    """The suites and recipes that train an algorithm of this or a similar name, as commands.

    None if there is no such name.
    """
    of_suites = {suite: _algorithms(path) for suite, path in suites().items()}
    of_recipes = {recipe: _algorithms(path) for recipe, path in shipped().items()}
    known = set().union(*of_suites.values(), *of_recipes.values())
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    if not close:
        return None
    (algorithm,) = close
    compared = [suite for suite, names in of_suites.items() if algorithm in names]
    trained = [recipe for recipe, names in of_recipes.items() if algorithm in names]
    ways = []
    if compared:
        ways.append(f"suites compare it: compare --suite {_listed(compared)}")
    if trained:
        ways.append(f"recipes train it: train {_listed(trained)}")
    return f"'{algorithm}' is an algorithm; {'; '.join(ways)}"


def _algorithms(path: Path) -> set[str]:
    """The algorithms of a recipe's or suite's file, of its entries that name one and of the recipes that it starts
    from."""
    table = read_toml(path)
    names = {_algorithm(table), *map(_algorithm, table.get("entry", []))}
    for part in (table, *table.get("entry", [])):
        if part.get("recipe") in shipped() and "algorithm" not in part:
            names.add(_algorithm(read_toml(shipped()[part["recipe"]])))
    return names - {None}


def _algorithm(table: Mapping) -> str | None:
    return table.get("algorithm", {}).get("name")


def _listed(names: list[str]) -> str:
    first, more = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    text = f"{', '.join(first[:-1])} or {first[-1]}" if len(first) > 1 else first[0]
    return text + (f" (and {more} more)" if more > 0 else "")
